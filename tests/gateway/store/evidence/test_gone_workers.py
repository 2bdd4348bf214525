"""Requests of workers that never came back are ended once, and never those of one that lives."""

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import update

from gateway.audit.disk import Disk
from gateway.audit.open_intents import OpenMark, keep_mark
from gateway.audit.projecting.projection import RETIRED
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.verify import verify_directory
from gateway.audit.reckoning import GONE
from gateway.audit.segments import segment_path
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.errors import AuditUnavailable, NotReady, StartupRefused
from gateway.oversight.workers import WorkerReport
from gateway.store.engine import Database
from gateway.store.evidence.gone_workers import GONE_AFTER_S, GoneWorkers
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.unended import UnendedReader
from gateway.store.schema.audit import audit_positions
from gateway.store.workers import WorkerTable
from gateway.types import AuditRecord
from tests.gateway.audit.samples import KEYS, LIMITS, journeys, make_log, record, running
from tests.gateway.audit.test_reckoning import away
from tests.gateway.store.evidence.test_cut_off import started
from tests.gateway.store.evidence.test_second_device import HASTY, StuckDisk


pytestmark = pytest.mark.anyio


class Losing:
    """A database that stops answering, as far as the projection asks it."""

    def __init__(self, folder: Path, database: Database, log: SegmentedAuditLog) -> None:
        sink = DatabaseAuditSink(database, folder)
        self._projector = Projector(folder, sink, durable=lambda: {log.worker: log.position})
        self.good_calls = 10**6

    async def catch_up(self) -> None:
        self.good_calls -= 1
        if self.good_calls < 0:
            raise NotReady("the database does not answer")
        await self._projector.catch_up()


def looking(
    folder: Path, database: Database, log: SegmentedAuditLog, losing: Losing | None = None
) -> GoneWorkers:
    losing = losing or Losing(folder, database, log)
    return GoneWorkers(
        *(folder, log, DatabaseAuditSink(database, folder), SecondContents(database)),
        WorkerTable(database),
        clock=SystemClock(),
        catch_up=losing.catch_up,
    )


async def left_open(folder: Path, worker: str = "w2", first: int = 1) -> None:
    """It answered two requests, and then ended for good in the middle of two, and of a line."""
    async with running(folder, worker) as log:
        await journeys(log, first, 2)
        for number in (first + 2, first + 3):
            await log.append(msgspec.structs.replace(record(number), reserved_microusd=77))
        line = record(first + 4)
        detail = {"batch": "b", "line": "7"}
        await log.append(msgspec.structs.replace(line, detail=detail, reserved_microusd=99))


def aged(folder: Path, worker: str = "w2", seconds: float = GONE_AFTER_S + 60) -> None:
    then_s = time.time() - seconds
    for path in (folder / worker).iterdir():
        os.utime(path, (then_s, then_s))


async def gone(folder: Path, database: Database) -> list[AuditRecord]:
    rows = DatabaseAuditSink(database, folder).records(AuditQuery(stage="outcome"))
    return [row.projected.record async for row in rows if row.projected.record.error == GONE]


async def ids(folder: Path, database: Database) -> list[str]:
    return sorted(each.request_id for each in await gone(folder, database))


async def test_they_are_ended_in_the_log_of_whoever_found_them(
    tmp_path: Path, database: Database
) -> None:
    await left_open(tmp_path)
    aged(tmp_path)
    before = {path.name: path.read_bytes() for path in (tmp_path / "w2").iterdir()}
    async with running(tmp_path, "w1") as log:
        look = looking(tmp_path, database, log)
        assert [await look.tend() for _ in range(2)] == [2, 0]
        assert await looking(tmp_path, database, log).tend() == 0  # As after our own restart.
        assert await ids(tmp_path, database) == ["req_3", "req_4"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "w2").iterdir()} == before
    report = verify_directory(tmp_path)
    assert (report.bad, report.open_intents, report.outcomes) == ((), 1, 4)
    assert {each.cost_microusd for each in await gone(tmp_path, database)} == {77}
    # It comes back in spite of all, and finds that it has nothing to end but its line.
    async with running(tmp_path, "w2") as log, started(tmp_path, database, log):
        assert list(log.open.lines()) == ["req_5"]
    assert verify_directory(tmp_path).outcomes == 4


