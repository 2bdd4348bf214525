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
"""How soon something is tried again that the database, or the log, did not take."""
LEAVE_S: Final = 2.0
"""So long each part of a worker that ends tries to give up what it holds."""
Done = TypeVar("Done")


async def given_up(leave: Awaitable[None]) -> None:
    """What a worker that ends holds; where the database is away, or hangs, its leases lapse."""
    with suppress(NotReady, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await leave


async def insisted(change: Callable[[], Awaitable[Done]]) -> Done:
    """What must not be lost because either was away for a while; `change` may be repeated."""
    while True:
        try:
            return await change()
        except (AuditUnavailable, NotReady):
            await asyncio.sleep(AGAIN_S)


def check_until(clock: Clock, until_us: int) -> None:
    """Whether a line is still this worker's to send, or to end.

    Raises:
        LeaseOver
    """
    if clock.utc_us() >= until_us:
        raise LeaseOver("The line may be another worker's by now.")


class Steps:
    """Tasks of one runner, at most one by each name."""

    def __init__(self, wake: asyncio.Event) -> None:
        self._wake = wake
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._resting: set[str] = set()
        """Of those, what crashed a moment ago."""
        self._log: Any = logger()

    def __contains__(self, name: str) -> bool:
        return name in self._tasks

    def __len__(self) -> int:
        """How many are under way; what only rests keeps nothing else from beginning."""
        return len(self._tasks) - len(self._resting)

    def begin(self, name: str, batch_id: str, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside everything else; `batch_id` is whose it is."""
        task = asyncio.create_task(work, name=batch_id)
        task.add_done_callback(lambda _: self._wake.set())
        self._tasks[name] = task

    def reap(self) -> list[tuple[str, bool]]:
        """Forget what is done: each with whether it crashed."""
        done = [(name, task) for name, task in self._tasks.items() if task.done()]
        for name, _ in done:
            del self._tasks[name]
            self._resting.discard(name)
        return [(name, self._has_crashed(task)) for name, task in done]

    def tidy(self) -> None:
        """Forget what is done; what crashed keeps its name for a while, and is then tried again."""
        batches = {name: task.get_name() for name, task in self._tasks.items()}
        for name, has_crashed in self.reap():
            if has_crashed:
                self.begin(name, batches[name], asyncio.sleep(CRASHED_REST_S))
                self._resting.add(name)

    def break_off(self, name: str, why: str) -> None:
        """Of one, if it is not done."""
        if name in self._tasks:
            self._tasks[name].cancel(why)

    async def cancel(self, ending: Collection[str] = ()) -> None:
        """Break all of it off; what is `ending` is left a moment for that."""
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
