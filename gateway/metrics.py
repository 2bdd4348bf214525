"""The data plane's Prometheus series: numbers only, under labels that the gateway chose.

A request is counted by one look-up and a few additions in `Totals`; the client library's series,
with a lock for each number, cost ten times as much and are left to what is counted rarely. Whoever
counts and whoever collects belong to the same event loop.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


DURATION_BUCKETS_S = (0.005, 0.02, 0.1, 0.5, 1, 2, 5, 15, 60, 300)
_BUCKETS_US = tuple(round(bound * 1e6) for bound in DURATION_BUCKETS_S)
_BUCKET_LABELS = (*map(floatToGoString, DURATION_BUCKETS_S), "+Inf")


class Kind(Struct, frozen=True):
    """By what requests are told apart; empty texts where it was not reached."""

    target: str
    status: str
    data_class: str
    jurisdiction: str


class Sums:
    """What is known of one kind of request."""

    __slots__ = ("buckets", "cost_microusd", "duration_us", "input_tokens", "output_tokens")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BUCKETS_US) + 1)
        self.duration_us = self.input_tokens = self.output_tokens = self.cost_microusd = 0

    @property
    def count(self) -> int:
        return sum(self.buckets)


class Totals(Collector):
    """Everything that is counted once a request."""

    def __init__(self) -> None:
        self._by_kind: dict[tuple[str, str, str, str], Sums] = defaultdict(Sums)

    def add(
        self,
        kind: tuple[str, str, str, str],
        duration_us: int,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost_microusd: int = 0,
    ) -> None:
        """Count one request; `kind` holds target, status, data class and jurisdiction."""
        sums = self._by_kind[kind]
        sums.buckets[bisect_left(_BUCKETS_US, duration_us)] += 1
        sums.duration_us += duration_us
        sums.input_tokens += input_tokens
        sums.output_tokens += output_tokens
        sums.cost_microusd += cost_microusd

    def collect(self) -> Iterable[Metric]:
        rows = [(Kind(*kind), sums) for kind, sums in self._by_kind.items()]
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
            (
                ((kind.data_class, kind.jurisdiction), sums.count)
                for kind, sums in rows
                if kind.target
            ),
        )
        yield _durations(rows)


LeftS = Callable[[], float | None]
"""Seconds that something is still good, below 0 where it has ended; None where it is not there."""


class CertificateSeries:
    """How long certificates, authorities and lists of revoked ones are still good.

    Asked when somebody collects: what is renewed meanwhile needs no word to anybody.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"gatewright_{name}_seconds_left", text, labels, registry=registry)

        self._shown = gauge(
            "certificate", "Until the certificate that the listener shows ends.", "listener"
        )
        self._authorities = gauge(
            "client_ca", "Until the next authority of the listener's callers ends.", "listener"
        )
        self._lists = gauge(
            "client_crl",
            "Until a list of revoked certificates of the listener's callers is out of date.",
            "listener",
        )
        self._of_providers = gauge(
            "provider_certificate",
            "Until the next certificate in a file of a provider's settings ends.",
            *("provider", "setting"),
        )

    def listener(self, name: str, shown: LeftS, authorities: LeftS, lists: LeftS) -> None:
        """Whom to ask of a listener; it has a series for what is there now."""
        for gauge, left_s in (
            (self._shown, shown),
            (self._authorities, authorities),
            (self._lists, lists),
        ):
            if left_s() is not None:
                gauge.labels(name).set_function(_number(left_s))

    def provider(self, name: str, setting: str, left_s: LeftS) -> None:
        """Whom to ask of the file that a provider's setting names."""
        self._of_providers.labels(name, setting).set_function(_number(left_s))


def _number(left_s: LeftS) -> Callable[[], float]:
    def asked() -> float:
        found = left_s()
        return math.nan if found is None else found

    return asked


