"""Replaces a small file completely or not at all, and overwrites the old one's bytes.

Until they are overwritten, the old bytes have a second name, so that they are found after a crash.
"""

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from gateway.audit.disk import Disk
from gateway.audit.lying_here import lies_here


_DRAFT, _SPENT = ".draft", ".spent"
"""Suffixes of a file before it is put in place, and until its old content is overwritten."""
_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""Errors of file systems on which a file cannot have a second name."""


def put_in_place(path: Path, data: bytes, disk: Disk) -> None:
    """Replace a file; the caller holds the lock that keeps other writers away. Raises OSError."""
    draft, spent = path.with_suffix(_DRAFT), path.with_suffix(_SPENT)
    try:
        disk.append_durably(draft, data)
    except OSError:
        # On a full disk, the draft would take the last space from everybody else.
        with suppress(OSError):
            overwrite_left_over(path, disk)
        raise
    _give_second_name(path, spent)
    old = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        disk.replace(draft, path)
        disk.sync_folder(path.parent)
        _overwrite(old)
    finally:
        disk.close(old)
    disk.remove(spent)


def left_over(path: Path) -> list[Path]:
    """Leftovers of an interrupted replacement; without the file, each may be the last copy."""
    found = [path.with_suffix(suffix) for suffix in (_DRAFT, _SPENT) if lies_here(path)]
    return [each for each in found if lies_here(each)]


def overwrite_left_over(path: Path, disk: Disk) -> None:
    """Overwrite and remove leftovers; raises OSError."""
    disk.sync_folder(path.parent)  # The file's replacement has to be durable first.
    for each in left_over(path):
        if not each.samefile(path):
            with each.open("r+b") as left:
                _overwrite(left.fileno())
        disk.remove(each)


def _overwrite(old: int) -> None:
    os.pwrite(old, bytes(os.fstat(old).st_size), 0)
    os.fsync(old)


def _give_second_name(path: Path, spent: Path) -> None:
    """After a crash, this name tells the next process what is not overwritten yet."""
    try:
        spent.hardlink_to(path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
