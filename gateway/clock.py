"""The one source of time: wall clock for records, monotonic clock for deadlines.

It knows nothing about time zones: everything is UTC.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def utc_us(self) -> int:
        """Microseconds since 1970-01-01T00:00:00Z."""
        ...

    def monotonic_s(self) -> float:
        """Seconds on a clock that never goes back; only differences mean anything."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    monotonic_s = staticmethod(time.monotonic)
    """Asked nine times a request: the function itself, with none of ours around it."""

    def utc_us(self) -> int:
        return time.time_ns() // 1000


class StoppedClock:
    """A clock that stands still until it is moved: for tests and replays."""

    def __init__(self, utc_us: int = 1_800_000_000_000_000) -> None:
        self._utc_us = utc_us
        self._monotonic_s = 0.0

    def utc_us(self) -> int:
        return self._utc_us

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._utc_us += round(seconds * 1_000_000)
        self._monotonic_s += seconds