class Metrics:
    """All series of one worker."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Totals()
        self.registry.register(self.requests)
        self._add_attempts()
        self._tried = self._counter(
            "gatewright_canary_answers",
            "Answers where a policy tries a target, by arm and result.",
            *("rule", "arm", "result"),
        )
        self._shadows = self._counter(
            "gatewright_shadow_decisions",
            "Decisions of shadow policies, by what they would have changed.",
            "change",
        )
        self._cached = self._counter(
            "gatewright_response_cache",
            "Requests that policy lets the response cache answer, by result.",
            "result",
        )
        self._caller_tokens = self._counter(
            "gatewright_caller_tokens",
            "Tokens that callers showed, by issuer and what came of it.",
            *("issuer", "outcome"),
        )
        self._batch_lines_ended = self._counter(
            "gatewright_batch_lines_ended",
            "Lines of batches that this worker has sent, by how they ended.",
            "state",
        )
        self.in_flight = self._gauge("gatewright_requests_in_flight", "Requests being served now.")
        self.snapshot_age = self._gauge(
            "gatewright_snapshot_age_seconds", "Age of the configuration snapshot."
        )
        self._add_soundness()
        self._batch_lines = self._gauge(
            "gatewright_batch_lines",
            "Lines of batches that have not ended, on all workers, by state.",
            "state",
        )
        self._drifts = self._gauge(
            "gatewright_drifts_open", "Profiles that drift, of all organisations, by kind.", "kind"
        )
        self.certificates = CertificateSeries(self.registry)
        self._batch_oldest = self._gauge(
            "gatewright_batch_oldest_waiting_seconds",
            "Age of the oldest batch with a line that waits.",
        )

    def _add_attempts(self) -> None:
        """What upstreams did that was not to be expected, and what callers were told."""
        self._attempts_failed = self._counter(
            "gatewright_attempts_failed", "Upstream attempts that failed.", "target", "code"
        )
        self._credentials_refused = self._counter(
            "gatewright_credentials_refused",
            "Upstream attempts whose credential of ours was not known there.",
            "target",
        )
        self._refusals = self._counter(
            "gatewright_refusals",
            "Requests for models that were answered with an error and nothing else, by its code.",
            "code",
        )
        self._disbelieved = self._counter(
            "gatewright_usage_disbelieved",
            "Answers whose upstream says it counted what cannot be.",
            "target",
        )

    def _add_soundness(self) -> None:
        """Whether this worker may get requests, and what its audit log can do."""
        self.ready = self._gauge(
            "gatewright_ready", "1 when `/health/ready` says that the worker may get requests."
        )
        self.audit_healthy = self._gauge(
            "gatewright_audit_healthy", "1 when the audit device can write."
        )
        self.audit_carried = self._gauge(
            "gatewright_audit_carried", "1 while the database takes what the disk cannot."
        )
        self.audit_write_failures = self._counter(
            "gatewright_audit_write_failures_total",
            "Records that this worker's disk failed to take; the database may have taken them.",
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def requests_in_flight(self) -> int:
        """How many this worker serves at this moment."""
        (family,) = self.in_flight.collect()
        return round(sum(sample.value for sample in family.samples))

    def waiting_lines(self, by_state: Mapping[str, int], oldest_s: float) -> None:
        """Lines of batches that have not ended, and how long the oldest batch of them is there."""
        for state in ("waiting", "running"):
            self._batch_lines.labels(state).set(by_state.get(state, 0))
        self._batch_oldest.set(oldest_s)

    def drifts_open(self, kind: str, count: int) -> None:
        """How many profiles of that kind drift now."""
        self._drifts.labels(kind).set(count)

    def count_line(self, state: str) -> None:
        """A line of a batch that this worker has sent and ended."""
        self._batch_lines_ended.labels(state).inc()

    def count_failed_attempt(self, target: str, code: str) -> None:
        self._attempts_failed.labels(target, code).inc()

    def count_refused_credential(self, target: str) -> None:
        """A failed attempt, counted as such besides: an operator has to mend the credential."""
        self._credentials_refused.labels(target).inc()

    def count_refusal(self, code: str) -> None:
        """A request whose caller gets an error; the code is one of our tree's."""
        self._refusals.labels(code).inc()

    def count_disbelieved(self, target: str) -> None:
        """An answer whose upstream says that it counted what cannot be."""
        self._disbelieved.labels(target).inc()

    def count_trial(self, rule: str, arm: str, result: str) -> None:
        """What became of a request that a canary among the targets could have got."""
        self._tried.labels(rule, arm, result).inc()

    def count_cache(self, result: str) -> None:
        """A request whose answer may be given again: found or not, kept or too long."""
        self._cached.labels(result).inc()

    def count_token(self, issuer: str, outcome: str) -> None:
        """A caller's token; the issuer is one of the settings, or empty."""
        self._caller_tokens.labels(issuer, outcome).inc()

    def count_shadow(self, change: str) -> None:
        """A request that a shadow policy looked at, and how its decision differs."""
        self._shadows.labels(change).inc()


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
    family = CounterMetricFamily(name, text, labels=labels)
    for values, amount in sums.items():
        family.add_metric(values, amount)
    return family


def _durations(rows: list[tuple[Kind, Sums]]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(
        "gatewright_request_duration_seconds", "Arrival to last byte.", labels=("target",)
    )
    by_target: dict[str, list[Sums]] = defaultdict(list)
    for kind, sums in rows:
        by_target[kind.target].append(sums)
    for target, all_sums in by_target.items():
        counts = [sum(column) for column in zip(*(sums.buckets for sums in all_sums), strict=True)]
        buckets = [(label, sum(counts[: at + 1])) for at, label in enumerate(_BUCKET_LABELS)]
        duration_s = sum(sums.duration_us for sums in all_sums) / 1e6
        family.add_metric([target], buckets, duration_s)
    return family
