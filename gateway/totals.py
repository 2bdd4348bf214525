"""Totals that every request adds to: one look-up, a few additions, and a list of durations.

They are counted and collected in the same event loop. Durations are sorted into buckets when
somebody collects them, and once a second by a duty of the worker.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Final

from msgspec import Struct
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.durations import Durations, Noted, family, together
from policies.facts import DATA_CLASSES


DURATION_BUCKETS_S: Final = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 15, 60, 300)
CALL_BOUNDS_S: Final = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
    *(163.84, 327.68),
)
"""The bounds of OpenTelemetry's conventions for model calls, and two more for long reasoning."""
OVERHEAD_BOUNDS_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)


class Kind(Struct, frozen=True):
    """The labels that tell requests apart; empty where a request did not get that far."""

    target: str
    status: str
    data_class: str
    jurisdiction: str
    endpoint: str


class Sums:
    """The totals of one kind of request."""

    __slots__ = (
        *("calls", "cost_microusd", "duration", "first_tokens", "input_tokens", "output_tokens"),
        *("heard", "lasted", "spoke", "took", "upstream_first_tokens"),
    )

    def __init__(self) -> None:
        self.input_tokens = self.output_tokens = self.cost_microusd = 0
        self.duration = Noted(DURATION_BUCKETS_S)
        self.calls = Noted(CALL_BOUNDS_S)
        """For upstreams that answered: from a call's start to its last byte."""
        self.upstream_first_tokens = Noted(CALL_BOUNDS_S)
        """For streams: from a call's start to the first content."""
        self.first_tokens = Noted(CALL_BOUNDS_S)
        """For streams: from a request's arrival to the first content that its caller may see."""
        self.lasted, self.took = self.duration.note, self.calls.note
        self.spoke, self.heard = self.upstream_first_tokens.note, self.first_tokens.note

    @property
    def count(self) -> int:
        self.duration.settle()
        return sum(self.duration.counts)

    def settle(self) -> None:
        for each in (self.duration, self.calls, self.upstream_first_tokens, self.first_tokens):
            each.settle()


class Totals(Collector):
    """Everything that is counted once per request."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str, str, str, str], Sums] = defaultdict(Sums)
        self._failed: dict[tuple[str, str, str], Noted] = defaultdict(lambda: Noted(CALL_BOUNDS_S))
        self._overhead = Noted(OVERHEAD_BOUNDS_S)
        self._places: frozenset[str] = frozenset()
        self.own = self._overhead.note
        """Notes the part of a request's time that was not spent at upstreams, in microseconds."""

    def expect(self, places: Iterable[str]) -> None:
        """Set the targets' jurisdictions, so that the first request to one shows as an increase."""
        self._places = frozenset(places)

    def add(
        self,
        kind: tuple[str, str, str, str, str],
        duration_us: int,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_microusd: int = 0,
    ) -> Sums:
        """Count one request; `kind` has the fields of a `Kind`. Its calls are noted in the sums."""
        sums = self._by_kind[kind]
        sums.lasted(duration_us)
        sums.input_tokens += input_tokens
        sums.output_tokens += output_tokens
        sums.cost_microusd += cost_microusd
        return sums

    def of_call(self, target: str, endpoint: str) -> Sums:
        """The sums for a call to another target than the one its request is counted under."""
        return self._by_kind[target, "", "", "", endpoint]

    def failed_call(self, target: str, endpoint: str, code: str, duration_us: int) -> None:
        self._failed[target, endpoint, code].note(duration_us)

    def settle(self) -> None:
        """Sort all noted durations into buckets."""
        for sums in self._by_kind.values():
            sums.settle()
        for failed in self._failed.values():
            failed.settle()
        self._overhead.settle()

    def rows(self) -> list[tuple[Kind, Sums]]:
        """All kinds of requests so far."""
        return [(Kind(*kind), sums) for kind, sums in self._by_kind.items()]

    def failed(self) -> dict[tuple[str, str, str], Noted]:
        """Calls that failed, by target, endpoint and code."""
        return dict(self._failed)

    def collect(self) -> Iterable[Metric]:
        rows = self.rows()
        yield from _requests([(kind, sums) for kind, sums in rows if sums.count], self._places)
        yield _by_target(
            "gatewright_request_duration_seconds",
            "Arrival to last byte.",
            [row for row in rows if row[1].count],
            DURATION_BUCKETS_S,
            lambda sums: sums.duration,
        )
        yield _by_target(
            "gatewright_time_to_first_token_seconds",
            "Of streams: arrival to the first content that the caller may see.",
            rows,
            CALL_BOUNDS_S,
            lambda sums: sums.first_tokens,
        )
        yield _by_target(
            "gatewright_upstream_first_token_seconds",
            "Of streams: from the start of an upstream call to its first content.",
            rows,
            CALL_BOUNDS_S,
            lambda sums: sums.upstream_first_tokens,
        )
        yield self._upstream_durations(rows)
        overhead = [((), self._overhead)]
        text = "What of a request's time no upstream had."
        yield family("gatewright_overhead_seconds", text, (), overhead)

    def _upstream_durations(self, rows: list[tuple[Kind, Sums]]) -> HistogramMetricFamily:
        answered = _summed(rows, CALL_BOUNDS_S, lambda sums: sums.calls)
        failed: dict[tuple[str, str], list[Noted]] = defaultdict(list)
        for (target, _, code), durations in self._failed.items():
            failed[target, code].append(durations)
        return family(
            "gatewright_upstream_duration_seconds",
            "Upstream calls from start to last byte; without a code those that answered.",
            ("target", "code"),
            [
                *(((target, ""), durations) for target, durations in answered),
                *((key, together(parts, CALL_BOUNDS_S)) for key, parts in failed.items()),
            ],
        )


