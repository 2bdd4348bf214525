"""Named tasks beside the event loop's other work: started, watched, and logged if they crash.

Whoever waits for the next thing to do is woken when a task is done.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from gateway.clock import Clock
from gateway.errors import AuditUnavailable, LeaseOver, NotReady
from gateway.telemetry import Event, logger, raised_at


CRASHED_REST_S: Final = 5.0
AGAIN_S: Final = 1.0
"""How soon something is retried after the database or the log refused it."""
LEAVE_S: Final = 2.0
"""How long each part of a stopping worker tries to give up what it holds."""
Done = TypeVar("Done")


async def given_up(leave: Awaitable[None]) -> None:
    """Give up what a stopping worker holds; if the database does not answer, leases lapse."""
    with suppress(NotReady, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await leave


async def insisted(change: Callable[[], Awaitable[Done]]) -> Done:
    """Do what a short outage of either must not lose; `change` may be repeated."""
    while True:
        try:
            return await change()
        except (AuditUnavailable, NotReady):
            await asyncio.sleep(AGAIN_S)


def check_until(clock: Clock, until_us: int) -> None:
    """Check whether this worker may still send, or end, a line.

    Raises:
        LeaseOver
    """
    if clock.utc_us() >= until_us:
        raise LeaseOver("The line may be another worker's by now.")


class Steps:
    """Tasks of one runner, at most one under each name."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._resting: set[str] = set()
        """Those that crashed a moment ago."""
        self._log: Any = logger()

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __len__(self) -> int:
        """How many are under way; resting ones keep nothing else from beginning."""
        return len(self._tasks) - len(self._resting)

    def begin(self, name: str, batch_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Start it beside everything else; `batch_id` tells whose it is."""
        task = asyncio.create_task(work, name=batch_id)
        task.add_done_callback(lambda _: self._wake.set())
        self._tasks[name] = task

    def reap(self) -> list[tuple[str, bool]]:
        """Forget finished ones; returns each with whether it crashed."""
        done = [(name, task) for name, task in self._tasks.items() if task.done()]
        for name, _ in done:
            del self._tasks[name]
            self._resting.discard(name)
        return [(name, self._has_crashed(task)) for name, task in done]

    def tidy(self) -> None:
        """Forget finished ones; a crashed one keeps its name for a while, and is then retried."""
        batches = {name: task.get_name() for name, task in self._tasks.items()}
        for name, has_crashed in self.reap():
            if has_crashed:
                self.begin(name, batches[name], asyncio.sleep(CRASHED_REST_S))
                self._resting.add(name)

    def break_off(self, name: str, why: str) -> None:
        """Cancel one that is not done."""
        if name in self._tasks:
            self._tasks[name].cancel(why)

    async def cancel(self, ending: Collection[str] = ()) -> None:
        """Cancel all; those `ending` get a moment to finish."""
        spared = [task for name, task in self._tasks.items() if name in ending]
        for name, task in self._tasks.items():
            if name not in ending:
                task.cancel()
        if spared:
            await asyncio.wait(spared, timeout=LEAVE_S)
        for task in spared:
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _has_crashed(self, task: asyncio.Task[None]) -> bool:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.warning(
                Event.BATCH_FAILED,
                batch=task.get_name(),
                error_class=type(error).__name__,
                where=raised_at(error),
            )
        return error is not None
