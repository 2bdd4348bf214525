"""What an earlier run left open is ended once: before the worker serves, or while it does."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.audit.open_intents import OPEN_NAME
from gateway.audit.projecting.projector import ProjectionBroken, Projector
from gateway.audit.proving.verify import verify_directory
from gateway.audit.reckoning import CRASHED
from gateway.audit.second import TwoDeviceLog
from gateway.audit.segments import list_segments, segment_path
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock, StoppedClock, SystemClock
from gateway.errors import AuditUnavailable, NotReady
from gateway.store.engine import Database
from gateway.store.evidence import cut_off
from gateway.store.evidence.cut_off import AGAIN_S, CutOff
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.types import AuditRecord, Receipt
from tests.gateway.audit.samples import KEYS, LIMITS, journeys, record, running, until
from tests.gateway.audit.test_reckoning import away
from tests.gateway.store.evidence.test_second_device import HASTY, StuckDisk, two_devices


pytestmark = pytest.mark.anyio


@asynccontextmanager
async def started(
    folder: Path,
    database: Database,
    log: SegmentedAuditLog,
    clock: Clock | None = None,
    evidence: TwoDeviceLog | None = None,
) -> AsyncIterator[CutOff]:
    sink = DatabaseAuditSink(database, folder)
    projector = Projector(folder, sink, durable=lambda: {log.worker: log.position})
    parts = parts_of(folder, database, log, clock, evidence)
    await projector.catch_up()
    await parts.open()
    yield parts
    await projector.catch_up()


def parts_of(
    folder: Path,
    database: Database,
    log: SegmentedAuditLog,
    clock: Clock | None = None,
    evidence: TwoDeviceLog | None = None,
) -> CutOff:
    sink = DatabaseAuditSink(database, folder)
    projector = Projector(folder, sink, durable=lambda: {log.worker: log.position})
    return CutOff(
        *(folder, log, sink, SecondContents(database)),
        clock=clock or SystemClock(),
        catch_up=projector.catch_up,
        evidence=evidence,
    )


async def crashed(folder: Path, database: Database) -> list[AuditRecord]:
    """Outcomes of requests that a crash cut off, as the database has them."""
    sink = DatabaseAuditSink(database, folder)
    rows = [row async for row in sink.records(AuditQuery(stage="outcome"))]
    return [row.projected.record for row in rows if row.projected.record.error == CRASHED]


async def ids(folder: Path, database: Database) -> list[str]:
    return sorted(each.request_id for each in await crashed(folder, database))


async def test_a_short_log_is_dealt_with_before_the_worker_serves(
    tmp_path: Path, database: Database
) -> None:
    async with running(tmp_path) as log:
        await journeys(log, 1, 3)
        await log.append(record(4))
    for _ in range(2):  # The second start finds nothing left.
        async with running(tmp_path) as log, started(tmp_path, database, log):
            assert log.open.mark(*log.position) is not None
            assert await ids(tmp_path, database) == ["req_4"]


async def test_a_long_one_while_it_serves_and_nothing_of_this_run_is_touched(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_off, "READ_FIRST_BYTES", 1000)
    async with running(tmp_path) as log:
        await journeys(log, 1, 3)
        await log.append(record(4))
        await log.append(msgspec.structs.replace(record(5), detail={"batch": "b", "line": "7"}))
    async with running(tmp_path) as log, started(tmp_path, database, log) as parts:
        assert await ids(tmp_path, database) == []
        await log.append(record(6))
        await parts.mark()
        assert not (tmp_path / "w0" / OPEN_NAME).exists()
        for _ in range(2):
            await parts.tend()
            assert await ids(tmp_path, database) == ["req_4"]
        assert (tmp_path / "w0" / OPEN_NAME).exists()
        assert list(log.open.lines()) == ["req_5"]
        assert len(log.open) == 2
    async with running(tmp_path) as log, started(tmp_path, database, log):
        # What was kept says where to begin, so that this start is short again.
        assert await ids(tmp_path, database) == ["req_4", "req_6"]


async def test_a_segment_that_cannot_be_read_holds_no_start_up_and_is_looked_at_again(
    tmp_path: Path, database: Database
) -> None:
    """Before its outcomes are known nothing is marked: the next start would begin behind it."""
    clock, folder = StoppedClock(), tmp_path / "w0"
    for number in (1, 2, 3):
        async with running(tmp_path) as log:
            await log.append(record(number))
            if number == 3:
                await log.append(record(1, "outcome"))
    async with running(tmp_path) as log:
        await Projector(tmp_path, DatabaseAuditSink(database, tmp_path)).catch_up()
        with away(segment_path(folder, 2)):
            async with started(tmp_path, database, log, clock) as parts:
                assert await ids(tmp_path, database) == ["req_3"]
                assert "worker w0 cut off is not all known" in parts.problem
                assert "(segments 1, 2)" in parts.problem
                clock.advance(AGAIN_S - 1)
                await parts.tend()
                assert not (folder / OPEN_NAME).exists()
                clock.advance(1)
                await parts.tend()
        clock.advance(2 * AGAIN_S - 1)
        await parts.tend()
        assert parts.problem, "it is looked at ever less often"
        clock.advance(1)
        for _ in range(2):
            await parts.tend()
        assert (parts.problem, (folder / OPEN_NAME).exists()) == ("", True)
        await parts.tend()
        assert await ids(tmp_path, database) == ["req_2", "req_3"]


async def test_a_log_whose_projection_is_broken_holds_no_start_up_either(
    tmp_path: Path, database: Database
) -> None:
    """Of a worker beside: its log may say how one of ours ended."""
    clock = StoppedClock()
    async with running(tmp_path) as log:
        await log.append(record(1))
    async with running(tmp_path, "w1") as log:
        await log.append(record(2))
    async with running(tmp_path) as log:
        projector = Projector(tmp_path, DatabaseAuditSink(database, tmp_path))
        parts = parts_of(tmp_path, database, log, clock)
        with away(segment_path(tmp_path / "w1", 1)):
            with pytest.raises(ProjectionBroken, match="cannot be read at this moment"):
                await projector.catch_up()
            await parts.open(is_current=False)
            await parts.tend()
            assert "worker w1 at" in parts.problem
        clock.advance(AGAIN_S)
        await parts.tend()
        assert parts.problem == ""
        await projector.catch_up()
        assert await ids(tmp_path, database) == ["req_1"]


async def test_an_outcome_that_was_refused_but_written_is_not_written_again(
    tmp_path: Path, database: Database
) -> None:
    async with running(tmp_path) as log:
        await log.append(record(4))
    disk = StuckDisk()
    async with running(tmp_path, disk=disk, limits=HASTY) as log:
        disk.goes_on.clear()
        async with started(tmp_path, database, log) as parts:
            await parts.tend()
            assert log.open.mark(*log.position) is None
            disk.goes_on.set()
            await until(lambda: log.healthy)
            for _ in range(2):
                await parts.tend()
            assert await ids(tmp_path, database) == ["req_4"]
            assert (tmp_path / "w0" / OPEN_NAME).exists()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_an_intent_that_both_devices_took_gets_one_outcome(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with running(tmp_path, disk=disk, limits=HASTY) as log:
        both = two_devices(log, database)
        await both.append(record(1))
        disk.goes_on.clear()
        await both.append(record(2))
        assert both.is_carried
        disk.goes_on.set()  # It writes what it was given, though its caller went elsewhere.
        await until(lambda: log.healthy)
        await both.close()
    (segment, *_) = list_segments(tmp_path / "w0")
    assert b"req_2" in segment_path(tmp_path / "w0", segment).read_bytes()
    async with running(tmp_path) as log, started(tmp_path, database, log):
        pass
    assert await ids(tmp_path, database) == ["req_1", "req_2"]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_what_the_database_takes_of_this_run_is_none_of_an_earlier_one(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_off, "READ_FIRST_BYTES", 0)
    device = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    await device.append(record(1))
    async with running(tmp_path) as log, started(tmp_path, database, log) as parts:
        await device.append(record(2))
        await device.rest()
        await parts.tend()
        assert await ids(tmp_path, database) == ["req_1"]


async def outcomes(folder: Path, database: Database) -> list[AuditRecord]:
    sink = DatabaseAuditSink(database, folder)
    return [row.projected.record async for row in sink.records(AuditQuery(stage="outcome"))]


async def test_a_request_that_was_refused_costs_nothing_though_its_intent_was_written(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    dear = msgspec.structs.replace(record(1), reserved_microusd=77)
    line = msgspec.structs.replace(record(2), detail={"batch": "b", "line": "7"})
    async with running(tmp_path, disk=disk, limits=HASTY) as log:
        async with started(tmp_path, database, log) as parts:
            disk.goes_on.clear()
            for each in (dear, line):
                disk.goes_on.clear()
                with pytest.raises(AuditUnavailable):
                    await log.append(each)
                disk.goes_on.set()
                await until(lambda: log.healthy)
            assert log.open.lines() == {}  # Nobody ends it as one that a crash cut off.
            for _ in range(2):
                await parts.tend()
        assert len(log.open) == 0
    found = await outcomes(tmp_path, database)
    assert [(each.request_id, each.status, each.error) for each in found] == [
        ("req_1", "refused", "audit_unavailable"),
        ("req_2", "refused", "audit_unavailable"),
    ]
    assert [each.cost_microusd for each in found] == [0, 0]
    assert [dict(each.detail) for each in found] == [{}, {"batch": "b", "line": "7"}]
    report = verify_directory(tmp_path)
    assert (report.bad, report.open_intents) == ((), 0)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_one_that_went_on_over_the_database_is_not_ended(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with (
        running(tmp_path, disk=disk, limits=HASTY) as log,
        started(tmp_path, database, log) as parts,
    ):
        both = two_devices(log, database)
        await both.append(record(1))
        disk.goes_on.clear()
        await both.append(record(2))
        disk.goes_on.set()
        await until(lambda: log.healthy)
        assert log.open.refused()
        await parts.tend()
        assert not log.open.refused()
        assert await outcomes(tmp_path, database) == []
        await both.append(record(2, "outcome"))
        await both.close()
    assert [each.status for each in await outcomes(tmp_path, database)] == [""]


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_one_that_the_database_took_without_a_word_is_ended_and_costs_nothing(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit was lost: refused, open for ever, and charged at the next start."""
    disk, store = StuckDisk(), DatabaseDevice._store

    async def unheard(self: DatabaseDevice, taken: Any) -> list[Receipt]:
        await store(self, taken)
        raise NotReady("the connection was lost")

    async def away(self: DatabaseDevice, taken: Any) -> list[Receipt]:
        raise NotReady("it is away")

    dear = msgspec.structs.replace(record(2), reserved_microusd=77)
    async with (
        running(tmp_path, disk=disk, limits=HASTY) as log,
        started(tmp_path, database, log) as parts,
    ):
        both = two_devices(log, database)
        disk.goes_on.clear()
        await both.append(record(1))
        with monkeypatch.context() as patched:
            patched.setattr(DatabaseDevice, "_store", unheard)
            with pytest.raises(AuditUnavailable):
                await both.append(dear)
        with monkeypatch.context() as patched:
            patched.setattr(DatabaseDevice, "_store", away)
            with pytest.raises(AuditUnavailable):
                await both.append(record(3))
        disk.goes_on.set()
        assert log.open.doubtful() == {"req_2", "req_3"}
        await until(lambda: log.healthy)
        await parts.tend()
        assert log.open.doubtful() == {"req_3"}, "it may be there at the second look"
        await parts.tend()
        assert log.open.doubtful() == frozenset()
        await both.close()
    found = await outcomes(tmp_path, database)
    assert [(each.request_id, each.status, each.cost_microusd) for each in found] == [
        ("req_2", "refused", 0)
    ]
    assert await SecondContents(database).open_requests("w0") == ["req_1"]


