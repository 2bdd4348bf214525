"""The circuit breaker: what trips it, what does not, and that it never forbids for ever."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.dispatch.breaker import CLOSED, Breaker, BreakerRules, Breakers, ask, judge, tell
from gateway.errors import (
    ClientGone,
    FeatureUnsupported,
    GatewrightError,
    SovereigntyViolation,
    StreamBroken,
    UpstreamMalformed,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnpaid,
    UpstreamUnreachable,
)


RULES = BreakerRules(failures_in_a_row=3, open_s=10.0, open_s_max=40.0, trial_s=5.0)
BROKEN = UpstreamUnreachable("broken")


def refused(status: int) -> UpstreamRefused:
    return UpstreamRefused("refused", upstream_status=status)


def tripped(breakers: Breakers, target: str = "t", now_s: float = 0.0) -> Breakers:
    for _ in range(RULES.failures_in_a_row):
        breakers.record(target, now_s, BROKEN)
    return breakers


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (None, "alive"),
        (BROKEN, "failing"),
        (UpstreamTimeout("late"), "failing"),
        (UpstreamMalformed("odd"), "failing"),
        (StreamBroken("cut"), "failing"),
        (refused(500), "failing"),
        (refused(503), "failing"),
        (refused(529), "failing"),
        (refused(400), "alive"),
        (refused(401), "denied"),
        (refused(403), "alive"),
        (refused(404), "alive"),
        (refused(407), "denied"),
        (refused(429), "throttled"),
        (UpstreamRefused("later", upstream_status=503, retry_after_s=3.0), "throttled"),
        (UpstreamRefused("later", upstream_status=529, retry_after_s=3.0), "throttled"),
        (UpstreamRefused("later", upstream_status=500, retry_after_s=3.0), "failing"),
        (UpstreamUnpaid("pay", upstream_status=429), "unpaid"),
        (UpstreamUnpaid("pay", upstream_status=400), "unpaid"),
        (ClientGone("gone"), "unknown"),
        (FeatureUnsupported("no"), "unknown"),
        (SovereigntyViolation("no"), "unknown"),
    ],
)
def test_only_faults_of_the_upstream_count_against_it(
    error: GatewrightError | None, verdict: str
) -> None:
    assert judge(error) == verdict


@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_refusals_of_one_request_never_trip(status: int) -> None:
    breakers = Breakers(RULES)
    for _ in range(100):
        breakers.record("t", 0.0, refused(status))
    assert breakers.permits("t", 0.0)
    assert breakers.position("t", 0.0) == "closed"


def test_who_wants_to_be_paid_is_asked_later_for_longer_than_who_is_busy() -> None:
    breakers = Breakers(RULES)
    breakers.record("t", 0.0, UpstreamUnpaid("pay", upstream_status=429))
    assert not breakers.permits("t", RULES.throttle_s)
    assert not breakers.permits("t", RULES.account_s - 0.1)
    assert breakers.permits("t", RULES.account_s)
    breakers.record("t", RULES.account_s, None)
    assert breakers.position("t", RULES.account_s) == "closed"


def asks_for(pause_s: float | None) -> UpstreamRefused:
    return UpstreamRefused("later", upstream_status=429, retry_after_s=pause_s)


def test_of_several_pauses_that_were_asked_for_the_latest_end_counts() -> None:
    breakers = Breakers(RULES)
    breakers.record("t", 0.0, asks_for(5.0))
    breakers.record("t", 1.0, asks_for(30.0))
    breakers.record("t", 2.0, asks_for(1.0))
    assert breakers.position("t", 30.9) == "open"
    assert breakers.position("t", 31.0) == "half_open"
    assert [breakers.permits("t", 31.0) for _ in range(3)] == [True, False, False]
    breakers.record("t", 31.5, None)
    assert breakers.position("t", 31.5) == "closed"


def test_answers_to_earlier_calls_do_not_end_a_pause() -> None:
    breakers = Breakers(RULES)
    breakers.record("t", 0.0, asks_for(None))
    breakers.record("t", 0.1, None)
    assert not breakers.permits("t", 0.5)
    assert breakers.permits("t", RULES.throttle_s)
    breakers.record("t", 10.0, asks_for(1e12))
    assert breakers.position("t", 10.0 + RULES.throttle_s_max) == "half_open"


def test_it_trips_on_failures_in_a_row_and_a_good_answer_starts_the_count_again() -> None:
    breakers = Breakers(RULES)
    for error in (BROKEN, BROKEN, None, BROKEN, BROKEN):
        breakers.record("t", 0.0, error)
    assert breakers.permits("t", 0.0)
    breakers.record("t", 0.0, BROKEN)
    assert not breakers.permits("t", 0.0)


def test_what_says_nothing_about_the_upstream_changes_nothing() -> None:
    breakers = tripped(Breakers(RULES))
    breakers.record("t", 1.0, ClientGone("gone"))
    assert breakers.position("t", 1.0) == "open"


def test_half_open_grants_one_trial_at_a_time() -> None:
    breakers = tripped(Breakers(RULES))
    assert not breakers.permits("t", 9.9)
    assert breakers.position("t", 10.0) == "half_open"
    assert [breakers.permits("t", 10.0) for _ in range(3)] == [True, False, False]
    assert not breakers.permits("t", 14.9)
    assert breakers.permits("t", 15.0), "a trial that never came back must not block for ever"


def test_a_good_trial_closes_and_a_bad_one_opens_for_longer() -> None:
    breakers = tripped(Breakers(RULES))
    assert breakers.permits("t", 10.0)
    breakers.record("t", 10.0, BROKEN)
    assert not breakers.permits("t", 29.9)
    assert breakers.permits("t", 30.0)
    breakers.record("t", 30.0, None)
    assert breakers.position("t", 30.0) == "closed"
    tripped(breakers, now_s=30.0 + RULES.settle_s)
    assert breakers.position("t", 40.0 + RULES.settle_s) == "half_open", "it starts over"


def test_what_goes_up_and_down_stays_out_for_longer_each_time() -> None:
    breakers, now_s, waits = Breakers(RULES), 0.0, []
    for _ in range(4):
        tripped(breakers, now_s=now_s)
        wait_s = next(n for n in range(1, 100) if breakers.position("t", now_s + n) == "half_open")
        waits.append(wait_s)
        now_s += wait_s
        breakers.record("t", now_s, None)
        assert breakers.position("t", now_s) == "closed"
        now_s += 1.0
        breakers.record("t", now_s, None)
    assert waits == [10, 20, 40, 40]
    breakers.record("t", now_s + RULES.settle_s, None)
    assert not breakers._states


def test_late_failures_of_earlier_calls_do_not_prolong_the_opening() -> None:
    breakers = tripped(Breakers(RULES))
    for second in range(1, 10):
        breakers.record("t", float(second), BROKEN)
    assert breakers.position("t", 10.0) == "half_open"


def test_targets_do_not_share_a_breaker() -> None:
    breakers = tripped(Breakers(RULES), "one")
    assert not breakers.permits("one", 0.0)
    assert breakers.permits("two", 0.0)


def test_the_dispatchers_order_moves_open_ones_last_and_loses_none() -> None:
    breakers = tripped(tripped(Breakers(RULES), "b"), "c")
    names = ["a", "b", "c", "d"]
    ordered = sorted(names, key=lambda name: not breakers.permits(name, 0.0))
    assert ordered == ["a", "d", "b", "c"]


def test_decades_of_failures_stay_within_the_longest_opening() -> None:
    state, now_s = CLOSED, 0.0
    for _ in range(5000):
        state = tell(state, now_s, "failing", RULES)
        now_s = max(now_s, state.open_until_s)
    assert state.open_until_s - now_s <= RULES.open_s_max
    assert state.position(now_s + RULES.open_s_max) == "half_open"


class BreakerMachine(RuleBasedStateMachine):
    """Any history of calls, ends and pauses, against the promises of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.state = CLOSED
        self.now_s = 0.0
        self.failures_since_alive = 0
        self.granted_at_s: float | None = None

    @rule(seconds=st.floats(min_value=0.0, max_value=100.0))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule()
    def a_call_asks(self) -> None:
        position = self.state.position(self.now_s)
        is_permitted, after = ask(self.state, self.now_s, RULES)
        if position == "half_open" and is_permitted:
            if self.granted_at_s is not None:
                assert self.now_s >= self.granted_at_s + RULES.trial_s
            self.granted_at_s = self.now_s
            again, _ = ask(after, self.now_s, RULES)
            assert not again
        assert is_permitted or position != "closed"
        assert not (is_permitted and position == "open")
        self.state = after

    @rule()
    def a_call_succeeds(self) -> None:
        self.state = tell(self.state, self.now_s, "alive", RULES)
        self.failures_since_alive = 0
        self.granted_at_s = None
        assert (self.state.failures, self.state.trips) == (0, 0)
        assert self.state.position(self.now_s) == "closed"

    @rule()
    def a_call_fails(self) -> None:
        before = self.state
        self.state = tell(self.state, self.now_s, "failing", RULES)
        self.failures_since_alive += 1
        if self.state.trips > before.trips:
            self.granted_at_s = None

    @rule()
    def a_call_ends_without_news(self) -> None:
        assert tell(self.state, self.now_s, "unknown", RULES) == self.state

    @invariant()
    def it_trips_exactly_when_enough_failed_in_a_row(self) -> None:
        has_tripped = self.state.trips > 0
        assert has_tripped == (self.failures_since_alive >= RULES.failures_in_a_row)

    @invariant()
    def it_never_stays_shut_longer_than_the_longest_opening(self) -> None:
        later_s = self.now_s + max(RULES.open_s_max, RULES.trial_s)
        is_permitted, _ = ask(self.state, later_s, RULES)
        assert is_permitted

    @invariant()
    def a_state_is_a_value(self) -> None:
        assert isinstance(self.state, Breaker)


TestBreakerMachine = BreakerMachine.TestCase
