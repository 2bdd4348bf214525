"""A threshold with a guarantee: of the requests sent to the cheap tier, at most alpha fail.

Thresholds are tested from strict to lax, each with an exact bound, until one cannot be shown to
hold (fixed-sequence testing; for risk control: Angelopoulos et al., Learn then Test, 2021). The
order does not depend on outcomes, so the whole search has the error probability of one test. A test
gets delta / 2: the other half covers chance in the traffic that is served afterwards. If nothing
can be shown, the answer is "infeasible".
"""

from collections.abc import Sequence
from math import ceil, log
from typing import Literal

from msgspec import Struct

from classifiers.calibration.bounds import at_most, failure_rate_upper
from classifiers.calibration.maps import Label


LABELS_LEAST = 150
SENT_LEAST = 60
FIRST_SHARE = 0.1
STEP_SHARE = 0.025
DRIFT_LIMIT = 0.25
"""Population stability index above which a population is commonly called changed."""

_DRIFT_BINS = 10
_DRIFT_VALUES_LEAST = 100

Reason = Literal["too_few_labels", "failure_rate_too_high", "drift"]


class Threshold(Struct, frozen=True, tag="threshold"):
    """Sends requests with at least `p_weak_least` to the cheap tier.

    `failure_rate_upper` holds with confidence 1 - delta; `share` is the part of the labelled
    requests that the cheap tier would have got: `sent`, of which `failures` failed.
    """

    p_weak_least: float
    alpha: float
    delta: float
    share: float
    sent: int
    failures: int
    failure_rate_upper: float


class Infeasible(Struct, frozen=True, tag="infeasible"):
    """No threshold can be promised: everything goes to the strong tier, or through a cascade."""

    reason: Reason
    alpha: float
    delta: float
    labels: int


Guarantee = Threshold | Infeasible


def guarantee(labels: Sequence[Label], alpha: float, delta: float) -> Guarantee:
    """The laxest threshold that can be promised from these labels, a fair sample of the traffic."""
    if len(labels) < LABELS_LEAST:
        return Infeasible("too_few_labels", alpha, delta, len(labels))
    ordered = sorted(labels, key=lambda label: -label.p_weak)
    # Even without a single failure this many trials are needed to show anything.
    needed = ceil(log(delta / 2) / log(1.0 - alpha))
    sent = max(needed, SENT_LEAST, round(FIRST_SHARE * len(ordered)))
    shown = tested = failures = failed = 0
    while tested < len(ordered):
        sent = _to_end_of_tie(ordered, min(sent, len(ordered)))
        failures += sum(not label.succeeded for label in ordered[tested:sent])
        tested = sent
        # A rate of alpha would hardly give so few failures: the same as a bound under alpha.
        if at_most(failures, sent, alpha) > delta / 2:
            break
        shown, failed = sent, failures
        sent += max(1, round(STEP_SHARE * len(ordered)))
    if not shown:
        return Infeasible("failure_rate_too_high", alpha, delta, len(labels))
    share, least = shown / len(ordered), ordered[shown - 1].p_weak
    upper = failure_rate_upper(failed, shown, delta / 2)
    return Threshold(least, alpha, delta, share, shown, failed, upper)


def _to_end_of_tie(ordered: Sequence[Label], sent: int) -> int:
    """A threshold sends all equal scores, never a part of them."""
    while sent < len(ordered) and ordered[sent].p_weak == ordered[sent - 1].p_weak:
        sent += 1
    return sent


def drift(before: Sequence[float], now: Sequence[float]) -> float:
    """Population stability index of a score between two samples; 0 is no change.

    With too few values it is 0.
    """
    if min(len(before), len(now)) < _DRIFT_VALUES_LEAST:
        return 0.0
    ordered = sorted(before)
    edges = [ordered[len(ordered) * at // _DRIFT_BINS] for at in range(1, _DRIFT_BINS)]
    shares = zip(_shares(before, edges), _shares(now, edges), strict=True)
    return sum((new - old) * log(new / old) for old, new in shares)


def _shares(values: Sequence[float], edges: Sequence[float]) -> list[float]:
    counts = [0.5] * (len(edges) + 1)
    for value in values:
        counts[sum(value >= edge for edge in edges)] += 1
    whole = sum(counts)
    return [count / whole for count in counts]
