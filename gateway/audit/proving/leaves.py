"""The order of every organisation's log, as leaf hashes in files beside its checkpoints.

Segments say what each worker wrote, but only the database says in which order it was numbered. A
leaf hash identifies its record, so with these files a restored database numbers every record again
as it was signed, whichever worker brings it, and the signed roots prove the order.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.audit.proving.merkle import HASH_BYTES, TILE_HASHES


AT_ONCE = 200 * TILE_HASHES
KEPT_AT_FIRST = 1_000 * TILE_HASHES
"""For a log older than its file: an earlier backup is restored as if there were no file."""
_LINE_HASHES = TILE_HASHES
_TAIL_BYTES = 32_768


class Leaves(Struct, frozen=True):
    """A line of a file: leaf hashes of consecutive numbers."""

    first: int
    leaves: bytes

    @property
    def last(self) -> int:
        return self.first + len(self.leaves) // HASH_BYTES - 1


class LeafFiles:
    """One append-only file of JSON lines for each organisation. Every method blocks."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk
        self._reach: dict[str, int] = {}

    def reach(self, organisation: str) -> int:
        """The last number whose leaf is known here; 0 without any; raises OSError.

        Others may write to the same file: what they add meanwhile is then there twice, and equal.
        """
        if organisation not in self._reach:
            lines = _last_lines(self._path(organisation))
            self._reach[organisation] = max((line.last for line in lines), default=0)
        return self._reach[organisation]

    def append(self, organisation: str, first: int, leaves: bytes) -> None:
        """Blocks until they are durable; raises OSError."""
        step = _LINE_HASHES * HASH_BYTES
        lines = [
            Leaves(first + start // HASH_BYTES, leaves[start : start + step])
            for start in range(0, len(leaves), step)
        ]
        if not lines:
            return
        text = b"".join(b"\n" + msgspec.json.encode(line) + b"\n" for line in lines)
        self._disk.make_folder(self.directory)
        self._disk.append_durably(self._path(organisation), text)
        self._reach[organisation] = lines[-1].last

    def following(self, organisation: str, size: int) -> Iterator[bytes]:
        """The leaves of the numbers from `size` + 1 on, up to the first gap; raises OSError.

        In pieces; a line that a crash cut off was written again by the next process.
        """
        with suppress(FileNotFoundError), self._path(organisation).open("rb") as file:
            for text in file:
                line = _decoded(text)
                if line is None or line.last <= size:
                    continue
                if line.first > size + 1:
                    return
                yield line.leaves[(size + 1 - line.first) * HASH_BYTES :]
                size = line.last

    def _path(self, organisation: str) -> Path:
        return self.directory / f"{quote(organisation, safe='')}.leaves"


def _last_lines(path: Path) -> list[Leaves]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
    except FileNotFoundError:
        return []
    return list(filter(None, map(_decoded, tail.splitlines())))


def _decoded(text: bytes) -> Leaves | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(text, type=Leaves)
    return None
