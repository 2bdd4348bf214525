"""The few calls a writer makes to a disk, in one object, so that a test can make each one fail."""

import fcntl
import os
from pathlib import Path
from typing import NamedTuple


class FileState(NamedTuple):
    """Which file it is and how long: device and inode are no other's while a file is open."""

    device: int
    inode: int
    length_bytes: int


class Disk:
    """The machine's disk. Every method blocks and raises OSError; for the writer's thread only."""

    __slots__ = ()

    def make_folder(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def lock(self, path: Path, *, wait: bool = False) -> int:
        """A descriptor that holds a file's exclusive lock.

        When another has it: BlockingIOError, or, where that is asked for, as long as it takes.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def create(self, path: Path) -> int:
        """A new file that only its owner can read, open for appending; never an existing one."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        return os.open(path, flags, 0o600)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def write(self, descriptor: int, data: bytes) -> None:
        """All of `data`, in as many calls as it takes."""
        written = os.write(descriptor, data)
        while written < len(data):
            data = data[written:]
            written = os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def state(self, path: Path) -> FileState | None:
        """Which file a path names now; None when it names none."""
        try:
            named = os.stat(path)  # noqa: PTH116 - on the hot path, and half as dear
        except FileNotFoundError:
            return None
        return FileState(named.st_dev, named.st_ino, named.st_size)

    def free_bytes(self, descriptor: int) -> int:
        """Bytes left for us on the file system of an open file."""
        status = os.fstatvfs(descriptor)
        return status.f_bavail * status.f_frsize

    def append_durably(self, path: Path, data: bytes) -> None:
        """Add to a small file, made on first use, and wait until it cannot be lost."""
        is_new = not path.exists()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            self.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if is_new:
            self.sync_folder(path.parent)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
