"""The data plane's Prometheus series: only numbers, under labels that the gateway chose.

What every request adds to is in `totals`; the client library's series, with a lock for each number,
cost ten times as much, so they are used only for what is counted rarely.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from gateway.totals import Totals


PAID_FROM_BUDGET: Final = ("retry", "mend", "fallback", "hedge")
LeftS = Callable[[], float | None]
"""Seconds until something expires, below 0 if it has expired; None if it does not exist."""


class CertificateSeries:
    """How long certificates, authorities and revocation lists are still valid.

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
        """Set what to ask about a listener; there is a series for each that exists now."""
        for gauge, left_s in (
            (self._shown, shown),
            (self._authorities, authorities),
            (self._lists, lists),
        ):
            if left_s() is not None:
                gauge.labels(name).set_function(_number(left_s))

    def provider(self, name: str, setting: str, left_s: LeftS) -> None:
        """Set what to ask about the file that a provider's setting names."""
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
        self._add_background()
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

    def _add_background(self) -> None:
        """Series for answers whose callers do not wait for them."""
        self._background_ended = self._counter(
            "gatewright_background_ended",
            "Answers of the background whose end this worker has written, by status.",
            "status",
        )

    def expect(self, places: Mapping[str, str]) -> None:
        """Start the series that alarms watch at 0, by target with its jurisdiction.

        A series that begins with its first event is no increase, and nobody hears of that one.
        """
        self.requests.expect(places.values())
        for target in places:
            self._credentials_refused.labels(target)
            for kind in PAID_FROM_BUDGET:
                self._withheld_attempts.labels(target, kind)

    def _add_attempts(self) -> None:
        """Series for unexpected behaviour of upstreams, and for what callers were told."""
        self._attempts_failed = self._counter(
            "gatewright_attempts_failed", "Upstream attempts that failed.", "target", "code"
        )
        self._extra_attempts = self._counter(
            "gatewright_extra_attempts",
            "Attempts beyond a request's first: for what some target did, and how it ended.",
            *("target", "kind", "reason", "status"),
        )
        self._withheld_attempts = self._counter(
            "gatewright_withheld_attempts",
            "Attempts that were not made any more: the retry budget was spent.",
            *("target", "kind"),
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
        self._above_reserved = self._counter(
            "gatewright_cost_above_reserved",
            "Requests that cost more than was set aside for them.",
            "target",
        )

        self._rejected = self._counter(
            "gatewright_otlp_rejected",
            "Spans and points that a collector of OpenTelemetry did not keep.",
            "component",
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
        """The number of requests that this worker serves at this moment."""
        (family,) = self.in_flight.collect()
        return round(sum(sample.value for sample in family.samples))

    def waiting_lines(self, waiting: int, running: int, oldest_s: float) -> None:
        """Lines of batches that have not ended, and the age of the oldest of these batches."""
        self._batch_lines.labels("waiting").set(waiting)
        self._batch_lines.labels("running").set(running)
        self._batch_oldest.set(oldest_s)

    def background_answers(self, count: Callable[[str], int]) -> None:
        """Set what to ask for the number of background answers of this worker, by state."""
        gauge = self._gauge(
            "gatewright_background_answers",
            "Answers that this worker makes in the background, by state.",
            "state",
        )
        for state in ("queued", "in_progress"):
            gauge.labels(state).set_function(partial(count, state))

    def count_background(self, status: str) -> None:
        """A background answer has ended."""
        self._background_ended.labels(status).inc()

    def drifts_open(self, kind: str, count: int) -> None:
        """The number of profiles of that kind that drift now."""
        self._drifts.labels(kind).set(count)

    def count_line(self, state: str) -> None:
        """A line of a batch that this worker has sent and ended."""
        self._batch_lines_ended.labels(state).inc()

    def count_failed_attempt(self, target: str, code: str) -> None:
        self._attempts_failed.labels(target, code).inc()

    def count_extra_attempt(self, target: str, kind: str, reason: str, status: str) -> None:
        """An attempt after a request's first: what `target` did to cause it, and how it ended."""
        self._extra_attempts.labels(target, kind, reason, status).inc()

    def count_withheld_attempt(self, target: str, kind: str) -> None:
        """An attempt that was not made, because the retry budget was used up."""
        self._withheld_attempts.labels(target, kind).inc()

    def count_refused_credential(self, target: str) -> None:
        """A failed attempt, counted here as well: an operator has to fix the credential."""
        self._credentials_refused.labels(target).inc()

    def count_refusal(self, code: str) -> None:
        """A request whose caller gets an error; the code is from our error tree."""
        self._refusals.labels(code).inc()

    def count_disbelieved(self, target: str) -> None:
        """An answer whose upstream reported an impossible count."""
        self._disbelieved.labels(target).inc()

    def count_above_reserved(self, target: str) -> None:
        """A request that cost more than was reserved for it."""
        self._above_reserved.labels(target).inc()

    def count_rejected(self, component: str, count: int) -> None:
        """Spans or points; the component is the collector's section in the settings."""
        self._rejected.labels(component).inc(count)

    def count_trial(self, rule: str, arm: str, result: str) -> None:
        """The result of a request that a canary among the targets could have received."""
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