def _requests(rows: list[tuple[Kind, Sums]], places: Iterable[str]) -> Iterable[Metric]:
    yield _counter(
        "gatewright_requests",
        "Requests by target and outcome.",
        ("target", "status"),
        (((kind.target, kind.status), sums.count) for kind, sums in rows),
    )
    yield _counter(
        "gatewright_tokens",
        "Tokens by target and kind.",
        ("target", "kind"),
        (
            ((kind.target, name), tokens)
            for kind, sums in rows
            if kind.target
            for name, tokens in (("input", sums.input_tokens), ("output", sums.output_tokens))
        ),
    )
    yield _counter(
        "gatewright_cost_microusd",
        "Settled cost in micro-dollars.",
        ("target",),
        (((kind.target,), sums.cost_microusd) for kind, sums in rows if kind.target),
    )
    yield _counter(
        "gatewright_requests_by_data_class",
        "Requests by data class and jurisdiction they were sent to.",
        ("data_class", "jurisdiction"),
        chain(
            (((data_class, place), 0) for place in sorted(places) for data_class in DATA_CLASSES),
            (
                ((kind.data_class, kind.jurisdiction), sums.count)
                for kind, sums in rows
                if kind.target
            ),
        ),
    )


def _counter(
    name: str,
    text: str,
    labels: tuple[str, ...],
    rows: Iterable[tuple[tuple[str, ...], int]],
) -> CounterMetricFamily:
    """One family, rows with the same labels added up."""
    sums: dict[tuple[str, ...], int] = defaultdict(int)
    for values, amount in rows:
        sums[values] += amount
    made = CounterMetricFamily(name, text, labels=labels)
    for values, amount in sums.items():
        made.add_metric(values, amount)
    return made


Of = Callable[[Sums], Noted]


def _by_target(
    name: str, text: str, rows: list[tuple[Kind, Sums]], bounds_s: tuple[float, ...], of: Of
) -> HistogramMetricFamily:
    summed = _summed(rows, bounds_s, of)
    return family(name, text, ("target",), (((target,), durations) for target, durations in summed))


def _summed(
    rows: list[tuple[Kind, Sums]], bounds_s: tuple[float, ...], of: Of
) -> list[tuple[str, Durations]]:
    """One histogram of each target that has anything in it."""
    by_target: dict[str, list[Noted]] = defaultdict(list)
    for kind, sums in rows:
        by_target[kind.target].append(of(sums))
    summed = [(target, together(parts, bounds_s)) for target, parts in by_target.items()]
    return [(target, durations) for target, durations in summed if any(durations.counts)]
