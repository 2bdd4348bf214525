"""A cascade's second leg is bounded as any second attempt: by retry budget, time and clearance."""

import asyncio
from typing import Any

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch import cascading
from gateway.dispatch.attempts import CASCADED_CODE
from gateway.dispatch.cascading import LEAST_S, Cascade
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.retrying import RetryBudget, RetryRules
from gateway.errors import SovereigntyViolation, UpstreamRefused
from gateway.ports import UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from tests.gateway.dispatch.test_cascading import TIERS, World, request, streamed, whole
from tests.gateway.providers.samples import HOME


pytestmark = pytest.mark.anyio
BAD = ScriptedReply(status=500, pieces=(b"{}",))


class Slow(ScriptedProvider):
    """Takes a while to answer."""

    def __init__(self, name: str, clock: StoppedClock, seconds: float, *replies: ScriptedReply):
        super().__init__(name, HOME, replies=replies)
        self._clock, self._seconds = clock, seconds

    async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
        self._clock.advance(self._seconds)
        return await super().open(call)


class Bounded(World):
    """With a budget and a clock of the test's own; a plan has thirty seconds."""

    def __init__(self, reserve: float = 10.0, share: float = 0.1) -> None:
        super().__init__()
        self.clock, self.health = StoppedClock(), TargetHealth()
        self.budget = RetryBudget(RetryRules(share=share, reserve=reserve))
        self.providers = {name: ScriptedProvider(name, HOME) for name in TIERS}
        self.make()

    def make(self) -> None:
        dispatcher = Dispatcher(self.providers, DIALECTS, self.health, self.clock, self.budget)
        self.cascade = Cascade(dispatcher, self.judge, self.clock)

    def takes(self, seconds: float, *replies: ScriptedReply) -> None:
        self.providers["a"] = Slow("a", self.clock, seconds, *replies)
        self.make()


async def test_an_outage_of_the_cheap_tier_sends_no_more_to_the_dear_one_than_retries_may() -> None:
    world = Bounded()
    world.health.breakers.record = lambda *_: None  # type: ignore[method-assign]
    refused = 0
    for _ in range(300):
        world.providers["a"].add(BAD)
        world.providers["x"].add(whole("42"))
        try:
            await world.complete()
        except UpstreamRefused:
            refused += 1
    assert len(world.providers["x"].calls) <= 300 * 0.1 + 10
    assert refused == 300 - len(world.providers["x"].calls)


async def test_an_answer_that_is_doubted_is_no_retry() -> None:
    """It is what the policy asks for, and paid as such."""
    world = Bounded(reserve=0.0)
    world.providers["a"].add(whole("perhaps 41"))
    world.providers["x"].add(whole("42"))
    assert await world.complete() == "42"
    assert world.end == "escalated"


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("fails", [False, True])
async def test_a_request_earns_its_share_of_retries_once(*, fails: bool, is_stream: bool) -> None:
    world = Bounded(reserve=2.0, share=0.5)
    world.budget._tokens = 1.0
    doubted, dear = whole("perhaps 41"), whole("42")
    if is_stream:
        doubted, dear = streamed("perhaps 41"), streamed("42")
    world.providers["a"].add(BAD if fails else doubted)
    world.providers["x"].add(dear)
    assert await (world.stream() if is_stream else world.complete()) == "42"
    assert world.budget._tokens == (0.5 if fails else 1.5)
    reason, kind = ("upstream_refused", "fallback") if fails else ("doubted", "cascade")
    assert [(each.kind, each.reason) for each in world.log.extra] == [(kind, reason)]


@pytest.mark.parametrize("seconds", [30.0 - LEAST_S / 2, 31.0])
async def test_who_has_no_time_left_gets_the_cheap_answer_and_pays_for_no_other(
    seconds: float,
) -> None:
    world = Bounded()
    world.takes(seconds, whole("perhaps 41"))
    assert await world.complete() == "perhaps 41"
    assert (world.end, world.tried) == ("escalation_failed", "a")


async def test_nor_is_a_stream_that_is_doubted_too_late_asked_for_again() -> None:
    world = Bounded()
    world.takes(31.0, streamed("perhaps", " 41"))
    assert await world.stream() == "perhaps 41"
    assert (world.end, world.tried) == ("escalation_failed", "a")


async def test_who_has_no_time_left_is_told_why_the_cheap_tier_did_not_answer() -> None:
    world = Bounded()
    world.takes(31.0, BAD)
    with pytest.raises(UpstreamRefused) as refused:
        await world.complete()
    assert (refused.value.upstream_status, world.tried) == (500, "a")


