"""Attempts as they happen: what one upstream call did, written down once, when it is over.

A stream's attempt ends where the stream ends, not where it began: beginnings would hide breaks from
the record and from the breaker.
"""

import asyncio
from collections.abc import Mapping

from gateway.clock import Clock
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.hedging import HEDGE
from gateway.errors import ClientGone, GatewrightError
from gateway.types import Attempt, Candidate, Target, Usage


HEDGED_CODE = "hedged_away"
"""Another attempt of the same request answered first."""


class AttemptLog:
    """The attempts of one request, in the order of their ends; append-only."""

    __slots__ = ("_attempts", "cascade", "hedged", "repeats", "spent", "told")

    def __init__(self) -> None:
        self._attempts: list[Attempt] = []
        self.hedged: list[tuple[Candidate, Candidate]] = []
        """Who were asked at once: of each pair one answer is thrown away and paid."""
        self.spent: list[tuple[Target, Usage]] = []
        """Whole answers that another one took the place of, and that are paid."""
        self.cascade: Mapping[str, str] = {}
        """What a cascade has to say in the record."""
        self.repeats: Mapping[str, str] = {}
        """What the record says of an answer given before; empty where somebody was asked."""
        self.told: Mapping[str, str] = {}
        """What the caller is told in headers of where the answer comes from."""

    def add(self, attempt: Attempt) -> None:
        self._attempts.append(attempt)

    @property
    def last_status(self) -> int:
        """The HTTP status of the last attempt; 0 when no header came."""
        return self._attempts[-1].status if self._attempts else 0

    def last_status_of(self, target: str) -> int:
        """The HTTP status of a target's last attempt; 0 when no header came, or none was made."""
        of_target = [each.status for each in self._attempts if each.target == target]
        return of_target[-1] if of_target else 0

    def as_tuple(self) -> tuple[Attempt, ...]:
        return tuple(self._attempts)


class RunningAttempt:
    """One upstream call while it lasts."""

    __slots__ = ("_clock", "_first_byte_s", "_health", "_log", "_status", "_target", "started_s")

    def __init__(self, target: str, log: AttemptLog, health: TargetHealth, clock: Clock) -> None:
        self._target = target
        self._log: AttemptLog | None = log
        self._health = health
        health.began(target)
        self._clock = clock
        self._status = 0
        self.started_s = self._first_byte_s = clock.monotonic_s()

    def heard(self, status: int) -> None:
        """The upstream's head has arrived."""
        self._status, self._first_byte_s = status, self._clock.monotonic_s()

    def end(self, error: BaseException | None) -> None:
        """Write it down and tell the breaker; the first end counts, later ones are no news."""
        if self._log is None:
            return
        log, self._log = self._log, None
        ended_s = self._clock.monotonic_s()
        self._health.ended(self._target, ended_s, self._first_byte_s - self.started_s, error)
        log.add(
            Attempt(
                target=self._target,
                status=self._status,
                error=end_code(error) if error is not None else "",
                duration_us=round((ended_s - self.started_s) * 1e6),
                first_byte_us=round((self._first_byte_s - self.started_s) * 1e6),
            )
        )


def end_code(error: BaseException) -> str:
    """Why something was broken off: a cancellation is the caller's leaving, all else is ours."""
    if isinstance(error, GatewrightError):
        return error.code
    if isinstance(error, asyncio.CancelledError):
        return HEDGED_CODE if HEDGE in error.args else ClientGone.code
    return GatewrightError.code
