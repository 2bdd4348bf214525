"""What the process says about itself: JSON log lines, event names, Prometheus metrics.

It never sees content: callers pass names, counts, codes and durations. Keys of a log line are an
allow-list, so that a stray field cannot carry a prompt, a header or a secret out of the process.
"""

import atexit
import logging
import sys
from collections.abc import MutableMapping
from enum import StrEnum
from typing import Any, BinaryIO, cast

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Event(StrEnum):
    """Every event this process logs, as `subject:action`; names are stable for ever."""

    REQUEST_SERVED = "request:served"
    REQUEST_REFUSED = "request:refused"
    REQUEST_FAILED = "request:failed"
    REQUEST_CRASHED = "request:crashed"
    ATTEMPT_FAILED = "attempt:failed"
    SNAPSHOT_PUBLISHED = "snapshot:published"
    SNAPSHOT_FAILED = "snapshot:failed"
    LEDGER_FLUSH_FAILED = "ledger:flush_failed"
    UPKEEP_FAILED = "upkeep:failed"
    AUDIT_PROJECTION_FAILED = "audit:projection_failed"
    AUDIT_WRITE_FAILED = "audit:write_failed"
    AUDIT_WRITE_RECOVERED = "audit:write_recovered"
    AUDIT_TAIL_CUT = "audit:tail_cut"
    AUDIT_SEGMENT_DAMAGED = "audit:segment_damaged"
    INSPECTION_FAILED = "inspection:failed"
    PROBE_FAILED = "probe:failed"
    PROBE_RECOVERED = "probe:recovered"
    PROCESS_STARTED = "process:started"
    PROCESS_STOPPED = "process:stopped"
    ADMIN_SIGNED_IN = "admin:signed_in"
    ADMIN_REFUSED = "admin:refused"


LOG_KEYS = frozenset(
    {
        "event",
        "level",
        "timestamp",
        "request_id",
        "organisation",
        "key_id",
        "endpoint",
        "target",
        "provider",
        "status",
        "code",
        "error_class",
        "data_class",
        "cost_microusd",
        "input_tokens",
        "output_tokens",
        "duration_us",
        "version",
        "worker",
        "count",
        "reason",
        "url",
        "pid",
        "component",
        "where",
        "segment",
        "offset_bytes",
    }
)


class LogBuffer:
    """Log lines on their way to standard error, written many at a time by `drain`.

    A write per line would let the interpreter go twice a request. What is lost when the process is
    killed is at most what `drain` was not yet called for; the audit log is not written through it.
    """

    BYTES_MAX = 64 * 1024

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[bytes] = []
        self._size = 0
        atexit.register(self.drain)

    def write(self, line: bytes) -> int:
        self._lines.append(line)
        self._size += len(line)
        if self._size > self.BYTES_MAX:
            self.drain()
        return len(line)

    def flush(self) -> None:
        """Nothing: structlog asks for it after every line."""

    def drain(self) -> None:
        """Write what has gathered."""
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            self._file.write(b"".join(lines))
            self._file.flush()


def configure_logging(level: str = "info", *, buffered: bool = False) -> LogBuffer | None:
    """Log JSON lines to standard error; call once per process.

    With `buffered`, the caller must `drain` what is returned, several times a second.
    """
    buffer = LogBuffer(sys.stderr.buffer) if buffered else None
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _keep_allowed_keys,
            _render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.BytesLoggerFactory(cast("BinaryIO", buffer or sys.stderr.buffer)),
        cache_logger_on_first_use=True,
    )
    return buffer


def logger() -> Any:
    """The process's logger; structlog's own type is a proxy that mypy cannot follow."""
    return structlog.get_logger()


def _keep_allowed_keys(
    _logger: object, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    stray = [key for key in event if key not in LOG_KEYS]
    for key in stray:
        del event[key]
    return event


_encode_json = msgspec.json.Encoder().encode


def _render(_logger: object, _method: str, event: MutableMapping[str, Any]) -> bytes:
    return _encode_json(event)


def raised_at(error: BaseException) -> str:
    """Where an unexpected error came from, as `module:line`; its text may hold content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "unknown"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


class Metrics:
    """The data plane's Prometheus series. Children are cached: a look-up costs more than inc."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "gatewright_requests",
            "Requests by target and outcome.",
            ["target", "status"],
            registry=self.registry,
        )
        self._tokens = Counter(
            "gatewright_tokens",
            "Tokens by target and kind.",
            ["target", "kind"],
            registry=self.registry,
        )
        self._cost = Counter(
            "gatewright_cost_microusd",
            "Settled cost in micro-dollars.",
            ["target"],
            registry=self.registry,
        )
        self._duration = Histogram(
            "gatewright_request_duration_seconds",
            "Arrival to last byte.",
            ["target"],
            buckets=(0.005, 0.02, 0.1, 0.5, 1, 2, 5, 15, 60, 300),
            registry=self.registry,
        )
        self._data_classes = Counter(
            "gatewright_requests_by_data_class",
            "Requests by data class and jurisdiction they were sent to.",
            ["data_class", "jurisdiction"],
            registry=self.registry,
        )
        self._attempts_failed = Counter(
            "gatewright_attempts_failed",
            "Upstream attempts that failed.",
            ["target", "code"],
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "gatewright_requests_in_flight", "Requests being served now.", registry=self.registry
        )
        self.snapshot_age = Gauge(
            "gatewright_snapshot_age_seconds",
            "Age of the configuration snapshot.",
            registry=self.registry,
        )
        self.audit_healthy = Gauge(
            "gatewright_audit_healthy", "1 when the audit device can write.", registry=self.registry
        )
        self._children: dict[tuple[str, ...], Any] = {}

    def _child(self, kind: str, *labels: str) -> Any:
        key = (kind, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = getattr(self, kind).labels(*labels)
        return child

    def count_request(self, target: str, status: str, duration_us: int) -> None:
        """One request ended; `target` is empty when none was reached."""
        self._child("_requests", target, status).inc()
        self._child("_duration", target).observe(duration_us / 1e6)

    def count_usage(
        self, target: str, input_tokens: int, output_tokens: int, cost_microusd: int
    ) -> None:
        self._child("_tokens", target, "input").inc(input_tokens)
        self._child("_tokens", target, "output").inc(output_tokens)
        self._child("_cost", target).inc(cost_microusd)

    def count_data_class(self, data_class: str, jurisdiction: str) -> None:
        self._child("_data_classes", data_class, jurisdiction).inc()

    def count_failed_attempt(self, target: str, code: str) -> None:
        self._child("_attempts_failed", target, code).inc()
