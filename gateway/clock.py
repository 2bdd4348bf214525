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


class UnhurriedClock:
    """Wall time that no jump hurries: for what is thrown away once its time is over.

    It follows the wall clock back at once, and forward only as fast as time passes. What a clock
    set a day too far would have thrown away is there when it is set right again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._utc_us = clock.utc_us()
        self._seen_s = clock.monotonic_s()

    def utc_us(self) -> int:
        """Microseconds; never later than the wall clock."""
        passed_us = round((self._clock.monotonic_s() - self._seen_s) * 1_000_000)
        now_us = self._clock.utc_us()
        if now_us < self._utc_us + passed_us:
            self._utc_us, self._seen_s = now_us, self._clock.monotonic_s()
            return now_us
        return self._utc_us + passed_us


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
        self.jump(seconds)
        self._monotonic_s += seconds

    def jump(self, seconds: float) -> None:
        """Set the wall clock; no time passes."""
        self._utc_us += round(seconds * 1_000_000)
