"""When the disk fails: nothing acknowledged is lost, nothing lost is acknowledged, and it ends."""

import asyncio
import errno
import itertools
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from gateway.audit.disk import Disk, FileState
from gateway.audit.proving.verify import parse_receipt, verify_directory
from gateway.audit.segments import segment_path
from gateway.errors import AuditUnavailable, StartupRefused
from gateway.types import Receipt
from tests.gateway.audit.samples import LIMITS, journeys, make_log, record, running, until


pytestmark = pytest.mark.anyio

_NEVER = 10**9
_CALLS = (
    *("create", "write", "write_at", "sync", "sync_folder", "state", "free_bytes"),
    "append_durably",
)


class FailingDisk(Disk):
    """A disk of which one call, counted over all kinds or of one kind, fails."""

    def __init__(
        self, fails_at: int = _NEVER, call: str = "", times: int = 1, code: int = errno.EIO
    ) -> None:
        self.calls, self.code = itertools.count(1), code
        self.fails_at, self.call, self.times = fails_at, call, times

    def _count(self, call: str) -> None:
        if self.call and call != self.call:
            return
        if self.fails_at <= next(self.calls) < self.fails_at + self.times:
            raise OSError(self.code, f"{call} failed on purpose")

    def create(self, path: Path) -> int:
        self._count("create")
        return super().create(path)

    def write(self, descriptor: int, data: bytes) -> None:
        try:
            self._count("write")
        except OSError:
            os.write(descriptor, data[: len(data) // 2])
            raise
        super().write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset_bytes: int) -> None:
        try:
            self._count("write_at")
        except OSError:
            os.pwrite(descriptor, data[: len(data) // 2], offset_bytes)
            raise
        super().write_at(descriptor, data, offset_bytes)

    def cut(self, descriptor: int, length_bytes: int) -> None:
        self._count("cut")
        super().cut(descriptor, length_bytes)

    def sync(self, descriptor: int) -> None:
        self._count("sync")
        super().sync(descriptor)

    def sync_folder(self, path: Path) -> None:
        self._count("sync_folder")
        super().sync_folder(path)

    def state(self, path: Path) -> FileState | None:
        self._count("state")
        return super().state(path)

    def free_bytes(self, descriptor: int) -> int:
        self._count("free_bytes")
        return super().free_bytes(descriptor)

    def append_durably(self, path: Path, data: bytes) -> None:
        self._count("append_durably")
        super().append_durably(path, data)


@pytest.mark.parametrize("fails_at", range(1, 36))
async def test_whichever_call_fails_the_log_stays_whole(tmp_path: Path, fails_at: int) -> None:
    acknowledged: list[Receipt] = []
    refused = 0
    limits = msgspec.structs.replace(LIMITS, segment_max_bytes=700)
    log = make_log(tmp_path, limits=limits, disk=FailingDisk(fails_at))
    try:
        await log.start()
    except StartupRefused:
        log = make_log(tmp_path, limits=limits)
        await log.start()
    for number in range(6):
        try:
            acknowledged.append(await log.append(record(number), b"content"))
        except AuditUnavailable:
            refused += 1
    await log.close()
    assert refused <= 1
    report = verify_directory(tmp_path, expected=acknowledged)
    assert report.bad == ()
    async with running(tmp_path) as again:
        acknowledged.append(await again.append(record(7)))
    assert verify_directory(tmp_path, expected=acknowledged).ok


async def test_who_finds_no_room_for_a_segment_leaves_none_behind(tmp_path: Path) -> None:
    """A command that is refused so does not run again soon, and its log is whole all the same."""
    async with running(tmp_path) as log:
        kept = await log.append(record(1), b"content")
    full = FailingDisk(1, "write", times=_NEVER, code=errno.ENOSPC)
    where = re.escape(str(tmp_path / "w0"))
    with pytest.raises(StartupRefused, match=f"audit worker w0: {where}: write failed on purpose"):
        await make_log(tmp_path, disk=full).start()
    assert verify_directory(tmp_path, expected=[kept]).bad == ()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EINTR, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("call", _CALLS)
async def test_whatever_the_system_says_the_group_is_refused_and_the_log_stays_whole(
    tmp_path: Path, call: str, code: int
) -> None:
    limits = msgspec.structs.replace(LIMITS, segment_max_bytes=300)
    disk = FailingDisk(call=call, code=code)
    async with running(tmp_path, limits=limits, disk=disk) as log:
        receipts = await journeys(log, 0, 1)
        disk.calls, disk.fails_at = itertools.count(1), 1
        results = await asyncio.gather(
            *(log.append(record(n), b"c") for n in (1, 2)), return_exceptions=True
        )
        await until(lambda: log.healthy)
        receipts += [result for result in results if isinstance(result, Receipt)]
        receipts += await journeys(log, 7, 1)
    report = verify_directory(tmp_path, expected=receipts)
    assert report.bad == ()


async def test_a_disk_that_takes_one_byte_at_a_time_keeps_every_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, whole_at = os.write, os.pwrite
    monkeypatch.setattr("gateway.audit.disk.os.write", lambda fd, data: whole(fd, data[:1]))
    monkeypatch.setattr(
        "gateway.audit.disk.os.pwrite", lambda fd, data, at: whole_at(fd, data[:1], at)
    )
    limits = msgspec.structs.replace(LIMITS, segment_max_bytes=4000)
    async with running(tmp_path, limits=limits) as log:
        receipts = await journeys(log, 0, 2)
    assert verify_directory(tmp_path, expected=receipts).records == 4


async def test_zeros_that_cannot_be_cut_off_do_no_harm(tmp_path: Path) -> None:
    receipts: list[Receipt] = []
    for number in range(3):
        async with running(tmp_path, disk=FailingDisk(1, "cut", times=_NEVER)) as log:
            receipts.append(await log.append(record(number)))
        path = segment_path(tmp_path / "w0", number + 1)
        assert path.stat().st_size > log.position[1]
    report = verify_directory(tmp_path, expected=receipts)
    assert (report.bad, report.notes) == ((), ())


@pytest.mark.parametrize("call", _CALLS)
async def test_a_failing_device_refuses_everybody_and_recovers_by_itself(
    tmp_path: Path, call: str
) -> None:
    disk = FailingDisk(call=call, times=10**9)
    limits = msgspec.structs.replace(LIMITS, segment_max_bytes=300)
    async with running(tmp_path, limits=limits, disk=disk) as log:
        receipts = await journeys(log, 0, 1)
        disk.fails_at = 1
        results = await asyncio.gather(
            *(log.append(record(3 * number + 1, "admin"), b"c") for number in range(1, 5)),
            return_exceptions=True,
        )
        assert all(isinstance(result, AuditUnavailable) for result in results)
        assert not log.stats().healthy
        assert "purpose" not in str(results[0])
        disk.fails_at = _NEVER
        await until(lambda: log.healthy)
        receipts.append(await log.append(record(9)))
    assert verify_directory(tmp_path, expected=receipts).ok


async def test_a_deleted_segment_is_noticed_before_the_next_acknowledgement(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1))
        segment_path(tmp_path / "w0", 1).unlink()
        with pytest.raises(AuditUnavailable):
            await log.append(record(2))
        receipt = await log.append(record(3))
        assert receipt.segment == 2
    bad = verify_directory(tmp_path).first_bad
    assert bad is not None
    assert (bad.segment, bad.reason) == (1, "the segment is missing")


async def test_a_replaced_segment_is_noticed_too(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1))
        path = segment_path(tmp_path / "w0", 1)
        shutil.copyfile(path, tmp_path / "copy")
        (tmp_path / "copy").rename(path)
        with pytest.raises(AuditUnavailable):
            await log.append(record(2))


async def test_a_segment_cut_under_us_is_noticed_too(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        receipt = await log.append(record(1))
        await log.append(record(2))
        os.truncate(segment_path(tmp_path / "w0", 1), receipt.offset_bytes)
        await until(lambda: not log.stats().healthy or log.position[0] == 2)
        await until(lambda: log.healthy)
        await log.append(record(3))
        assert log.position[0] == 2
    bad = verify_directory(tmp_path).first_bad
    assert bad is not None
    assert (bad.segment, bad.offset_bytes) == (1, receipt.offset_bytes)


async def test_a_deleted_folder_is_noticed_while_idle_and_never_made_again(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.append(record(1))
        (tmp_path / "w0").rename(tmp_path / "away")
        await until(lambda: not log.healthy)
        with pytest.raises(AuditUnavailable):
            await log.append(record(2))
        assert not (tmp_path / "w0").exists()
        (tmp_path / "away").rename(tmp_path / "w0")
        await until(lambda: log.healthy)
        await log.append(record(3))
    assert verify_directory(tmp_path).ok


async def test_below_the_floor_of_free_space_nothing_is_accepted(tmp_path: Path) -> None:
    class SmallDisk(Disk):
        free = 1000

        def free_bytes(self, descriptor: int) -> int:
            return self.free

    disk = SmallDisk()
    limits = msgspec.structs.replace(LIMITS, free_floor_bytes=500)
    async with running(tmp_path, limits=limits, disk=disk) as log:
        await log.append(record(1))
        disk.free = 499
        with pytest.raises(AuditUnavailable):
            await log.append(record(2))
        disk.free = 500
        await log.append(record(3))
    assert verify_directory(tmp_path).records == 2


_LIMITED_WRITER = """
import asyncio, resource, signal, sys
from pathlib import Path
from gateway.errors import AuditUnavailable
from tests.gateway.audit.samples import record, running

async def main():
    async with running(Path(sys.argv[1])) as log:
        try:
            for number in range(1000):
                print(await log.append(record(number), b"x" * 500), flush=True)
        except AuditUnavailable:
            print("refused", flush=True)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(main())
"""


def test_a_file_that_may_not_grow_further_refuses_and_loses_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED_WRITER, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        timeout=60,
    )
    lines = [
        line for line in done.stdout.splitlines() if line.startswith("w0.") or line == "refused"
    ]
    assert lines[-1] == "refused"
    assert len(lines) > 10
    receipts = [receipt for line in lines[:-1] if (receipt := parse_receipt(line)) is not None]
    report = verify_directory(tmp_path, expected=receipts)
    assert report.bad == ()
    # The group that was refused is there whole: only its zeros found no room.
    assert report.records == len(lines)
