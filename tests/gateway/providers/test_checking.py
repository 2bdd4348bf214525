"""The four steps of a connection test on real sockets: every way to fail, and all that is sent."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from gateway.clock import DAY_US, HOUR_US, SystemClock
from gateway.dialects.registry import DIALECTS
from gateway.oversight.checkup import Checkup
from gateway.providers.checking import Checker, question
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.egress.endpoint import parse_proxy
from gateway.providers.egress.reply import EgressLimits
from gateway.providers.egress.resolver import GuardedResolver
from gateway.providers.egress.way_out import WayOut
from gateway.providers.registry import build_provider
from gateway.secrets.validity import Term, day
from gateway.types import Target
from tests.certificates import Authority
from tests.forward_proxy import ForwardProxy
from tests.gateway.providers.egress.test_tls import certificate
from tests.gateway.providers.samples import HOME, PRICE, make_secret, make_target
from tests.upstreams import Answer, RecordingUpstream


__all__ = ["certificate"]
pytestmark = pytest.mark.anyio
TARGET = structs.replace(make_target("fast"), provider="fake")


async def result_of(
    base_url: str,
    *,
    kind: str = "openai",
    target: Target | None = TARGET,
    egress: Egress | None = None,
    has_credential: bool = True,
    way_out: WayOut | None = None,
) -> tuple[Checkup, list[int]]:
    """The test's result, and after which steps it was told of."""
    opened = egress or Egress(EgressLimits(first_byte_s=0.5, idle_s=0.5))
    secret = make_secret() if has_credential else None
    config = ProviderConfig(
        "fake",
        kind,
        HOME,
        base_url,
        secret,
        allow_plain_http=True,
        connect_timeout_s=1.0,
        way_out=way_out,
    )
    told: list[int] = []

    async def tell(found: Checkup) -> None:
        told.append(len(found.steps))

    try:
        provider = build_provider(config, opened)
        tester = Checker(provider, target, DIALECTS, SystemClock())
        return await tester.run(tell), told
    finally:
        await opened.close()


def codes(found: Checkup) -> list[tuple[str, str]]:
    return [(step.verdict, step.code) for step in found.steps]


SKIPPED = ("skipped", "not_tried")


@asynccontextmanager
async def closed_port() -> AsyncIterator[str]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and nobody listens
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


async def test_a_good_connection_passes_all_steps_and_one_token_is_paid() -> None:
    async with RecordingUpstream() as upstream:
        upstream.answer(Answer(text="H", input_tokens=8, output_tokens=1))
        found, told = await result_of(upstream.url)

        assert codes(found) == [("good", code) for code in ("address", "plain", "ok", "ok")]
        assert told == [1, 2, 3, 4]
        assert found.verdict == "good"
        assert (found.input_tokens, found.output_tokens) == (8, 1)
        expected = 8 * PRICE.input_microusd_per_mtok + PRICE.output_microusd_per_mtok
        assert found.cost_microusd == expected // 1_000_000
        (listing, call) = upstream.requests
        assert (listing.method, listing.path) == ("GET", "/v1/models")
        assert call.json["model"] == TARGET.model
        assert call.json["messages"] == [{"role": "user", "content": "Hi"}]
        assert 1 in (call.json.get("max_tokens"), call.json.get("max_completion_tokens"))
        assert "stream" not in call.json
        assert "authorization" in call.headers
        assert all(step.took_us > 0 for step in found.steps)


@pytest.mark.parametrize("kind", ["anthropic", "openai_compatible", "engine"])
async def test_every_kind_is_asked_in_its_own_dialect(kind: str) -> None:
    async with RecordingUpstream() as upstream:
        found, _ = await result_of(upstream.url, kind=kind, has_credential=kind == "anthropic")

        assert found.verdict == "good"
        assert found.steps[2].code == ("ok" if kind == "anthropic" else "none_needed")
        wanted = "/v1/messages" if kind == "anthropic" else "/v1/chat/completions"
        assert upstream.calls[0].path == wanted


async def test_a_model_of_vectors_is_asked_for_one() -> None:
    target = structs.replace(TARGET, capabilities=frozenset({"embeddings"}))
    assert b'"input":"Hi"' in question(target)
    body = (
        b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,'
        b'"embedding":[0.5]}],"usage":{"prompt_tokens":1,"total_tokens":1}}'
    )
    async with RecordingUpstream() as upstream:
        upstream.answer(Answer(body=body))
        found, _ = await result_of(upstream.url, target=target)

        assert codes(found)[-1] == ("good", "ok")
        assert upstream.calls[0].path == "/v1/embeddings"


def resolving(answer: Sequence[str] | OSError) -> GuardedResolver:
    async def look_up(host: str, port: int) -> Sequence[str]:
        del host, port
        if isinstance(answer, OSError):
            raise answer
        return answer

    return GuardedResolver(look_up)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (socket.gaierror(socket.EAI_NONAME, "no"), "not_found"),
        (socket.gaierror(socket.EAI_AGAIN, "no"), "resolver_failed"),
        (["169.254.169.254"], "out_of_reach"),
    ],
)
async def test_a_name_that_does_not_resolve_stops_the_test_before_anything_is_opened(
    answer: Sequence[str] | OSError, code: str
) -> None:
    egress = Egress(resolver=resolving(answer))
    found, told = await result_of("https://models.example", egress=egress)

    assert codes(found) == [("bad", code), SKIPPED, SKIPPED, SKIPPED]
    assert found.steps[0].detail == "models.example"
    assert told == []