async def test_the_second_leg_has_what_the_first_left_of_the_time() -> None:
    world = Bounded()
    world.clock.advance(100.0)
    world.takes(10.0, whole("perhaps 41"))
    world.providers["x"].add(whole("42"))
    assert await world.complete() == "42"
    assert world.providers["x"].calls[0].deadline_s == pytest.approx(20.0)


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("cheap_home", [HOME, "elsewhere"])
async def test_what_may_not_be_asked_ends_the_request_whichever_leg_it_is(
    cheap_home: str, *, is_stream: bool
) -> None:
    """A plan whose candidate lies outside its clearance is no failure of an upstream's."""
    world = Bounded()
    doubted = streamed("perhaps 41") if is_stream else whole("perhaps 41")
    dear_home = "elsewhere" if cheap_home == HOME else HOME
    world.providers["a"] = ScriptedProvider("a", cheap_home, replies=[doubted])
    world.providers["x"] = ScriptedProvider("x", dear_home)
    world.make()
    with pytest.raises(SovereigntyViolation):
        await (world.stream() if is_stream else world.complete())
    assert world.tried == ("ax" if cheap_home == HOME else "a")
    assert not world.providers["x"].calls


async def test_what_was_too_long_to_hold_is_not_shown_where_the_dear_tier_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cascading, "HELD_BYTES_MAX", 200)
    world = Bounded()
    world.providers["a"].add(streamed(*["surely "] * 50))
    world.providers["x"].add(BAD)
    with pytest.raises(UpstreamRefused):
        await world.stream()
    assert world.providers["a"].cancelled == 1
    assert [each.error for each in world.log.as_tuple()] == [CASCADED_CODE, "upstream_refused"]
    assert [(each.kind, each.reason) for each in world.log.extra] == [("cascade", "too_long")]


class Endless(ScriptedUpstreamReply):
    """Says what it has, and then nothing more."""

    silent: asyncio.Event

    async def __anext__(self) -> bytes:
        for piece in self._pieces:
            return piece
        self.silent.set()
        await asyncio.Event().wait()
        raise StopAsyncIteration


class Stalling(ScriptedProvider):
    """Answers with streams that stall."""

    def __init__(self, name: str, *replies: ScriptedReply) -> None:
        super().__init__(name, HOME, replies=replies)
        self.silent = asyncio.Event()

    async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
        reply: Any = await super().open(call)
        reply.__class__, reply.silent = Endless, self.silent
        assert isinstance(reply, Endless)
        return reply


async def test_whoever_leaves_while_a_cheap_stream_is_held_leaves_it_on_record_and_paid() -> None:
    world = Bounded()
    world.providers["a"] = stalling = Stalling("a", streamed("surely", " 41", ends=False))
    world.make()
    asking = asyncio.ensure_future(world.stream())
    await stalling.silent.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert stalling.cancelled == 1
    assert [each.error for each in world.log.as_tuple()] == ["client_gone"]
    (bill,) = world.log.bills()
    assert bill.usage is not None
    assert bill.usage.output_tokens > 0


@pytest.mark.parametrize(("above", "end"), [(0.9, "kept"), (0.89, "escalated")])
async def test_an_answer_is_doubted_above_what_the_policy_says(above: float, end: str) -> None:
    world = Bounded()
    world.providers["a"].add(whole("perhaps 41"))
    world.providers["x"].add(whole("42"))
    await world.complete("ax", above)
    assert world.end == end


async def test_of_a_stream_its_words_are_judged_and_whether_it_calls_tools() -> None:
    world = Bounded()
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    deltas = [{"reasoning_content": "hm"}, {"content": "surely"}, {"tool_calls": [call]}]
    events = [{"id": "c", "choices": [{"index": 0, "delta": each}]} for each in deltas]
    pieces = [b"data: " + msgspec.json.encode(each) + b"\n\n" for each in events]
    end = streamed().pieces
    world.providers["a"].add(ScriptedReply(pieces=(*pieces, *end), is_event_stream=True))
    await world.stream()
    assert world.judge.read == [("surely", True)]


async def test_a_stream_without_a_cascade_is_the_first_ones() -> None:
    world = Bounded()
    world.providers["a"].add(streamed("perhaps"))
    live = await world.cascade.open_stream(request(stream=True), world.plan("ax", None), world.log)
    assert (live.candidate.target.name, world.judge.read) == ("scripted/a", [])
    await live.close()
