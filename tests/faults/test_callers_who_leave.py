"""A caller who leaves stops the work at once; one who reads slowly only slows it down."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp
import msgspec
import pytest

from gateway.types import AuditRecord
from tests.faults.envelopes import PATHS, STYLES, TERMINALS, Caller, Style, ask
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer, RecordingUpstream


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
reply_bytes_max = 100_000_000
"""
ACCOUNT = "org:acme"
LIMIT_MICROUSD = 10**9
SOON_S = 5.0
"""Far beyond the 50 ms that it takes (`make faults` prints the figure): the machine is busy."""
both = pytest.mark.parametrize("style", STYLES)
targets = pytest.mark.parametrize("target", [CLAUDE_TARGET, GPT_TARGET])


@pytest.fixture(scope="module", autouse=True)
async def _limited(shared_gateway: RunningGateway) -> None:
    await shared_gateway.limit(ACCOUNT, LIMIT_MICROUSD)


def upstream_of(upstreams: Upstreams, target: str) -> RecordingUpstream:
    return upstreams.anthropic if target == CLAUDE_TARGET else upstreams.openai


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


async def outcome_after(gateway: RunningGateway, count: int) -> AuditRecord:
    """The one record that comes after so many intents and outcomes, when it is an outcome."""
    while True:
        records = await gateway.records()
        outcomes = [record for record in records[count:] if record.stage == "outcome"]
        if outcomes:
            assert len(outcomes) == 1
            return outcomes[0]
        await asyncio.sleep(0.01)


def in_flight(gateway: RunningGateway) -> float:
    return gateway.plane.metrics.registry.get_sample_value("gatewright_requests_in_flight") or 0.0


def spent(gateway: RunningGateway) -> int:
    left = gateway.budget_left((ACCOUNT,))
    assert left is not None
    return LIMIT_MICROUSD - left


