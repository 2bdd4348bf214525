"""Retries, hedges and shedding: one budget, never outside the plan, lower tiers first."""

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from gateway.clock import StoppedClock
from gateway.dialects.registry import DIALECTS
from gateway.dispatch.attempts import AttemptLog
from gateway.dispatch.breaker import BreakerRules, Breakers
from gateway.dispatch.dispatcher import Dispatcher
from gateway.dispatch.health import RoomRules, TargetHealth
from gateway.dispatch.hedging import race
from gateway.dispatch.retrying import RetryBudget, RetryRules, backoff_s
from gateway.errors import (
    NoTargetAvailable,
    UpstreamMalformed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.ports import UpstreamCall
from gateway.providers.scripted import ScriptedProvider, ScriptedReply, ScriptedUpstreamReply
from gateway.tally import read_tokens
from gateway.types import Candidate, Plan
from tests.gateway.dispatch.test_dispatcher import (
    BAD,
    DONE,
    ERROR,
    GONE,
    JUNK,
    STOP,
    WORD,
    request,
    streamed,
)
from tests.gateway.providers.samples import HOME, make_target
from tests.gateway.test_estimate import COUNTED


pytestmark = pytest.mark.anyio


class Held(ScriptedProvider):
    """Answers only when it is told to."""

    def __init__(self, name: str, *, has_left: bool = True) -> None:
        super().__init__(name, HOME)
        self.asked = asyncio.Event()
        self.go = asyncio.Event()
        self.has_left = has_left
        self.was_cancelled = False

    async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
        if self.has_left:
            call.leaves()
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        return await super().open(call)


class World:
    """Providers a, b, c and a dispatcher with rules of the test's choice."""

    def __init__(
        self, *, share: float = 0.1, reserve: float = 10.0, room: RoomRules | None = None
    ) -> None:
        self.clock = StoppedClock()
        self.health = TargetHealth(Breakers(BreakerRules(failures_in_a_row=5)), room=room)
        self.providers: dict[str, ScriptedProvider] = {
            name: ScriptedProvider(name, HOME) for name in "abc"
        }
        self.budget = RetryBudget(RetryRules(share=share, reserve=reserve, backoff_s=0.0))
        self.log = AttemptLog()

    def plan(self, names: Sequence[str], **more: object) -> Plan:
        candidates = tuple(
            Candidate(
                msgspec.structs.replace(make_target(f"scripted/{name}"), provider=name), 10, 100
            )
            for name in names
        )
        plan = Plan(candidates, frozenset({HOME}), 30.0, "digest", "Because.", "none")
        return msgspec.structs.replace(plan, **more)

    @property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.providers, DIALECTS, self.health, self.clock, self.budget)

    async def ask(self, names: str = "ab", **more: object) -> str:
        self.log = AttemptLog()
        answered = await self.dispatcher.complete(request(), self.plan(names, **more), self.log)
        return answered.candidate.target.name[-1]

    @property
    def owed(self) -> dict[str, str]:
        """What each target is owed for its last attempt."""
        return {
            bill.target.name[-1]: "nothing"
            if bill.usage is None
            else ("estimated" if bill.is_estimated else "counted")
            for bill in self.log.bills()
        }

    @property
    def errors(self) -> list[str]:
        return [each.error for each in self.log.as_tuple()]


async def test_an_outage_is_answered_with_a_tenth_more_calls_and_no_more() -> None:
    world = World()
    world.health = TargetHealth(Breakers(BreakerRules(failures_in_a_row=10**9)))
    calls = refused = 0
    for _ in range(500):
        world.providers["a"].add(BAD)
        try:
            await world.ask()
        except UpstreamRefused:
            refused += 1
        calls += len(world.log.as_tuple())
    assert refused > 300
    assert 1.1 * 500 <= calls <= 1.1 * 500 + world.budget.rules.reserve


UNPAID = ScriptedReply(status=429, pieces=(b'{"error":{"code":"insufficient_quota"}}',))


async def test_who_wants_to_be_paid_is_passed_over_and_keeps_its_room() -> None:
    world = World(room=RoomRules(start=10.0))
    world.providers["a"].add(UNPAID)
    answers = [await world.ask(), await world.ask()]
    assert answers == ["b", "b"]
    assert len(world.providers["a"].calls) == 1
    for _ in range(9):
        world.health.began("scripted/a")
    assert world.health.has_room("scripted/a", "priority")


