"""How long something took, sorted into buckets: two additions each, read by who collects."""

from bisect import bisect_left
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


def family(
    name: str,
    text: str,
    labels: tuple[str, ...],
    rows: Iterable[tuple[tuple[str, ...], Durations]],
) -> HistogramMetricFamily:
    """Histograms of one name as Prometheus has them, in seconds."""
    made = HistogramMetricFamily(name, text, labels=labels)
    for values, durations in rows:
        made.add_metric(values, durations.cumulative(), durations.total_us / 1e6)
    return made
