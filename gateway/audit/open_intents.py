"""Open intents of one worker, those without an outcome: where they lie, kept in a small file.

The file says which were open at one place of the log. A start after a crash begins there and reads
on, so that nothing is missed, however far back it lies, and little is read.
"""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.types import AuditRecord, Receipt


OPEN_NAME: Final = "open.json"
OPEN_MAX: Final = 200_000
"""How many are remembered; beyond, the file is left as it is, and a start reads from its place on.
"""
DOUBTFUL_MAX: Final = 20_000
"""How many refused intents are looked for in the database once it answers: the latest."""
LOOKS: Final = 2

Spot = tuple[int, int]
"""Segment and offset of a record's frame."""


class OpenLine(NamedTuple):
    """The intent of a batch's line, which may wait a day for a vendor."""

    spot: Spot
    batch: str
    line: int


class OpenMark(Struct, frozen=True):
    """The open intents before one place of a worker's log."""

    segment: int
    offset_bytes: int
    open: dict[str, Spot]
    """By request."""
    refused: tuple[str, ...] = ()
    """Requests whose intent neither device confirmed: if one has it, nothing was sent for them."""


class OpenIntents:
    """The intents that are open now; belongs to one event loop."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, int, Mapping[str, str]]] = {}
        self._refused: dict[str, tuple[AuditRecord, str]] = {}
        self._doubtful: dict[str, int] = {}
        """How often each was looked for in the database, which may have stored it after all."""
        self._is_whole = False
        """Whether it includes what earlier processes left, and nothing was dropped."""
        self._marked: OpenMark | None = None
        self.wake = asyncio.Event()
        """Set when refused intents should be looked for, because a device can be written again."""

    def __len__(self) -> int:
        return len(self._open)

    def note(self, record: AuditRecord, receipt: Receipt) -> None:
        """A record is durable; called for each one, so it does as little as possible."""
        if record.stage == "outcome":
            self.close(record.request_id)
        elif record.stage == "intent":
            place = (receipt.segment, receipt.offset_bytes, record.detail)
            self._open[record.request_id] = place

    def note_refused(self, record: AuditRecord, receipt: Receipt) -> None:
        """A record became durable after its writer was told that it could not be written."""
        if record.stage == "intent":
            self._refused[record.request_id] = record, receipt.leaf_hash

    def refused(self) -> list[tuple[AuditRecord, str]]:
        """Intents, with their leaf hashes, that their callers believe refused: nothing was sent."""
        return list(self._refused.values())

    def forget_refused(self, request_id: str) -> None:
        """It has been dealt with."""
        self._refused.pop(request_id, None)

    def note_doubtful(self, request_id: str) -> None:
        """Neither device confirmed an intent, so its caller was refused."""
        self._doubtful[request_id] = 0
        if len(self._doubtful) > DOUBTFUL_MAX:
            del self._doubtful[next(iter(self._doubtful))]

    def doubtful(self) -> frozenset[str]:
        """Requests whose intent the database may have stored too late."""
        return frozenset(self._doubtful)

    def look_soon(self) -> None:
        """A device can be written: refused ones that were not looked for yet may now be ended."""
        if self._refused or 0 in self._doubtful.values():
            self.wake.set()

    def looked_for(self, request_ids: Iterable[str]) -> None:
        """They were not found; a commit then under way is found at the second look."""
        for request_id in request_ids:
            self._doubtful[request_id] = looks = self._doubtful.get(request_id, 0) + 1
            if looks == LOOKS:
                del self._doubtful[request_id]

    def adopt(self, lines: Mapping[str, OpenLine], *, is_whole: bool = True) -> None:
        """Add what earlier processes left open and is not closed yet.

        From now on it can be marked, unless that is not complete.
        """
        for request_id, each in lines.items():
            detail = {"batch": each.batch, "line": str(each.line)}
            self._open[request_id] = (*each.spot, detail)
        self._is_whole |= is_whole

    def close(self, request_id: str) -> None:
        """Its outcome is durable, perhaps in another worker's log or on the second device."""
        self._open.pop(request_id, None)
        if self._refused or self._doubtful:
            self._refused.pop(request_id, None)
            self._doubtful.pop(request_id, None)

    def lines(self) -> dict[str, OpenLine]:
        """Open lines of batches, by request, without refused ones."""
        return {
            request_id: OpenLine((segment, offset), detail["batch"], int(detail["line"]))
            for request_id, (segment, offset, detail) in self._open.items()
            if "batch" in detail and request_id not in self._refused
        }

    def mark(self, segment: int, offset_bytes: int) -> OpenMark | None:
        """The mark for the next process, at the end of what is noted; None if nothing changed."""
        if len(self._open) > OPEN_MAX:
            self._open.clear()
            self._is_whole = False
        if not self._is_whole:
            return None
        spots = {name: (place[0], place[1]) for name, place in self._open.items()}
        mark = OpenMark(segment, offset_bytes, spots, tuple(sorted(self._doubtful)))
        if mark == self._marked:
            return None
        self._marked = mark
        return mark


def keep_mark(folder: Path, mark: OpenMark, disk: Disk) -> None:
    """Replace a worker's file; after an OSError the old one is still there."""
    path = folder / OPEN_NAME
    draft = path.with_suffix(".draft")
    disk.remove(draft)
    disk.append_durably(draft, msgspec.json.encode(mark))
    disk.replace(draft, path)
    disk.sync_folder(folder)


def read_mark(folder: Path) -> OpenMark | None:
    """None if none can be read: then the complete log is read instead."""
    try:
        return msgspec.json.decode((folder / OPEN_NAME).read_bytes(), type=OpenMark)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def refused_before(folder: Path) -> frozenset[str]:
    """Requests that a worker's last process refused, though a device may have their intents.

    This holds for its mark at any place: nothing was ever sent for them.
    """
    mark = read_mark(folder)
    return frozenset(mark.refused if mark is not None else ())
