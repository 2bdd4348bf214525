"""The one source of time: wall clock for records, monotonic clock for deadlines.

It knows nothing about time zones: everything is UTC.
"""

import time
from typing import Protocol


SECOND_US = 1_000_000
"""Wall time is whole microseconds everywhere."""
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US

SET_US = SECOND_US
"""A wall clock that differs more than this from the monotonic one was set, not slewed."""
BELIEVED_AFTER_S = 86_400.0


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
    """Called nine times per request: the function itself, not wrapped in one of ours."""

    def utc_us(self) -> int:
        return time.time_ns() // 1000


class UnhurriedClock:
    """Wall time that never jumps forward: for things that are deleted when their time is over.

    It follows the wall clock back at once, and forward only as fast as time passes. So nothing is
    deleted because somebody set the clock a day too far and then corrected it.
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


class LaggingClock:
    """Wall time that jumps back at once, and forward only after `behind_s` seconds.

    For times that others recorded while their clock was set back, and before it was corrected.
    """

    def __init__(self, clock: Clock, behind_s: float) -> None:
        self._clock, self._behind_s = clock, behind_s
        self._utc_us, self._seen_s = clock.utc_us(), clock.monotonic_s()

    def utc_us(self) -> int:
        """Microseconds; never later than the wall clock. Call it more often than it lags."""
        now_us, now_s = self._clock.utc_us(), self._clock.monotonic_s()
        lagging_us = self._utc_us + round((now_s - self._seen_s) * 1_000_000)
        if now_us > lagging_us + SET_US and now_s - self._seen_s < self._behind_s:
            return lagging_us
        self._utc_us, self._seen_s = now_us, now_s
        return now_us


class SteadyClock:
    """Wall time without jumps: when the clock is set, it continues as if nobody had set it.

    After a day the wall clock is believed, so that a time that was wrong at the start does not stay
    wrong.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._utc_us, self._seen_s = clock.utc_us(), clock.monotonic_s()
        self._apart_s: float | None = None
        """Since when the wall clock differs."""

    def utc_us(self) -> int:
        """Microseconds; a clock that is slewed is followed."""
        now_us, now_s = self._clock.utc_us(), self._clock.monotonic_s()
        steady_us = self._utc_us + round((now_s - self._seen_s) * 1_000_000)
        if abs(now_us - steady_us) > SET_US:
            if self._apart_s is None:
                self._apart_s = now_s
            if now_s - self._apart_s < BELIEVED_AFTER_S:
                return steady_us
        self._utc_us, self._seen_s, self._apart_s = now_us, now_s, None
        return now_us


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
