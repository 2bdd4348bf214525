"""Closes intents that a crash left without an outcome, found in the segments at a worker's start.

Nobody knows what became of such a request. It is closed as incomplete, at the price that was
reserved: an upstream may have answered and will charge for it, so it is never free.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, structs

from gateway.audit.entries import decode_entry, leaf_hash
from gateway.audit.frames import BadFrame
from gateway.audit.open_intents import OpenLine, OpenMark, Spot, read_mark
from gateway.audit.segments import (
    SegmentReader,
    declared_end,
    list_segments,
    read_entries,
    segment_path,
    written_bytes,
)
from gateway.errors import AuditUnavailable
from gateway.types import AuditRecord, OutcomeStatus


CRASHED: Final = "worker_crashed"
ERASED: Final = "content_erased"
GONE: Final = "worker_gone"
"""Its worker never came back, and another one recorded this in its own log."""
OF_WORKER: Final = "worker"
"""In an outcome's detail, the worker whose intent it closes: that log may be missing here."""
_READ_AT_ONCE: Final = 500
_OF_LINES: Final = ("batch", "line")
_KEPT: Final = (
    *("request_id", "organisation", "workspace", "project", "key_id", "endpoint", "dialect"),
    *("model_requested", "target", "provider", "jurisdiction", "decision", "policy_digest"),
    *("data_class", "subject"),
)


class _Head(Struct, frozen=True):
    stage: str
    request_id: str


class _Line(Struct, frozen=True):
    record: _Head


_DECODER = msgspec.json.Decoder(_Line)
_NO_RECORD: Final = (msgspec.MsgspecError, UnicodeDecodeError)


class OpenIntent(Struct, frozen=True):
    """An intent without an outcome in its worker's segments."""

    record: AuditRecord
    leaf_hash: str


class Reckoned(Struct, frozen=True):
    """What an earlier process of a worker left open."""

    requests: list[OpenIntent]
    """Including refused lines of batches, to which nobody comes back."""
    lines: dict[str, OpenLine]
    """Lines of batches by request: they may wait a day for a vendor, and are not cut off."""
    unread: tuple[int, ...] = ()
    """Segments that cannot be read at this moment. What began in them or earlier is left out,
    because it may have ended there."""


def open_intents(folder: Path, below: int, refused_ids: Collection[str] = ()) -> Reckoned:
    """Open intents of a worker's segments before a given one; the verifier reports any damage.

    Reads what follows the place that the last process marked, or everything without such a mark. It
    holds the places of open intents in memory, however long the log is.

    Raises:
        OSError: the folder cannot be read.
    """
    begin, found = _marked(folder, below)
    unread: list[int] = []
    for number in list_segments(folder):
        if begin[0] <= number < below:
            try:
                with suppress(BadFrame, FileNotFoundError, *_NO_RECORD):
                    _read(folder, number, begin[1] if number == begin[0] else 0, found)
            except OSError:
                unread.append(number)
    known = {name: spot for name, spot in found.items() if spot[0] > max(unread, default=0)}
    return _looked_up(folder, known, unread, refused_ids)


def unread_bytes(folder: Path, below: int) -> int:
    """How much `open_intents` would have to read; raises OSError if that cannot be told."""
    (segment, offset), _ = _marked(folder, below)
    length = -offset
    for number in list_segments(folder):
        if segment <= number < below:
            with suppress(FileNotFoundError):
                length += segment_path(folder, number).stat().st_size
    return length


def _marked(folder: Path, below: int) -> tuple[Spot, dict[str, Spot]]:
    """The place from which to read, and what was open there."""
    mark = read_mark(folder)
    if mark is None or not _is_inside(folder, mark, below):
        return (0, 0), {}
    return (mark.segment, mark.offset_bytes), dict(mark.open)


def read_intents(
    folder: Path, spots: Iterable[Spot], away: dict[tuple[str, int], OSError]
) -> Iterator[tuple[Spot, OpenIntent]]:
    """Intents at these places of a worker's segments, without damaged or missing ones.

    `away` collects what cannot be read at this moment.
    """
    left = iter(spots)
    while some := list(islice(left, _READ_AT_ONCE)):
        raw = read_entries(folder.parent, [(folder.name, *spot) for spot in some], away=away)
        for (_, segment, offset), entry in raw.items():
            with suppress(msgspec.MsgspecError):
                intent = OpenIntent(decode_entry(entry).record, leaf_hash(entry).hex())
                yield (segment, offset), intent


def _looked_up(
    folder: Path, found: dict[str, Spot], unread: list[int], refused_ids: Collection[str]
) -> Reckoned:
    requests: list[OpenIntent] = []
    lines: dict[str, OpenLine] = {}
    away: dict[tuple[str, int], OSError] = {}
    for spot, intent in read_intents(folder, found.values(), away):
        detail = intent.record.detail
        if is_line(intent, refused_ids):
            line = OpenLine(spot, detail["batch"], int(detail.get("line", "0")))
            lines[intent.record.request_id] = line
        else:
            requests.append(intent)
    return Reckoned(requests, lines, tuple(sorted({*unread, *(number for _, number in away)})))


def _is_inside(folder: Path, mark: OpenMark, below: int) -> bool:
    """Whether a mark is within this log: it may be ahead of a restored backup."""
    if mark.segment >= below:
        return False
    try:
        return written_bytes(segment_path(folder, mark.segment)) >= mark.offset_bytes
    except OSError:
        return False


def _read(folder: Path, number: int, offset_bytes: int, found: dict[str, Spot]) -> None:
    """Add the open intents of one segment from an offset on, and remove those that ended."""
    end = declared_end(folder, number)
    with SegmentReader(segment_path(folder, number), end) as reader:
        for stored in reader.records(offset_bytes):
            head = _DECODER.decode(stored.raw).record
            if head.stage == "outcome":
                found.pop(head.request_id, None)
            elif head.stage == "intent":
                found[head.request_id] = (number, stored.offset_bytes)


def is_line(intent: OpenIntent, refused_ids: Collection[str]) -> bool:
    """Whether it is a line of a batch that may continue; a refused one begins anew."""
    begun = intent.record
    return "batch" in begun.detail and begun.request_id not in refused_ids


def refused(intent: OpenIntent, utc_us: int) -> AuditRecord:
    """The outcome of a request that was refused because its intent could not be written in time."""
    ended = closing(intent, utc_us, AuditUnavailable.code, "refused")
    detail = {name: ended.detail[name] for name in _OF_LINES if name in ended.detail}
    return structs.replace(ended, cost_microusd=0, detail=detail)


def end_of(
    intent: OpenIntent, utc_us: int, refused_ids: Collection[str], error: str = CRASHED
) -> AuditRecord:
    """The outcome of a request that its worker left open, or is known to have refused."""
    if intent.record.request_id in refused_ids:
        return refused(intent, utc_us)
    return closing(intent, utc_us, error)


def closing(
    intent: OpenIntent, utc_us: int, error: str = CRASHED, status: OutcomeStatus = "incomplete"
) -> AuditRecord:
    """The outcome of a request of which nothing more is known."""
    begun = intent.record
    line = {name: begun.detail[name] for name in _OF_LINES if name in begun.detail}
    return AuditRecord(
        stage="outcome",
        utc_us=utc_us,
        intent=intent.leaf_hash,
        status=status,
        error=error,
        cost_microusd=begun.reserved_microusd,
        detail={**line, "cost": "reserved", "outcome": "unknown"},
        **{name: getattr(begun, name) for name in _KEPT},
    )
