"""What was written a moment ago is projected from memory, and says what the disk says."""

import asyncio
from pathlib import Path

import pytest

from gateway.audit.memory import MemoryAuditSink
from gateway.audit.projecting.projection import Position, ProjectedRecord
from gateway.audit.projecting.projector import Projector
from gateway.audit.projecting.recent import RecentRecords
from gateway.audit.segments import read_entries
from gateway.audit.writer import SegmentedAuditLog
from tests.gateway.audit.samples import journeys, running


pytestmark = pytest.mark.anyio


class CountingProjector(Projector):
    """Knows how often it went to the disk."""

    reads = 0

    def _read(
        self, worker: str, here: Position, limit: Position | None
    ) -> tuple[list[ProjectedRecord], Position]:
        self.reads += 1
        return super()._read(worker, here, limit)


def projector_of(
    directory: Path, sink: MemoryAuditSink, log: SegmentedAuditLog
) -> CountingProjector:
    return CountingProjector(
        directory,
        sink,
        durable=lambda: {log.worker: log.position},
        recent=log.recent,
        batch_records=7,
    )


def row(number: int) -> ProjectedRecord:
    return ProjectedRecord("w0", 1, number, b"x" * 100)


async def test_what_was_just_written_is_not_read_back(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path) as log:
        await journeys(log, 0, 1)
        projector = projector_of(tmp_path, sink, log)
        await projector.catch_up()
        first_reads = projector.reads
        await asyncio.gather(journeys(log, 1, 20), journeys(log, 50, 20))
        assert await projector.catch_up() == 80
        assert projector.reads == first_reads
    on_disk = MemoryAuditSink()
    await Projector(tmp_path, on_disk).catch_up()
    fields = ("worker", "segment", "offset_bytes", "raw_json", "leaf_hash", "record", "content")
    for kept, found in zip(sink.rows, on_disk.rows, strict=True):
        assert kept.sequence == found.sequence
        for name in fields:
            assert getattr(kept.projected, name) == getattr(found.projected, name)


async def test_a_projection_that_fell_behind_goes_on_from_the_disk(tmp_path: Path) -> None:
    sink = MemoryAuditSink()
    async with running(tmp_path) as log:
        log.recent = RecentRecords("w0", records_max=10)
        await journeys(log, 0, 20)
        projector = projector_of(tmp_path, sink, log)
        assert await projector.catch_up() == 40
        assert projector.reads > 0
        await journeys(log, 20, 2)
        reads = projector.reads
        assert await projector.catch_up() == 4
        assert projector.reads == reads
    assert len({each.projected.offset_bytes for each in sink.rows}) == 44


async def test_records_stay_until_a_later_place_is_asked_for() -> None:
    recent = RecentRecords("w0")
    recent.add((1, 0), (1, 10), [row(1), row(2)])
    recent.add((1, 10), (2, 5), [row(3)])
    assert recent.take((1, 0), 1) == ([row(1), row(2)], (1, 10))
    assert recent.take((1, 0), 9) == ([row(1), row(2), row(3)], (2, 5))
    assert recent.take((1, 10), 9) == ([row(3)], (2, 5))
    assert recent.take((1, 0), 9) is None
    assert recent.take((2, 5), 9) is None


async def test_a_place_inside_a_group_is_not_at_hand() -> None:
    recent = RecentRecords("w0")
    recent.add((1, 0), (1, 10), [row(1), row(2)])
    assert recent.take((1, 5), 9) is None


async def test_too_many_bytes_are_all_let_go() -> None:
    recent = RecentRecords("w0", bytes_max=250)
    recent.add((1, 0), (1, 10), [row(1), row(2)])
    recent.add((1, 10), (1, 20), [row(3)])
    assert recent.take((1, 0), 9) is None
    recent.add((1, 20), (1, 30), [row(4)])
    assert recent.take((1, 20), 9) == ([row(4)], (1, 30))


async def test_what_was_let_go_no_longer_counts() -> None:
    recent = RecentRecords("w0", bytes_max=250)
    for number in range(10):
        recent.add((1, number), (1, number + 1), [row(number)])
        assert recent.take((1, number), 9) == ([row(number)], (1, number + 1))


async def test_records_are_found_again_by_their_places(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 5)
    places = [("w0", receipt.segment, receipt.offset_bytes) for receipt in receipts[::-1]]
    entries = read_entries(tmp_path, places)
    found = [ProjectedRecord(*place, entries[place]).leaf_hash for place in places]
    assert found == [receipt.leaf_hash for receipt in receipts[::-1]]
