"""A cascade's second leg is bounded as any second attempt: by the retry budget and by the time."""

import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.cascading import LEAST_S, Cascade
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.retrying import RetryBudget, RetryRules
from gateway.errors import UpstreamRefused
from gateway.ports import UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from tests.gateway.dispatch.test_cascading import TIERS, World, streamed, whole
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


@pytest.mark.parametrize("first", [BAD, whole("perhaps 41")])
async def test_a_request_earns_its_share_of_retries_once(first: ScriptedReply) -> None:
    world = Bounded(reserve=2.0, share=0.5)
    world.budget._tokens = 1.0
    world.providers["a"].add(first)
    world.providers["x"].add(whole("42"))
    await world.complete()
    assert world.budget._tokens == (0.5 if first is BAD else 1.5)


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
    world.takes(10.0, whole("perhaps 41"))
    world.providers["x"].add(whole("42"))
    assert await world.complete() == "42"
    assert world.providers["x"].calls[0].deadline_s == pytest.approx(20.0)
