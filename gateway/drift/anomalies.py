"""Finds days with unusual costs, compared with the same weekday of the weeks before. Pure.

Let `h` be what the group cost on the same weekday of the eight weeks before, starting with the
first of them on which it cost anything. A day is unusual if it cost more than each of

    median(h) + 4 · 1.4826 · MAD(h)      more than chance spreads it (MAD: median distance from it)
    1.5 · median(h)                      noticeably more
    median(h) + 5 dollars                enough for somebody to look

and `h` has at least four days; with fewer nothing is usual yet. Medians are used so that neither
one dear day nor one holiday among the eight determines what is usual.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from statistics import median
from typing import Final

from msgspec import Struct


WEEKS: Final = 8
SAMPLES_MIN: Final = 4
EXCESS_MIN_MICROUSD: Final = 5_000_000
_SPREADS: Final = 4
_NORMAL: Final = 1.4826
"""Converts a median distance to a standard deviation of a normal distribution."""
_NOTICEABLE: Final = 1.5
_WEEKDAYS: Final = (
    *("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)


class Unusual(Struct, frozen=True):
    """A day that cost unusually much."""

    day: date
    cost_microusd: int
    usual_microusd: int
    """The median of its weekday."""
    bound_microusd: int
    """Costs above this were unusual."""
    samples: int

    @property
    def times(self) -> float:
        """The multiple of the usual cost; 0 if that is 0."""
        return self.cost_microusd / self.usual_microusd if self.usual_microusd else 0.0

    @property
    def words(self) -> str:
        """Such as `3.2 times what a Tuesday costs`."""
        weekday = _WEEKDAYS[self.day.weekday()]
        if not self.usual_microusd:
            return f"a {weekday} usually costs nothing"
        return f"{self.times:,.1f} times what a {weekday} costs"


def weeks_before(day: date) -> tuple[date, ...]:
    """The days that a day is compared with, oldest first."""
    return tuple(day - timedelta(weeks=back) for back in range(WEEKS, 0, -1))


def unusual(day: date, cost_microusd: int, before: Sequence[int]) -> Unusual | None:
    """The day, if it is unusual.

    Args:
        day: it may not be over; what it cost so far counts.
        cost_microusd: what the group cost on it.
        before: what it cost on `weeks_before(day)`, in their order; 0 if nothing.
    """
    first = next((place for place, cost in enumerate(before) if cost), len(before))
    history = before[first:]
    if len(history) < SAMPLES_MIN:
        return None
    usual = median(history)
    spread = median(abs(cost - usual) for cost in history)
    bound = max(
        usual + _SPREADS * _NORMAL * spread, _NOTICEABLE * usual, usual + EXCESS_MIN_MICROUSD
    )
    if cost_microusd <= bound:
        return None
    return Unusual(day, cost_microusd, round(usual), round(bound), len(history))
