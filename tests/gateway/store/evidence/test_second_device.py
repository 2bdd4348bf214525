"""The database takes records itself while the disk cannot, and none is lost or counted twice."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.audit.content_keys.erasure import destroy_keys
from gateway.audit.disk import Disk
from gateway.audit.projecting.export import export_records
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.merkle import OpenTree
from gateway.audit.reckoning import CRASHED
from gateway.audit.second import TwoDeviceLog, is_second
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.configuration.settings import AuditSettings, Settings
from gateway.errors import AuditUnavailable
from gateway.store.engine import Database
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.types import AuditRecord, Receipt
from tests.gateway.audit.samples import KEYS, LIMITS, record, running, until


pytestmark = pytest.mark.anyio
HASTY = msgspec.structs.replace(LIMITS, deadline_s=0.2)


class StuckDisk(Disk):
    """A disk whose syncs hang, or fail, while the test wants it."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.is_broken = False
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        self.goes_on.wait()
        if self.is_broken:
            raise OSError("broken on purpose")
        super().sync(descriptor)


def two_devices(log: SegmentedAuditLog, database: Database) -> TwoDeviceLog:
    limits = msgspec.structs.replace(LIMITS, deadline_s=30.0)
    return TwoDeviceLog(log, DatabaseDevice(database, log.worker, KEYS, SystemClock(), limits))


def is_carried(log: TwoDeviceLog) -> bool:
    return log.is_carried


def is_healthy(log: TwoDeviceLog) -> bool:
    return log.healthy


async def projected(folder: Path, database: Database, log: SegmentedAuditLog) -> list[str]:
    """Request, stage and place of every numbered record of acme, once all is projected."""
    sink = DatabaseAuditSink(database, folder)
    durable = {log.worker: log.position}
    await Projector(folder, sink, recent=log.recent, durable=lambda: durable).catch_up()
    rows = [row async for row in sink.records(AuditQuery(organisation="acme"))]
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    tree = OpenTree()
    tree.extend([bytes.fromhex(row.projected.leaf_hash) for row in rows])
    stored = (await DatabaseAuditTrees(database).trees())["acme"]
    assert (stored.size, stored.root()) == (tree.size, tree.root())
    return [
        f"{row.projected.record.request_id} {row.projected.record.stage}"
        f"{' db' if is_second(row.projected.worker) else ''}"
        for row in rows
    ]


