"""What the process says about itself in its log: JSON lines, and the names of events.

It never sees content: callers pass names, counts, codes and durations. Keys of a log line are an
allow-list, so that a stray field cannot carry a prompt, a header or a secret out of the process.
"""

import atexit
import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from enum import StrEnum
from functools import partial
from typing import Any, BinaryIO

import msgspec


NS_PER_S = 1_000_000_000

Take = Callable[[str, MutableMapping[str, Any]], None]
"""Takes a level and the fields of a line, the event among them."""


class Event(StrEnum):
    """Every event this process logs, as `subject:action`; names are stable for ever."""

    REQUEST_SERVED = "request:served"
    REQUEST_REFUSED = "request:refused"
    REQUEST_FAILED = "request:failed"
    REQUEST_CRASHED = "request:crashed"
    ATTEMPT_FAILED = "attempt:failed"
    SNAPSHOT_PUBLISHED = "snapshot:published"
    SNAPSHOT_FAILED = "snapshot:failed"
    CREDENTIAL_ROTATED = "credential:rotated"
    CREDENTIAL_UNAVAILABLE = "credential:unavailable"
    PRICES_CHANGED = "prices:changed"
    PRICES_REFUSED = "prices:refused"
    ALERT_SENT = "alert:sent"
    ALERT_NOT_TAKEN = "alert:not_taken"
    RATES_DEGRADED = "rates:degraded"
    RATES_RECOVERED = "rates:recovered"
    CACHE_DEGRADED = "cache:degraded"
    CACHE_RECOVERED = "cache:recovered"
    CANARY_WITHDRAWN = "policy:canary_withdrawn"
    CANARY_HALTED = "policy:canary_halted"
    CANARY_WORSE = "policy:canary_worse"
    SCHEDULE_DONE = "policy:schedule_done"
    SCHEDULE_REFUSED = "policy:schedule_refused"
    SCHEDULE_FAILED = "policy:schedule_failed"
    GUARD_FAILED = "policy:guard_failed"
    LEDGER_FLUSH_FAILED = "ledger:flush_failed"
    UPKEEP_FAILED = "upkeep:failed"
    AUDIT_PROJECTION_FAILED = "audit:projection_failed"
    AUDIT_WRITE_FAILED = "audit:write_failed"
    AUDIT_WRITE_RECOVERED = "audit:write_recovered"
    AUDIT_SECOND_DEVICE = "audit:second_device"
    AUDIT_FIRST_DEVICE = "audit:first_device"
    AUDIT_TAIL_CUT = "audit:tail_cut"
    AUDIT_CUT_OFF = "audit:cut_off"
    AUDIT_SEGMENT_DAMAGED = "audit:segment_damaged"
    RESPONSE_NOT_KEPT = "response:not_kept"
    BATCH_ENDED = "batch:ended"
    BATCH_STOPPED = "batch:stopped"
    BATCH_FAILED = "batch:failed"
    BATCH_HANDED = "batch:handed"
    BATCH_FETCHED = "batch:fetched"
    AUDIT_ERASED_AGAIN = "audit:erased_again"
    AUDIT_CHECKPOINT_FAILED = "audit:checkpoint_failed"
    AUDIT_CHECK_FAILED = "audit:check_failed"
    AUDIT_CHECKPOINT_NOT_EXPORTED = "audit:checkpoint_not_exported"
    SINK_NOT_TAKEN = "sink:not_taken"
    SINK_RECOVERED = "sink:recovered"
    SINK_FAILED = "sink:failed"
    INSPECTION_FAILED = "inspection:failed"
    PROBE_FAILED = "probe:failed"
    PROBE_RECOVERED = "probe:recovered"
    MEMBER_SLOW = "pool:member_slow"
    MEMBER_DRAINED = "pool:member_drained"
    MEMBER_RESUMED = "pool:member_resumed"
    MEMBER_DIFFERS = "pool:member_differs"
    MEMBER_DRIFTS = "pool:member_drifts"
    PROFILE_DRIFTS = "profile:drifts"
    PROFILE_STEADY = "profile:steady"
    DRIFT_WATCH_FAILED = "profile:watch_failed"
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
        "batch",
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

    def msg(self, line: bytes) -> None:
        """One more line."""
        self._lines.append(line)
        self._size += len(line)
        if self._size > self.BYTES_MAX:
            self.drain()

    def drain(self) -> None:
        """Write what has gathered."""
        if self._lines:
            lines, self._lines, self._size = self._lines, [], 0
            self._file.write(b"\n".join([*lines, b""]))
            self._file.flush()


class Output:
    """Where the lines of this process go, and from which level on."""

    def __init__(self) -> None:
        self.least = logging.INFO
        self.take: Take = _to_standard_error

    def lead(self, level: str, write: Callable[[bytes], None]) -> None:
        """Render what is said from `level` on, and hand each line to `write`."""
        render = Renderer()
        self.least = getattr(logging, level.upper())
        self.take = lambda method, event: write(render(method, event))


class Logger:
    """What a logger of ours can say: an event and its fields, at four levels."""

    __slots__ = ()

    def debug(self, event: str, **fields: Any) -> None:
        if OUTPUT.least <= logging.DEBUG:
            OUTPUT.take("debug", {**fields, "event": event})

    def info(self, event: str, **fields: Any) -> None:
        if OUTPUT.least <= logging.INFO:
            OUTPUT.take("info", {**fields, "event": event})

    def warning(self, event: str, **fields: Any) -> None:
        if OUTPUT.least <= logging.WARNING:
            OUTPUT.take("warning", {**fields, "event": event})

    def error(self, event: str, **fields: Any) -> None:
        if OUTPUT.least <= logging.ERROR:
            OUTPUT.take("error", {**fields, "event": event})


def configure_logging(level: str = "info", *, buffered: bool = False) -> LogBuffer | None:
    """Log JSON lines to standard error; call once per process.

    With `buffered`, the caller must `drain` what is returned, several times a second.
    """
    if buffered:
        buffer = LogBuffer(sys.stderr.buffer)
        OUTPUT.lead(level, buffer.msg)
        return buffer
    OUTPUT.lead(level, partial(_write_line, sys.stderr.buffer))
    return None


def logger() -> Logger:
    """The process's logger."""
    return _LOGGER


class Renderer:
    """One line of JSON with level and time, of allowed keys alone."""

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode
        self._second = 0
        self._second_text = ""

    def __call__(self, method: str, event: MutableMapping[str, Any]) -> bytes:
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
    if trace is None:
        return "unknown"
    return f"{trace.tb_frame.f_globals.get('__name__', '?')}:{trace.tb_lineno}"


def _write_line(file: BinaryIO, line: bytes) -> None:
    file.write(line + b"\n")
    file.flush()


def _to_standard_error(method: str, event: MutableMapping[str, Any]) -> None:
    """Before anything is configured, as in commands that serve nothing."""
    _write_line(sys.stderr.buffer, Renderer()(method, event))


OUTPUT = Output()
_LOGGER = Logger()