async def test_the_system_says_that_a_name_of_the_reserved_top_level_is_not_there() -> None:
    found, _ = await result_of("https://nothing.invalid", egress=Egress(resolver=GuardedResolver()))

    assert found.steps[0].code in ("not_found", "resolver_failed")


async def test_a_port_nobody_listens_on_is_refused() -> None:
    async with closed_port() as url:
        found, told = await result_of(url)

    assert codes(found) == [("good", "address"), ("bad", "refused"), SKIPPED, SKIPPED]
    assert found.steps[1].detail in url
    assert told == [1]


async def test_a_certificate_that_nobody_vouches_for_stops_the_test_and_sends_nothing(
    certificate: Path,
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with RecordingUpstream(tls=context) as upstream:
        found, _ = await result_of(upstream.url)
        assert codes(found)[1:] == [("bad", "certificate"), SKIPPED, SKIPPED]
        assert "certificate" in found.steps[1].detail

        trusting = ssl.create_default_context(cafile=certificate)
        named = Egress(resolver=resolving(["127.0.0.1"]), tls=trusting)
        wrong, _ = await result_of(f"https://other.example:{upstream.port}", egress=named)
        assert codes(wrong)[:2] == [("good", "ok"), ("bad", "certificate")]
        assert "other.example" in wrong.steps[1].detail

        good, _ = await result_of(upstream.url, egress=Egress(tls=trusting))
        assert codes(good)[1] == ("good", "ok")
        assert len(upstream.requests) == 2


async def test_a_server_without_tls_where_tls_is_configured_is_told_apart() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        found, _ = await result_of(f"https://127.0.0.1:{port}")

    assert codes(found)[1:] == [("bad", "not_tls"), SKIPPED, SKIPPED]


async def test_a_server_that_accepts_and_says_nothing_is_not_waited_for_long() -> None:
    async with RecordingUpstream() as upstream:  # it waits for a whole request in plain text
        found, _ = await result_of(upstream.url.replace("http:", "https:"))

        assert codes(found)[1] == ("bad", "timeout")
        assert upstream.requests == []


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        (401, ("bad", "denied")),
        (403, ("bad", "denied")),
        (429, ("unsure", "quota")),
        (404, ("unsure", "unlisted")),
        (503, ("unsure", "failing")),
    ],
)
async def test_what_the_list_of_models_answers_says_what_the_credential_is_worth(
    status: int, ending: tuple[str, str]
) -> None:
    async with RecordingUpstream() as upstream:
        upstream.models_status = status
        found, _ = await result_of(upstream.url)

        assert codes(found)[2] == ending
        assert found.steps[2].detail == f"HTTP {status}"
        is_called = ending[0] != "bad"
        assert len(upstream.calls) == is_called
        assert found.verdict == ("unsure" if is_called else "bad")


async def test_without_a_credential_that_is_needed_nothing_is_sent() -> None:
    async with RecordingUpstream() as upstream:
        found, _ = await result_of(upstream.url, has_credential=False)

        assert codes(found)[2:] == [("bad", "missing"), SKIPPED]
        assert upstream.requests == []


async def test_without_a_target_the_test_ends_after_the_credential() -> None:
    async with RecordingUpstream() as upstream:
        found, _ = await result_of(upstream.url, target=None)

        assert codes(found)[3] == ("skipped", "no_target")
        assert found.verdict == "good"
        assert upstream.calls == []


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (Answer(status=401), "denied"),
        (Answer(status=404), "model_unknown"),
        (Answer(status=429), "quota"),
        (
            Answer(status=400, body=b'{"error":{"message":"Your credit balance is too low."}}'),
            "quota",
        ),
        (Answer(status=529), "failing"),
        (Answer(status=400), "rejected"),
        (Answer(fault="hang"), "timeout"),
        (Answer(fault="slow_headers"), "timeout"),
        (Answer(fault="silent"), "timeout"),
        (Answer(fault="reset"), "broken"),
        (Answer(fault="mid_reset"), "broken"),
        (Answer(fault="bad_head"), "malformed"),
        (Answer(fault="bad_json"), "malformed"),
    ],
)
async def test_a_call_that_fails_says_why_and_costs_nothing_that_is_known(
    answer: Answer, code: str
) -> None:
    async with RecordingUpstream() as upstream:
        upstream.answer(answer)
        found, told = await result_of(upstream.url)

        assert codes(found)[3] == ("bad", code)
        assert told == [1, 2, 3]
        assert found.cost_microusd == 0
        assert len(upstream.calls) == 1


