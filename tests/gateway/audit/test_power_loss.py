"""The power goes: what was not synced is gone, in part, or zeros; nothing acknowledged is."""

import asyncio
import os
import random
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.audit.device import SegmentDevice
from gateway.audit.disk import Disk
from gateway.audit.entries import encode_record
from gateway.audit.memory import MemoryAuditSink
from gateway.audit.projecting.export import export_records, segment_rows
from gateway.audit.projecting.projector import ProjectionBroken, Projector
from gateway.audit.proving.verify import verify_directory
from gateway.audit.segments import segment_path, written_bytes
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.errors import AuditUnavailable, StartupRefused
from gateway.types import Receipt
from tests.gateway.audit.samples import KEYS, LIMITS, journeys, make_log, record, running


pytestmark = pytest.mark.anyio
RUNS = 30
CALLERS = 16
SECTOR_BYTES = 512


class VolatileDisk(Disk):
    """A disk whose power goes at some call, and that then keeps only what was synced for sure.

    Of what was not, it keeps any sectors: those of a write need not reach it in their order.
    """

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._calls_left = draw.randint(4, 150)
        self._paths: dict[int, Path] = {}
        self._synced: dict[Path, bytes] = {}
        self._listed: set[Path] = set()
        self.lost_bytes = 0

    def create(self, path: Path) -> int:
        self._step()
        descriptor = super().create(path)
        self._paths[descriptor] = path
        self._synced[path] = b""
        return descriptor

    def open_to_add(self, path: Path) -> int:
        """Files beside the segments are another model's (`test_power_loss_beside`)."""
        descriptor = super().open_to_add(path)
        self._paths.pop(descriptor, None)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> None:
        try:
            self._step()
        except OSError:
            super().write(descriptor, data[: self._draw.randint(0, len(data))])
            raise
        super().write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset_bytes: int) -> None:
        try:
            self._step()
        except OSError:
            super().write_at(descriptor, data[: self._draw.randint(0, len(data))], offset_bytes)
            raise
        super().write_at(descriptor, data, offset_bytes)

    def cut(self, descriptor: int, length_bytes: int) -> None:
        self._step()
        super().cut(descriptor, length_bytes)

    def sync(self, descriptor: int) -> None:
        self._step()
        super().sync(descriptor)
        path = self._paths.get(descriptor)
        if path is not None:
            self._synced[path] = path.read_bytes()

    def sync_folder(self, path: Path) -> None:
        self._step()
        super().sync_folder(path)
        self._listed |= {known for known in self._synced if known.parent == path}

    def lose(self) -> None:
        """What a start finds after the power came back."""
        for path, synced in self._synced.items():
            if path not in self._listed:
                path.unlink(missing_ok=True)
                continue
            raw = path.read_bytes()
            left = self._left_of(synced, raw)
            self.lost_bytes += sum(now != was for now, was in zip(raw, left, strict=False))
            self.lost_bytes += max(0, len(raw.rstrip(b"\x00")) - len(left))
            path.write_bytes(left)

    def _left_of(self, synced: bytes, raw: bytes) -> bytes:
        """Some of the sectors that were written since the last sync, and some new length."""
        sizes = sorted((len(synced), len(raw)))
        left = bytearray(self._draw.choice([sizes[0], sizes[1], self._draw.randint(*sizes)]))
        share = self._draw.random()
        for begin in range(0, len(left), SECTOR_BYTES):
            end = min(begin + SECTOR_BYTES, len(left))
            is_new = self._draw.random() < share
            piece = (raw if is_new else synced)[begin:end]
            left[begin : begin + len(piece)] = piece
        return bytes(left)

    def _step(self) -> None:
        self._calls_left -= 1
        if self._calls_left <= 0:
            raise OSError("the power is gone")


async def call(log: SegmentedAuditLog, number: int) -> list[Receipt]:
    """Records until the log refuses; those that were acknowledged."""
    acknowledged: list[Receipt] = []
    try:
        while True:
            acknowledged.append(await log.append(record(number), b"words %d" % number))
    except AuditUnavailable:
        return acknowledged


