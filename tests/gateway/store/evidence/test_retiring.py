"""A worker whose disk is lost: what it left is counted, and ended when its name is retired."""

from pathlib import Path

import msgspec
import pytest
from sqlalchemy import delete, select

from gateway.audit.projecting.projection import RETIRED
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.verify import verify_directory
from gateway.audit.reckoning import ERASED, GONE
from gateway.batching.left_open import LeftBehind, LeftOpen
from gateway.clock import SystemClock
from gateway.errors import AuditUnavailable, RequestInvalid
from gateway.oversight.workers import WorkerReport
from gateway.passage import NATIVE
from gateway.store.batching.lines import LineStore
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.store.engine import Database
from gateway.store.evidence.retiring import Retiring
from gateway.store.evidence.second_device import DatabaseDevice
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.unended import UnendedReader
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.parked_money import ParkedMoney
from gateway.store.money.slices import LeaseHolder
from gateway.store.schema.audit import gone_workers
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import unsent_lines
from gateway.store.schema.tables import late_bookings
from gateway.store.workers import WorkerTable, workers
from gateway.types import AuditRecord
from tests.gateway.audit.samples import KEYS, LIMITS, journeys, record, running
from tests.gateway.store.evidence.test_gone_workers import told
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
HOUR_S = 3600.0


def line(number: int, line_number: int) -> AuditRecord:
    begun = now(number)
    return msgspec.structs.replace(begun, detail={"batch": "b", "line": str(line_number)})


def now(number: int) -> AuditRecord:
    begun_us = SystemClock().utc_us() - round((HOUR_S + 60) * 1e6)
    return msgspec.structs.replace(record(number), utc_us=begun_us, reserved_microusd=77)


class Lost:
    """A worker `w2` on another machine, whose disk nobody here can read."""

    def __init__(self, folder: Path, database: Database) -> None:
        self.there, self.here = folder / "there", folder / "here"
        self.here.mkdir()
        self.database = database
        self.sink = DatabaseAuditSink(database)
        self.retiring = Retiring(database, self.sink, SystemClock())

    async def project(self, folder: Path) -> int:
        return await Projector(folder, DatabaseAuditSink(self.database)).catch_up()

    async def leave(self) -> None:
        """Two requests and two lines are open; how another one ended, it could not tell anybody."""
        async with running(self.there, "w2") as log:
            await journeys(log, 1, 2)
            receipts = {number: await log.append(now(number)) for number in (3, 4, 5)}
            await log.append(line(6, 1))
            await log.append(line(7, 2))
            await self.project(self.there)
            await log.append(record(5, "outcome", receipts[5].leaf_hash))
        await told(self.database, "w2", HOUR_S)
        async with self.database.writing() as connection:
            await connection.execute(filled(batches, id="b", state="in_progress"))
            parked = filled(batch_lines, batch_id="b", number=2, state="parked")
            await connection.execute(parked)

    async def retire(self) -> None:
        standing = await self.retiring.standing("w2")
        await self.retiring.retire("w2", standing, "os:olga", "its machine burnt down")

    async def end(self) -> LeftBehind:
        """As `w1` does, in its own log."""
        clock = SystemClock()
        async with running(self.here, "w1") as log:
            left = LeftOpen(
                *(self.retiring, LineStore(self.database, clock)),
                UnsentLines(self.database, clock),
                late=LateBookings(self.database, clock),
                parked=ParkedMoney(self.database, clock, LeaseHolder("", "")),
                audit=log,
                outcome_of=self.sink.outcome,
                clock=clock,
            )
            looked = await left.look("w2")
            ended = await left.end("w2", 0.0)
            assert ended == looked
        await self.project(self.here)
        return ended

    async def outcomes(self) -> dict[str, AuditRecord]:
        found: dict[str, AuditRecord] = {}
        async for row in self.sink.records(AuditQuery(stage="outcome")):
            ended = row.projected.record
            assert ended.request_id not in found
            found[ended.request_id] = ended
        return found


@pytest.fixture
async def lost(tmp_path: Path, database: Database) -> Lost:
    lost = Lost(tmp_path, database)
    await lost.leave()
    return lost


async def test_all_that_is_known_to_be_open_is_ended_once_and_what_goes_on_is_left_alone(
    lost: Lost,
) -> None:
    await lost.retire()
    ended = await lost.end()
    assert (ended.requests, ended.lines, ended.waiting, ended.unreadable) == (3, 1, 1, 0)
    found = await lost.outcomes()
    assert set(found) == {"req_1", "req_2", "req_3", "req_4", "req_5", "req_6"}
    gone = {name: each for name, each in found.items() if each.error == GONE}
    assert set(gone) == {"req_3", "req_4", "req_5"}
    assert {each.cost_microusd for each in gone.values()} == {77}
    assert {each.detail["worker"] for each in gone.values()} == {"w2"}
    assert (found["req_6"].error, found["req_6"].status) == (ERASED, "cancelled")
    assert ended.since_us < SystemClock().utc_us() - HOUR_S * 1e6
    again = await lost.end()
    assert (again.requests, again.lines, again.waiting) == (0, 0, 1)
    assert await lost.outcomes() == found