class Raw:
    """A caller on a bare socket, who can stop reading or hang up at any byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, gateway: RunningGateway, receive_bytes: int = 0) -> "Raw":
        host, _, port = gateway.url.removeprefix("http://").partition(":")
        plain = socket.socket()
        plain.setblocking(False)
        if receive_bytes:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(plain, (host, int(port)))
        limit = receive_bytes or 2**16
        return cls(*await asyncio.open_connection(sock=plain, limit=limit))

    def send(self, caller: Caller, style: Style, body: bytes, *, missing_bytes: int = 0) -> None:
        headers = caller.headers(style) | {"content-length": str(len(body) + missing_bytes)}
        lines = [f"POST {PATHS[style]} HTTP/1.1", "host: gateway"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def hang_up(self) -> None:
        self.writer.transport.abort()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


@both
@targets
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", [0, 2], ids=["alone", "with-more-behind-it"])
async def test_leaving_before_the_answer_stops_the_upstream(
    caller: Caller,
    upstreams: Upstreams,
    caplog: pytest.LogCaptureFixture,
    style: Style,
    target: str,
    stream: bool,
    more: int,
) -> None:
    gateway, upstream = caller.gateway, upstream_of(upstreams, target)
    upstream.answer(Answer(hold=asyncio.Event()) if not stream else Answer(fault="hang"))
    before, spent_before = len(await gateway.records()), spent(gateway)
    raw = await Raw.connect(gateway)

    for _ in range(1 + more):
        raw.send(caller, style, msgspec.json.encode(ask(style, model=target, stream=stream)))
    await upstream.called()
    await raw.hang_up()
    async with asyncio.timeout(SOON_S):
        await upstream.aborted()

    outcome = await outcome_after(gateway, before)
    assert (outcome.status, outcome.error, outcome.http_status) == ("cancelled", "client_gone", 499)
    assert [attempt.error for attempt in outcome.attempts] == ["client_gone"]
    assert outcome.usage is not None
    assert outcome.usage.estimated
    await until(lambda: spent(gateway) == spent_before + outcome.cost_microusd)
    await until(lambda: in_flight(gateway) == 0)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@both
@targets
async def test_leaving_in_the_middle_of_a_stream_stops_the_upstream(
    caller: Caller, upstreams: Upstreams, style: Style, target: str
) -> None:
    gateway, upstream = caller.gateway, upstream_of(upstreams, target)
    upstream.answer(Answer(text="word " * 300, gap_s=0.02))
    before, spent_before = len(await gateway.records()), spent(gateway)
    raw = await Raw.connect(gateway)

    raw.send(caller, style, msgspec.json.encode(ask(style, model=target, stream=True)))
    await raw.reader.readuntil(b"word")
    await raw.hang_up()
    async with asyncio.timeout(SOON_S):
        await upstream.aborted()

    outcome = await outcome_after(gateway, before)
    assert (outcome.status, outcome.error) == ("cancelled", "client_gone")
    assert outcome.usage is not None
    assert outcome.usage.output_tokens > 0
    assert outcome.cost_microusd > 0
    await until(lambda: spent(gateway) == spent_before + outcome.cost_microusd)
    await until(lambda: in_flight(gateway) == 0)
    assert upstream.events_sent < 300


@both
async def test_leaving_in_the_middle_of_ones_own_body_is_written_down(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    gateway = caller.gateway
    before = len(await gateway.records())
    raw = await Raw.connect(gateway)

    raw.send(caller, style, b'{"model":', missing_bytes=100)
    await raw.writer.drain()
    await until(lambda: in_flight(gateway) == 1)
    await raw.hang_up()

    outcome = await outcome_after(gateway, before)
    assert (outcome.status, outcome.error) == ("refused", "client_gone")
    await until(lambda: in_flight(gateway) == 0)


async def test_callers_who_leave_at_any_moment_leave_nothing_behind(
    caller: Caller, upstreams: Upstreams
) -> None:
    gateway = caller.gateway
    for upstream in upstreams.managed:
        upstream.answer(Answer(text="word " * 30, gap_s=0.002))
    loop = gateway.loop
    before, spent_before = len(await gateway.records()), spent(gateway)
    tasks = len(asyncio.all_tasks(loop))

    async def leave_after(number: int) -> None:
        style = STYLES[number % 2]
        target = (CLAUDE_TARGET, GPT_TARGET)[number // 2 % 2]
        raw = await Raw.connect(gateway)
        raw.send(caller, style, msgspec.json.encode(ask(style, model=target, stream=True)))
        await raw.reader.read(number * 60)
        await raw.hang_up()

    await asyncio.gather(*(leave_after(number) for number in range(40)))
    await until(lambda: in_flight(gateway) == 0)

    records = (await gateway.records())[before:]
    outcomes = {record.request_id: record for record in records if record.stage == "outcome"}
    intents = [record for record in records if record.stage == "intent"]
    assert len(outcomes) == len(records) - len(intents) == 40
    assert {outcome.status for outcome in outcomes.values()} <= {"cancelled", "ok", "refused"}
    cost = sum(outcome.cost_microusd for outcome in outcomes.values())
    await until(lambda: spent(gateway) == spent_before + cost)
    await until(lambda: len(asyncio.all_tasks(loop)) <= tasks)


LARGE = "x" * 16_000
EVENTS = 1_500


def large_answer(hold: asyncio.Event | None = None) -> Answer:
    event = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
    events = (event % LARGE.encode(),) * EVENTS
    end = b'data: {"id":"x","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    return Answer(events=(*events, end, b"data: [DONE]\n\n"), hold=hold)


async def until_still(upstream: RecordingUpstream) -> int:
    """How many events the upstream got rid of before it could not go on."""
    same, last = 0, -1
    while same < 20:
        same = same + 1 if upstream.events_sent == last else 0
        last = upstream.events_sent
        await asyncio.sleep(0.01)
    return last


@both
async def test_a_slow_reader_holds_the_upstream_back_and_gets_everything(
    caller: Caller, upstreams: Upstreams, style: Style
) -> None:
    upstreams.openai.answer(large_answer())
    raw = await Raw.connect(caller.gateway, receive_bytes=262_144)
    raw.send(caller, style, msgspec.json.encode(ask(style, model=GPT_TARGET, stream=True)))
    await raw.reader.read(1)

    sent = await until_still(upstreams.openai)
    assert sent < EVENTS * 3 // 4
    text = b""
    received = 0
    while TERMINALS[style] not in text:
        piece = await raw.reader.read(2**16)
        assert piece
        received += len(piece)
        text = text[-100:] + piece
    await raw.hang_up()

    assert received > EVENTS * len(LARGE)
    outcome = (await caller.gateway.records())[-1]
    assert (outcome.stage, outcome.status) == ("outcome", "ok")


async def test_a_reader_who_never_reads_is_cut_off_at_the_deadline(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    more = "[limits]\nrequest_deadline_s = 0.5\n"
    own_upstreams.openai.answer(large_answer())
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams, more=more) as gateway:
        caller = Caller(gateway, http, await gateway.issue_key())
        body = msgspec.json.encode(ask("openai", model=GPT_TARGET, stream=True))
        raw = await Raw.connect(gateway, receive_bytes=262_144)
        raw.send(caller, "openai", body)

        outcome = await outcome_after(gateway, 0)
        await own_upstreams.openai.aborted()
        await until(lambda: in_flight(gateway) == 0)
        await raw.hang_up()

    assert outcome.status in ("cancelled", "incomplete")
    assert outcome.cost_microusd > 0


async def test_a_slow_caller_does_not_hold_up_others(
    caller: Caller, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    upstreams.openai.answer_once(large_answer())
    raw = await Raw.connect(caller.gateway, receive_bytes=262_144)
    raw.send(caller, "openai", msgspec.json.encode(ask("openai", model=GPT_TARGET, stream=True)))
    await raw.reader.read(1)

    replies = [await caller.post("openai", ask("openai", model=GPT_TARGET)) for _ in range(5)]

    assert [reply.status for reply in replies] == [200] * 5
    await raw.hang_up()
    await upstreams.openai.aborted()
    await until(lambda: in_flight(caller.gateway) == 0)