async def test_a_caller_is_sent_away_for_good_only_where_nobody_will_answer_later() -> None:
    for first, second, told in (
        (ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=9.0), UNPAID, "upstream_refused"),
        (UNPAID, ScriptedReply(status=429, pieces=(b"{}",)), "upstream_refused"),
        (UNPAID, UNPAID, "upstream_unpaid"),
    ):
        world = World()
        world.providers["a"].add(first)
        world.providers["b"].add(second)
        with pytest.raises(UpstreamRefused) as refused:
            await world.ask()
        assert refused.value.code == told
        assert len(world.log.as_tuple()) == 2


async def test_with_breakers_the_same_outage_hardly_costs_anything() -> None:
    world = World()
    answers = []
    for _ in range(500):
        world.providers["a"].add(BAD)
        answers.append(await world.ask())
    assert answers == ["b"] * 500
    assert len(world.providers["b"].calls) == 500
    assert len(world.providers["a"].calls) <= 6


def test_in_quiet_times_time_earns_attempts_too() -> None:
    budget = RetryBudget(RetryRules(share=0.0, per_s=2.0, reserve=3.0))
    budget.earn(0.0)
    assert [budget.spend() for _ in range(4)] == [True, True, True, False]
    budget.earn(1.0)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn(0.5)
    assert not budget.spend()


async def test_full_jitter_never_comes_before_the_upstreams_own_time() -> None:
    rules = RetryRules(backoff_s=0.1, backoff_s_max=1.0)
    assert backoff_s(0, None, rules, lambda: 1.0) == 0.1
    assert backoff_s(2, None, rules, lambda: 0.5) == 0.2
    assert backoff_s(500, None, rules, lambda: 1.0) == 1.0
    assert backoff_s(0, 0.7, rules, lambda: 1.0) == 0.7
    assert 0.0 <= backoff_s(3, None, rules) <= 0.8


async def test_a_short_retry_after_is_waited_for_and_a_long_one_told() -> None:
    world = World()
    world.providers["a"].add(ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=0.01))
    assert await world.ask("a") == "a"
    assert world.errors == ["upstream_refused", ""]

    world.providers["a"].add(ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=7.0))
    with pytest.raises(UpstreamRefused) as refused:
        await world.ask("a")
    assert (refused.value.retry_after_s, world.errors) == (7.0, ["upstream_refused"])

    world = World(reserve=0.0)
    world.providers["a"].add(ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=0.01))
    with pytest.raises(UpstreamRefused):
        await world.ask("a")


class Unhurried(World):
    """Does not wait, but writes down how long it would have."""

    def __init__(self, **rules: float) -> None:
        super().__init__()
        self.budget = RetryBudget(RetryRules(**rules))
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    @property
    def dispatcher(self) -> Dispatcher:
        made = super().dispatcher
        made._ground = msgspec.structs.replace(made._ground, sleep=self.sleep)
        return made


async def test_before_another_pass_it_waits_as_long_as_it_was_told_to() -> None:
    world = Unhurried(backoff_s=0.0)
    world.providers["a"].add(ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=0.8))
    assert await world.ask("a") == "a"
    assert world.slept == [0.8]


async def test_before_a_broken_connection_is_tried_again_it_waits_for_a_lot_that_was_drawn() -> (
    None
):
    world = Unhurried(backoff_s=60.0, backoff_s_max=60.0)
    for _ in range(8):
        world.providers["a"].add(GONE)
        assert await world.ask("a") == "a"
    assert len(world.slept) == 8
    assert len(set(world.slept)) > 1
    assert all(0.0 <= each <= 60.0 for each in world.slept)


@pytest.mark.parametrize("retry_after_s", [None, 1.5, 40.0])
async def test_where_nobody_says_when_or_it_takes_too_long_the_refusal_is_told_at_once(
    retry_after_s: float | None,
) -> None:
    world = Unhurried(wait_s_max=1.0)
    many = ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=retry_after_s)
    world.providers["a"].add(many)
    with pytest.raises(UpstreamRefused) as refused:
        await world.ask("a")
    assert (refused.value.upstream_status, refused.value.retry_after_s) == (429, retry_after_s)
    assert world.slept == []