async def test_a_target_of_another_jurisdiction_is_not_called() -> None:
    target = structs.replace(TARGET, jurisdiction="elsewhere")
    async with RecordingUpstream() as upstream:
        found, _ = await result_of(upstream.url, target=target)

        assert codes(found)[3] == ("bad", "closed")
        assert upstream.calls == []


async def test_a_provider_without_a_network_is_only_called() -> None:
    target = make_target("scripted/one")
    found, told = await result_of("", kind="scripted", target=target, has_credential=False)

    assert codes(found) == [*([("skipped", "inside")] * 3), ("good", "ok")]
    assert told == [4]


def through(proxy: ForwardProxy, authority: Authority) -> WayOut:
    return WayOut(parse_proxy("fake", proxy.url, None), authority.trusting())


async def test_behind_a_proxy_the_steps_are_the_proxys_name_and_what_its_tunnel_leads_to(
    tmp_path: Path,
) -> None:
    house = Authority(tmp_path)
    names = {"models.example": "127.0.0.1", "other.example": "127.0.0.1"}
    async with (
        RecordingUpstream(tls=house.server("models.example")) as upstream,
        ForwardProxy(names) as proxy,
    ):
        place, where = f"models.example:{upstream.port}", proxy.url.removeprefix("http://")
        found, _ = await result_of(f"https://{place}", way_out=through(proxy, house))
        assert codes(found) == [("good", code) for code in ("by_proxy", "tunnelled", "ok", "ok")]
        assert [step.detail for step in found.steps[:2]] == ["127.0.0.1", f"proxy {where}"]
        assert set(proxy.asked) == {place}

        other = f"https://other.example:{upstream.port}"
        wrong, _ = await result_of(other, way_out=through(proxy, house))
        assert codes(wrong)[:2] == [("good", "by_proxy"), ("bad", "certificate")]
        assert "other.example" in wrong.steps[1].detail

        unknown, _ = await result_of(
            f"https://{place}", way_out=through(proxy, Authority(tmp_path, "x"))
        )
        assert codes(unknown)[1] == ("bad", "certificate")


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("denied", "proxy_denied"),
        ("forbidden", "proxy_refused"),
        ("redirect", "proxy_refused"),
        ("no_http", "proxy_broken"),
        ("close", "proxy_broken"),
        ("silent", "timeout"),
    ],
)
async def test_what_a_proxy_does_is_told_apart_from_what_the_upstream_does(
    fault: str, code: str, tmp_path: Path
) -> None:
    async with ForwardProxy() as proxy:
        proxy.fault = fault  # type: ignore[assignment]  # one of its faults
        way_out = through(proxy, Authority(tmp_path))
        found, _ = await result_of("https://models.example", way_out=way_out)

    assert codes(found) == [("good", "by_proxy"), ("bad", code), SKIPPED, SKIPPED]
    assert found.steps[1].detail.startswith(f"proxy 127.0.0.1:{proxy.port}")


async def test_a_proxy_whose_name_leads_nowhere_or_out_of_bounds_stops_the_test(
    tmp_path: Path,
) -> None:
    way_out = WayOut(parse_proxy("fake", "http://proxy.example:3128", None))
    for answer, code in (
        (socket.gaierror(socket.EAI_NONAME, "no"), "not_found"),
        (["169.254.169.254"], "out_of_reach"),
    ):
        egress = Egress(resolver=resolving(answer))
        found, _ = await result_of("https://models.example", egress=egress, way_out=way_out)
        assert codes(found)[0] == ("bad", code)
        assert found.steps[0].detail == "proxy.example"


async def test_a_server_that_wants_our_certificate_is_not_taken_for_one_without_tls(
    tmp_path: Path,
) -> None:
    house = Authority(tmp_path)
    tls = house.server("127.0.0.1", wants_from=house)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2
    async with RecordingUpstream(tls=tls) as upstream:
        found, _ = await result_of(upstream.url, way_out=WayOut(tls=house.trusting()))
        assert codes(found)[1] == ("bad", "broken")

        shown = WayOut(tls=house.trusting(house.issue()))
        good, _ = await result_of(upstream.url, way_out=shown)
        assert good.verdict == "good"


async def test_what_ends_soon_is_said_while_it_still_works(tmp_path: Path) -> None:
    house = Authority(tmp_path)
    now_us = SystemClock().utc_us()
    later = (Term(now_us - DAY_US, now_us + DAY_US),)
    soon = (Term(now_us - 9 * HOUR_US, now_us + HOUR_US),)
    tls = house.trusting(house.issue())
    async with RecordingUpstream(tls=house.server("127.0.0.1")) as upstream:
        good = {"ca_file": later, "client_certificate": later}
        for terms, expected in (
            (good, ("good", "ok")),
            ({"ca_file": later, "client_certificate": soon}, ("unsure", "ends_soon")),
        ):
            found, _ = await result_of(upstream.url, way_out=WayOut(tls=tls, terms=terms))
            assert codes(found)[1] == expected
            assert codes(found)[2:] == [("good", "ok")] * 2
            detail = found.steps[1].detail
            assert (detail == f"client_certificate: {day(soon[0].ends_us)}") == (terms is not good)
