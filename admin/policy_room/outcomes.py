"""The effects of a version: figures since it went live, beside an equal span before.

Only whole hours, at most a week on either side, from the sums of the rollup; the hour in which it
went live belongs to neither. Too few requests show nothing, and the page says so instead.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

from msgspec import Struct

from admin.policy_room.places import Place
from gateway.clock import HOUR_US, Clock
from gateway.rollout.versions import PolicyEvent
from gateway.store.traffic.spans import SpanSums, TrafficSpans


HOURS_MAX: Final = 24 * 7
HOURS_KEPT: Final = 24 * 21
"""A day less than the rollup keeps."""
REQUESTS_MIN: Final = 30
CHANGE_MIN: Final = 0.1
_Z: Final = 1.96
_CHANGES_LIVE: Final = ("publish", "roll_back", "retire")


class Figure(Struct, frozen=True):
    """One figure on both sides; None where there is nothing to divide by."""

    title: str
    unit: str
    before: float | None
    since: float | None
    says: str
    """`few`, `same` (no more than chance explains), `more` or `less`; empty for a count."""


class Outcome(Struct, frozen=True):
    """A version's two spans."""

    number: int
    live_us: int
    ended_us: int
    """When another version took its place, or none; 0 while it is live."""
    hours: int
    """Of each side; 0 where no whole hour has passed or none is kept."""
    before: SpanSums | None
    since: SpanSums | None
    figures: tuple[Figure, ...]
    kept_days: int = 0
    """For how long hours are kept, where it went live so long ago that none of those before is."""


class Outcomes:
    """Of the versions of one level at a time."""

    def __init__(self, spans: TrafficSpans, clock: Clock) -> None:
        self._spans = spans
        self._clock = clock

    async def of(
        self,
        organisation: str,
        place: Place,
        history: Sequence[PolicyEvent],
        number: int,
        *,
        with_times: bool = True,
    ) -> Outcome | None:
        """The last time that a version went live; None if it never did."""
        live = [each for each in history if each.action in _CHANGES_LIVE]
        went_live = [n for n, each in enumerate(live) if each.action != "retire"]
        mine = next((n for n in reversed(went_live) if live[n].number == number), None)
        if mine is None:
            return None
        live_us = live[mine].utc_us
        ended_us = live[mine + 1].utc_us if mine + 1 < len(live) else 0
        now_us = self._clock.utc_us()
        last_us = (ended_us or now_us) // HOUR_US * HOUR_US
        before_us = live_us // HOUR_US * HOUR_US
        first_us = before_us if live_us == before_us else before_us + HOUR_US
        oldest_us = (now_us // HOUR_US - HOURS_KEPT) * HOUR_US
        hours = min((last_us - first_us) // HOUR_US, (before_us - oldest_us) // HOUR_US, HOURS_MAX)
        if hours <= 0:
            kept_days = 0 if before_us > oldest_us else HOURS_KEPT // 24
            return Outcome(number, live_us, ended_us, 0, None, None, (), kept_days)
        where = tuple(place.slug.split(":")[1:])
        length_us = hours * HOUR_US

        async def sums(start_us: int) -> SpanSums:
            return await self._spans.span(
                organisation, where, start_us, start_us + length_us, with_times=with_times
            )

        before, since = await sums(before_us - length_us), await sums(first_us)
        return Outcome(number, live_us, ended_us, hours, before, since, figures_of(before, since))


def figures_of(before: SpanSums, since: SpanSums) -> tuple[Figure, ...]:
    """The figures that are compared; counts of requests are not judged."""
    return (
        Figure("Requests", "count", before.requests, since.requests, _enough(before, since)),
        _share("Refused", before, since, "refused", "requests"),
        _share("Failed", before, since, "failed", "requests"),
        _share("Sovereign, of what was sent", before, since, "in_house", "reached"),
        _mean("p95 time", "ms", before, since, (before.p95_ms, since.p95_ms)),
        _mean(
            "Cost of an answer",
            "microusd",
            before,
            since,
            (
                _ratio(before.cost_microusd, before.answered),
                _ratio(since.cost_microusd, since.answered),
            ),
        ),
    )


def _enough(before: SpanSums, since: SpanSums) -> str:
    return "few" if min(before.requests, since.requests) < REQUESTS_MIN else ""


def _share(title: str, before: SpanSums, since: SpanSums, name: str, of: str) -> Figure:
    hits, counts = [tuple(getattr(each, which) for each in (before, since)) for which in (name, of)]
    shares = _ratio(hits[0], counts[0]), _ratio(hits[1], counts[1])
    if min(counts) < REQUESTS_MIN or shares[0] is None or shares[1] is None:
        return Figure(title, "share", *shares, "few")
    # Two shares differ where chance alone would show such a difference in one of twenty cases.
    pooled = sum(hits) / sum(counts)
    error = sqrt(pooled * (1 - pooled) * (1 / counts[0] + 1 / counts[1]))
    apart = shares[1] - shares[0]
    says = "same" if abs(apart) <= _Z * error else "more" if apart > 0 else "less"
    return Figure(title, "share", *shares, says)


def _mean(
    title: str,
    unit: str,
    before: SpanSums,
    since: SpanSums,
    values: tuple[float | None, float | None],
) -> Figure:
    """A mean or a p95: how it spreads is not known here, so a tenth is what counts as a change."""
    was, now = values
    if min(before.answered, since.answered) < REQUESTS_MIN or was is None or now is None:
        return Figure(title, unit, was, now, "few")
    if abs(now - was) <= CHANGE_MIN * was:
        return Figure(title, unit, was, now, "same")
    return Figure(title, unit, was, now, "more" if now > was else "less")


def _ratio(total: float, count: float) -> float | None:
    return total / count if count else None
