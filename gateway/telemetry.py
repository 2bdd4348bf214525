"""The process's own log: JSON lines, and the names of events.

It never sees content: callers pass names, counts, codes and durations. The keys of a log line are
an allow-list, so that a stray field cannot carry a prompt, a header or a secret out of the process.
"""

import atexit
import logging
import sys
import threading
import time
from asyncio import CancelledError
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, BinaryIO

import msgspec

from gateway.log_outlet import LogOutlet


@contextmanager
def _without(module: str) -> Iterator[None]:
    """Without a module, so that an import here does not find an optional dependency."""
    if module in sys.modules:
        yield
        return
    modules: dict[str, Any] = sys.modules
    modules[module] = None  # Python's own way to say "cannot be imported".
    try:
        yield
    finally:
        del modules[module]


# If structlog finds rich, it loads it for coloured tracebacks, which are never printed here: 81
# modules, 4 MiB of every worker and 57 ms of every start.
with _without("rich"):
    import structlog


NS_PER_S = 1_000_000_000


class Event(StrEnum):
    """Every event this process logs, as `subject:action`; names are stable for ever."""

    REQUEST_SERVED = "request:served"
    REQUEST_REFUSED = "request:refused"
    REQUEST_FAILED = "request:failed"
    REQUEST_CRASHED = "request:crashed"
    ATTEMPT_FAILED = "attempt:failed"
    USAGE_DISBELIEVED = "usage:disbelieved"
    COST_ABOVE_RESERVED = "cost:above_reserved"
    SNAPSHOT_PUBLISHED = "snapshot:published"
    SNAPSHOT_FAILED = "snapshot:failed"
    SNAPSHOT_DATABASE_OLDER = "snapshot:database_older"
    CREDENTIAL_ROTATED = "credential:rotated"
    CREDENTIAL_UNAVAILABLE = "credential:unavailable"
    ISSUER_KEYS_REFUSED = "issuer:keys_refused"
    CERTIFICATES_RENEWED = "certificates:renewed"
    CERTIFICATES_REFUSED = "certificates:refused"
    CERTIFICATES_END = "certificates:end"
    PRICES_CHANGED = "prices:changed"
    PRICES_REFUSED = "prices:refused"
    ALERT_SENT = "alert:sent"
    ALERT_NOT_TAKEN = "alert:not_taken"
    RATES_DEGRADED = "rates:degraded"
    RATES_RECOVERED = "rates:recovered"
    CACHE_DEGRADED = "cache:degraded"
    CACHE_RECOVERED = "cache:recovered"
    POLICY_DOUBTED = "policy:doubted"
    CANARY_WITHDRAWN = "policy:canary_withdrawn"
    CANARY_HALTED = "policy:canary_halted"
    CANARY_WORSE = "policy:canary_worse"
    SCHEDULE_DONE = "policy:schedule_done"
    SCHEDULE_REFUSED = "policy:schedule_refused"
    SCHEDULE_FAILED = "policy:schedule_failed"
    GUARD_FAILED = "policy:guard_failed"
    LEDGER_FLUSH_FAILED = "ledger:flush_failed"
    LEDGER_LEFT_LEASED = "ledger:left_leased"
    UPKEEP_FAILED = "upkeep:failed"
    AUDIT_PROJECTION_FAILED = "audit:projection_failed"
    AUDIT_WRITE_FAILED = "audit:write_failed"
    AUDIT_WRITE_RECOVERED = "audit:write_recovered"
    AUDIT_SECOND_DEVICE = "audit:second_device"
    AUDIT_FIRST_DEVICE = "audit:first_device"
    AUDIT_TAIL_CUT = "audit:tail_cut"
    CLOCK_JUMPED = "clock:jumped"
    AUDIT_CUT_OFF = "audit:cut_off"
    AUDIT_ENDED_AGAIN = "audit:ended_again"
    AUDIT_SEGMENT_DAMAGED = "audit:segment_damaged"
    AUDIT_NOT_RECKONED = "audit:not_reckoned"
    RESPONSE_NOT_KEPT = "response:not_kept"
    RESPONSES_LET_GO = "response:let_go"
    CONVERSATION_NOT_KEPT = "conversation:not_kept"
    BACKGROUND_FAILED = "background:failed"
    BACKGROUND_LEFT = "background:left"
    BATCH_ENDED = "batch:ended"
    BATCH_STOPPED = "batch:stopped"
    BATCH_FAILED = "batch:failed"
    BATCH_HANDED = "batch:handed"
    BATCH_FETCHED = "batch:fetched"
    BATCH_TAKEN_OVER = "batch:taken_over"
    AUDIT_DATABASE_OLDER = "audit:database_older"
    AUDIT_DATABASE_WAITS = "audit:database_waits"
    AUDIT_FOLDER_COPIED = "audit:folder_copied"
    AUDIT_ERASED_AGAIN = "audit:erased_again"
    AUDIT_KEY_DAMAGED = "audit:key_damaged"
    AUDIT_CHECKPOINT_FAILED = "audit:checkpoint_failed"
    AUDIT_CHECK_FAILED = "audit:check_failed"
    AUDIT_CHECKPOINT_NOT_EXPORTED = "audit:checkpoint_not_exported"
    SINK_NOT_TAKEN = "sink:not_taken"
    SINK_RECOVERED = "sink:recovered"
    SINK_FAILED = "sink:failed"
    METRICS_NOT_TAKEN = "metrics:not_taken"
    METRICS_RECOVERED = "metrics:recovered"
    OTLP_REJECTED = "otlp:rejected"
    INSPECTION_FAILED = "inspection:failed"
    PROBE_FAILED = "probe:failed"
    PROBE_RECOVERED = "probe:recovered"
    MEMBER_SLOW = "pool:member_slow"
    MEMBER_DRAINED = "pool:member_drained"
    MEMBER_RESUMED = "pool:member_resumed"
    MEMBER_DIFFERS = "pool:member_differs"
    MEMBER_DENIES = "pool:member_denies"
    MEMBER_DRIFTS = "pool:member_drifts"
    PROFILE_DRIFTS = "profile:drifts"
    PROFILE_STEADY = "profile:steady"
    DRIFT_WATCH_FAILED = "profile:watch_failed"
    HOUR_UNUSUAL = "cost:hour_unusual"
    HOUR_WATCH_FAILED = "cost:hour_watch_failed"
    SCHEMA_NEWER = "schema:newer"
    PROCESS_STARTED = "process:started"
    PROCESS_STOPPED = "process:stopped"
    SERVER_SAID = "server:said"
    LOG_LINES_LOST = "log:lines_lost"
    CERTIFICATE_RENEWED = "certificate:renewed"
    CERTIFICATE_REFUSED = "certificate:refused"
    CERTIFICATE_ENDS = "certificate:ends"
    CERTIFICATE_LIST_ENDS = "certificate:list_ends"
    ADMIN_SIGNED_IN = "admin:signed_in"
    ADMIN_REFUSED = "admin:refused"
    ADMIN_SIGNED_OUT_THERE = "admin:signed_out_there"
    ADMIN_LOGOUT_REFUSED = "admin:logout_refused"
    ADMIN_PROVIDER_REFUSED = "admin:provider_refused"


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
        *("where", "segment", "offset_bytes", "batch"),
    }
)


