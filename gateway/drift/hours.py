"""Finds hours with unusual costs, compared with the same hour of the three weeks before. Pure.

Let `h` be what the group cost in the same hour of the day on the days of the same kind (Monday to
Friday, or Saturday and Sunday) of the 21 days before, starting with the first of them on which it
cost anything. An hour is unusual if it cost more than each of

    median(h) + 5 · 1.4826 · MAD(h)      more than chance spreads it (MAD: median distance from it)
    2 · the second largest of h          what it cost twice in three weeks is no surprise
    median(h) + a floor in money         enough for somebody to look

and `h` has at least four days; with fewer nothing is usual yet. Measuring distances from the median
in units of the MAD is the method of Iglewicz and Hoaglin, "How to Detect and Handle Outliers"
(1993); the factor 1.4826 turns a MAD into a standard deviation if costs are normally distributed
(Rousseeuw and Croux, 1993). They are not: hours are skewed, and there are 24 a day, so the limit is
five instead of their 3.5, and the second rule is added. No single odd day before, dear or free,
decides anything.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from statistics import median
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from gateway.clock import HOUR_US


DAYS: Final = 21
SAMPLES_MIN: Final = 4
_SPREADS: Final = 5
_NORMAL: Final = 1.4826
_SURPRISE: Final = 2
_SATURDAY: Final = 5


class Judged(Struct, frozen=True):
    """An unusual hour, with the figures by which it was judged."""

    cost_microusd: int
    usual_microusd: int
    """The median."""
    spread_microusd: int
    """The median distance from it."""
    bound_microusd: int
    """Costs above this were unusual."""
    samples: int

    @property
    def excess_microusd(self) -> int:
        return self.cost_microusd - self.usual_microusd


def hours_before(hour_us: int, zone: ZoneInfo) -> tuple[int, ...]:
    """The hours that an hour is compared with, oldest first, as the rollup counts hours.

    The local clock decides which hour is the same, even across a change to summer time.
    """
    local = datetime.fromtimestamp(hour_us / 1e6, zone)
    days = [local - timedelta(days=back) for back in range(DAYS, 0, -1)]
    is_weekend = local.weekday() >= _SATURDAY
    same = [each for each in days if (each.weekday() >= _SATURDAY) == is_weekend]
    return tuple(int(each.timestamp()) * 1_000_000 // HOUR_US * HOUR_US for each in same)


def judged(cost_microusd: int, before: Sequence[int], floor_microusd: int) -> Judged | None:
    """The hour, if it is unusual.

    Args:
        cost_microusd: what the group cost in it; it may not be over.
        before: what it cost in `hours_before`, in their order; 0 if nothing.
        floor_microusd: the least cost beyond the usual that is reported.
    """
    first = next((place for place, cost in enumerate(before) if cost), len(before))
    history = sorted(before[first:])
    if len(history) < SAMPLES_MIN:
        return None
    usual = median(history)
    spread = median(abs(cost - usual) for cost in history)
    bound = max(
        usual + _SPREADS * _NORMAL * spread, _SURPRISE * history[-2], usual + floor_microusd
    )
    if cost_microusd <= bound:
        return None
    return Judged(cost_microusd, round(usual), round(spread), round(bound), len(history))


def explains(part: Judged, whole: Judged) -> bool:
    """Whether a part alone makes half of the whole's cost beyond the usual."""
    return 2 * part.excess_microusd >= whole.excess_microusd
