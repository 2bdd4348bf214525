"""Intents of lines that nobody will come back to: ended once, for what they cost, and no others."""

from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from gateway.audit.reckoning import CRASHED, ERASED, GONE
from gateway.audit.writer import SegmentedAuditLog
from gateway.batching.loose_ends import LeftByGone, LooseEnds
from gateway.errors import AuditUnavailable
from gateway.store.batching.unsent_lines import UnsentLines, settle
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels
from gateway.types import AuditRecord, Receipt
from tests.gateway.audit.samples import running
from tests.gateway.batching.parking_lot import HELD, Lot, Worker


pytestmark = [pytest.mark.anyio, pytest.mark.either]


class Evidence:
    """A worker's segments, and what is in them."""

    def __init__(self, log: SegmentedAuditLog) -> None:
        self.log, self.failing = log, False
        self.records: list[AuditRecord] = []

    async def start(self) -> None:
        pass

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        if self.failing and record.stage == "outcome":
            raise AuditUnavailable("The disk is away for a moment.")
        receipt = await self.log.append(record, content)
        self.records.append(record)
        return receipt


class Scene:
    """A worker that parked two lines."""

    def __init__(self, lot: Lot, log: SegmentedAuditLog, folder: Path) -> None:
        self.lot, self.log, self.folder = lot, log, folder
        self.unsent = UnsentLines(lot.database, lot.clock)
        self.worker: Worker
        self.requests: list[str]
        self.ends: LooseEnds

    async def begin(self) -> None:
        self.worker = await self.lot.worker("w0")
        self.requests = await self.worker.park(2)
        self.ends = self.ends_of(LooseEnds)

    def ends_of(self, kind: type[LooseEnds]) -> LooseEnds:
        return kind(
            *(self.log.open, self.folder / "w0", self.lot.lines, self.unsent),
            self.worker.reservations,
            audit=self.lot.audit,
            outcome_of=self.lot.outcome_of,
            clock=self.lot.clock,
        )

    async def erase(self, *numbers: int) -> None:
        batch_id = self.lot.batch.batch_id
        async with self.lot.database.writing() as connection:
            await self.unsent.hold(connection, batch_id, numbers)
            await connection.execute(update(parcels).values(is_erased=1))
            await self.unsent.note(connection, batch_id, numbers)
            gone = batch_lines.c.number.in_(numbers)
            await connection.execute(delete(batch_lines).where(gone))

    async def set(self, state: str, numbers: Collection[int] = (1, 2)) -> None:
        changed = update(batch_lines).where(batch_lines.c.number.in_(numbers))
        async with self.lot.database.writing() as connection:
            await connection.execute(changed.values(state=state))

    def found(self) -> list[tuple[str, str, int]]:
        """What the outcomes say, in the order of the requests."""
        ends = self.lot.outcomes()
        found = [ends[each] for each in self.requests if each in ends]
        assert len(found) == len(ends)
        return [(str(each.status), each.error, each.cost_microusd) for each in found]


@pytest.fixture
async def scene(database_url: str, tmp_path: Path) -> AsyncIterator[Scene]:
    database = open_database(database_url)
    lot = Lot(database)
    async with running(tmp_path) as log:
        lot.audit = Evidence(log)
        await lot.begin(2)
        scene = Scene(lot, log, tmp_path)
        await scene.begin()
        yield scene
    await database.close()


ERASED_FOR = ("cancelled", ERASED, HELD)
ERASED_FREE = ("cancelled", ERASED, 0)


async def test_what_was_erased_at_a_vendor_is_ended_at_the_second_look_and_paid(
    scene: Scene,
) -> None:
    await scene.worker.tend()
    await scene.erase(1)
    assert await scene.ends.tend() == 0
    assert scene.found() == []
    assert await scene.ends.tend() == 1
    assert await scene.ends.tend() == 0
    assert scene.found() == [ERASED_FOR]
    assert (await scene.lot.spent(), await scene.lot.stakes()) == ((HELD, HELD), 1)
    assert scene.log.open.lines().keys() == {scene.requests[1]}


async def test_what_was_erased_before_it_was_sent_costs_nothing(scene: Scene) -> None:
    await scene.erase(1, 2)
    assert [await scene.ends.tend() for _ in range(3)] == [0, 2, 0]
    assert scene.found() == [ERASED_FREE] * 2
    assert "cost" not in scene.lot.outcomes()[scene.requests[0]].detail
    assert (await scene.lot.spent(), await scene.lot.stakes()) == ((0, 0), 0)


