"""The projector: every record once, in order, numbered densely, by however many projectors."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from gateway.audit.frames import RECORD, encode_frame
from gateway.audit.memory import MemoryAuditSink
from gateway.audit.projecting.projection import Position, ProjectedRecord
from gateway.audit.projecting.projector import ProjectionBroken, Projector
from gateway.audit.segments import segment_path
from tests.gateway.audit.samples import LIMITS, journeys, record, running, until


pytestmark = pytest.mark.anyio

SMALL = msgspec.structs.replace(LIMITS, segment_max_bytes=1500)


class YieldingSink(MemoryAuditSink):
    """Gives way before it stores, as a database does, so that projectors meet."""

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
    ) -> bool:
        await asyncio.sleep(0)
        return await super().store(batch, worker, from_position, to_position)


class FlakySink(MemoryAuditSink):
    """Fails as often as it is told to."""

    failures = 0

    async def positions(self) -> Mapping[str, Position]:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the database is away")
        return await super().positions()


class BusySink(MemoryAuditSink):
    """While it stores, `meanwhile` is written; `sizes` says how many records came at a time."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._meanwhile = meanwhile
        self.sizes: list[int] = []

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
    ) -> bool:
        self.sizes.append(len(batch))
        await self._meanwhile()
        return await super().store(batch, worker, from_position, to_position)


def places(sink: MemoryAuditSink) -> list[tuple[str, int, int]]:
    rows = [row.projected for row in sink.rows]
    return [(row.worker, row.segment, row.offset_bytes) for row in rows]


def assert_dense(sink: MemoryAuditSink) -> None:
    for organisation in ("acme", "globex"):
        numbers = [
            row.sequence for row in sink.rows if row.projected.record.organisation == organisation
        ]
        assert numbers == list(range(1, len(numbers) + 1))


async def test_all_records_arrive_in_order_with_their_receipts(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path, limits=SMALL) as log:
        receipts = await journeys(log, 0, 10)
        assert await Projector(tmp_path, sink, batch_records=3).catch_up() == 20
    assert places(sink) == [(r.worker, r.segment, r.offset_bytes) for r in receipts]
    assert [row.projected.leaf_hash for row in sink.rows] == [r.leaf_hash for r in receipts]
    assert_dense(sink)


