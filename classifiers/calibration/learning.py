"""The learning loop: explore with known odds, log them, and check a new threshold before its use.

The effect of one policy is estimated from what another one did (Dudík, Langford, Li: Doubly Robust
Policy Evaluation and Learning, 2011). The estimate is right if either the logged odds or the model
is right.
"""

import hashlib
from collections.abc import Sequence
from math import sqrt

from msgspec import Struct


EXPLORATION_MAX = 0.05
LOGGED_LEAST = 200
_DRAW_BYTES = 8
_CONFIDENCE_95 = 1.645
"""One-sided 95 % quantile of the normal distribution."""


class Choice(Struct, frozen=True):
    """Which tier a request got, and how likely that was: its propensity."""

    cheap: bool
    propensity: float
    explored: bool


def choose(prefers_cheap: bool, exploration: float, request_id: str, salt: str) -> Choice:  # noqa: FBT001
    """Take the preferred tier, but with probability `exploration` the other one.

    The draw is a digest of the request's id: a replay draws the same.

    Raises:
        ValueError: exploration outside of [0, EXPLORATION_MAX].
    """
    if not 0.0 <= exploration <= EXPLORATION_MAX:
        raise ValueError("exploration is a small probability")
    digest = hashlib.sha256(f"{salt}\0{request_id}".encode()).digest()
    draw = int.from_bytes(digest[:_DRAW_BYTES], "big") / 2 ** (8 * _DRAW_BYTES)
    explored = draw < exploration
    return Choice(
        prefers_cheap != explored, exploration if explored else 1.0 - exploration, explored
    )


class Logged(Struct, frozen=True):
    """One request as it went: what was known, what was chosen with which odds, how it ended.

    `p_weak`: calibrated probability that the cheap tier suffices. `succeeded` is about the tier
    that answered. A shadow pair is two of these, one per tier, with propensity 1 each.
    """

    p_weak: float
    cheap: bool
    propensity: float
    succeeded: bool


class Estimate(Struct, frozen=True):
    """A mean with its one-sided 95 % bounds."""

    value: float
    lower: float
    upper: float
    logged: int


class LiveCheck(Struct, frozen=True):
    """Whether a new threshold may go live, and what to expect of it."""

    passed: bool
    reason: str
    success_now: Estimate
    success_then: Estimate
    cheap_failure_then: Estimate


def success_under(logged: Sequence[Logged], p_weak_least: float, p_strong: float) -> Estimate:
    """Doubly robust estimate of the success rate, had the threshold been `p_weak_least`.

    `p_strong` is the model's guess for the strong tier, the same for every request.
    """
    terms = []
    for one in logged:
        cheap = one.p_weak >= p_weak_least
        expected = one.p_weak if cheap else p_strong
        terms.append(expected + _correction(one, cheap, expected))
    return _estimate(terms)


def cheap_failure_under(logged: Sequence[Logged], p_weak_least: float) -> Estimate:
    """Doubly robust estimate of the failure rate among what the threshold sends to cheap."""
    sent = [one for one in logged if one.p_weak >= p_weak_least]
    return _estimate(
        [1.0 - (one.p_weak + _correction(one, True, one.p_weak)) for one in sent]  # noqa: FBT003
    )


def _correction(one: Logged, cheap: bool, expected: float) -> float:  # noqa: FBT001
    """The model's error, weighted by the odds; 0 if another choice was logged."""
    return (one.succeeded - expected) / one.propensity if one.cheap == cheap else 0.0


def _estimate(terms: Sequence[float]) -> Estimate:
    count = len(terms)
    if count < 2:  # noqa: PLR2004 - a spread needs two
        return Estimate(0.0, float("-inf"), float("inf"), count)
    mean = sum(terms) / count
    spread = sqrt(sum((term - mean) ** 2 for term in terms) / (count - 1) / count)
    return Estimate(mean, mean - _CONFIDENCE_95 * spread, mean + _CONFIDENCE_95 * spread, count)


def check_before_live(
    logged: Sequence[Logged],
    threshold_now: float,
    threshold_then: float,
    alpha: float,
    success_loss_max: float,
) -> LiveCheck:
    """May `threshold_then` replace `threshold_now`?

    Only if failures among its cheap requests stay under alpha and success does not fall by more
    than `success_loss_max`, both with 95 % confidence on traffic logged with propensities.
    """
    strong = [one.succeeded for one in logged if not one.cheap]
    p_strong = (sum(strong) + 1.0) / (len(strong) + 2.0)
    now = success_under(logged, threshold_now, p_strong)
    then = success_under(logged, threshold_then, p_strong)
    failing = cheap_failure_under(logged, threshold_then)
    if len(logged) < LOGGED_LEAST:
        reason = "too_few_logged"
    elif failing.upper > alpha:
        reason = "cheap_failure_rate_too_high"
    elif then.lower < now.value - success_loss_max:
        reason = "success_may_fall"
    else:
        reason = "passed"
    return LiveCheck(reason == "passed", reason, now, then, failing)
