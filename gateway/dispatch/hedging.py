"""Hedging: a second attempt starts if the first is late, and the first answer counts."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar


Answer = TypeVar("Answer")
HEDGE = "hedge"
"""Message of the cancellation that ends the slower attempt."""


async def race(
    first: Callable[[], Awaitable[Answer]],
    second: Callable[[], Awaitable[Answer]],
    after_s: float,
    may_start: Callable[[], bool],
    give_up: Callable[[Answer], Awaitable[None]],
) -> Answer:
    """The first answer of two attempts.

    The second starts after `after_s`, or never if `may_start` says no. An answer that came too late
    is passed to `give_up`. If both fail, the second's failure is raised; if the first fails before
    the second began, the first's.
    """
    tasks = [asyncio.ensure_future(first())]
    kept: asyncio.Future[Answer] | None = None
    why: Sequence[object] = (HEDGE,)
    try:
        done, _ = await asyncio.wait(tasks, timeout=after_s)
        if not done and may_start():
            tasks.append(asyncio.ensure_future(second()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not any(_has_answered(task) for task in tasks):
                # One failed: all depends on the other.
                await asyncio.wait(tasks)
        elif not done:
            await asyncio.wait(tasks)
        kept = next((task for task in tasks if _has_answered(task)), tasks[-1])
        return kept.result()
    except asyncio.CancelledError as left:
        if kept is None:
            # Nobody was faster: whoever waited gives both up, for a reason of his own.
            why = left.args
        raise
    finally:
        others = [task for task in tasks if task is not kept]
        ending = asyncio.ensure_future(_end_others(others, why, give_up))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            # Whoever waited has left meanwhile, so nobody takes the answer that was kept.
            await ending
            if kept is not None and _has_answered(kept):
                await give_up(kept.result())
            raise


def _has_answered(task: asyncio.Future[Answer]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _end_others(
    tasks: Sequence[asyncio.Future[Answer]],
    why: Sequence[object],
    give_up: Callable[[Answer], Awaitable[None]],
) -> None:
    """Cancel what is still running, and give up what came too late."""
    for task in tasks:
        if not task.done():
            task.cancel(*why[:1])
    await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if _has_answered(task):
            await give_up(task.result())