def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the database takes groups, and the answer to each commit is lost."""
    store = DatabaseDevice._store

    async def unheard(self: DatabaseDevice, taken: Any) -> list[Receipt]:
        await store(self, taken)
        raise NotReady("the connection was lost")

    monkeypatch.setattr(DatabaseDevice, "_store", unheard)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_one_that_was_refused_costs_nothing_though_its_worker_died_before_it_looked(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk came back before the database did: there it is kept that nothing was sent."""
    disk = StuckDisk()
    async with running(tmp_path, disk=disk) as log, started(tmp_path, database, log) as parts:
        both = two_devices(log, database)
        disk.is_broken = True
        for number in (1, 2):
            await both.append(msgspec.structs.replace(record(number), reserved_microusd=55))
        with monkeypatch.context() as patched:
            lost(patched)
            for number, detail in ((4, {}), (5, {"batch": "b", "line": "7"})):
                dear = msgspec.structs.replace(record(number), reserved_microusd=77, detail=detail)
                with pytest.raises(AuditUnavailable):
                    await both.append(dear)
        disk.is_broken = False
        await until(lambda: log.healthy)

        async def away(*_: object) -> None:
            raise NotReady("it is away")

        with monkeypatch.context() as patched:
            patched.setattr(parts, "_catch_up", away)
            with pytest.raises(NotReady):
                await parts.tend()
        await both.append(record(2, "outcome"))
        await both.close()
    async with running(tmp_path) as log, started(tmp_path, database, log):
        pass
    found = {each.request_id: each for each in await outcomes(tmp_path, database)}
    assert sorted(found) == ["req_1", "req_2", "req_4", "req_5"]
    assert (found["req_1"].error, found["req_1"].cost_microusd) == (CRASHED, 55)
    for name in ("req_4", "req_5"):
        assert (found[name].status, found[name].cost_microusd) == ("refused", 0)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_it_is_ended_as_soon_as_one_device_can_be_written(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk stays away, the database takes its end as well."""
    disk = StuckDisk()
    limits = msgspec.structs.replace(LIMITS, probe_s=60.0)
    async with running(tmp_path, disk=disk, limits=limits) as log:
        both = two_devices(log, database)
        async with started(tmp_path, database, log, evidence=both) as parts:
            await both.append(record(1))
            await both.tend()
            assert not log.open.wake.is_set()
            disk.is_broken = True
            with monkeypatch.context() as patched:
                lost(patched)
                with pytest.raises(AuditUnavailable):
                    await both.append(msgspec.structs.replace(record(2), reserved_microusd=77))
            assert not log.open.wake.is_set()
            await both.tend()
            assert log.open.wake.is_set()
            with monkeypatch.context() as patched:
                patched.setattr(cut_off, "keep_mark", broken)
                with pytest.raises(OSError, match="on purpose"):
                    await parts.tend()
            (ended,) = await outcomes(tmp_path, database)
            assert (ended.request_id, ended.status, ended.cost_microusd) == ("req_2", "refused", 0)
            assert log.open.doubtful() == frozenset()
        await both.close()


def broken(*_: object) -> None:
    raise OSError("broken on purpose")
