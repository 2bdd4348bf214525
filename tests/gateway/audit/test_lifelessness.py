"""A worker's lock, held by who looks whether it is dead, and given back in any case."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gateway.audit.disk import Disk
from gateway.audit.lifelessness import WorkerLives, lock_if_here, taken
from gateway.audit.segments import LOCK_NAME


pytestmark = pytest.mark.anyio


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "w2"
    folder.mkdir()
    return folder


class Slow:
    """Takes a lock when it is told to, in whatever thread asks for it."""

    def __init__(self, take: Callable[[], int | None]) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.has_taken = threading.Event()
        self._take = take

    def __call__(self) -> int | None:
        self.begun.set()
        assert self.may_end.wait(10)
        found = self._take()
        self.has_taken.set()
        return found


async def _free(folder: Path) -> int:
    """A descriptor that holds the lock, once nobody else does."""
    async with asyncio.timeout(10):
        while True:
            try:
                return Disk().lock(folder / LOCK_NAME)
            except BlockingIOError:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_ready", [True, False], ids=["it came", "it comes"])
async def test_a_lock_that_comes_when_its_taker_is_gone_is_given_back(
    folder: Path, is_ready: bool
) -> None:
    slow = Slow(partial(lock_if_here, folder, "w2"))
    taking = asyncio.ensure_future(taken(slow))
    assert await asyncio.to_thread(slow.begun.wait, 10)
    if is_ready:
        slow.may_end.set()
        assert slow.has_taken.wait(10), "and the loop has not said so yet: it stands still"
    taking.cancel()
    slow.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await taking

    Disk().close(await _free(folder))


async def test_whoever_waits_has_it_or_hears_why_not(folder: Path) -> None:
    take = partial(lock_if_here, folder, "w2")
    descriptor = await taken(take)
    assert descriptor is not None
    with pytest.raises(WorkerLives):
        await taken(take)
    Disk().close(descriptor)
    assert await taken(partial(lock_if_here, folder / "nowhere", "w3")) is None


async def test_whoever_is_cancelled_before_a_refusal_leaves_nothing_behind(folder: Path) -> None:
    held = Disk().lock(folder / LOCK_NAME)
    slow = Slow(partial(lock_if_here, folder, "w2"))
    taking = asyncio.ensure_future(taken(slow))
    assert await asyncio.to_thread(slow.begun.wait, 10)
    taking.cancel()
    slow.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    Disk().close(held)
    Disk().close(await _free(folder))
