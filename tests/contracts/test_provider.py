"""What every `Provider` promises, scripted or over a real socket: the same observable behaviour."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest

from gateway.errors import (
    GatewrightError,
    SovereigntyViolation,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.ports import Provider, UpstreamReply
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.egress.reply import EgressLimits
from gateway.providers.registry import build_provider
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, good_reply
from gateway.types import DialectName
from tests.gateway.providers.samples import HOME, make_call, make_secret
from tests.upstreams import Answer, Fault, RecordingUpstream


pytestmark = pytest.mark.anyio

TERMINAL: dict[DialectName, bytes] = {
    "openai_chat": b"data: [DONE]\n\n",
    "anthropic_messages": b'data: {"type":"message_stop"}\n\n',
}
ERRORS: dict[Fault, type[GatewrightError]] = {
    "reset": UpstreamUnreachable,
    "hang": UpstreamTimeout,
    "mid_reset": UpstreamUnreachable,
    "mid_hang": UpstreamTimeout,
}


class Stage(Protocol):
    """A provider and the means to say what its upstream does next."""

    provider: Provider

    def misbehave(self, fault: Fault) -> None: ...

    def refuse(self, status: int, retry_after_s: float | None) -> None: ...

    def call_it(self, upstream_id: str, status: int) -> None:
        """What the upstream calls the next call, which it answers with that status."""
        ...

    @property
    def bodies(self) -> list[bytes]: ...

    async def cancelled(self) -> None:
        """Wait until the upstream knows that its answer is no longer wanted."""
        ...


class ScriptedStage:
    def __init__(self, dialect: DialectName) -> None:
        self._scripted = ScriptedProvider("scripted", HOME, dialect)
        self.provider: Provider = self._scripted

    def misbehave(self, fault: Fault) -> None:
        error = UpstreamTimeout("late") if "hang" in fault else UpstreamUnreachable("broken")
        if not fault.startswith("mid_"):
            self._scripted.add(ScriptedReply(refusal=error))
            return
        half = good_reply(self.provider.dialect, make_call(stream=True)).pieces[:1]
        self._scripted.add(ScriptedReply(pieces=half, is_event_stream=True, break_off=error))

    def refuse(self, status: int, retry_after_s: float | None) -> None:
        reply = ScriptedReply(status=status, retry_after_s=retry_after_s, pieces=(b'{"error":1}',))
        self._scripted.add(reply)

    def call_it(self, upstream_id: str, status: int) -> None:
        self._scripted.add(ScriptedReply(status=status, upstream_ids=(upstream_id,)))

    @property
    def bodies(self) -> list[bytes]:
        return [call.body for call in self._scripted.calls]

    async def cancelled(self) -> None:
        assert self._scripted.cancelled == 1


class HttpStage:
    def __init__(self, provider: Provider, egress: Egress, upstream: RecordingUpstream) -> None:
        self.provider = provider
        self._egress = egress
        self._upstream = upstream

    def misbehave(self, fault: Fault) -> None:
        """Only where nothing will come the wait is short: a busy machine may be late elsewhere."""
        if fault == "hang":
            self._egress.limits = EgressLimits(first_byte_s=0.4)
        elif fault == "mid_hang":
            self._egress.limits = EgressLimits(idle_s=0.4)
        self._upstream.answer_once(Answer(fault=fault))

    def refuse(self, status: int, retry_after_s: float | None) -> None:
        self._upstream.answer_once(Answer(status=status, retry_after_s=retry_after_s))

    def call_it(self, upstream_id: str, status: int) -> None:
        headers = (("x-request-id", upstream_id),)
        self._upstream.answer_once(Answer(status=status, headers=headers))

    @property
    def bodies(self) -> list[bytes]:
        return [request.body for request in self._upstream.requests]

    async def cancelled(self) -> None:
        await self._upstream.aborted()


@pytest.fixture(
    params=[
        "scripted",
        "scripted_anthropic",
        "anthropic",
        "bedrock",
        "openai",
        "openai_compatible",
        "engine",
    ]
)
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    kind: str = request.param
    if kind.startswith("scripted"):
        is_anthropic = kind.endswith("anthropic")
        yield ScriptedStage("anthropic_messages" if is_anthropic else "openai_chat")
        return
    egress = Egress(EgressLimits())
    async with RecordingUpstream() as upstream:
        config = ProviderConfig(
            kind,
            kind,
            HOME,
            upstream.url,
            make_secret(),
            region="eu-central-1" if kind == "bedrock" else "",
        )
        yield HttpStage(build_provider(config, egress), egress, upstream)
        await egress.close()


async def read_stream(reply: UpstreamReply) -> bytes:
    return b"".join([chunk async for chunk in reply.chunks()])


async def flow_stream(reply: UpstreamReply) -> bytes:
    """The body as it flows; every second piece is enough for a while."""
    pieces: list[bytes] = []

    def take(piece: bytes) -> bool:
        pieces.append(piece)
        return len(pieces) % 2 == 0

    chunks = reply.chunks()
    while True:
        await reply.flow(take)
        try:
            pieces.append(await anext(chunks))
        except StopAsyncIteration:
            return b"".join(pieces)


READING = pytest.mark.parametrize("read", [read_stream, flow_stream], ids=["read", "flowing"])


async def test_a_whole_answer_has_status_kind_and_body(stage: Stage) -> None:
    reply = await stage.provider.open(make_call())
    body = await reply.read()
    await reply.close()
    assert (reply.status, reply.is_event_stream, reply.retry_after_s) == (200, False, None)
    assert b'"model":"fake-model"' in body
    assert stage.bodies == [make_call().body]


@READING
async def test_a_stream_arrives_in_order_up_to_its_terminal_event(
    stage: Stage, read: Callable[[UpstreamReply], Awaitable[bytes]]
) -> None:
    reply = await stage.provider.open(make_call(stream=True))
    body = await read(reply)
    await reply.close()
    assert (reply.status, reply.is_event_stream) == (200, True)
    assert body.endswith(TERMINAL[stage.provider.dialect])


async def test_a_stream_can_be_read_at_once(stage: Stage) -> None:
    reply = await stage.provider.open(make_call(stream=True))
    body = await reply.read()
    await reply.close()
    assert body.endswith(TERMINAL[stage.provider.dialect])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_error_status_is_an_answer_not_an_exception(stage: Stage, stream: bool) -> None:
    stage.refuse(529, 3.0)
    reply = await stage.provider.open(make_call(stream=stream))
    assert (reply.status, reply.retry_after_s) == (529, 3.0)
    assert b"error" in await reply.read()
    await reply.close()


@pytest.mark.parametrize("status", [200, 404, 529])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_what_the_upstream_calls_a_call_is_known_to_its_end(
    stage: Stage, stream: bool, status: int
) -> None:
    stage.call_it("req_first", status)
    for known in [("req_first",), ()]:
        reply = await stage.provider.open(make_call(stream=stream))
        assert reply.upstream_ids == known
        await reply.read()
        await reply.close()
        assert reply.upstream_ids == known


@pytest.mark.parametrize("clearance", [frozenset[str](), frozenset({"elsewhere"})])
async def test_nothing_is_sent_outside_the_clearance(
    stage: Stage, clearance: frozenset[str]
) -> None:
    with pytest.raises(SovereigntyViolation):
        await stage.provider.open(make_call(clearance=clearance))
    assert stage.bodies == []


@pytest.mark.parametrize("fault", ["reset", "hang"])
async def test_a_failure_before_the_headers_is_raised_by_open_after_one_try(
    stage: Stage, fault: Fault
) -> None:
    stage.misbehave(fault)
    with pytest.raises(ERRORS[fault]):
        await stage.provider.open(make_call(stream=True))
    assert len(stage.bodies) == 1


@READING
@pytest.mark.parametrize("fault", ["mid_reset", "mid_hang"])
async def test_a_failure_in_the_middle_is_raised_by_reading(
    stage: Stage, fault: Fault, read: Callable[[UpstreamReply], Awaitable[bytes]]
) -> None:
    stage.misbehave(fault)
    reply = await stage.provider.open(make_call(stream=True))
    with pytest.raises(ERRORS[fault]):
        await read(reply)
    await reply.close()
    assert len(stage.bodies) == 1


async def test_closing_early_cancels_the_upstream_and_closing_twice_is_harmless(
    stage: Stage,
) -> None:
    stage.misbehave("mid_hang")
    reply = await stage.provider.open(make_call(stream=True))
    await anext(reply.chunks())
    await reply.close()
    await reply.close()
    await stage.cancelled()


async def test_after_a_failure_the_next_call_works(stage: Stage) -> None:
    stage.misbehave("reset")
    with pytest.raises(UpstreamUnreachable):
        await stage.provider.open(make_call())
    reply = await stage.provider.open(make_call())
    assert await reply.read()
    await reply.close()


async def test_a_healthy_upstream_passes_its_probe(stage: Stage) -> None:
    assert stage.provider.unavailable_reason == ""
    assert await stage.provider.probe() == ""


async def test_it_says_who_it_is_and_closes(stage: Stage) -> None:
    assert stage.provider.name
    assert stage.provider.jurisdiction == HOME
    assert stage.provider.dialect in TERMINAL
    await stage.provider.close()