async def test_what_it_refused_and_kept_a_word_of_costs_nothing(
    tmp_path: Path, database: Database
) -> None:
    """A line of a batch too, which goes on under another name: nobody comes back to this one."""
    await left_open(tmp_path)
    keep_mark(tmp_path / "w2", OpenMark(1, 0, {}, ("req_3", "req_5")), Disk())
    aged(tmp_path)
    async with running(tmp_path, "w1") as log:
        assert await looking(tmp_path, database, log).tend() == 3
    rows = DatabaseAuditSink(database, tmp_path).records(AuditQuery(stage="outcome"))
    ended = {row.projected.record.request_id: row.projected.record async for row in rows}
    assert (ended["req_3"].status, ended["req_3"].cost_microusd) == ("refused", 0)
    assert (ended["req_4"].error, ended["req_4"].cost_microusd) == (GONE, 77)
    line = ended["req_5"]
    assert (line.status, line.cost_microusd) == ("refused", 0)
    assert line.detail == {"batch": "b", "line": "7"}
    async with running(tmp_path, "w2") as log, started(tmp_path, database, log):
        assert list(log.open.lines()) == []


async def test_nothing_is_touched_of_one_that_lives_however_long_it_was_silent(
    tmp_path: Path, database: Database
) -> None:
    await left_open(tmp_path)
    async with running(tmp_path, "w2"), running(tmp_path, "w1") as log:
        aged(tmp_path, seconds=30 * 86_400.0)
        assert await looking(tmp_path, database, log).tend() == 0
    assert await ids(tmp_path, database) == []


@pytest.mark.parametrize("by", ["its files", "its report"])
async def test_one_that_was_there_a_moment_ago_is_given_time_to_come_back(
    tmp_path: Path, database: Database, by: str
) -> None:
    await left_open(tmp_path)
    if by == "its report":
        aged(tmp_path)
        report = WorkerReport(worker="w2", seen_us=SystemClock().utc_us() - 10_000_000)
        await WorkerTable(database).put(report)
    async with running(tmp_path, "w1") as log:
        assert await looking(tmp_path, database, log).tend() == 0
    assert await ids(tmp_path, database) == []


async def test_two_that_look_at_once_end_each_once(tmp_path: Path, database: Database) -> None:
    await left_open(tmp_path)
    aged(tmp_path)
    async with running(tmp_path, "w1") as first, running(tmp_path, "w3") as second:
        looks = [looking(tmp_path, database, log) for log in (first, second)]
        for _ in range(3):
            await asyncio.gather(*(look.tend() for look in looks))
    assert await ids(tmp_path, database) == ["req_3", "req_4"]


async def test_its_name_stays_taken_until_the_database_knows_what_was_written(
    tmp_path: Path, database: Database
) -> None:
    """Else it would start, find nothing there, and end the same requests again."""
    await left_open(tmp_path)
    aged(tmp_path)
    async with running(tmp_path, "w1") as log:
        losing = Losing(tmp_path, database, log)
        look = looking(tmp_path, database, log, losing)
        losing.good_calls = 1
        for _ in range(2):
            with pytest.raises(NotReady):
                await look.tend()
            with pytest.raises(StartupRefused):
                await make_log(tmp_path, "w2").start()
        losing.good_calls = 10**6
        assert await look.tend() == 0
        assert await ids(tmp_path, database) == ["req_3", "req_4"]
        async with running(tmp_path, "w2") as again, started(tmp_path, database, again):
            pass
    assert verify_directory(tmp_path).outcomes == 4


