"""Proves that a worker whose segments are here is dead, by holding their lock.

No living worker gives it away, however silent it is. Of one whose segments are elsewhere nothing
can be proved: then somebody's word has to do.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.segments import LOCK_NAME
from gateway.errors import RequestInvalid


class WorkerLives(RequestInvalid):
    """Whoever is to be declared gone holds the lock of its segments."""

    status = 409


def lock_if_here(folder: Path, worker: str) -> int | None:
    """A descriptor that holds the lock of a worker's segments; None where its folder is not here.

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
    """With that lock held, where there is one; raises WorkerLives."""
    descriptor = lock_if_here(folder, worker)
    try:
        yield
    finally:
        if descriptor is not None:
            Disk().close(descriptor)