async def test_a_later_pass_brings_only_what_is_new_also_across_restarts(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    for start in range(3):
        async with running(tmp_path, limits=SMALL) as log:
            await journeys(log, start * 5, 5)
        assert await Projector(tmp_path, sink).catch_up() == 10
        assert await Projector(tmp_path, sink).catch_up() == 0
    assert len(set(places(sink))) == 30
    assert_dense(sink)


async def test_projectors_that_race_store_each_record_once(tmp_path: Path) -> None:
    sink = YieldingSink()
    async with running(tmp_path, "w0", limits=SMALL) as one, running(tmp_path, "w1") as two:
        await asyncio.gather(journeys(one, 0, 15), journeys(two, 100, 15))
        projectors = [Projector(tmp_path, sink, batch_records=2) for _ in range(4)]
        counts = await asyncio.gather(*(projector.catch_up() for projector in projectors))
    assert sum(counts) == 60
    assert len(set(places(sink))) == len(sink.rows) == 60
    assert_dense(sink)


async def test_nothing_beyond_what_the_writer_synced_is_projected(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path) as log:
        await journeys(log, 0, 2)
        position = log.position
        await journeys(log, 2, 2)
        projector = Projector(tmp_path, sink, durable=lambda: {"w0": position})
        assert await projector.catch_up() == 4
        position = log.position
        assert await projector.catch_up() == 4


@pytest.mark.parametrize("is_own", [True, False], ids=["its own", "another's"])
async def test_what_a_busy_log_gets_while_it_is_stored_waits_for_the_next_pass(
    tmp_path: Path, *, is_own: bool
) -> None:
    async with running(tmp_path) as log:
        await journeys(log, 0, 5)
        sink = BusySink(lambda: journeys(log, 100, 1))
        projector = Projector(
            tmp_path,
            sink,
            durable=(lambda: {"w0": log.position}) if is_own else dict,
            recent=log.recent if is_own else None,
            batch_records=4,
        )
        async with asyncio.timeout(5):
            await projector.catch_up()
            assert sink.sizes == ([4, 4, 4] if is_own else [4, 4, 4, 4, 2])
            await projector.catch_up()
    assert_dense(sink)


async def test_what_another_process_is_writing_is_left_for_later(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path) as log:
        await journeys(log, 0, 2)
    path = segment_path(tmp_path / "w0", 1)
    whole = path.read_bytes()
    path.write_bytes(whole + encode_frame(RECORD, bytes(100))[:40])
    assert await Projector(tmp_path, sink).catch_up() == 4
    assert await Projector(tmp_path, sink).catch_up() == 0


async def test_damage_stops_its_worker_and_no_other(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path, "w0") as one, running(tmp_path, "w1") as two:
        receipts = await journeys(one, 0, 3)
        await journeys(two, 10, 3)
    path = segment_path(tmp_path / "w0", 1)
    changed = bytearray(path.read_bytes())
    changed[receipts[0].offset_bytes + 60] ^= 1
    path.write_bytes(changed)
    with pytest.raises(ProjectionBroken, match="worker w0"):
        await Projector(tmp_path, sink).catch_up()
    assert {worker for worker, _, _ in places(sink)} == {"w1"}


@pytest.mark.parametrize(
    "held",
    [
        b'{"record":{"stage":"intent"}}',
        b'{"record":{"stage":"intent","request_id":"\xff","organisation":"acme","utc_us":1}}',
    ],
)
async def test_a_whole_frame_that_holds_no_record_stops_its_worker_and_no_other(
    tmp_path: Path, held: bytes
) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path, "w0") as one, running(tmp_path, "w1") as two:
        await journeys(one, 0, 3)
        await journeys(two, 10, 3)
    with segment_path(tmp_path / "w0", 1).open("ab") as file:
        file.write(encode_frame(RECORD, bytes(32) + held))
    with pytest.raises(ProjectionBroken, match="worker w0 at"):
        await Projector(tmp_path, sink).catch_up()
    assert {worker for worker, _, _ in places(sink)} == {"w1"}


async def test_a_missing_segment_and_a_position_behind_the_end_are_reported(tmp_path: Path) -> None:
    async with running(tmp_path, limits=SMALL) as log:
        await journeys(log, 0, 10)
    sink = MemoryAuditSink()
    await sink.store([], "w0", (1, 0), (1, 10**6))
    with pytest.raises(ProjectionBroken, match="sealed before"):
        await Projector(tmp_path, sink).catch_up()
    sink = MemoryAuditSink()
    await sink.store([], "w0", (1, 0), (log.position[0], 10**6))
    with pytest.raises(ProjectionBroken, match="ends before"):
        await Projector(tmp_path, sink).catch_up()
    segment_path(tmp_path / "w0", 2).unlink()
    with pytest.raises(ProjectionBroken, match="segment 2 is missing or damaged"):
        await Projector(tmp_path, MemoryAuditSink()).catch_up()


async def test_the_loop_outlives_a_failing_sink_and_ends_with_a_last_pass(tmp_path: Path) -> None:
    sink, stop = FlakySink(), asyncio.Event()
    sink.failures = 3
    async with running(tmp_path) as log:
        projector = Projector(tmp_path, sink, durable=lambda: {"w0": log.position}, poll_s=0.005)
        task = asyncio.create_task(projector.run(stop))
        await journeys(log, 0, 3)
        await until(lambda: len(sink.rows) == 6)
        assert projector.healthy
        await log.append(record(9))
    stop.set()
    await task
    assert len(sink.rows) == 7


async def test_a_directory_that_does_not_exist_yet_is_empty(tmp_path: Path) -> None:
    assert await Projector(tmp_path / "later", MemoryAuditSink()).catch_up() == 0
