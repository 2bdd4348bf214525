"""Circuit breakers: targets that failed too often in a row are asked after the others.

A breaker never forbids: the dispatcher moves candidates with an open breaker to the end of its
list, so that the last one left is still tried. Pure: the time is passed in.

    closed ──(failures in a row)──▶ open ──(its time is over)──▶ half-open ──success──▶ closed
                                      ▲                              │
                                      └───────────failure────────────┘
"""

from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import (
    DENIED_STATUSES,
    GatewrightError,
    PoolBusy,
    UpstreamFailed,
    UpstreamRefused,
    UpstreamUnpaid,
)


Verdict = Literal["alive", "failing", "throttled", "unpaid", "denied", "unknown"]
PAUSING: frozenset[Verdict] = frozenset({"throttled", "unpaid", "denied"})
"""For a while every request would get the same answer."""
Position = Literal["closed", "open", "half_open"]
SERVER_ERROR_MIN = 500
TOO_MANY = 429
OVERLOADED = frozenset({503, 529})


class BreakerRules(Struct, frozen=True):
    """When a breaker trips and how long it stays open."""

    failures_in_a_row: int = 5
    open_s: float = 5.0
    """After the first trip; doubles with each failed trial."""
    open_s_max: float = 120.0
    throttle_s: float = 1.0
    """Pause after an upstream said that it is overloaded, but not for how long."""
    throttle_s_max: float = 120.0
    """The longest `retry-after` that is believed."""
    account_s: float = 30.0
    """Pause after an upstream said that our account has no money left, or that it does not accept
    our credential: a person has to fix that."""
    settle_s: float = 60.0
    """A target that trips again within this time after it recovered stays out longer each time."""
    trial_s: float = 10.0
    """While half-open, one caller per this time gets through: a trial may never come back."""


class Breaker(Struct, frozen=True):
    """The state of one target. `trips` counts openings since it was last seen alive."""

    failures: int = 0
    trips: int = 0
    open_until_s: float = 0.0
    trial_until_s: float = 0.0
    is_throttled: bool = False
    """The upstream asked for the pause: answers to earlier calls do not end it."""
    flaps: int = 0
    """How often it recovered and tripped again; a target that goes up and down is no help."""
    settled_s: float = 0.0
    """When the flaps are forgotten."""

    def position(self, now_s: float) -> Position:
        if not self.trips:
            return "closed"
        return "open" if now_s < self.open_until_s else "half_open"


CLOSED = Breaker()


def judge(error: GatewrightError | None) -> Verdict:
    """What the end of an attempt says about the upstream's health.

    Any answer, even with a 4xx status, shows that it is alive: a mistake in one request must not
    take an upstream away from everybody. An upstream that is overloaded, or does not serve our
    account, gets a pause: every request would get the same answer. Errors of ours say nothing.
    """
    if error is None:
        return "alive"
    if isinstance(error, UpstreamUnpaid):
        return "unpaid"
    if isinstance(error, UpstreamRefused):
        status = error.upstream_status
        if status in DENIED_STATUSES:
            return "denied"
        if status == TOO_MANY or (status in OVERLOADED and error.retry_after_s is not None):
            return "throttled"
        return "failing" if error.upstream_status >= SERVER_ERROR_MIN else "alive"
    if isinstance(error, PoolBusy):
        return "unknown"
    return "failing" if isinstance(error, UpstreamFailed) else "unknown"


def ask(state: Breaker, now_s: float, rules: BreakerRules) -> tuple[bool, Breaker]:
    """Whether this target may be tried in its usual place, and the state after the question."""
    position = state.position(now_s)
    if position == "closed":
        return True, state
    if position == "open" or now_s < state.trial_until_s:
        return False, state
    return True, replace(state, trial_until_s=now_s + rules.trial_s)


def tell(
    state: Breaker,
    now_s: float,
    verdict: Verdict,
    rules: BreakerRules,
    retry_after_s: float | None = None,
) -> Breaker:
    """The state after an attempt ended; of several pauses, the one that ends last counts."""
    if verdict == "unknown":
        return state
    if verdict == "alive":
        is_late = state.is_throttled and state.position(now_s) == "open"
        return state if is_late else _recovered(state, now_s, rules)
    if verdict in PAUSING:
        usual_s = rules.throttle_s if verdict == "throttled" else rules.account_s
        pause_s = usual_s if retry_after_s is None else max(retry_after_s, 0.0)
        until_s = max(state.open_until_s, now_s + min(pause_s, rules.throttle_s_max))
        return replace(
            state,
            trips=max(state.trips, 1),
            open_until_s=until_s,
            trial_until_s=0.0,
            is_throttled=True,
        )
    failures = state.failures + 1
    position = state.position(now_s)
    # Late failures of calls that began before the trip do not prolong it.
    if position == "open" or (position == "closed" and failures < rules.failures_in_a_row):
        return replace(state, failures=failures)
    # The exponent is bounded so that years of failures do not overflow a float.
    flaps = state.flaps if state.trips or now_s < state.settled_s else 0
    open_s = min(rules.open_s * 2.0 ** min(state.trips + flaps, 32), rules.open_s_max)
    return Breaker(
        failures=failures,
        trips=state.trips + 1,
        open_until_s=now_s + open_s,
        flaps=flaps,
        settled_s=state.settled_s,
    )


def _recovered(state: Breaker, now_s: float, rules: BreakerRules) -> Breaker:
    """Closed, but not everything is forgotten: one good trial says little about the next minute."""
    is_recent = now_s < state.settled_s
    if state.trips and not state.is_throttled:
        return Breaker(flaps=state.flaps + 1 if is_recent else 1, settled_s=now_s + rules.settle_s)
    return Breaker(flaps=state.flaps, settled_s=state.settled_s) if is_recent else CLOSED


class Breakers:
    """One breaker per target name; all of it may be lost at any moment without a wrong answer."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self._rules = rules or BreakerRules()
        self._states: dict[str, Breaker] = {}

    def would_permit(self, target: str, now_s: float) -> bool:
        """The same answer as `permits`, but grants no trial."""
        state = self._states.get(target)
        return state is None or ask(state, now_s, self._rules)[0]

    def permits(self, target: str, now_s: float) -> bool:
        """Whether to try it in its usual place; while half-open, grants one trial at a time."""
        state = self._states.get(target)
        if state is None:
            return True
        is_permitted, self._states[target] = ask(state, now_s, self._rules)
        return is_permitted

    def record(self, target: str, now_s: float, error: GatewrightError | None) -> None:
        """How an attempt ended; None for a good answer."""
        if error is None and target not in self._states:
            return  # Good again, as nearly always.
        verdict = judge(error)
        known = self._states.get(target, CLOSED)
        pause_s = error.retry_after_s if error is not None else None
        state = tell(known, now_s, verdict, self._rules, pause_s)
        if state == CLOSED:
            self._states.pop(target, None)
        else:
            self._states[target] = state

    def position(self, target: str, now_s: float) -> Position:
        """For the health page and metrics; changes nothing."""
        return self._states.get(target, CLOSED).position(now_s)