async def test_erased_lines_that_waited_for_a_vendor_cost_what_that_may_charge(
    lost: Lost, database: Database
) -> None:
    """One that no vendor was handed is free, and so it is said; one that is being sent waits."""
    waited = {number: line(7 + number, 10 + number) for number in (1, 2, 3)}
    async with running(lost.there, "w2") as log:
        for begun in waited.values():
            detail = {**begun.detail, "path": NATIVE}
            await log.append(msgspec.structs.replace(begun, detail=detail))
    await lost.project(lost.there)
    async with database.writing() as connection:
        for number, parcel in ((1, ""), (2, "being sent")):
            place = {"batch_id": "b", "number": 10 + number, "parcel": parcel}
            await connection.execute(filled(unsent_lines, **place))
    await lost.retire()
    ended = await lost.end()
    assert (ended.lines, ended.waiting) == (3, 2)
    found = await lost.outcomes()
    free, owed = found["req_8"], found["req_10"]
    place = {"batch": "b", "line": "11", "path": NATIVE, "worker": "w2"}
    assert (free.status, free.error, free.cost_microusd) == ("cancelled", ERASED, 0)
    assert free.detail == place
    assert (owed.status, owed.error, owed.cost_microusd) == ("cancelled", ERASED, 77)
    assert "req_9" not in found
    async with database.reading() as connection:
        booked = (await connection.execute(select(late_bookings.c.request_id))).scalars().all()
    assert set(booked) == {"req_10"}


async def test_what_it_had_not_told_is_never_heard_even_if_its_disk_comes_back(
    lost: Lost,
) -> None:
    await lost.retire()
    await lost.end()
    found = await lost.outcomes()
    assert await lost.project(lost.there) == 0
    assert await lost.outcomes() == found
    assert found["req_5"].error == GONE
    assert (await lost.sink.positions())["w2"] == RETIRED


async def test_without_retiring_its_own_word_would_have_been_heard(lost: Lost) -> None:
    assert await lost.project(lost.there) == 1
    assert (await lost.outcomes())["req_5"].error == ""


async def test_the_log_of_whoever_ended_them_is_whole_without_those_intents(lost: Lost) -> None:
    await lost.retire()
    await lost.end()
    report = verify_directory(lost.here)
    assert report.bad == ()
    assert report.notes == (
        "4 outcomes are of intents in logs of other workers, which are not here",
    )
    theirs = verify_directory(lost.there)
    assert [(each.worker, each.intents) for each in theirs.open_of] == [("w2", 4)]
    # Beside the worker that it names, an outcome of an intent that is not there is damage.
    (lost.there / "w2").rename(lost.here / "w2")
    both = verify_directory(lost.here)
    note = "1 outcomes are of requests that have one besides: of each the first that was numbered"
    assert (both.bad, both.notes) == ((), (f"{note} counts",))
    assert [(each.worker, each.intents) for each in both.open_of] == [("w2", 1)]
    async with running(lost.here, "w3") as log:
        ended = record(9, "outcome", "ab" * 32)
        await log.append(msgspec.structs.replace(ended, detail={"worker": "w2"}))
    assert "not of its request" in str(verify_directory(lost.here).first_bad)


async def test_one_that_was_heard_of_lately_or_never_is_not_retired(lost: Lost) -> None:
    await told(lost.database, "w2", 60.0)
    with pytest.raises(RequestInvalid, match="heard of less than"):
        await lost.retire()
    with pytest.raises(RequestInvalid, match="nothing of a worker w9"):
        await lost.retiring.standing("w9")
    assert (await lost.sink.positions())["w2"] != RETIRED


async def test_one_that_lives_after_all_learns_that_nobody_hears_it(lost: Lost) -> None:
    async with running(lost.there, "w2") as log:
        projector = Projector(
            lost.there, lost.sink, durable=lambda: {log.worker: log.position}, recent=log.recent
        )
        knows = [projector.is_retired]
        for number in (8, 9):
            await log.append(record(number))
            await projector.catch_up()
            knows.append(projector.is_retired)
            await lost.retire()
    assert knows == [False, False, True]
    found = [row.projected.record async for row in lost.sink.records(AuditQuery(stage="intent"))]
    assert {"req_8", "req_9"} & {each.request_id for each in found} == {"req_8"}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_nor_does_the_database_take_anything_for_it_while_its_disk_fails(lost: Lost) -> None:
    device = DatabaseDevice(lost.database, "w2", KEYS, SystemClock(), LIMITS)
    await device.append(record(8))
    await lost.retire()
    for number in (9, 10):
        with pytest.raises(AuditUnavailable):
            await device.append(record(number))
    await device.rest()
    assert (await lost.sink.positions())["w2_db"] == RETIRED
    assert (await lost.end()).requests == 4


async def test_what_is_open_is_remembered_for_longer_than_the_worker_and_until_it_has_ended(
    lost: Lost,
) -> None:
    reader = UnendedReader(lost.database, SystemClock())
    assert await reader.kept() == []
    await reader.count()
    async with lost.database.writing() as connection:
        await connection.execute(delete(workers))
    await reader.count()
    (found,) = await reader.kept()
    # The line of a batch that is not there any more is nobody's.
    assert (found.worker, found.requests) == ("w2", 3)
    assert found.gone_us >= HOUR_S * 1e6
    assert found.since_us < SystemClock().utc_us() - HOUR_S * 1e6
    await lost.retire()
    await lost.end()
    await reader.count()
    assert await reader.kept() == []
    async with lost.database.reading() as connection:
        (row,) = (await connection.execute(gone_workers.select())).all()
    assert (row.retired_by, row.reason) == ("os:olga", "its machine burnt down")


async def test_one_that_comes_back_is_not_counted_any_more(lost: Lost) -> None:
    reader = UnendedReader(lost.database, SystemClock())
    await reader.count()
    assert len(await reader.kept()) == 1
    await WorkerTable(lost.database).put(WorkerReport("w2", SystemClock().utc_us()))
    await reader.count()
    assert await reader.kept() == []
