"""Ending a worker: in good order, by force, and by two at once."""

import asyncio
from typing import cast

import pytest

from local_engine.serve import supervisor


pytestmark = pytest.mark.anyio


class StubbornProcess:
    """One that ends by force only; its handle is gone then, as the event loop's is."""

    def __init__(self) -> None:
        self.returncode: int | None = None
        self.kills = 0
        self._gone = asyncio.Event()

    async def wait(self) -> int:
        await self._gone.wait()
        await asyncio.sleep(0.05)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        if self.returncode is not None:
            raise RuntimeError("unable to perform operation; the handler is closed")
        self.kills += 1
        self.returncode = -9
        self._gone.set()


async def test_two_who_end_a_worker_by_force_at_once_kill_it_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "WORKER_ENDS_WITHIN_S", 0.02)
    process = StubbornProcess()
    both = cast("asyncio.subprocess.Process", process)
    await asyncio.gather(supervisor._ended(both), supervisor._ended(both))
    assert process.kills == 1