async def test_thirty_power_losses_lose_nothing_that_was_acknowledged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = lost_bytes = 0
    for seed in range(RUNS):
        folder, disk = tmp_path / str(seed), VolatileDisk(random.Random(seed))
        log = make_log(folder, disk=disk)
        try:
            await log.start()
            calls = await asyncio.gather(*(call(log, number) for number in range(CALLERS)))
            acknowledged = [receipt for each in calls for receipt in each]
            await log.close()
        except StartupRefused:
            acknowledged = []
        disk.lose()
        async with running(folder) as again:
            acknowledged += await journeys(again, 1000, 2)
        report = verify_directory(folder, acknowledged)
        assert report.ok, (seed, report.first_bad)
        lines = [
            line async for line in export_records(segment_rows(folder), directory=folder, keys=KEYS)
        ]
        assert not [line for line in lines if "content_error" in line]
        kept += len(acknowledged)
        lost_bytes += disk.lost_bytes
    with capsys.disabled():
        sys.stdout.write(
            f"\npower losses: {RUNS}, acknowledged and kept: {kept}, lost: 0, "
            f"bytes that were never synced and are gone: {lost_bytes}\n"
        )
    assert kept > RUNS * CALLERS
    assert lost_bytes > 0


class ForgetfulDisk(Disk):
    """Remembers, by file, up to where it was synced; `synced` outlives the process."""

    def __init__(self, synced: dict[int, int]) -> None:
        self._synced = synced
        self.is_killed = False

    def sync(self, descriptor: int) -> None:
        if self.is_killed:
            raise OSError("the process was killed here")
        super().sync(descriptor)
        found = os.fstat(descriptor)
        self._synced[found.st_ino] = found.st_size


async def test_what_a_killed_process_had_only_written_is_synced_before_anything_follows_it(
    tmp_path: Path,
) -> None:
    """A start takes whole records that nobody was told of; the power may go a moment later."""
    synced: dict[int, int] = {}
    disk = ForgetfulDisk(synced)
    killed = SegmentDevice(tmp_path, "w0", KEYS, SystemClock(), LIMITS, disk)
    killed.open()
    entries = [encode_record(record(number))[1] for number in (1, 2)]
    killed.commit([(entries[0], None)])
    disk.is_killed = True
    with pytest.raises(OSError, match="killed"):
        killed.commit([(entries[1], None)])
    killed.close()

    async with running(tmp_path, disk=ForgetfulDisk(synced)) as log:
        await log.append(record(4))
    for path in sorted((tmp_path / "w0").glob("*.log")):
        os.truncate(path, synced.get(path.stat().st_ino, 0))

    found = [row.projected.record.request_id async for row in segment_rows(tmp_path)]
    report = verify_directory(tmp_path)
    assert (report.bad, found) == ((), ["req_1", "req_2", "req_4"])


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ((2, 3), "audit:tail_cut"),
        ((5, 6), "audit:tail_cut"),
        ((4, 5, 6, 7), "audit:tail_cut"),
        ((), "audit:segment_damaged"),
    ],
)
async def test_sectors_that_a_power_cut_kept_out_of_their_order_are_no_damage(
    tmp_path: Path, lost: tuple[int, ...], told: str
) -> None:
    """A group of which nobody was told, without some sectors; or changed, with all of them."""
    async with running(tmp_path) as log:
        receipt = await log.append(record(1))
        path = segment_path(tmp_path / "w0", 1)
        synced = written_bytes(path)
        await asyncio.gather(*(log.append(record(number), b"x" * 900) for number in (2, 4, 5)))
        left = bytearray(path.read_bytes())
    assert written_bytes(path) > 8 * SECTOR_BYTES
    for sector in lost:
        begin = max(synced, sector * SECTOR_BYTES)
        left[begin : (sector + 1) * SECTOR_BYTES] = bytes((sector + 1) * SECTOR_BYTES - begin)
    if not lost:
        left[written_bytes(path) - 9] ^= 1
    path.write_bytes(left)

    sink = MemoryAuditSink()
    if lost:
        await Projector(tmp_path, sink).catch_up()
        assert sink.rows[0].projected.offset_bytes == receipt.offset_bytes
    else:
        with pytest.raises(ProjectionBroken, match="changed"):
            await Projector(tmp_path, sink).catch_up()
    before = verify_directory(tmp_path).first_bad
    assert before is not None
    assert before.reason.endswith("cut off; a restart seals them") == bool(lost)
    with capture_logs() as logged:
        async with running(tmp_path) as log:
            await log.append(record(7))
    assert [line["event"] for line in logged] == [told]
    report = verify_directory(tmp_path, expected=[receipt])
    assert report.ok == bool(lost)
    if lost:
        assert await Projector(tmp_path, MemoryAuditSink()).catch_up() == report.records
        assert "never acknowledged" in report.notes[0]