@pytest.mark.parametrize("is_refused", [True, False])
async def test_what_is_being_sent_is_ended_when_its_vendor_has_it_or_refused_it(
    scene: Scene, *, is_refused: bool
) -> None:
    lot = scene.lot
    await scene.worker.tend()
    async with lot.database.writing() as connection:
        await connection.execute(update(parcels).values(state="submitting"))
    (row,) = await lot.rows()
    await scene.erase(1)
    assert [await scene.ends.tend() for _ in range(3)] == [0, 0, 0]
    async with lot.database.writing() as connection:
        await settle(connection, row.parcel_id, is_refused=is_refused)
    assert await scene.ends.tend() == 1
    assert scene.found() == [ERASED_FREE if is_refused else ERASED_FOR]


async def test_lines_that_wait_or_are_under_way_are_left_alone(scene: Scene) -> None:
    await scene.set("running", [2])
    assert [await scene.ends.tend() for _ in range(3)] == [0, 0, 0]
    assert scene.log.open.lines().keys() == set(scene.requests)


@pytest.mark.parametrize("kind", [LooseEnds, LeftByGone])
@pytest.mark.parametrize("state", ["waiting", "succeeded", "errored"])
async def test_a_line_that_goes_on_without_its_intent_was_cut_off(
    scene: Scene, kind: type[LooseEnds], state: str
) -> None:
    ends = scene.ends_of(kind)
    await scene.set(state, [1])
    assert [await ends.tend() for _ in range(3)] == [0, 1, 0]
    why = CRASHED if kind is LooseEnds else GONE
    assert scene.found() == [("incomplete", why, HELD)]


async def test_of_a_batch_that_is_over_only_what_waited_may_have_been_erased(
    scene: Scene,
) -> None:
    async with scene.lot.database.writing() as connection:
        await connection.execute(update(batches).values(state="completed"))
        await connection.execute(delete(batch_lines))
    assert [await scene.ends.tend() for _ in range(2)] == [0, 2]
    assert scene.found() == [("incomplete", CRASHED, HELD)] * 2


async def test_what_was_loose_for_a_moment_is_not_ended(scene: Scene) -> None:
    for state in ("waiting", "parked", "waiting", "parked"):
        await scene.set(state)
        assert await scene.ends.tend() == 0
    assert scene.found() == []


async def test_what_another_has_ended_is_ended_once(scene: Scene) -> None:
    other = await scene.lot.worker("w1")
    await scene.lot.wait(300.0)
    # Its records are elsewhere: the first hears of them from the database alone.
    opened = dict(scene.log.open._open)
    await other.ended(scene.requests)
    scene.log.open._open.update(opened)
    assert [await scene.ends.tend() for _ in range(3)] == [0, 0, 0]
    assert len(scene.lot.outcomes()) == 2
    assert scene.log.open.lines() == {}


async def test_what_cannot_be_written_at_first_is_paid_once(scene: Scene) -> None:
    await scene.worker.tend()
    await scene.worker.reservations.let_go()
    await scene.erase(1, 2)
    await scene.ends.tend()
    scene.lot.audit.failing = True
    for _ in range(2):
        with pytest.raises(AuditUnavailable):
            await scene.ends.tend()
    scene.lot.audit.failing = False
    assert await scene.ends.tend() == 2
    assert scene.found() == [ERASED_FOR] * 2
    assert await scene.lot.spent() == (2 * HELD, 0)


async def test_a_segment_that_is_out_of_reach_is_no_end_and_is_said(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.erase(1)
    await scene.ends.tend()
    read = "gateway.batching.loose_ends.read_intents"

    def away(_: Path, spots: list[object], found: dict[object, OSError]) -> list[object]:
        assert len(spots) == 1
        found["w0", 1] = OSError("The disk is away for a moment.")
        return []

    with monkeypatch.context() as patched:
        patched.setattr(read, away)
        with pytest.raises(OSError, match="for a moment"):
            await scene.ends.tend()
    assert scene.found() == []
    assert await scene.ends.tend() == 1


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_line_that_was_sent_alone_is_not_charged_by_its_end(
    scene: Scene, *, is_over: bool
) -> None:
    """Its leases pay for it; of a batch that is over nobody knows whether it was erased."""
    lot = scene.lot
    detail = {"batch": lot.batch.batch_id, "line": "1"}
    begun = AuditRecord(
        *("intent", "req-alone", "acme", lot.clock.utc_us()), reserved_microusd=HELD, detail=detail
    )
    await lot.audit.append(begun)
    if is_over:
        async with lot.database.writing() as connection:
            await connection.execute(update(batches).values(state="completed"))
    await scene.erase(1)
    assert [await scene.ends.tend() for _ in range(3)] == [0, 2, 0]
    end = lot.outcomes()["req-alone"]
    why = ("incomplete", CRASHED) if is_over else ("cancelled", ERASED)
    assert (end.status, end.error, end.cost_microusd) == (*why, HELD)
    assert (await lot.spent())[0] == (HELD if is_over else 0)
