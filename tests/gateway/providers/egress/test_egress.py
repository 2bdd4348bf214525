"""The egress against a real upstream on a real socket, well and badly behaved."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest

from gateway.errors import (
    GatewrightError,
    SovereigntyViolation,
    UpstreamMalformed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.providers.egress.client import Egress, Route
from gateway.providers.egress.endpoint import parse_endpoint
from gateway.providers.egress.reply import EgressLimits, parse_retry_after
from tests.gateway.providers.samples import HOME, make_call, make_secret, make_target
from tests.upstreams import Answer, Fault, RecordingUpstream


pytestmark = pytest.mark.anyio
PATIENCE_S = 0.25


@pytest.fixture
async def impatient() -> AsyncIterator[Egress]:
    limits = EgressLimits(first_byte_s=PATIENCE_S, idle_s=PATIENCE_S, reply_bytes_max=2000)
    running = Egress(limits)
    yield running
    await running.close()


def route_to(
    upstream: RecordingUpstream, egress: Egress, credential: str = "none", jurisdiction: str = HOME
) -> Route:
    endpoint = parse_endpoint("fake", upstream.url, jurisdiction)
    headers = {"authorization": f"Bearer {credential}"}
    return egress.route(endpoint, "/v1/chat/completions", headers)


async def fetch(egress: Egress, route: Route, *, stream: bool = False) -> bytes:
    reply = await egress.open(route, make_call(stream=stream))
    try:
        return b"".join([chunk async for chunk in reply.chunks()])
    finally:
        await reply.close()


async def test_a_body_arrives_whole_and_the_request_is_what_was_given(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    call = make_call()
    reply = await egress.open(route_to(upstream, egress), call)
    body = await reply.read()
    await reply.close()
    assert reply.status == 200
    assert not reply.is_event_stream
    assert b"Hello from the upstream." in body
    assert upstream.requests[0].body == call.body
    assert upstream.requests[0].path == "/v1/chat/completions"


async def test_what_an_address_asks_for_leaves_with_it(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    endpoint = parse_endpoint("fake", upstream.url, HOME)
    path = "/v1/models?limit=100&after=model_1"
    reply = await egress.ask(egress.route(endpoint, path, {}), 5.0)
    await reply.read()
    await reply.close()
    assert [call.path for call in upstream.requests] == [path]


async def test_what_is_told_fetched_and_dropped_leaves_by_its_method_on_no_kept_connection(
    upstream: RecordingUpstream, impatient: Egress
) -> None:
    """A kept one may have died unnoticed, and none of these is sent twice."""
    route = route_to(upstream, impatient)
    upstream.texts["/v1/chat/completions"] = "x" * 3000
    await fetch(impatient, route)
    for asked in (impatient.tell(route, b"{}", 5.0), impatient.drop(route, 5.0)):
        upstream.answer(Answer(body=b"{}"))
        await (await asked).read()
    long = await (await impatient.fetch(route, 5.0, 3000)).read()
    assert len(long) == 3000  # more than a reply to one caller may be
    with pytest.raises(UpstreamMalformed):
        await (await impatient.fetch(route, 5.0, 2999)).read()

    methods = [request.method for request in upstream.requests]
    assert methods == ["POST", "POST", "DELETE", "GET", "GET"]
    assert len({request.connection for request in upstream.requests}) == 5


async def test_headers_that_are_added_leave_beside_the_others_and_cannot_end_their_line(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    route = route_to(upstream, egress, "mine")
    await fetch(egress, route.with_headers({"x-signature": "s1"}))
    await fetch(egress, route)
    signed, plain = (request.headers for request in upstream.requests)
    assert signed == plain | {"x-signature": "s1"}
    with pytest.raises(ValueError, match="header"):
        route.with_headers({"x-signature": "s1\r\nhost: other"})


async def test_only_our_own_headers_leave(upstream: RecordingUpstream, egress: Egress) -> None:
    credential = make_secret().reveal()
    await fetch(egress, route_to(upstream, egress, credential))
    assert upstream.requests[0].headers == {
        "host": f"127.0.0.1:{upstream.port}",
        "accept": "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "content-length": str(len(make_call().body)),
        "user-agent": "gatewright",
        "authorization": f"Bearer {credential}",
    }


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://api.example", "api.example"),
        ("https://api.example:443/v1", "api.example"),
        ("https://api.example:8443", "api.example:8443"),
        ("http://localhost", "localhost"),
        ("http://localhost:443", "localhost:443"),
        ("http://[::1]:8090", "[::1]:8090"),
        ("https://[2a02:b562:678::b658]", "[2a02:b562:678::b658]"),
    ],
)
async def test_an_upstream_is_called_by_its_name_as_urls_write_it(
    egress: Egress, url: str, host: str
) -> None:
    route = egress.route(parse_endpoint("fake", url, HOME), "/v1/messages", {})
    assert f"\r\nhost: {host}\r\n".encode() in route.head


async def test_events_arrive_one_by_one_while_the_upstream_waits(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    hold = asyncio.Event()
    upstream.answer(Answer(hold=hold))
    reply = await egress.open(route_to(upstream, egress), make_call(stream=True))
    assert reply.is_event_stream
    chunks = reply.chunks()
    first = await anext(chunks)
    assert first.endswith(b"\n\n")
    assert upstream.events_sent == 1
    hold.set()
    rest = b"".join([chunk async for chunk in chunks])
    await reply.close()
    assert rest.endswith(b"data: [DONE]\n\n")


async def test_connections_are_reused_after_whole_bodies_and_finished_streams(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    route = route_to(upstream, egress)
    for stream in (False, True, False, True):
        await fetch(egress, route, stream=stream)
    assert [request.connection for request in upstream.requests] == [1, 1, 1, 1]
    assert upstream.client_aborts == 0


async def test_a_jurisdiction_outside_the_clearance_gets_no_connection(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    route = route_to(upstream, egress)
    for clearance in (frozenset[str](), frozenset({"elsewhere"}), frozenset({"HOME"})):
        with pytest.raises(SovereigntyViolation):
            await egress.open(route, make_call(clearance=clearance))
    assert upstream.connections == 0


async def test_a_target_that_claims_another_jurisdiction_than_its_endpoint_gets_no_connection(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    route = route_to(upstream, egress, jurisdiction="us")
    call = make_call(clearance=frozenset({HOME, "us"}), target=make_target(jurisdiction=HOME))
    with pytest.raises(SovereigntyViolation):
        await egress.open(route, call)
    assert upstream.connections == 0


async def test_closing_an_unfinished_reply_cuts_the_upstream_at_once(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.answer(Answer(hold=asyncio.Event()))
    reply = await egress.open(route_to(upstream, egress), make_call(stream=True))
    await anext(reply.chunks())
    await reply.close()
    await upstream.aborted()
    assert upstream.events_sent == 1


async def test_cancelling_the_wait_for_headers_cuts_the_upstream(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.answer(Answer(fault="hang"))
    waiting = asyncio.create_task(egress.open(route_to(upstream, egress), make_call()))
    await upstream.received()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await upstream.aborted()


async def test_cancelling_the_wait_for_a_chunk_and_closing_cuts_the_upstream(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.answer(Answer(fault="mid_hang"))
    reply = await egress.open(route_to(upstream, egress), make_call(stream=True))
    reading = asyncio.create_task(reply.read())
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await reply.close()
    await upstream.aborted()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("reset", UpstreamUnreachable),
        ("hang", UpstreamTimeout),
        ("slow_headers", UpstreamTimeout),
        ("bad_head", UpstreamMalformed),
        ("mid_reset", UpstreamUnreachable),
        ("mid_hang", UpstreamTimeout),
        ("cut", UpstreamUnreachable),
    ],
)
async def test_every_transport_fault_becomes_a_typed_error_after_one_try(
    upstream: RecordingUpstream,
    impatient: Egress,
    fault: Fault,
    error: type[GatewrightError],
    stream: bool,
) -> None:
    upstream.answer(Answer(fault=fault))
    secret = make_secret().reveal()
    with pytest.raises(error) as caught:
        await fetch(impatient, route_to(upstream, impatient, secret), stream=stream)
    assert len(upstream.requests) == 1
    assert not isinstance(caught.value, UpstreamUnreachable) or caught.value.has_left
    assert str(upstream.port) not in caught.value.message
    assert secret not in everything_a_log_would_show(caught.value)


async def test_a_refused_connection_is_unreachable_and_shows_no_address(egress: Egress) -> None:
    upstream = RecordingUpstream()
    async with upstream:
        pass
    with pytest.raises(UpstreamUnreachable) as caught:
        await fetch(egress, route_to(upstream, egress))
    assert not caught.value.has_left
    assert "127.0.0.1" not in caught.value.message
    assert str(upstream.port) not in caught.value.message
    assert str(upstream.port) in str(caught.value.__cause__), "the operator needs the address"


async def test_a_truncated_stream_ends_early_without_an_invented_terminal_event(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.answer(Answer(fault="truncated"))
    body = await fetch(egress, route_to(upstream, egress), stream=True)
    assert b"upstream." in body
    assert b"[DONE]" not in body


async def test_a_stream_that_keeps_sending_outlives_the_idle_limit(
    upstream: RecordingUpstream, impatient: Egress
) -> None:
    # Nine events, each within the limit, all together beyond it.
    upstream.answer(Answer(text="a b c d e f", gap_s=PATIENCE_S / 6))
    body = await fetch(impatient, route_to(upstream, impatient), stream=True)
    assert body.endswith(b"data: [DONE]\n\n")


async def test_the_whole_deadline_ends_a_stream_that_keeps_sending(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.answer(Answer(text="on " * 1000, gap_s=0.02))
    call = make_call(stream=True, deadline_s=PATIENCE_S)
    reply = await egress.open(route_to(upstream, egress), call)
    with pytest.raises(UpstreamTimeout):
        await reply.read()
    await upstream.aborted()


async def test_a_reply_announced_or_grown_beyond_the_limit_is_refused_and_cut(
    upstream: RecordingUpstream, impatient: Egress
) -> None:
    route = route_to(upstream, impatient)
    upstream.answer(Answer(body=b"x" * 2001))
    with pytest.raises(UpstreamMalformed):
        await (await impatient.open(route, make_call())).read()
    upstream.answer(Answer(events=tuple([b"data: xxxxxxxxxxxxx\n\n"] * 200)))
    with pytest.raises(UpstreamMalformed):
        await fetch(impatient, route, stream=True)
    upstream.answer(Answer(body=b"x" * 2000))
    assert len(await fetch(impatient, route)) == 2000


async def test_redirects_are_neither_followed_nor_passed_on(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    for status in (301, 302, 303, 304, 307, 308):
        location = (("location", f"{upstream.url}/v1/messages"),)
        upstream.answer(Answer(status=status, body=b"", headers=location))
        with pytest.raises(UpstreamMalformed):
            await fetch(egress, route_to(upstream, egress))
    assert {request.path for request in upstream.requests} == {"/v1/chat/completions"}


async def test_a_compressed_reply_is_refused_without_inflating_it(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    bomb = gzip.compress(b"\0" * 1_000_000)
    upstream.answer(Answer(body=bomb, headers=(("content-encoding", "gzip"),)))
    with pytest.raises(UpstreamMalformed):
        await fetch(egress, route_to(upstream, egress))


async def test_cookies_are_never_kept(upstream: RecordingUpstream, egress: Egress) -> None:
    upstream.answer(Answer(headers=(("set-cookie", "session=1; Path=/"),)))
    route = route_to(upstream, egress)
    await fetch(egress, route)
    await fetch(egress, route)
    assert "cookie" not in upstream.requests[1].headers


async def test_proxies_in_the_environment_are_ignored(
    upstream: RecordingUpstream, egress: Egress, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert await fetch(egress, route_to(upstream, egress))


async def test_an_error_status_arrives_with_its_body_and_its_wait(
    upstream: RecordingUpstream, egress: Egress
) -> None:
    upstream.answer(Answer(status=429, retry_after_s=2.0))
    reply = await egress.open(route_to(upstream, egress), make_call(stream=True))
    assert (reply.status, reply.retry_after_s) == (429, 2.0)
    assert b"rate_limit_error" in await reply.read()
    await reply.close()


async def test_nothing_is_sent_after_the_egress_was_closed(upstream: RecordingUpstream) -> None:
    egress = Egress()
    route = route_to(upstream, egress)
    await fetch(egress, route)
    await egress.close()
    with pytest.raises(UpstreamUnreachable):
        await fetch(egress, route)
    assert len(upstream.requests) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "99999999999"}, 86_400.0),
        ({"retry-after": "9" * 400}, 86_400.0),
        ({"retry-after-ms": "inf"}, 86_400.0),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": f"Sat, 21 Nov {'9' * 30} 10:00:30 GMT"}, None),
        ({"retry-after": f"Sat, 21 Nov 2026 10:00:30 +{'9' * 30}"}, None),
        (
            {
                "retry-after": "Sat, 21 Nov 2026 10:00:30 GMT",
                "date": "Sat, 21 Nov 2026 10:00:00 GMT",
            },
            30.0,
        ),
        (
            {
                "retry-after": "Sat, 21 Nov 2026 09:00:00 GMT",
                "date": "Sat, 21 Nov 2026 10:00:00 GMT",
            },
            0.0,
        ),
    ],
)
async def test_the_wait_is_read_in_each_of_its_forms(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert parse_retry_after(headers) == seconds


def everything_a_log_would_show(error: BaseException) -> str:
    """The texts of an exception and of all that hangs on it."""
    seen: list[str] = []
    todo: list[BaseException | None] = [error]
    while todo:
        one = todo.pop()
        if one is not None:
            seen += [repr(one), str(one)]
            todo += [one.__cause__, one.__context__]
    return "\n".join(seen)