async def test_while_the_disk_fails_the_database_carries_and_the_disk_takes_over_again(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with running(tmp_path, disk=disk) as log:
        both = two_devices(log, database)
        await both.append(record(1), b"first")
        disk.is_broken = True
        carried = await both.append(record(2), b"second")
        assert is_carried(both)
        assert is_healthy(both)
        disk.is_broken = False
        await until(lambda: log.healthy)
        await both.append(record(4), b"third")
        assert not is_carried(both)
        assert carried.worker == "w0_db"
        order = await projected(tmp_path, database, log)
    assert sorted(order) == ["req_1 intent", "req_2 intent db", "req_4 intent"]


async def test_a_disk_that_hung_and_goes_on_writes_nothing_twice_into_the_log(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with running(tmp_path, limits=HASTY, disk=disk) as log:
        both = two_devices(log, database)
        await both.append(record(1))
        disk.goes_on.clear()
        numbers = (2, 4, 5, 7)
        receipts = await asyncio.gather(*(both.append(record(n), b"c") for n in numbers))
        assert {receipt.worker for receipt in receipts} == {"w0_db"}
        disk.goes_on.set()
        await until(lambda: log.stats().records_total == 1 + len(numbers))
        order = await projected(tmp_path, database, log)
    assert sorted(order) == ["req_1 intent", *(f"req_{n} intent db" for n in numbers)]


async def test_while_the_disk_fails_no_record_asks_it_first(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    limits = msgspec.structs.replace(LIMITS, probe_s=60.0)
    async with running(tmp_path, limits=limits, disk=disk) as log:
        both = two_devices(log, database)
        disk.is_broken = True
        await both.append(record(1))
        asked = disk.syncs
        receipts = [await both.append(record(number)) for number in range(2, 12)]
        assert disk.syncs == asked
        await both.close()
    assert all(is_second(receipt.worker) for receipt in receipts)


async def test_without_either_device_nothing_is_acknowledged(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with running(tmp_path, disk=disk) as log:
        both = two_devices(log, database)
        disk.is_broken = True
        async with database.writing() as connection:
            await connection.exec_driver_sql("ALTER TABLE audit_second_records RENAME TO gone")
        results = await asyncio.gather(
            *(both.append(record(n)) for n in (1, 2, 4)), return_exceptions=True
        )
        async with database.writing() as connection:
            await connection.exec_driver_sql("ALTER TABLE gone RENAME TO audit_second_records")
        assert [type(result) for result in results] == [AuditUnavailable] * 3
        assert not is_healthy(both)
        await both.tend()
        assert is_healthy(both)
        assert isinstance(await both.append(record(5)), Receipt)
        disk.is_broken = False
        await until(lambda: log.healthy)
        assert await projected(tmp_path, database, log) == ["req_5 intent db"]


async def test_a_database_that_was_asked_first_is_not_asked_again(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller would wait for two deadlines, and it might take the record twice."""
    asked, append = [], DatabaseDevice.append

    async def counted(self: DatabaseDevice, given: AuditRecord, *args: Any, **how: Any) -> Receipt:
        asked.append(given.request_id)
        return await append(self, given, *args, **how)

    monkeypatch.setattr(DatabaseDevice, "append", counted)
    disk = StuckDisk()
    limits = msgspec.structs.replace(LIMITS, probe_s=60.0)
    async with running(tmp_path, limits=limits, disk=disk) as log:
        both = two_devices(log, database)
        disk.is_broken = True
        await both.append(record(1))
        async with database.writing() as connection:
            await connection.exec_driver_sql("ALTER TABLE audit_second_records RENAME TO gone")
        for number in (2, 4):
            with pytest.raises(AuditUnavailable):
                await both.append(record(number, "intent" if number == 2 else "outcome"))
        assert log.open.doubtful() == {"req_2"}
        disk.is_broken = False
        assert not is_second((await both.append(record(5))).worker)
        await both.close()
    assert asked == ["req_1", "req_2", "req_4", "req_5"]


async def test_content_in_the_database_is_read_and_erased_like_all_other(
    tmp_path: Path, database: Database
) -> None:
    device = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    said = msgspec.structs.replace(record(1), subject="a-digest")
    await asyncio.gather(device.append(said, b"what ann said"), device.append(record(2), b"rest"))
    second, sink = SecondContents(database), DatabaseAuditSink(database, tmp_path)

    async def contents() -> list[object]:
        lines = export_records(
            sink.records(AuditQuery()), directory=tmp_path, keys=KEYS, second=second
        )
        return [line.get("content") or line.get("content_error") async for line in lines]

    assert await contents() == ["what ann said", "rest"]
    keys = await second.matching_keys("acme", "a-digest")
    destroy_keys(tmp_path, tmp_path / "list", keys, 1, Disk())
    assert await second.destroy([line.key for line in keys]) == len(keys) == 1
    assert await contents() == ["the content's key was destroyed", "rest"]


async def test_a_restarted_worker_goes_on_where_its_second_device_ended(
    database: Database,
) -> None:
    first = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    await asyncio.gather(*(first.append(record(n)) for n in (1, 2)))
    again = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    receipt = await again.append(record(4))
    assert (receipt.segment, receipt.offset_bytes) == (1, 2)
    await first.append(record(5))
    await asyncio.gather(first.rest(), again.rest())
    rows = [row async for row in DatabaseAuditSink(database).records(AuditQuery())]
    assert [row.projected.offset_bytes for row in rows] == [0, 1, 2, 3]


async def test_what_the_database_took_and_a_crash_left_open_is_ended_at_the_next_start(
    tmp_path: Path, database: Database
) -> None:
    audit = AuditSettings(directory="audit", checkpoint_directory="signed")
    settings = Settings(source="a test", folder=str(tmp_path), audit=audit)
    device = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    of_other = DatabaseDevice(database, "w1", KEYS, SystemClock(), LIMITS)
    begun = msgspec.structs.replace(record(1), reserved_microusd=77)
    receipt = await device.append(begun)
    for number in (2, 4):
        await device.append(record(number))
    await device.append(record(2, "outcome"))
    await of_other.append(record(5))
    await asyncio.gather(device.rest(), of_other.rest())
    for _ in range(2):  # The second start finds nothing left.
        async with running(tmp_path / "audit") as log:
            await log.append(record(4, "outcome"))
            parts = Integration(settings, database, SystemClock(), KEYS, log)
            await parts.projector.catch_up()
            await parts.open()
    rows = [
        row async for row in DatabaseAuditSink(database, tmp_path / "audit").records(AuditQuery())
    ]
    outcomes = [row.projected.record for row in rows if row.projected.record.stage == "outcome"]
    (closed,) = [each for each in outcomes if each.error == CRASHED]
    assert (closed.request_id, closed.cost_microusd) == ("req_1", 77)
    assert closed.intent == receipt.leaf_hash


async def test_group_after_group_numbers_and_trees_go_on_as_the_projection_has_them(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with running(tmp_path, disk=disk) as log:
        both = two_devices(log, database)
        disk.is_broken = True
        await both.append(record(1), b"the first group of all")
        many = [n for n in range(2, 700) if n % 3]
        for start in range(0, len(many), 150):
            group = many[start : start + 150]
            await asyncio.gather(*(both.append(record(n), b"of %d" % n) for n in group))
        disk.is_broken = False
        await until(lambda: log.healthy)
        await both.append(record(700))
        await both.close()
        order = await projected(tmp_path, database, log)
    assert len(order) == len(many) + 2
    assert order[-1] == f"req_700 {record(700).stage}"
    lines = export_records(
        DatabaseAuditSink(database, tmp_path).records(AuditQuery()),
        directory=tmp_path,
        keys=KEYS,
        second=SecondContents(database),
    )
    said = [line["content"] async for line in lines if "content" in line]
    assert said == ["the first group of all", *(f"of {n}" for n in many)]


async def test_a_group_that_the_database_refuses_is_refused_and_the_next_one_taken(
    database: Database,
) -> None:
    device = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    await device.append(record(1))
    await device.append(record(2))
    async with database.writing() as connection:
        await connection.exec_driver_sql("ALTER TABLE audit_second_keys RENAME TO gone")
    with pytest.raises(AuditUnavailable):
        await device.append(record(4), b"its key has nowhere to go")
    assert not device.healthy
    async with database.writing() as connection:
        await connection.exec_driver_sql("ALTER TABLE gone RENAME TO audit_second_keys")
    receipt = await device.append(record(5), b"its key has")
    assert (receipt.segment, receipt.offset_bytes) == (1, 2)
    await device.rest()
