"""Histograms of durations: a request adds to them cheaply, a collector reads the buckets."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from prometheus_client.core import HistogramMetricFamily
from prometheus_client.utils import floatToGoString


class Durations:
    """One histogram. One thread adds to it; whoever reads may be another."""

    __slots__ = ("_bounds_us", "_labels", "counts", "total_us")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        """`bounds_s` are the buckets' upper ends, ascending; one beyond the last is added."""
        self._bounds_us = tuple(round(bound * 1e6) for bound in bounds_s)
        self._labels = (*map(floatToGoString, bounds_s), "+Inf")
        self.counts = [0] * len(self._labels)
        self.total_us = 0

    def add(self, duration_us: int, count: int = 1) -> None:
        """`count` things took that long, each."""
        self.counts[bisect_left(self._bounds_us, duration_us)] += count
        self.total_us += duration_us * count

    def cumulative(self) -> list[tuple[str, float]]:
        """Each bucket's end, and how many lie at or below it."""
        return [(label, sum(self.counts[: at + 1])) for at, label in enumerate(self._labels)]


class Noted(Durations):
    """A histogram for what every request adds to: noted by a list, sorted in many at a time.

    `note` is the list's own `append`, so that a request runs no code of ours for it. Somebody calls
    `settle` now and then, or the list grows. One thread for all of it.
    """

    __slots__ = ("_noted", "note")

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        super().__init__(bounds_s)
        self._noted: list[int] = []
        self.note = self._noted.append
        """Takes microseconds; less than none counts as none, for clocks are set."""

    def settle(self) -> None:
        """Sort in what was noted since the last time: one sort, and a search for each bound."""
        if not self._noted:
            return
        noted = sorted(self._noted)
        self._noted.clear()
        below = 0
        for at, bound_us in enumerate(self._bounds_us):
            upto = bisect_right(noted, bound_us)
            self.counts[at] += upto - below
            below = upto
        self.counts[-1] += len(noted) - below
        self.total_us += sum(noted[bisect_left(noted, 0) :])

    def cumulative(self) -> list[tuple[str, float]]:
        self.settle()
        return super().cumulative()


def together(all_durations: Iterable[Durations], bounds_s: tuple[float, ...]) -> Durations:
    """The sum of histograms that have these bounds."""
    made = Durations(bounds_s)
    for each in all_durations:
        if isinstance(each, Noted):
            each.settle()
        made.counts = [one + other for one, other in zip(made.counts, each.counts, strict=True)]
        made.total_us += each.total_us
    return made


def family(
    name: str,
    text: str,
    labels: tuple[str, ...],
    rows: Iterable[tuple[tuple[str, ...], Durations]],
) -> HistogramMetricFamily:
    """Histograms of one name as Prometheus has them, in seconds."""
    made = HistogramMetricFamily(name, text, labels=labels)
    for values, durations in rows:
        buckets = durations.cumulative()
        made.add_metric(values, buckets, durations.total_us / 1e6)
    return made
