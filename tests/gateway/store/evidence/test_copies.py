"""A record that the disk and the database both took is numbered once, whoever was first."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.audit.projecting.projector import Projector
from gateway.audit.second import is_second
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.errors import AuditUnavailable
from gateway.store.engine import Database
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.types import Receipt
from tests.gateway.audit.samples import KEYS, LIMITS, record, running, until
from tests.gateway.store.evidence.test_second_device import HASTY, StuckDisk, two_devices


pytestmark = pytest.mark.anyio
ON_POSTGRESQL = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def projector_of(folder: Path, database: Database, log: SegmentedAuditLog) -> Projector:
    sink = DatabaseAuditSink(database, folder)
    return Projector(folder, sink, recent=log.recent, durable=lambda: {log.worker: log.position})


async def numbered(folder: Path, database: Database) -> list[str]:
    sink = DatabaseAuditSink(database, folder)
    rows = [row async for row in sink.records(AuditQuery(organisation="acme"))]
    assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
    return [
        f"{row.projected.record.request_id} {row.projected.record.stage}"
        f"{' db' if is_second(row.projected.worker) else ''}{' again' if row.is_again else ''}"
        for row in rows
    ]


async def until_waiting(database: Database, count: int) -> None:
    """Until so many transactions wait for another one's locks."""
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    while True:
        async with database.reading() as connection:
            if (await connection.execute(waiting)).scalar_one() >= count:
                return
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_first", [True, False], ids=["the first group", "a later one"])
@ON_POSTGRESQL
@pytest.mark.postgres
async def test_a_copy_that_is_projected_while_the_database_takes_the_record_is_left_out(
    tmp_path: Path, database: Database, is_first: bool
) -> None:
    """Whoever was paused longer than the deadline finds all three due in the same moment."""
    disk, before = StuckDisk(), ["req_1 intent"]
    async with running(tmp_path, limits=HASTY, disk=disk) as log:
        both, projector = two_devices(log, database), projector_of(tmp_path, database, log)
        await both.append(record(1))
        await projector.catch_up()
        if not is_first:
            disk.is_broken = True
            await both.append(record(4))
            disk.is_broken = False
            await until(lambda: log.healthy)
            before.append("req_4 intent db")
        disk.goes_on.clear()
        async with database.writing() as held:
            await held.execute(text("SELECT 1 FROM audit_sequences FOR UPDATE"))
            carried = asyncio.ensure_future(both.append(record(2)))
            await until_waiting(database, 1)
            disk.goes_on.set()
            await until(lambda: log.stats().records_total == 2)
            projecting = asyncio.create_task(projector.catch_up())
            await until_waiting(database, 2)
        assert is_second((await carried).worker)
        await projecting
        await both.close()
    assert await numbered(tmp_path, database) == [*before, "req_2 intent db"]


async def test_the_first_copy_of_all_is_known_to_a_projection_that_has_run_before(
    tmp_path: Path, database: Database
) -> None:
    disk = StuckDisk()
    async with running(tmp_path, limits=HASTY, disk=disk) as log:
        both, projector = two_devices(log, database), projector_of(tmp_path, database, log)
        await both.append(record(1))
        await projector.catch_up()
        disk.goes_on.clear()
        await both.append(record(2))
        disk.goes_on.set()
        await until(lambda: log.stats().records_total == 2)
        await projector.catch_up()
        await both.append(record(4))
        await projector.catch_up()
        await both.close()
    expected = ["req_1 intent", "req_2 intent db", "req_4 intent"]
    assert await numbered(tmp_path, database) == expected


async def test_the_database_declines_what_the_disk_wrote_late_and_it_numbered_meanwhile(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller is refused, as for all that is written late."""
    disk, append = StuckDisk(), DatabaseDevice.append
    async with running(tmp_path, limits=HASTY, disk=disk) as log:
        both, projector = two_devices(log, database), projector_of(tmp_path, database, log)
        await both.append(record(1))

        async def late(self: DatabaseDevice, *args: Any, **options: Any) -> Receipt:
            disk.goes_on.set()
            await until(lambda: log.stats().records_total == 2)
            await projector.catch_up()
            return await append(self, *args, **options)

        disk.goes_on.clear()
        with monkeypatch.context() as patched:
            patched.setattr(DatabaseDevice, "append", late)
            with pytest.raises(AuditUnavailable):
                await both.append(record(2), b"said")
        assert [each.request_id for each, _ in log.open.refused()] == ["req_2"]
        await both.close()
    assert await numbered(tmp_path, database) == ["req_1 intent", "req_2 intent"]


async def test_others_of_a_group_are_taken_and_so_is_what_only_another_log_has(
    tmp_path: Path, database: Database
) -> None:
    device = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    async with running(tmp_path) as log, running(tmp_path, "w1") as beside:
        projector = projector_of(tmp_path, database, log)
        for of in (log, beside):
            await of.append(record(1 if of is log else 2))
        await projector.catch_up()
        for number in (4, 7):  # The first group goes another way than those that follow.
            receipts = await asyncio.gather(
                device.append(record(number), b"one"),
                device.append(record(1), b"two", may_be_written=True),
                device.append(record(number, "outcome"), b"three", may_be_written=True),
                return_exceptions=True,
            )
            assert [type(each) for each in receipts] == [Receipt, AuditUnavailable, Receipt]
        assert device.healthy
        await device.append(record(2), may_be_written=True)
        await device.rest()
    order = await numbered(tmp_path, database)
    assert sorted(order[:2]) == ["req_1 intent", "req_2 intent"]
    taken = [f"req_{number} {stage} db" for number in (4, 7) for stage in ("intent", "outcome")]
    assert order[2:] == [*taken, "req_2 intent db"]


async def test_a_second_outcome_of_a_line_that_the_database_takes_counts_nowhere(
    database: Database, tmp_path: Path
) -> None:
    device = DatabaseDevice(database, "w0", KEYS, SystemClock(), LIMITS)
    for number in (1, 2):
        await device.append(record(number))
    ended = msgspec.structs.replace(record(4, "outcome"), detail={"batch": "b", "line": "1"})
    raw = msgspec.json.encode({"record": ended})
    first = [ProjectedRecord("w1", 1, 100, raw)]
    assert await DatabaseAuditSink(database).store(first, "w1", START, (1, 200))
    await device.append(ended)
    await device.rest()
    assert (await numbered(tmp_path, database))[2:] == ["req_4 outcome", "req_4 outcome db again"]
