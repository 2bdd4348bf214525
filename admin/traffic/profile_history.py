"""Shares of one feature, day by day over four weeks: what a profile's chart draws. Pure.

A day ends with the latest profiled hour, so that the newest day is complete. A day without a
request has no share.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from gateway.clock import DAY_US, HOUR_US
from gateway.drift.profiles import Feature, Profile, added, bins_of, words_of


DAYS: Final = 28
BINS_DRAWN: Final = 3
_PERCENT: Final = 100


class HistoryDay(Struct, frozen=True):
    """One day: how many were looked at, and the share of each bin that is drawn."""

    start_us: int
    count: int
    percents: tuple[float | None, ...]
    has_begun: bool
    """Whether the drift that lasts began in it."""


class History(Struct, frozen=True):
    """One feature over time."""

    feature: str
    title: str
    bins: tuple[str, ...]
    """Those with the most, by what people call them."""
    days: tuple[HistoryDay, ...]


def hours_of(until_us: int) -> range:
    """The hours that a history is made of."""
    return range(until_us - DAYS * DAY_US, until_us, HOUR_US)


def history_of(
    feature: Feature, hours: Mapping[int, Profile], until_us: int, began_us: int
) -> History | None:
    """The history of a feature; None where fewer than two days had a request."""
    days = [
        (
            start,
            added(hours[hour] for hour in range(start, start + DAY_US, HOUR_US) if hour in hours),
        )
        for start in range(until_us - DAYS * DAY_US, until_us, DAY_US)
    ]
    counts = [profile.bins.get(feature.name, {}) for _, profile in days]
    if sum(bool(each) for each in counts) < 2:  # noqa: PLR2004 - a line has two ends
        return None
    weights: dict[str, float] = {}
    for each in counts:
        for name, count in each.items():
            # Of its day: one loud day does not say what is drawn of the others.
            weights[name] = weights.get(name, 0) + count / sum(each.values())
    drawn = sorted(weights, key=lambda name: (-weights[name], name))[:BINS_DRAWN]
    ordered = [
        name for name in bins_of(feature, *(profile for _, profile in days)) if name in drawn
    ]
    return History(
        feature.name,
        feature.title,
        tuple(words_of(feature, name) for name in ordered),
        tuple(
            HistoryDay(
                start,
                profile.count,
                tuple(_share(bins, name) for name in ordered),
                start <= began_us < start + DAY_US,
            )
            for (start, profile), bins in zip(days, counts, strict=True)
        ),
    )


def _share(bins: Mapping[str, int], name: str) -> float | None:
    whole = sum(bins.values())
    return round(_PERCENT * bins.get(name, 0) / whole, 1) if whole else None
