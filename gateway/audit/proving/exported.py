"""Checkpoints outside the database, in files that restoring its backup does not set back."""

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.proving.file_ends import lines_from_end
from gateway.audit.proving.kept_still import Moment
from gateway.audit.proving.leaves import LeafFiles


_TAIL_BYTES, _PIECE_BYTES = 4096, 262_144
_SUFFIX = ".jsonl"


class SignedCheckpoint(Struct, frozen=True):
    """A row of the checkpoint table and a line of the exported file."""

    organisation: str
    signed_us: int
    size: int
    root: bytes
    note: str

    @property
    def moment(self) -> Moment:
        """Identifies it."""
        return self.organisation, self.signed_us


class CheckpointFiles:
    """Checkpoints outside the database: one append-only file of JSON lines per organisation."""

    def __init__(self, directory: Path, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk
        self.leaves = LeafFiles(directory, disk)

    def append(self, checkpoint: SignedCheckpoint) -> None:
        """Blocks until it is durable; raises OSError."""
        self._disk.make_folder(self.directory)
        line = b"\n" + msgspec.json.encode(checkpoint) + b"\n"
        self._disk.append_durably(self._path(checkpoint.organisation), line)

    def newest_of_all(self) -> dict[str, SignedCheckpoint]:
        """By organisation, the furthest of its file's last complete lines; raises OSError.

        A worker that was stopped before it exported may write after others that signed more.
        """
        return furthest(self.recent())

    def recent(self) -> list[SignedCheckpoint]:
        """The last complete lines of each file, some ten of them; raises OSError."""
        if not folder_lies_here(self.directory):
            return []
        # Not by `Path.glob`, which takes an unlistable folder for an empty one.
        names = sorted(each for each in os.listdir(self.directory) if each.endswith(_SUFFIX))  # noqa: PTH208
        return [each for name in names for each in next(_from_end(self.directory / name), ())]

    def from_end(self, organisation: str) -> Generator[list[SignedCheckpoint]]:
        """All exported checkpoints of a log, in pieces from the last one back; raises OSError.

        The first piece is the one that `recent` returns.
        """
        return _from_end(self._path(organisation))

    def every(self, organisation: str) -> Iterator[SignedCheckpoint | None]:
        """All exported checkpoints of a log; None for an unreadable line; raises OSError.

        A crash may have cut off a line; the next one begins on a line of its own.
        """
        with suppress(FileNotFoundError), self._path(organisation).open("rb") as file:
            for line in file:
                if line.strip():
                    yield _decoded(line)

    def _path(self, organisation: str) -> Path:
        return self.directory / f"{quote(organisation, safe='')}{_SUFFIX}"


def furthest(signed: Sequence[SignedCheckpoint]) -> dict[str, SignedCheckpoint]:
    """For each organisation, the one that covers most."""
    by_age = sorted(signed, key=lambda each: (each.size, each.signed_us))
    return {each.organisation: each for each in by_age}


def _from_end(path: Path) -> Generator[list[SignedCheckpoint]]:
    for lines in lines_from_end(path, _TAIL_BYTES, _PIECE_BYTES):
        yield list(filter(None, map(_decoded, lines)))


def _decoded(line: bytes) -> SignedCheckpoint | None:
    with suppress(msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(line, type=SignedCheckpoint)
    return None
