"""The worker loop: runs a worker's background duties. One of the three named borders.

Each duty is a coroutine that is called again and again. A failure is logged and the duty tried
again; it is never fatal. Whether the worker may go on serving depends on what becomes stale by the
failure.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from gateway.errors import operators_reason
from gateway.pacing.moments import until_moment_s
from gateway.pacing.patience import patience
from gateway.telemetry import Event, logger, raised_at


LAST_S = 2.0
"""How long the final run of a duty may take: somebody waits for a worker that ends."""


class Duty(Struct, frozen=True):
    """Something to be done every `period_s` seconds; `wake` may ask for it earlier.

    If there is a `due`, a period in which it says that there is nothing to do is skipped. `last` is
    done once after all duties have stopped, within `LAST_S`.
    """

    name: str
    period_s: float
    perform: Callable[[], Awaitable[object]]
    failed: Event
    wake: asyncio.Event | None = None
    due: Callable[[], bool] | None = None
    last: Callable[[], Awaitable[object]] | None = None


class Upkeep:
    """Runs duties until it is closed."""

    def __init__(self, duties: tuple[Duty, ...]) -> None:
        self._duties = duties
        self._tasks: list[asyncio.Task[None]] = []
        self._log: Any = logger()

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._loop(duty), name=duty.name) for duty in self._duties
        ]

    @property
    def was_started(self) -> bool:
        """Whether the last step of a start was reached: otherwise the start was refused."""
        return bool(self._tasks)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.was_started:
            await asyncio.gather(*(self._conclude(duty) for duty in self._duties))

    async def _conclude(self, duty: Duty) -> None:
        if duty.last is None:
            return
        try:
            async with asyncio.timeout(LAST_S):
                await duty.last()
        except Exception as error:  # noqa: BLE001 - the worker loop
            self._say_failed(duty, error)

    async def _loop(self, duty: Duty) -> None:
        with patience():
            while True:
                try:
                    await duty.perform()
                except Exception as error:  # noqa: BLE001 - the worker loop
                    self._say_failed(duty, error)
                await _rest(duty)

    def _say_failed(self, duty: Duty, error: Exception) -> None:
        self._log.warning(
            duty.failed,
            component=duty.name,
            error_class=type(error).__name__,
            reason=operators_reason(error),
            where=raised_at(error),
        )


async def _rest(duty: Duty) -> None:
    while True:
        if duty.wake is None:
            await asyncio.sleep(until_moment_s(duty.period_s))
        elif await _woken(duty.wake, duty.period_s):
            return
        if duty.due is None or duty.due():
            return


async def _woken(wake: asyncio.Event, period_s: float) -> bool:
    """Whether somebody asked before the period was over."""
    try:
        async with asyncio.timeout(until_moment_s(period_s)):
            await wake.wait()
    except TimeoutError:
        return False
    wake.clear()
    return True
