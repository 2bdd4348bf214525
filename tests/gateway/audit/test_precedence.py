"""Whether the writer's thread interrupts the event loop: seen by the disk, which it calls."""

import asyncio
import os
from pathlib import Path

import pytest

from gateway.audit.disk import Disk
from gateway.audit.precedence import CROWD_RECORDS, SMALL_GROUPS_ENOUGH
from tests.gateway.audit.samples import record, running


pytestmark = pytest.mark.anyio


class WatchedDisk(Disk):
    """Notes under which policy of the scheduler each sync is asked for."""

    __slots__ = ("policies",)

    def __init__(self) -> None:
        self.policies: list[int] = []

    def sync(self, descriptor: int) -> None:
        self.policies.append(os.sched_getscheduler(0))
        super().sync(descriptor)


async def test_nobody_who_comes_alone_waits_for_the_loop_to_finish(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with running(tmp_path, disk=disk) as log:
        for number in range(3):
            await asyncio.gather(*(log.append(record(number)) for _ in range(CROWD_RECORDS)))
    assert set(disk.policies) == {os.SCHED_OTHER}


async def test_in_a_crowd_the_thread_lets_the_loop_finish_until_few_come(tmp_path: Path) -> None:
    disk = WatchedDisk()
    async with running(tmp_path, disk=disk) as log:
        await asyncio.gather(*(log.append(record(0)) for _ in range(CROWD_RECORDS + 1)))
        before = len(disk.policies)
        for number in range(SMALL_GROUPS_ENOUGH):
            await log.append(record(number))
        assert set(disk.policies[before:]) == {os.SCHED_BATCH}
        await log.append(record(0))
        assert disk.policies[-1] == os.SCHED_OTHER


async def test_the_loops_own_thread_is_left_as_it_is(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await asyncio.gather(*(log.append(record(0)) for _ in range(CROWD_RECORDS + 1)))
        await log.append(record(0))
        assert os.sched_getscheduler(0) == os.SCHED_OTHER