class LogBuffer:
    """Log lines on their way to standard error, written many at a time by `drain`.

    A write per line would release the interpreter twice per request. A killed process loses at most
    the lines since the last `drain`; the audit log is not written through it.
    """

    BYTES_MAX = 64 * 1024

    def __init__(self, file: BinaryIO, bytes_max: int = BYTES_MAX) -> None:
        """Beyond `bytes_max` it drains by itself."""
        self._outlet = LogOutlet(file)
        self._bytes_max = bytes_max
        self._draining = threading.Lock()
        self._lines: list[bytes] = []
        self._size = 0
        atexit.register(self.drain)

    def msg(self, line: bytes) -> None:
        """Add a line; structlog's bound loggers call this."""
        self._lines.append(line)
        self._size += len(line)
        if self._size > self._bytes_max:
            self.drain()

    def drain(self) -> None:
        """Write the collected lines; those that cannot be written are dropped."""
        # Whoever is draining also takes lines that come meanwhile. Waiting would last for ever if a
        # finalizer or a signal handler logs in the middle of that.
        while self._draining.acquire(blocking=False):
            try:
                lost = self._write_gathered()
            finally:
                self._draining.release()
            if lost:
                logger().warning(Event.LOG_LINES_LOST, count=lost)
            if self._size <= self._bytes_max:
                return

    def _write_gathered(self) -> int:
        lines, self._lines, self._size = self._lines, [], 0
        with suppress(OSError):
            return self._outlet.write(b"\n".join([*lines, b""]) if lines else b"")
        return 0


