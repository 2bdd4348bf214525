"""In which order a key file is replaced and its old bytes are overwritten, whoever pulls the plug.

What a disk does after a call, and before it says that it did, nobody sees here: so each step of
which the next relies has its own call, and these tests see the calls.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.audit.content_keys.overwriting import overwrite_left_over, put_in_place
from gateway.audit.disk import Disk


OLD, NEW = b"the key that is to be gone", b"others"
Act = Callable[[Path, Disk], None]


def replaced(path: Path, disk: Disk) -> None:
    put_in_place(path, NEW, disk)


def left_by_a_crash(path: Path, disk: Disk) -> None:
    """The new one is in place, and nothing was overwritten yet."""
    path.rename(path.with_suffix(".spent"))
    path.write_bytes(NEW)
    overwrite_left_over(path, disk)


@pytest.mark.parametrize("act", [replaced, left_by_a_crash])
def test_each_step_is_on_the_disk_before_the_next_one_is_taken(
    act: Act, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, object]] = []

    class NotingDisk(Disk):
        def sync_folder(self, path: Path) -> None:
            steps.append(("folder synced", path))
            super().sync_folder(path)

        def remove(self, path: Path) -> None:
            steps.append(("removed", path))
            super().remove(path)

    def overwrites(descriptor: int, data: bytes, offset: int) -> int:
        steps.append(("overwritten", os.fstat(descriptor).st_ino))
        assert (data, offset) == (bytes(len(OLD)), 0)
        return pwrite(descriptor, data, offset)

    def syncs(descriptor: int) -> None:
        steps.append(("synced", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    path = tmp_path / "keys"
    path.write_bytes(OLD)
    old = path.stat().st_ino
    pwrite, fsync = os.pwrite, os.fsync
    monkeypatch.setattr(os, "pwrite", overwrites)
    monkeypatch.setattr(os, "fsync", syncs)
    act(path, NotingDisk())

    spent = ("removed", path.with_suffix(".spent"))
    told = [each for each in steps if each[1] in (old, tmp_path) or each == spent]
    # The draft's own folder was synced before, where there was one.
    assert told[-4:] == [("folder synced", tmp_path), ("overwritten", old), ("synced", old), spent]
    assert path.read_bytes() == NEW
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]


def test_a_disk_that_has_no_room_for_the_new_file_keeps_the_old_one_and_gets_its_room_back(
    tmp_path: Path,
) -> None:
    """What was written of it would keep the last of a full disk from the log itself."""
    path = tmp_path / "keys"
    path.write_bytes(OLD)

    class FullDisk(Disk):
        def write(self, descriptor: int, data: bytes) -> None:
            super().write(descriptor, data[:3])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left") as caught:
        put_in_place(path, NEW, FullDisk())
    assert caught.value.filename == str(path.with_suffix(".draft"))
    assert path.read_bytes() == OLD
    assert [each.name for each in tmp_path.iterdir()] == ["keys"]