async def test_an_outcome_that_our_disk_refused_but_wrote_is_not_written_again(
    tmp_path: Path, database: Database
) -> None:
    await left_open(tmp_path)
    aged(tmp_path)
    disk = StuckDisk()
    async with running(tmp_path, "w1", disk=disk, limits=HASTY) as log:
        look = looking(tmp_path, database, log)
        disk.goes_on.clear()
        with pytest.raises(AuditUnavailable):
            await look.tend()
        with pytest.raises(StartupRefused):
            await make_log(tmp_path, "w2").start()
        disk.goes_on.set()
        while not log.healthy:
            await asyncio.sleep(0.01)
        assert [await look.tend() for _ in range(2)] == [0, 0]
        assert await ids(tmp_path, database) == ["req_3", "req_4"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_what_the_database_took_for_it_is_ended_too(
    tmp_path: Path, database: Database
) -> None:
    await left_open(tmp_path)
    aged(tmp_path)
    device = DatabaseDevice(database, "w2", KEYS, SystemClock(), LIMITS)
    await device.append(record(8))
    await device.rest()
    async with running(tmp_path, "w1") as log:
        assert await looking(tmp_path, database, log).tend() == 3
    assert await ids(tmp_path, database) == ["req_3", "req_4", "req_8"]


async def told(database: Database, worker: str, seen_s: float) -> WorkerReport:
    """What a worker said of itself so long ago."""
    seen_us = SystemClock().utc_us() - round(seen_s * 1e6)
    report = WorkerReport(worker=worker, seen_us=seen_us)
    await WorkerTable(database).put(report)
    return report


async def test_what_nobody_can_end_is_counted_while_its_worker_is_remembered(
    tmp_path: Path, database: Database
) -> None:
    hours_s = 6 * 3600.0
    begun_us = SystemClock().utc_us() - round((hours_s + 60) * 1e6)
    async with running(tmp_path, "w2") as log:
        for number in range(1, 7):
            begun = msgspec.structs.replace(record(number), utc_us=begun_us)
            receipt = await log.append(begun)
            if number < 3:
                await log.append(record(number, "outcome", receipt.leaf_hash))
        old = msgspec.structs.replace(record(9), utc_us=begun_us - 3 * 3_600_000_000)
        await log.append(old)
    async with running(tmp_path, "w1") as log:
        await Losing(tmp_path, database, log).catch_up()
        reader = UnendedReader(database, SystemClock())
        assert await reader.read() == []
        await told(database, "w1", 1.0)
        await told(database, "w2", hours_s)
        (found,) = await reader.read()
        assert (found.worker, found.requests) == ("w2", 4)
        assert hours_s <= found.gone_us / 1e6 < hours_s + 600
        ours = [each.requests for each in await reader.read("acme")]
        assert ours == [2]
        assert await reader.read("another") == []
        aged(tmp_path)
        await looking(tmp_path, database, log).tend()
        assert await reader.read() == []


async def test_of_one_that_was_retired_nothing_more_is_waited_for(
    tmp_path: Path, database: Database
) -> None:
    await left_open(tmp_path)
    async with running(tmp_path, "w2"):
        pass
    async with running(tmp_path, "w1") as log:
        await Losing(tmp_path, database, log).catch_up()
        look = looking(tmp_path, database, log)
        with away(segment_path(tmp_path / "w2", 1)):
            aged(tmp_path)
            await look.tend()
            assert look.problem
            retired = update(audit_positions).where(audit_positions.c.worker == "w2")
            async with database.writing() as connection:
                there = {"segment": RETIRED[0], "offset_bytes": RETIRED[1]}
                await connection.execute(retired.values(**there))
            await look.tend()
            assert look.problem == ""


async def test_one_whose_segment_cannot_be_read_is_looked_at_until_it_can_and_holds_up_nobody(
    tmp_path: Path, database: Database
) -> None:
    await left_open(tmp_path, "w2")
    async with running(tmp_path, "w2") as log:
        await log.append(record(6))
    await left_open(tmp_path, "w3", 11)
    for worker in ("w2", "w3"):
        aged(tmp_path, worker)
    async with running(tmp_path, "w1") as log:
        await Losing(tmp_path, database, log).catch_up()
        look = looking(tmp_path, database, log)
        with away(segment_path(tmp_path / "w2", 1)):
            aged(tmp_path, "w2")
            assert await look.tend() == 3
            assert "worker w2 cut off is not all known" in look.problem
            assert "w3" not in look.problem
            assert await look.tend() == 0
            # Now not even where it ends can be told: that, too, holds up nobody.
            await left_open(tmp_path, "w4", 21)
            aged(tmp_path, "w4")
            last = segment_path(tmp_path / "w2", 2)
            aside = last.rename(last.with_name("aside of the last"))
            last.symlink_to(last.name)
            with pytest.raises(OSError, match="symbolic links"):
                await look.tend()
            last.unlink()
            aside.rename(last)
        aged(tmp_path, "w2")
        assert await look.tend() == 2
        assert look.problem == ""
        assert await look.tend() == 0
        ended = [3, 4, 6, 13, 14, 23, 24]
        assert await ids(tmp_path, database) == sorted(f"req_{number}" for number in ended)
