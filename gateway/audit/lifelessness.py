"""Proves that a worker whose segments are here is dead, by taking their lock.

No living worker gives it away, however silent it is. Nothing can be proved about a worker whose
segments are elsewhere: then somebody's word has to do.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.segments import LOCK_NAME
from gateway.errors import RequestInvalid


Descriptor = TypeVar("Descriptor", bound=int | None)


class WorkerLives(RequestInvalid):
    """The worker that is to be declared gone holds the lock of its segments."""

    status = 409


def lock_if_here(folder: Path, worker: str) -> int | None:
    """A descriptor that holds the lock of a worker's segments; None if its folder is not here.

    Raises:
        WorkerLives: it holds the lock itself.
    """
    if not folder_lies_here(folder):
        return None
    try:
        return Disk().lock(folder / LOCK_NAME)
    except BlockingIOError:
        raise WorkerLives(f"worker {worker} lives: it holds the lock of its segments") from None


@contextmanager
def held_if_here(folder: Path, worker: str) -> Iterator[None]:
    """With that lock held, if there is one; raises WorkerLives."""
    descriptor = lock_if_here(folder, worker)
    try:
        yield
    finally:
        if descriptor is not None:
            Disk().close(descriptor)


async def taken(take: Callable[[], Descriptor]) -> Descriptor:
    """Take a lock in a thread; raises the same errors.

    If the caller is cancelled meanwhile, the lock is released as soon as it is taken: nothing else
    would release it, and its worker could not start before this process ends.
    """
    taking = asyncio.create_task(asyncio.to_thread(take))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        taking.add_done_callback(_give_back)
        raise


def _give_back(taking: asyncio.Task[Descriptor]) -> None:
    if taking.cancelled() or taking.exception() is not None:
        return
    descriptor = taking.result()
    if descriptor is not None:
        Disk().close(descriptor)
