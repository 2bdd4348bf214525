"""Records each upstream call as an attempt, once, when it is over.

An attempt at a stream ends where the stream ends, not where it began: otherwise breaks would be
hidden from the record and from the breaker. At the end its cost is known, or estimated.
"""

import asyncio
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from gateway.clock import Clock
from gateway.dispatch.breaker import PAUSING, judge
from gateway.dispatch.health import TargetHealth
from gateway.dispatch.hedging import HEDGE
from gateway.errors import (
    ClientGone,
    GatewrightError,
    StreamBroken,
    UpstreamUnreachable,
    WorkerStopped,
)
from gateway.money.bills import Bill
from gateway.tally import Believe, as_told
from gateway.types import Attempt, Target, Usage


HEDGED_CODE = "hedged_away"
"""Another attempt of the same request answered first."""
CASCADED_CODE = "cascaded_away"
"""A cheap answer that was too long to be judged was given up for a dearer one."""
TAKEN_OVER_CODE = "taken_over"
"""Another worker took over the line of a batch while it was being sent."""
CASCADE = "cascade"
TAKEN_OVER = "taken over"
STOPPED = "Task cancelled, timeout graceful shutdown exceeded"
"""Uvicorn's message when it cancels what it will not wait for any longer."""
NO_ANSWER = -1
HTTP_ERROR_MIN = 400
_ATTEMPT = itemgetter(1)
"""The attempt in an entry of the log."""


Beyond = Literal["retry", "mend", "fallback", "hedge", "cascade"]
"""In this order: the same call once more; without a part that was refused; at another target
instead; at another beside a late one; at a dearer one after a cheap answer."""


class Extra(Struct, frozen=True):
    """An attempt beyond a request's first, or beyond a cheap answer, and its reason."""

    kind: Beyond
    target: str
    """The target that failed, was late or was doubted."""
    reason: str
    """The failure's code; `late` for a hedge; `doubted`, `explored`, `too_long` for a cascade."""
    was_made: bool = True
    """False if the retry budget was spent."""


class AttemptLog:
    """The attempts of one request, in the order in which they ended; append-only."""

    # Of the class, since nearly every request leaves most of them as they are.
    answer = NO_ANSWER
    """Number of the attempt whose answer counts."""
    cascade: Mapping[str, str] = MappingProxyType({})
    """Details of a cascade, for the record."""
    repeats: Mapping[str, str] = MappingProxyType({})
    """Details of a repeated answer, for the record; empty if a target was asked."""
    told: Mapping[str, str] = MappingProxyType({})
    """Headers that tell the caller where the answer comes from."""
    check_lease: Callable[[], None] | None = None
    """Raises if nothing may be sent for this request any more."""
    extra: tuple[Extra, ...] = ()
    """Why others were asked besides the first, in order."""
    _begun = 0

    def __init__(self) -> None:
        self._entries: list[tuple[int, Attempt, Bill]] = []

    def begin(self) -> int:
        """The number of a new attempt."""
        self._begun += 1
        return self._begun

    def add(self, number: int, attempt: Attempt, bill: Bill) -> None:
        self._entries.append((number, attempt, bill))

    @property
    def last_target(self) -> str:
        """The target of the attempt that ended last; empty if none has ended."""
        return self._entries[-1][1].target if self._entries else ""

    def last_status_of(self, target: str) -> int:
        """The HTTP status of a target's last attempt; 0 without one, or if no header came."""
        of_target = [each.status for _, each, _ in self._entries if each.target == target]
        return of_target[-1] if of_target else 0

    def as_tuple(self) -> tuple[Attempt, ...]:
        return tuple(map(_ATTEMPT, self._entries))

    def bills(self, of_answer: Usage | None = None) -> list[Bill]:
        """What is owed for each attempt, in the same order; for the answer, its final count.

        `of_answer` is None if there is no answer.
        """
        return [
            bill if of_answer is None or number != self.answer else Bill(bill.target, of_answer)
            for number, _, bill in self._entries
        ]

    def main_bill(self) -> Bill | None:
        """The bill of the answer, if there is one; otherwise the last that owes anything."""
        owed = {number: bill for number, _, bill in self._entries if bill.usage is not None}
        return owed.get(self.answer) or next(reversed(owed.values()), None)


