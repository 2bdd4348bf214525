"""A background answer as its worker knows it while it is made, and what is needed to make one."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from gateway.background.event_log import EventLog
from gateway.background.runs import Place, Run
from gateway.clock import Clock
from gateway.continuing.kept_answers import KeptAnswer
from gateway.errors import LeaseOver
from gateway.pacing.pings import Write
from gateway.passage import Passage


class SharedClock(Clock, Protocol):
    """The database's clock, by which leases end."""

    async def follow(self) -> None:
        """Ask the database, unless that was a moment ago; raises NotReady."""
        ...


class SecondHalf(Protocol):
    """What remains to be done for a request that was let through."""

    passage: Passage

    async def rule_again(self) -> None:
        """Rule again by what applies now, since it has waited; right before it is sent.

        Raises:
            GatewrightError: it may not be sent any more.
        """
        ...

    async def answer(
        self, deadline_s: float, write: Write, check_lease: Callable[[], None]
    ) -> bytes:
        """Send it, and write its events; returns the complete response, empty if the stream broke.

        Raises:
            GatewrightError: it failed. Whatever comes of it, its outcome is on record.
        """
        ...

    async def never_begun(self, error: BaseException) -> None:
        """Record that nothing was sent for it, and nothing is charged."""
        ...


class UnderWay:
    """One answer in the making."""

    task: asyncio.Task[None]
    is_live = False
    """Whether its task has reached its first line: a cancel before that would lose the answer."""
    has_begun = False
    """Whether something may have been sent for it."""
    is_ending = False
    """Its end is being written, which removes its row."""
    leased_until_us = 0

    def __init__(self, half: SecondHalf, run: Run, answer: KeptAnswer, log: EventLog) -> None:
        self.half, self.run, self.answer, self.log = half, run, answer, log
        self.due_s = self.renewed_s = 0.0

    @property
    def place(self) -> Place:
        return self.run.place

    @property
    def held_bytes(self) -> int:
        return len(self.half.passage.request.raw)

    def break_off(self, *why: str) -> None:
        """Cancel it; `why` is the reason that the cancellation carries."""
        if self.is_live:
            self.task.cancel(*why)
        else:
            asyncio.get_running_loop().call_soon(self.break_off, *why)

    def check_lease(self, clock: Clock) -> None:
        """Raises LeaseOver if another worker may have declared it failed by now."""
        if clock.utc_us() >= self.leased_until_us:
            raise LeaseOver("The answer may have been given up by now.")