async def test_nobody_waits_past_his_own_deadline() -> None:
    world = Unhurried(wait_s_max=60.0)
    world.providers["a"].add(ScriptedReply(status=429, pieces=(b"{}",), retry_after_s=30.0))
    with pytest.raises(UpstreamRefused):
        await world.ask("a", deadline_s=30.0)
    assert world.slept == []


async def test_a_connection_that_broke_at_the_deadline_is_not_tried_again() -> None:
    class Late(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            world.clock.advance(call.deadline_s)
            return await super().open(call)

    world = World()
    world.providers["a"] = late = Late("a", HOME, replies=[GONE])
    with pytest.raises(NoTargetAvailable):
        await world.ask("a")
    assert len(late.calls) == 1


async def test_the_upstreams_own_limits_are_told_with_its_refusal() -> None:
    class Telling(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            reply = await super().open(call)
            reply.rate_limits = {"x-ratelimit-remaining-requests": "0"}
            return reply

    world = World()
    world.providers["a"] = Telling("a", HOME, replies=[ScriptedReply(status=400, pieces=(b"{}",))])
    with pytest.raises(UpstreamRefused) as refused:
        await world.ask("ab")
    assert refused.value.rate_limits == {"x-ratelimit-remaining-requests": "0"}


async def test_a_stream_that_fails_before_its_content_is_given_back_to_its_provider() -> None:
    world = World()
    world.providers["a"].add(streamed(ERROR, WORD, DONE))
    live = await world.dispatcher.open_stream(request(stream=True), world.plan("ab"), world.log)
    await live.close()
    assert live.candidate.target.name == "scripted/b"
    assert world.providers["a"].cancelled == 1


async def test_a_late_first_is_hedged_and_the_loser_is_cancelled_and_paid() -> None:
    world = World()
    slow = world.providers["a"] = Held("a")
    assert await world.ask(hedge_after_s=0.01) == "b"
    assert slow.was_cancelled
    assert sorted(world.errors) == ["", "hedged_away"]
    assert world.owed == {"a": "estimated", "b": "counted"}
    assert world.health.position("scripted/a", 0.0) == "closed"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
async def test_what_nobody_counted_is_owed_as_its_own_vendor_would_count_it(
    vendor: str, *, stream: bool
) -> None:
    world, (hindi, *_) = World(), COUNTED["Hindi"]
    turns = [{"role": "user", "content": hindi}]
    body = {"model": "auto", "messages": turns, "stream": stream}
    asked = DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")
    (candidate,) = world.plan("a").candidates
    target = msgspec.structs.replace(candidate.target, vendor=vendor)
    plan = world.plan(
        "", candidates=(msgspec.structs.replace(candidate, target=target, body=b"{}"),)
    )
    world.providers["a"].add(streamed(WORD) if stream else JUNK)

    if stream:
        live = await world.dispatcher.open_stream(asked, plan, world.log)
        await live.close()
    else:
        with pytest.raises(UpstreamMalformed):
            await world.dispatcher.complete(asked, plan, world.log)

    (bill,) = world.log.bills()
    assert bill.usage is not None
    assert bill.usage.estimated
    owed = bill.usage.input_tokens
    assert owed == read_tokens(asked, vendor)
    assert (owed < asked.input_tokens_estimate) == (vendor == "openai")


async def test_a_loser_that_never_left_is_not_paid() -> None:
    world = World()
    world.providers["a"] = Held("a", has_left=False)
    assert await world.ask(hedge_after_s=0.01) == "b"
    assert world.owed == {"a": "nothing", "b": "counted"}


async def test_nor_is_one_that_was_refused_while_the_other_answered() -> None:
    world = World()
    slow = world.providers["a"] = Held("a")

    class Refused(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            slow.go.set()
            return await super().open(call)

    world.providers["b"] = Refused("b", HOME, replies=[BAD])
    assert await world.ask(hedge_after_s=0.01) == "a"
    assert world.owed == {"a": "counted", "b": "nothing"}


async def test_a_prompt_first_is_not_hedged_and_a_failed_one_falls_back_at_once() -> None:
    world = World()
    assert await world.ask(hedge_after_s=30.0) == "a"
    assert world.owed == {"a": "counted"}
    world.providers["a"].add(BAD)
    assert await world.ask("abc", hedge_after_s=30.0) == "b"
    assert world.errors == ["upstream_refused", ""]


async def test_a_first_that_was_tried_twice_before_any_hedge_falls_back_to_the_second() -> None:
    """Nobody had asked the second: it is not passed over, as one is that lost a race."""
    world = World()
    world.providers["a"].add(GONE, GONE)
    assert await world.ask("ab", hedge_after_s=30.0) == "b"
    assert world.errors == ["upstream_unreachable", "upstream_unreachable", ""]


async def test_whoever_leaves_while_the_loser_ends_leaves_no_answer_open() -> None:
    """The winner's answer is a connection that somebody must give back."""
    may_end, is_ending = asyncio.Event(), asyncio.Event()
    given_up: list[str] = []

    async def prompt() -> str:
        await is_asked.wait()
        return "prompt"

    async def slow() -> str:
        is_asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_ending.set()
            await may_end.wait()
            raise
        return "slow"

    async def give_up(answer: str) -> None:
        given_up.append(answer)
        await asyncio.sleep(0)

    is_asked = asyncio.Event()
    racing = asyncio.ensure_future(race(prompt, slow, 0.001, lambda: True, give_up))
    await is_ending.wait()
    racing.cancel()
    await asyncio.sleep(0)
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await racing
    assert given_up == ["prompt"]


async def test_without_budget_there_is_no_hedge() -> None:
    world = World(share=0.0, reserve=0.0)
    slow = world.providers["a"] = Held("a")
    asking = asyncio.ensure_future(world.ask(hedge_after_s=0.01))
    await asyncio.sleep(0.05)
    assert not world.providers["b"].calls
    slow.go.set()
    assert await asking == "a"


@pytest.mark.parametrize(("has_left", "owed"), [(False, "nothing"), (True, "estimated")])
async def test_what_one_member_passed_on_and_the_next_never_got_is_owed_to_nobody(
    owed: str, *, has_left: bool
) -> None:
    class Pool(ScriptedProvider):
        async def open(self, call: UpstreamCall) -> ScriptedUpstreamReply:
            call.leaves()  # To a member that was full.
            refused = UpstreamUnreachable("the next one is down, or was while it read")
            refused.has_left = has_left
            raise refused

    world = World()
    world.providers["a"] = Pool("a", HOME)
    with pytest.raises(NoTargetAvailable):
        await world.ask("a")
    assert world.owed == {"a": owed}


async def test_both_hedged_may_fail_and_the_third_answers() -> None:
    world = World()
    slow = world.providers["a"] = Held("a")
    slow.add(BAD)
    world.providers["b"].add(BAD)
    asking = asyncio.ensure_future(world.ask("abc", hedge_after_s=0.01))
    await asyncio.sleep(0.05)
    slow.go.set()
    assert await asking == "c"
    assert world.errors == ["upstream_refused", "upstream_refused", ""]


async def test_a_hedged_stream_that_came_too_late_is_closed() -> None:
    world = World()
    first, second = Held("a"), Held("b")
    world.providers |= {"a": first, "b": second}
    for provider in (first, second):
        provider.add(streamed(WORD, STOP, DONE))
    plan = world.plan("ab", hedge_after_s=0.01)
    opening = asyncio.ensure_future(
        world.dispatcher.open_stream(request(stream=True), plan, world.log)
    )
    await first.asked.wait()
    await second.asked.wait()
    first.go.set()
    second.go.set()
    live = await opening
    while await live.next_batch():
        pass
    await live.close()
    assert sorted(world.errors) == ["", "hedged_away"]
    for name in "ab":
        assert world.health.has_room(f"scripted/{name}", "batch")


async def test_a_caller_who_leaves_takes_both_attempts_with_him() -> None:
    world = World()
    first, second = Held("a"), Held("b")
    world.providers |= {"a": first, "b": second}
    asking = asyncio.ensure_future(world.ask(hedge_after_s=0.01))
    await first.asked.wait()
    await second.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert first.was_cancelled
    assert second.was_cancelled
    assert world.errors == ["client_gone", "client_gone"], "nobody was faster than anybody"


async def test_an_answer_that_ignores_its_cancellation_is_given_up() -> None:
    given_up: list[str] = []

    async def stubborn() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "late"
        return "never"

    async def quick() -> str:
        return "quick"

    async def give_up(answer: str) -> None:
        given_up.append(answer)

    assert await race(stubborn, quick, 0.0, lambda: True, give_up) == "quick"
    assert given_up == ["late"]


async def test_a_full_target_turns_lower_tiers_away_first() -> None:
    world = World(room=RoomRules(start=10.0))
    held = world.providers["a"] = Held("a")
    asking = [asyncio.ensure_future(world.ask("a")) for _ in range(5)]
    await asyncio.sleep(0.01)
    with pytest.raises(NoTargetAvailable, match="busy for the service tier batch") as shed:
        await world.ask("a", service_tier="batch")
    assert shed.value.retry_after_s == 10.0
    asking += [asyncio.ensure_future(world.ask("a")) for _ in range(4)]
    await asyncio.sleep(0.01)
    with pytest.raises(NoTargetAvailable):
        await world.ask("a", service_tier="standard")
    asking.append(asyncio.ensure_future(world.ask("a", service_tier="priority")))
    await asyncio.sleep(0.01)
    with pytest.raises(NoTargetAvailable):
        await world.ask("a", service_tier="priority")
    assert await world.ask("ab", service_tier="batch") == "b"
    held.go.set()
    assert await asyncio.gather(*asking) == ["a"] * 10
    assert await world.ask("a", service_tier="batch") == "a"


def test_the_room_shrinks_when_a_target_has_too_much_and_grows_when_it_answers() -> None:
    health = TargetHealth(room=RoomRules(start=20.0, least=2.0))
    late = UpstreamTimeout("late")
    for second in range(20):
        health.began("t")
        health.ended("t", float(second), 0.1, late)
    for _ in range(2):
        health.began("t")
    assert not health.has_room("t", "priority")
    for _ in range(200):
        health.began("t")
        health.ended("t", 100.0, 0.1, None)
    assert health.has_room("t", "priority")
    many = UpstreamRefused("slow down", upstream_status=429)
    health.ended("t", 200.0, 0.1, many)
    health.ended("t", 200.1, 0.1, many)
    assert health.position("t", 200.2) == "open"


def test_a_target_that_became_slow_is_asked_later_for_a_while() -> None:
    health = TargetHealth()
    for number in range(40):
        health.began("t")
        health.ended("t", float(number), 0.1, None)
    assert health.place("t", 40.0) == 0
    for _ in range(10):
        health.ended("t", 41.0, 3.0, None)
    assert (health.place("t", 42.0), health.place("t", 71.5)) == (1, 0)
    for number in range(300):
        health.ended("t", 80.0 + number, 3.0, None)
    assert health.place("t", 380.0) == 0, "by now that is what it usually takes"
    for first_byte_s in (0.1, *[3.0] * 10):
        health.ended("new", 0.0, first_byte_s, None)
    assert health.place("new", 1.0) == health.place("unknown", 0.0) == 0


def test_measured_speeds_change_only_with_a_real_change() -> None:
    health = TargetHealth()
    health.ended("t", 0.0, 0.100, None)
    first = health.first_token_ms()["t"]
    assert 85 <= first <= 115
    health.ended("t", 0.0, 0.110, None)
    assert health.first_token_ms()["t"] == first
    for _ in range(20):
        health.ended("t", 0.0, 0.4, None)
    assert health.first_token_ms()["t"] > 2 * first


async def test_what_says_nothing_about_a_target_only_frees_its_place() -> None:
    health = TargetHealth(room=RoomRules(start=1.0))
    health.began("t")
    assert not health.has_room("t", "priority")
    health.ended("t", 0.0, 0.0, asyncio.CancelledError())
    assert health.has_room("t", "priority")
    assert health.position("t", 0.0) == "closed"


async def test_a_broken_connection_is_tried_again_only_while_there_is_budget() -> None:
    world = World(share=0.0, reserve=1.0)
    world.providers["a"].add(GONE)
    assert await world.ask("a") == "a"
    world.providers["a"].add(GONE)
    with pytest.raises(NoTargetAvailable):
        await world.ask("a")
    assert world.errors == [UpstreamUnreachable.code]
