"""Tunnels through a forward proxy, on real sockets and both kinds of loop; and hostile proxies."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import (
    ConfigurationInvalid,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.endpoint import parse_endpoint, parse_proxy
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.egress.tunnel import ProxyFault, examine
from gateway.providers.egress.way_out import WayOut
from gateway.secrets.secret import Secret
from tests.certificates import Authority
from tests.forward_proxy import ForwardProxy
from tests.gateway.providers.samples import HOME, make_call, make_secret
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio
NAME = "models.example"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


async def nobody(host: str, port: int) -> Sequence[str]:
    """A resolver that must not be asked."""
    raise AssertionError(f"{host}:{port} was looked up here")


class Scene:
    """An upstream with TLS, a proxy before it, and an egress that leaves by that proxy."""

    def __init__(self, authority: Authority, upstream: RecordingUpstream) -> None:
        self.authority, self.upstream = authority, upstream
        self.proxy = ForwardProxy({NAME: "127.0.0.1"})
        self.egress = Egress(resolver=GuardedResolver(nobody))
        self.credential: Secret[str] | None = None
        self.connect_timeout_s = 5.0

    def route(self, base_url: str = "") -> Route:
        proxy = parse_proxy("fake", self.proxy.url, self.credential)
        endpoint = parse_endpoint(
            "fake",
            base_url or f"https://{NAME}:{self.upstream.port}",
            HOME,
            way_out=WayOut(proxy, self.authority.trusting()),
        )
        headers = {"authorization": "Bearer of-the-upstream"}
        return self.egress.route(
            endpoint, "/v1/messages", headers, connect_timeout_s=self.connect_timeout_s
        )

    async def call(self, route: Route | None = None, *, stream: bool = False) -> bytes:
        reply = await self.egress.open(route or self.route(), make_call(stream=stream))
        try:
            return b"".join([piece async for piece in reply.chunks()])
        finally:
            await reply.close()


@asynccontextmanager
async def scene_of(folder: Path, *hosts: str) -> AsyncIterator[Scene]:
    authority = Authority(folder)
    async with RecordingUpstream(tls=authority.server(*hosts)) as upstream:
        scene = Scene(authority, upstream)
        async with scene.proxy:
            yield scene
            await scene.egress.close()


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with scene_of(tmp_path, NAME, "127.0.0.1", "::1") as made:
        yield made


async def test_the_proxy_is_asked_for_the_name_and_nobody_here_looks_it_up(scene: Scene) -> None:
    assert b"Hello" in await scene.call()

    place = f"{NAME}:{scene.upstream.port}"
    assert scene.proxy.heads == [
        f"CONNECT {place} HTTP/1.1\r\nhost: {place}\r\nuser-agent: gatewright\r\n\r\n".encode()
    ]
    (request,) = scene.upstream.requests
    assert request.headers["host"] == place
    assert request.headers["authorization"] == "Bearer of-the-upstream"


async def test_streams_and_further_requests_take_the_kept_tunnel(scene: Scene) -> None:
    route = scene.route()
    streamed = await scene.call(route, stream=True)
    whole = await scene.call(route)

    assert b"event: message_stop" in streamed
    assert b"Hello" in whole
    assert scene.proxy.tunnels == 1
    assert [request.connection for request in scene.upstream.requests] == [1, 1]


async def test_a_caller_who_leaves_cuts_the_tunnel_to_the_upstream(scene: Scene) -> None:
    scene.upstream.answer(Answer(hold=asyncio.Event()))
    task = asyncio.create_task(scene.call(stream=True))
    await scene.upstream.received(1)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await scene.upstream.aborted(1)


async def test_an_address_is_asked_for_as_one(scene: Scene) -> None:
    scene.proxy.fault = "forbidden"
    with pytest.raises(UpstreamUnreachable):
        await scene.call(scene.route("https://[2001:db8::7]:8443"))

    assert scene.proxy.asked == ["[2001:db8::7]:8443"]


async def test_its_credential_is_told_to_the_proxy_and_to_nobody_else(scene: Scene) -> None:
    text = make_secret().reveal()
    proof = f"Basic {base64.b64encode(f'gateway:{text}'.encode()).decode()}"
    scene.proxy.authorization, scene.credential = proof, Secret(proof)
    route = scene.route()
    assert b"Hello" in await scene.call(route)

    assert f"\r\nproxy-authorization: {proof}\r\n".encode() in scene.proxy.heads[0]
    (request,) = scene.upstream.requests
    told = repr((request.headers, request.body, route, route.endpoint))
    assert "proxy-authorization" not in told
    assert proof not in told
    assert proof.removeprefix("Basic ") not in told


async def test_what_a_proxy_says_when_it_refuses_is_repeated_nowhere(scene: Scene) -> None:
    proof = f"Basic {secrets.token_urlsafe(24)}"
    scene.credential, scene.proxy.fault = Secret(proof), "denied"
    with pytest.raises(UpstreamUnreachable) as failed:
        await scene.call()

    told = f"{failed.value!r} {failed.value.message} {failed.value.__cause__!r}"
    assert "HTTP 407" in failed.value.message
    assert proof.removeprefix("Basic ") in scene.proxy.heads[0].decode()
    assert proof.removeprefix("Basic ") not in told
    assert "127.0.0.1" not in failed.value.message


REFUSALS = {
    "endless": "at too great length",
    "behind": "sent more than its answer",
    "close": "closed without an answer",
    "no_http": "did not answer in HTTP",
    "redirect": "refused (HTTP 302)",
    "denied": "wants other credentials (HTTP 407)",
    "forbidden": "refused (HTTP 403)",
    "open_close": "could not be connected to",
    "later": "could not be connected to",
}


@pytest.mark.parametrize("fault", REFUSALS)
async def test_a_proxy_that_gives_no_tunnel_gets_no_byte_of_a_request(
    scene: Scene, fault: str
) -> None:
    scene.proxy.fault = fault  # type: ignore[assignment]  # one of its faults
    with pytest.raises(UpstreamUnreachable) as failed:
        await scene.call()

    assert REFUSALS[fault] in failed.value.message
    assert not failed.value.has_left
    assert scene.upstream.requests == []
    assert len(scene.proxy.heads) == 1

    scene.proxy.fault = ""
    assert b"Hello" in await scene.call()


@pytest.mark.parametrize("fault", ["silent", "slow"])
async def test_a_proxy_has_no_more_time_than_a_connection(scene: Scene, fault: str) -> None:
    scene.proxy.fault = fault  # type: ignore[assignment]  # one of its faults
    scene.connect_timeout_s = 0.2
    with pytest.raises(UpstreamTimeout) as failed:
        await scene.call()

    assert not failed.value.is_connected
    assert scene.upstream.requests == []


async def test_a_proxy_that_is_not_there_is_no_reason_to_go_straight(scene: Scene) -> None:
    route = scene.route(f"https://127.0.0.1:{scene.upstream.port}")
    await scene.proxy.__aexit__(None, None, None)
    with pytest.raises(UpstreamUnreachable) as failed:
        await scene.call(route)

    assert not failed.value.has_left
    assert scene.upstream.connections == 0


async def test_behind_the_tunnel_the_upstreams_own_name_has_to_be_proved(tmp_path: Path) -> None:
    async with scene_of(tmp_path, "other.example") as scene:
        with pytest.raises(UpstreamUnreachable) as failed:
            await scene.call()

        assert NAME in str(failed.value.__cause__)
        assert scene.proxy.tunnels == 1
        assert scene.upstream.requests == []


async def test_proxies_of_the_environment_are_not_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, scene.proxy.url)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    egress = Egress(tls=scene.authority.trusting())
    endpoint = parse_endpoint("fake", scene.upstream.url, HOME)
    reply = await egress.open(egress.route(endpoint, "/v1/messages", {}), make_call())
    assert b"Hello" in await reply.read()
    await egress.close()

    assert scene.proxy.heads == []


async def test_a_proxys_name_is_looked_up_here_and_its_address_is_checked(scene: Scene) -> None:
    found: list[str] = ["127.0.0.1"]
    asked: list[str] = []

    async def look_up(host: str, _: int) -> Sequence[str]:
        asked.append(host)
        return found

    scene.egress = Egress(resolver=GuardedResolver(look_up))
    proxy = parse_proxy("fake", f"http://Proxy.Example:{scene.proxy.port}", None)
    way_out = WayOut(proxy, scene.authority.trusting())
    url = f"https://{NAME}:{scene.upstream.port}"
    endpoint = parse_endpoint("fake", url, HOME, way_out=way_out)
    route = scene.egress.route(endpoint, "/v1/messages", {})
    assert b"Hello" in await scene.call(route)

    found[:] = ["169.254.169.254"]
    with pytest.raises(UpstreamUnreachable):
        await scene.egress.tell(route, b"{}", 5.0)  # on no kept connection
    assert asked == ["proxy.example", "proxy.example"]
    await scene.egress.close()


async def test_a_proxys_name_that_nobody_answers_for_is_not_waited_for_long(scene: Scene) -> None:
    async def look_up(_: str, __: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    scene.egress = Egress(resolver=GuardedResolver(look_up))
    way_out = WayOut(parse_proxy("fake", "http://proxy.example:3128", None))
    endpoint = parse_endpoint("fake", f"https://{NAME}", HOME, way_out=way_out)
    route = scene.egress.route(endpoint, "/v1/messages", {}, connect_timeout_s=0.05)
    with pytest.raises(UpstreamTimeout) as failed:
        await scene.call(route)

    assert failed.value.message == "the proxy's name could not be looked up in time"
    await scene.egress.close()


@pytest.mark.parametrize(
    "url",
    [
        *("https://proxy.example:3128", "http://proxy.example", "proxy.example:3128"),
        *("http://user:password@proxy.example:3128", "http://proxy.example:3128/path"),
        *("http://proxy.example:0", "http://proxy.example:70000", "socks5://proxy.example:1"),
        *("http://127.1:3128", "http://proxy.example:3128?x", "http://-x.example:1", "http://:1"),
    ],
)
async def test_a_proxy_that_is_no_host_and_port_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ConfigurationInvalid) as refused:
        parse_proxy("fake", url, None)

    assert refused.value.key == "proxy"
    assert "example" not in refused.value.reason


@pytest.mark.parametrize(
    ("base_url", "proxy", "in_house", "key"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:3128", False, "base_url"),
        ("https://models.example", "http://169.254.169.254:80", False, "proxy"),
        ("https://169.254.169.254", "http://127.0.0.1:3128", False, "base_url"),
        ("https://engine.example", "http://127.0.0.1:3128", True, "base_url"),
        ("https://10.1.2.3", "http://8.8.8.8:3128", True, "proxy"),
        ("https://8.8.8.8", "http://127.0.0.1:3128", True, "base_url"),
    ],
)
async def test_what_a_proxy_makes_impossible_to_check_is_refused(
    base_url: str, proxy: str, in_house: bool, key: str
) -> None:
    way_out = WayOut(parse_proxy("fake", proxy, None))
    with pytest.raises(ConfigurationInvalid) as refused:
        parse_endpoint("fake", base_url, HOME, in_house=in_house, way_out=way_out)

    assert refused.value.key == key


async def test_an_address_in_the_house_may_lie_behind_a_proxy_there() -> None:
    way_out = WayOut(parse_proxy("fake", "http://[fc00::3]:3128", None))
    endpoint = parse_endpoint("fake", "https://10.1.2.3", HOME, in_house=True, way_out=way_out)

    assert endpoint.first_hop == ("fc00::3", 3128)


GOOD = [b"%d" % status for status in range(200, 300)]
HEADS = (
    st.binary(max_size=200),
    st.from_regex(rb"\AHTTP/1\.[01] 2[0-9]{2}( [ -~]{0,20})?\r\n(x: y\r\n)*\r\n\Z"),
    st.from_regex(rb"\AHTTP/1\.1 200( OK)?\r\n(x: y\r\n)*\r\n(\r\n)?\Z"),
    st.from_regex(rb"\AHTTP/1\.[0-2] [0-9]{3}( [ -~]{0,9})?\r?\n(x: y\r\n)*\r\n.{0,9}\Z"),
)


@given(st.one_of(*HEADS))
def test_only_a_whole_and_lone_answer_that_says_so_opens_a_tunnel(head: bytes) -> None:
    is_open = True
    try:
        examine(head)
    except ProxyFault:
        is_open = False
    first, end, behind = head.partition(b"\r\n\r\n")
    version, _, said = first.partition(b"\r\n")[0].partition(b" ")
    status, _, words = said.partition(b" ")
    is_good = version in (b"HTTP/1.0", b"HTTP/1.1") and status in GOOD and b"\n" not in words
    assert is_open == (is_good and end != b"" and behind == b"" and b"\r" not in words)
