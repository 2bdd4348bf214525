"""The writer: groups, receipts, restarts, and callers that do not wait."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from msgspec import structs
from structlog.testing import capture_logs

from gateway.audit.disk import Disk
from gateway.audit.proving.verify import verify_directory, verify_receipt
from gateway.audit.segments import SegmentReader, list_segments, segment_path
from gateway.errors import AuditUnavailable, ConfigurationInvalid, StartupRefused
from tests.gateway.audit.samples import LIMITS, journeys, make_log, record, running, until


pytestmark = pytest.mark.anyio


class GatedDisk(Disk):
    """A disk whose syncs wait for permission and are counted."""

    __slots__ = ("gate", "syncs")

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.gate.wait()
        self.syncs += 1
        super().sync(descriptor)


async def test_what_waits_during_a_sync_shares_the_next_one(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with running(tmp_path, disk=disk) as log:
        await log.append(record(0))
        before = disk.syncs
        disk.gate.clear()
        first = asyncio.create_task(log.append(record(1)))
        await until(lambda: log.stats().pending_records == 1)
        await asyncio.sleep(0.02)
        others = [asyncio.create_task(log.append(record(number))) for number in range(2, 40)]
        await asyncio.sleep(0.02)
        assert not first.done()
        disk.gate.set()
        await asyncio.gather(first, *others)
        assert disk.syncs == before + 2
        assert log.stats().records_total == 40


async def test_a_receipt_is_given_only_after_the_sync(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with running(tmp_path, disk=disk) as log:
        disk.gate.clear()
        waiting = asyncio.create_task(log.append(record(1)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert log.position[1] < segment_path(tmp_path / "w0", 1).stat().st_size
        disk.gate.set()
        receipt = await waiting
    assert verify_receipt(tmp_path, str(receipt)).ok


async def test_a_cancelled_callers_record_is_written_all_the_same(tmp_path: Path) -> None:
    disk = GatedDisk()
    async with running(tmp_path, disk=disk) as log:
        disk.gate.clear()
        waiting = asyncio.create_task(log.append(record(1)))
        other = asyncio.create_task(log.append(record(2)))
        await asyncio.sleep(0.01)
        waiting.cancel()
        disk.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await other
    assert verify_directory(tmp_path).records == 2


async def test_closing_writes_what_is_waiting(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    await log.start()
    waiting = [asyncio.create_task(log.append(record(number))) for number in range(20)]
    await asyncio.sleep(0)
    await log.close()
    receipts = await asyncio.gather(*waiting)
    assert verify_directory(tmp_path, expected=receipts).records == 20


async def test_a_hanging_disk_costs_each_caller_one_deadline_and_the_next_none(
    tmp_path: Path,
) -> None:
    disk = GatedDisk()
    limits = msgspec.structs.replace(LIMITS, deadline_s=1.0)
    async with running(tmp_path, disk=disk, limits=limits) as log:
        disk.gate.clear()
        with pytest.raises(AuditUnavailable):
            await log.append(record(1))
        assert not log.stats().healthy
        with pytest.raises(AuditUnavailable):
            await log.append(record(2))
        disk.gate.set()
        await until(lambda: log.healthy)
        await log.append(record(3))
    report = verify_directory(tmp_path)
    assert (report.ok, report.records) == (True, 2)


@pytest.mark.parametrize("most", [{"queue_max_records": 3}, {"queue_max_bytes": 30_000}])
async def test_a_full_queue_refuses_instead_of_growing(
    most: dict[str, int], tmp_path: Path
) -> None:
    disk, prompt = GatedDisk(), bytes(10_000)
    limits = msgspec.structs.replace(LIMITS, **most)
    async with running(tmp_path, disk=disk, limits=limits) as log:
        disk.gate.clear()
        waiting = [asyncio.create_task(log.append(record(at), prompt)) for at in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(AuditUnavailable):
            await log.append(record(4))
        disk.gate.set()
        await asyncio.gather(*waiting)
        stats = log.stats()
        assert (stats.pending_records, stats.pending_bytes) == (0, 0)


async def test_what_was_written_no_longer_counts_as_waiting(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        for number in range(3):
            await log.append(record(number), bytes(100))
            stats = log.stats()
            assert (stats.pending_records, stats.pending_bytes) == (0, 0)


async def test_groups_that_are_too_long_together_are_written_one_by_one(tmp_path: Path) -> None:
    disk = GatedDisk()
    limits = msgspec.structs.replace(LIMITS, group_max_bytes=1)
    async with running(tmp_path, disk=disk, limits=limits) as log:
        await log.append(record(0))
        before = disk.syncs
        disk.gate.clear()
        waiting = []
        for number in range(1, 5):
            waiting.append(asyncio.create_task(log.append(record(number))))
            while log.stats().pending_records < number:
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # It is handed over, so the next one is another group.
        disk.gate.set()
        await asyncio.gather(*waiting)
        assert disk.syncs == before + 4


async def test_segments_rotate_by_size_and_stay_one_chain(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(LIMITS, segment_max_bytes=1500)
    async with running(tmp_path, limits=limits) as log:
        receipts = await journeys(log, 0, 12)
    report = verify_directory(tmp_path, expected=receipts)
    assert report.ok
    assert report.segments > 3
    assert (report.intents, report.outcomes, report.open_intents) == (12, 12, 0)


async def test_a_restart_continues_the_chain_in_a_new_segment(tmp_path: Path) -> None:
    receipts = []
    for start in range(3):
        async with running(tmp_path) as log:
            receipts += await journeys(log, start * 2, 2)
    assert [receipt.segment for receipt in receipts] == [1] * 4 + [2] * 4 + [3] * 4
    assert verify_directory(tmp_path, expected=receipts).ok


@pytest.mark.parametrize("tail", [b"\x00\x00\x01\x00\x03gar", bytes(5000) + b"x", b"x" + bytes(9)])
async def test_a_torn_tail_is_sealed_at_the_next_start(tmp_path: Path, tail: bytes) -> None:
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 2)
    path = segment_path(tmp_path / "w0", 1)
    path.write_bytes(path.read_bytes() + tail)
    assert not verify_directory(tmp_path).ok
    async with running(tmp_path) as log:
        receipts += await journeys(log, 2, 2)
    report = verify_directory(tmp_path, expected=receipts)
    assert report.ok
    assert "never acknowledged" in report.notes[0]


async def test_zeros_behind_a_log_are_room_that_a_killed_process_left(tmp_path: Path) -> None:
    """Not a word of them, neither before the next start nor after it."""
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 2)
        path = segment_path(tmp_path / "w0", 1)
        killed = path.read_bytes()
    end = path.stat().st_size
    assert (len(killed) > end, killed[:end], any(killed[end:])) == (True, path.read_bytes(), False)
    path.write_bytes(killed)
    with capture_logs() as logged:
        assert verify_directory(tmp_path, expected=receipts).notes == ()
        async with running(tmp_path) as log:
            receipts += await journeys(log, 2, 2)
    report = verify_directory(tmp_path, expected=receipts)
    assert (report.bad, report.notes, logged) == ((), (), [])
    assert path.read_bytes() == killed


async def test_a_groups_zeros_are_written_over_and_the_file_grows_by_steps(tmp_path: Path) -> None:
    path = segment_path(tmp_path / "w0", 1)
    lengths, receipts = [], []
    async with running(tmp_path) as log:
        for number in range(12):
            receipts.append(await log.append(record(number), bytes(9000)))
            lengths.append(path.stat().st_size)
            assert lengths[-1] >= log.position[1]
        assert verify_directory(tmp_path, expected=receipts).ok
    assert 3 <= len(set(lengths)) <= 6
    assert path.stat().st_size == log.position[1]


async def test_a_segment_is_never_longer_than_it_may_be_for_zeros(tmp_path: Path) -> None:
    limits = structs.replace(LIMITS, segment_max_bytes=3000)
    async with running(tmp_path, limits=limits) as log:
        await log.append(record(1), bytes(500))
        assert segment_path(tmp_path / "w0", 1).stat().st_size == 3000
        await log.append(record(2), bytes(5000))
        assert segment_path(tmp_path / "w0", 1).stat().st_size == log.position[1]


async def test_damage_is_sealed_too_but_stays_damage_for_the_verifier(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 4)
    path = segment_path(tmp_path / "w0", 1)
    changed = bytearray(path.read_bytes())
    changed[receipts[3].offset_bytes + 60] ^= 1
    path.write_bytes(changed)
    async with running(tmp_path) as log:
        receipts += await journeys(log, 4, 1)
    bad = verify_directory(tmp_path).first_bad
    assert bad is not None
    assert (bad.segment, bad.offset_bytes) == (1, receipts[3].offset_bytes)


async def test_a_segment_that_a_crash_left_without_header_is_replaced(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 1)
    whole = segment_path(tmp_path / "w0", 1).read_bytes()
    segment_path(tmp_path / "w0", 2).write_bytes(whole[:9])
    async with running(tmp_path) as log:
        receipts += await journeys(log, 1, 1)
    assert list_segments(tmp_path / "w0") == [1, 2]
    assert verify_directory(tmp_path, expected=receipts).ok


async def test_a_damaged_header_stops_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await journeys(log, 0, 1)
    path = segment_path(tmp_path / "w0", 1)
    changed = bytearray(path.read_bytes())
    changed[20] ^= 1
    path.write_bytes(changed)
    with pytest.raises(StartupRefused, match="worker w0"):
        await make_log(tmp_path).start()


async def test_two_writers_of_one_folder_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(StartupRefused, match="another process"):
            await make_log(tmp_path).start()
    async with running(tmp_path) as log:
        assert log.healthy


async def test_two_workers_write_side_by_side(tmp_path: Path) -> None:
    async with running(tmp_path, "w0") as one, running(tmp_path, "w1") as two:
        receipts = await journeys(one, 0, 3) + await journeys(two, 10, 3)
    report = verify_directory(tmp_path, expected=receipts)
    assert (report.ok, report.workers, report.records) == (True, 2, 12)


@pytest.mark.parametrize("name", ["", "../w", "W", "a.b", "_w", "x" * 65])
def test_a_workers_name_must_be_a_safe_folder_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="worker"):
        make_log(tmp_path, name)


async def test_content_beyond_its_limit_is_cut_and_counted(tmp_path: Path) -> None:
    limits = msgspec.structs.replace(LIMITS, content_max_bytes=100)
    async with running(tmp_path, limits=limits) as log:
        await log.append(record(1), b"x" * 150)
    with SegmentReader(segment_path(tmp_path / "w0", 1)) as reader:
        (stored,) = reader.records()
    assert b'"cut_bytes":50' in stored.raw
    assert verify_directory(tmp_path).ok


async def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1), b"content")
    folder = tmp_path / "w0"
    assert folder.stat().st_mode & 0o077 == 0
    assert {path.name for path in folder.iterdir()} == {
        "00000001.log",
        "keys.jsonl",
        "keys.lock",
        "lock",
    }
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