class RunningAttempt:
    """One upstream call while it lasts."""

    __slots__ = (
        *("_clock", "_first_byte_s", "_has_left", "_health", "_log", "_status", "_target"),
        "_upstream_ids",
        *("believe", "counted", "number", "read_tokens", "started_s"),
    )

    def __init__(
        self,
        target: Target,
        log: AttemptLog,
        health: TargetHealth,
        clock: Clock,
        *,
        read_tokens: Callable[[], int] = int,
        believe: Believe = as_told,
    ) -> None:
        """`read_tokens` estimates what is owed for the request if nobody counts it.

        `believe` removes impossible figures from a count.
        """
        self._target = target
        self._log: AttemptLog | None = log
        self._health = health
        self._clock = clock
        self._status = 0
        self._upstream_ids: tuple[str, ...] = ()
        self._has_left = False
        self.counted: Callable[[], Usage | None] | None = None
        """Gives what is owed once an answer has begun; None before."""
        self.read_tokens = read_tokens
        self.believe = believe
        self.number = log.begin()
        self.started_s = self._first_byte_s = clock.monotonic_s()
        health.asks(target.name, self.started_s)
        health.began(target.name)

    def leaves(self) -> None:
        """From now on bytes may have been sent and be charged for; raises if they must not."""
        if self._log is not None and self._log.check_lease is not None:
            self._log.check_lease()
        self._has_left = True

    def heard(self, status: int, upstream_ids: tuple[str, ...] = ()) -> None:
        """The upstream's head has arrived."""
        self._status, self._first_byte_s = status, self._clock.monotonic_s()
        self._upstream_ids = upstream_ids

    def spoke(self) -> None:
        """A stream's first content has arrived; servers send its head as soon as they are asked."""
        self._first_byte_s = self._clock.monotonic_s()

    def end(self, error: BaseException | None) -> Usage | None:
        """Log the attempt and tell the breaker; only the first call counts.

        Returns what is owed, by the first call.
        """
        if self._log is None:
            return None
        log, self._log = self._log, None
        ended_s, name = self._clock.monotonic_s(), self._target.name
        said = _said_by(error)
        self._health.ended(name, ended_s, self._first_byte_s - self.started_s, said)
        if said is None or isinstance(said, GatewrightError):
            self._health.accounts.record(self._target.provider, self.started_s, ended_s, said)
        attempt = Attempt(
            target=name,
            status=self._status,
            error=end_code(error) if error is not None else "",
            duration_us=round((ended_s - self.started_s) * 1e6),
            first_byte_us=round((self._first_byte_s - self.started_s) * 1e6),
            upstream_ids=self._upstream_ids,
        )
        owed = self._owed(error)
        log.add(self.number, attempt, Bill(self._target, owed))
        # It holds the answer, which holds us: nothing is left to the cycle collector.
        self.counted = None
        return owed

    def _owed(self, error: BaseException | None) -> Usage | None:
        """None for a refusal, and for a request that was never sent."""
        if self.counted is not None:
            return self.counted()
        if isinstance(error, UpstreamUnreachable) and not error.has_left:
            return None  # What had left before came to a member of a pool that passed it on.
        if not self._has_left or self._status >= HTTP_ERROR_MIN:
            return None
        return Usage(input_tokens=self.read_tokens(), estimated=True)


def _said_by(error: BaseException | None) -> BaseException | None:
    """What an end says about a target: of a broken stream, a refusal that calls for a pause.

    Any other error in the middle of an answer is a failure, whoever it blames.
    """
    refusal = error.refusal if isinstance(error, StreamBroken) else None
    return refusal if judge(refusal) in PAUSING else error


_CAUSES = {
    HEDGE: HEDGED_CODE,
    CASCADE: CASCADED_CODE,
    TAKEN_OVER: TAKEN_OVER_CODE,
    STOPPED: WorkerStopped.code,
}


def is_stopped(error: BaseException) -> bool:
    """Whether a request was broken off because this worker stops."""
    return isinstance(error, asyncio.CancelledError) and STOPPED in error.args


def end_code(error: BaseException) -> str:
    """Why a request was broken off: a cancellation without a cause means the caller left."""
    if isinstance(error, GatewrightError):
        return error.code
    if isinstance(error, asyncio.CancelledError):
        return next((_CAUSES[each] for each in error.args if each in _CAUSES), ClientGone.code)
    return GatewrightError.code
