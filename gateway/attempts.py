"""Attempts as they happen: what one upstream call did, written down once, when it is over.

A stream's attempt ends where the stream ends, not where it began: beginnings would hide breaks from
the record and from the breaker.
"""

import asyncio

from gateway.breaker import Breakers
from gateway.clock import Clock
from gateway.errors import ClientGone, GatewrightError
from gateway.types import Attempt


class AttemptLog:
    """The attempts of one request, in the order of their ends; append-only."""

    __slots__ = ("_attempts",)

    def __init__(self) -> None:
        self._attempts: list[Attempt] = []

    def add(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)

    @property
    def last_status(self) -> int:
        """The HTTP status of the last attempt; 0 when no header came."""
        return self._attempts[-1].status if self._attempts else 0

    def as_tuple(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts)


class RunningAttempt:
    """One upstream call while it lasts."""

    __slots__ = ("_breakers", "_clock", "_first_byte_s", "_log", "_started_s", "_status", "_target")

    def __init__(self, target: str, log: AttemptLog, breakers: Breakers, clock: Clock) -> None:
        self._target = target
        self._log: AttemptLog | None = log
        self._breakers = breakers
        self._clock = clock
        self._status = 0
        self._started_s = self._first_byte_s = clock.monotonic_s()

    @property
    def started_s(self) -> float:
        return self._started_s

    def heard(self, status: int) -> None:
        """The upstream's head has arrived."""
        self._status, self._first_byte_s = status, self._clock.monotonic_s()

    def end(self, error: BaseException | None) -> None:
        """Write it down and tell the breaker; the first end counts, later ones are no news."""
        if self._log is None:
            return
        log, self._log = self._log, None
        ended_s = self._clock.monotonic_s()
        if error is None or isinstance(error, GatewrightError):
            # A caller who leaves, or a defect of ours, says nothing about the upstream.
            self._breakers.record(self._target, ended_s, error)
        log.add(
            Attempt(
                target=self._target,
                status=self._status,
                error=end_code(error) if error is not None else "",
                duration_us=round((ended_s - self._started_s) * 1e6),
                first_byte_us=round((self._first_byte_s - self._started_s) * 1e6),
            )
        )


def end_code(error: BaseException) -> str:
    """Why something was broken off: a cancellation is the caller's leaving, all else is ours."""
    if isinstance(error, GatewrightError):
        return error.code
    if isinstance(error, asyncio.CancelledError):
        return ClientGone.code
    return GatewrightError.code
