"""A writer's few calls to the disk, in one object, so that a test can make each one fail."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from gateway.audit.lying_here import folder_lies_here


_ROOT: Final = 0


class FileState(NamedTuple):
    """Identifies a file and its length: device and inode are unique while the file is open."""

    device: int
    inode: int
    length_bytes: int


class Disk:
    """The machine's disk. Every method blocks and raises OSError; for the writer's thread only."""

    __slots__ = ("_named",)

    def make_folder(self, path: Path) -> None:
        """Make a folder and those above it; new ones are durable before this returns."""
        missing = [path, *path.parents]
        while missing and folder_lies_here(missing[-1]):
            missing.pop()
        for folder in reversed(missing):
            _make_folder(folder)
            try:
                self.sync_folder(folder.parent)
            except OSError:
                # The next attempt would believe that it is durable.
                with suppress(OSError):
                    folder.rmdir()
                raise

    def lock(self, path: Path, *, wait: bool = False) -> int:
        """A descriptor that holds a file's exclusive lock.

        If another process has it: raises BlockingIOError or, if requested, waits as long as it
        takes.
        """
        descriptor = _open_or_make(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def create(self, path: Path) -> int:
        """A new file that only its owner can read, open for writing; never an existing one."""
        return _make(path, os.O_WRONLY | os.O_CLOEXEC)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def write(self, descriptor: int, data: bytes) -> None:
        """Write all of `data`, in as many calls as it takes."""
        written = os.write(descriptor, data)
        while written < len(data):
            data = data[written:]
            written = os.write(descriptor, data)

    def write_at(self, descriptor: int, data: bytes, offset_bytes: int) -> None:
        """The same from a given place in a file on, overwriting what is there."""
        written = os.pwrite(descriptor, data, offset_bytes)
        while written < len(data):
            data, offset_bytes = data[written:], offset_bytes + written
            written = os.pwrite(descriptor, data, offset_bytes)

    def cut(self, descriptor: int, length_bytes: int) -> None:
        os.ftruncate(descriptor, length_bytes)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def sync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def state(self, path: Path) -> FileState | None:
        """The file that a path names now; None if it names none."""
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
        """Add to a small file, made on first use, and wait until it is durable.

        Its name is made durable too, unless this object has already done so: the file's creator may
        have failed before that.
        """
        descriptor = self.open_to_add(path)
        try:
            self.write(descriptor, data)
            self.sync(descriptor)
            found = os.fstat(descriptor)
        except OSError as error:
            error.filename = str(path)  # The error of a write names no file.
            raise
        finally:
            self.close(descriptor)
        listed = self._known_names()
        if listed.get(path) != (found.st_dev, found.st_ino):
            self.sync_folder(path.parent)
            listed[path] = found.st_dev, found.st_ino

    def open_to_add(self, path: Path) -> int:
        """Open a small file, made if it does not exist."""
        return _open_or_make(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def replace(self, draft: Path, path: Path) -> None:
        """Rename a file over another; durable once its folder is synced."""
        draft.rename(path)

    def _known_names(self) -> dict[Path, tuple[int, int]]:
        """The file that each path durably names, known to this object alone."""
        if not hasattr(self, "_named"):
            self._named: dict[Path, tuple[int, int]] = {}
        return self._named

    def close(self, descriptor: int) -> None:
        os.close(descriptor)


def _open_or_make(path: Path, flags: int) -> int:
    if os.geteuid() == _ROOT:
        with suppress(FileExistsError):
            return _make(path, flags)
    return os.open(path, flags | os.O_CREAT, 0o600)


def _make(path: Path, flags: int) -> int:
    flags |= os.O_CREAT | os.O_EXCL
    if os.geteuid() != _ROOT:
        return os.open(path, flags, 0o600)
    with _folder_of(path) as folder:
        descriptor = os.open(path.name, flags, 0o600, dir_fd=folder)
        _give(descriptor, folder)
    return descriptor


def _make_folder(path: Path) -> None:
    try:
        if os.geteuid() != _ROOT:
            path.mkdir(mode=0o700)
            return
        with _folder_of(path) as folder:
            os.mkdir(path.name, 0o700, dir_fd=folder)
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(path.name, flags, dir_fd=folder)
            try:
                # Otherwise somebody has put another in its place.
                if not os.listdir(descriptor):  # noqa: PTH208 - a descriptor has no path
                    _give(descriptor, folder)
            finally:
                os.close(descriptor)
    except FileExistsError:
        if not folder_lies_here(path):
            raise


@contextmanager
def _folder_of(path: Path) -> Iterator[int]:
    """Opened only once: between two look-ups, its owner could point the name elsewhere."""
    folder = os.open(path.parent, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    try:
        yield folder
    except OSError as error:
        error.filename = str(path)
        raise
    finally:
        with suppress(OSError):  # It holds nothing that could be lost.
            os.close(folder)


def _give(descriptor: int, folder: int) -> None:
    """Give what root makes to the owner of its folder, whose worker could not open it otherwise.

    Only new things, and by their descriptors: a name in somebody's folder may lead anywhere. If it
    cannot be given away, as on a share or in a container, it stays root's.
    """
    owner = os.fstat(folder)
    if owner.st_uid != _ROOT:
        with suppress(OSError):
            os.fchown(descriptor, owner.st_uid, owner.st_gid)