def configure_logging(level: str = "info", *, buffered: bool = False) -> LogBuffer | None:
    """Log JSON lines to standard error, once per process; `drain` what is returned, often."""
    buffer = LogBuffer(sys.stderr.buffer, LogBuffer.BYTES_MAX if buffered else 0)
    structlog.configure(
        processors=[Renderer()],
        wrapper_class=_lines_from(getattr(logging, level.upper())),
        logger_factory=lambda *_: buffer,
        cache_logger_on_first_use=True,
    )
    return buffer if buffered else None


class _Lines(structlog.BoundLoggerBase):
    """A logger with four levels: an event and its fields.

    It replaces structlog's own, which passes a line through four more calls.
    """

    def debug(self, event: str, **fields: Any) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say("error", event, fields)

    def _say(self, method: str, event: str, fields: dict[str, Any]) -> None:
        fields["event"] = event
        said: Any = fields
        try:
            for process in self._processors:
                said = process(self._logger, method, said)
            self._logger.msg(said)
        except (structlog.DropEvent, OSError):
            # A full disk under the log, or a reader that left, is no reason to refuse a request.
            pass


def _lines_from(level: int) -> type[_Lines]:
    """Loggers that drop lines below a level."""
    unsaid = [name for name in _METHODS if getattr(logging, name.upper()) < level]
    return type("Lines", (_Lines,), dict.fromkeys(unsaid, _nothing))


_METHODS = ("debug", "info", "warning", "error")


def _nothing(*_: object, **_fields: object) -> None:
    """A line below the level."""


def logger() -> Any:
    """The process's logger; structlog's own type is a proxy that mypy cannot follow."""
    return structlog.get_logger()


class Renderer:
    """The only processor: one line of JSON with level and time, of allowed keys alone.

    It replaces four of structlog's own, because a line is written for every request.
    """

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._second = 0
        self._second_text = ""

    def __call__(self, _logger: object, method: str, event: MutableMapping[str, Any]) -> bytes:
        event["level"] = method
        event["timestamp"] = self._now()
        if not event.keys() <= LOG_KEYS:
            event = {key: value for key, value in event.items() if key in LOG_KEYS}
        return self._encode(event)

    def _now(self) -> str:
        """The time in UTC as ISO 8601; the part that changes once a second is kept."""
        second, rest_ns = divmod(time.time_ns(), NS_PER_S)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._second_text}.{rest_ns // 1000:06d}Z"


def raised_at(error: BaseException) -> str:
    """Where an unexpected error came from, as `module:line`; its text may hold content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = trace and f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"
    return where or "unknown"


class ServerLines(logging.Handler):
    """Turns lines of the HTTP server's own logger into lines like all others, without traces."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"reason": record.getMessage().strip()}
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, CancelledError):
            return  # Requests cut off at a stop are no defect, and the server says how many.
        if error is not None:
            fields |= {"error_class": type(error).__name__, "where": raised_at(error)}
        method = "error" if record.levelno >= logging.ERROR else "warning"
        getattr(logger(), method)(Event.SERVER_SAID, **fields)


# Until a process chooses otherwise, which commands do not: programs read their output.
structlog.configure(
    processors=[Renderer()],
    wrapper_class=_Lines,
    logger_factory=lambda *_: structlog.BytesLogger(sys.stderr.buffer),
)
