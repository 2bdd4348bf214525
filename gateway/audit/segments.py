"""Segment files: names, headers, and reading records back with the checks that one file allows.

`<audit directory>/<worker>/<number, 8 digits>.log` is a header frame and then, for each record, an
optional content frame and the record frame (chain hash, then canonical JSON). A header says where
the previous segment ended: anything behind that was never acknowledged and is not part of the log.
The last file continues with zeros that were put there for the next records (decision 0052).
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.audit.entries import (
    Entry,
    chain_hash,
    decode_entry,
    header_chain_hash,
    leaf_hash,
)
from gateway.audit.frames import CONTENT, HEADER, RECORD, BadFrame, Frame, encode_frame, read_frame


FORMAT = "gatewright-audit/1"
LOCK_NAME = "lock"
GENESIS = bytes(32)
HASH_BYTES = 32
# The default holds ten records; each refill is a system call that releases the interpreter.
_BUFFER_BYTES = 64 * 1024
_BLOCK_BYTES = 4 * 1024

_WORKER_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SEGMENT_NAME = re.compile(r"(\d{8})\.log")


class SegmentHeader(Struct, frozen=True):
    """The first frame of every segment."""

    format: str
    worker: str
    segment: int
    previous_chain: str
    """Hex hash at the end of the previous segment; zeros in the first."""
    previous_end_bytes: int
    """Where that segment ended; 0 in the first."""
    created_us: int


class StoredRecord(NamedTuple):
    """One record as it is on disk; only its frames have been checked."""

    offset_bytes: int
    end_bytes: int
    chain: bytes
    raw: bytes
    content: bytes | None
    """Nonce, ciphertext and tag, from the previous frame."""


Place = tuple[str, int, int]
"""Worker, segment, and offset of a record's frame."""


class CheckedRecord(NamedTuple):
    """One record whose hashes were found correct."""

    stored: StoredRecord
    leaf: bytes
    entry: Entry


def is_worker_name(name: str) -> bool:
    return _WORKER_NAME.fullmatch(name) is not None


def segment_path(folder: Path, number: int) -> Path:
    return folder / f"{number:08d}.log"


def list_segments(folder: Path) -> list[int]:
    """Numbers of the segments in a worker's folder, ascending."""
    matches = map(_SEGMENT_NAME.fullmatch, os.listdir(folder))  # noqa: PTH208 - names only
    return sorted([int(match[1]) for match in matches if match])


def list_workers(directory: Path) -> list[str]:
    """Names of the workers that have a folder, ascending."""
    with os.scandir(directory) as entries:
        return sorted(
            [each.name for each in entries if is_worker_name(each.name) and each.is_dir()]
        )


def written_bytes(path: Path) -> int:
    """The end of what was written to a segment; the file's end if that cannot be read just now.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: not even its length can be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _written(descriptor)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError:
        return path.stat().st_size


def _written(descriptor: int) -> int:
    """The length of a file without the zeros at its end."""
    end, step = os.fstat(descriptor).st_size, _BLOCK_BYTES
    while end > 0:
        begin = max(0, end - step)
        written = len(os.pread(descriptor, end - begin, begin).rstrip(b"\x00"))
        if written:
            return begin + written
        end, step = begin, _BUFFER_BYTES
    return 0


def encode_header(header: SegmentHeader) -> tuple[bytes, bytes]:
    """The header's frame, and the chain hash that follows from it."""
    raw = msgspec.json.encode(header)
    return encode_frame(HEADER, raw), header_chain_hash(bytes.fromhex(header.previous_chain), raw)


class SegmentReader:
    """One segment file, opened for reading; `limit_bytes` ends it before the file's end."""

    def __init__(self, path: Path, limit_bytes: int | None = None) -> None:
        """Raises BadFrame if there is no complete header of this format, OSError if unreadable."""
        self._file = path.open("rb", buffering=_BUFFER_BYTES)
        try:
            # Before anything is read, so that what another process writes meanwhile comes later.
            self.size_bytes = _written(self._file.fileno())
            """Up to the last byte that is not zero: every record's frame ends with such a byte."""
            self.limit_bytes = self.size_bytes if limit_bytes is None else limit_bytes
            first = self._read(0)
            if first is None:
                raise BadFrame(0, "the segment is empty", torn=True)
            self.header = _decode_header(first)
            self.start_bytes = first.end_bytes
            self.start_chain = header_chain_hash(
                bytes.fromhex(self.header.previous_chain), first.payload
            )
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def sync(self, disk: Disk | None = None) -> None:
        """Sync what any process wrote to this file, so that what is read next is durable."""
        (disk or Disk()).sync(self._file.fileno())

    def records(self, offset_bytes: int = 0) -> Iterator[StoredRecord]:
        """Records as they are on disk, from a record's or content's offset on (0: the first).

        Raises:
            BadFrame: at the first frame that is broken or out of place.
        """
        offset_bytes = max(offset_bytes, self.start_bytes)
        self._file.seek(offset_bytes)
        content: Frame | None = None
        while (frame := self._read(offset_bytes)) is not None:
            offset_bytes = frame.end_bytes
            if frame.kind == CONTENT and content is None:
                content = frame
                continue
            if frame.kind != RECORD or len(frame.payload) <= HASH_BYTES:
                raise BadFrame(frame.offset_bytes, "a frame of this kind has no place here")
            yield StoredRecord(
                frame.offset_bytes,
                frame.end_bytes,
                frame.payload[:HASH_BYTES],
                frame.payload[HASH_BYTES:],
                content.payload if content else None,
            )
            content = None
        if content is not None:
            raise BadFrame(content.offset_bytes, "content without its record", torn=True)

    def record_at(self, offset_bytes: int) -> StoredRecord:
        """The record whose frame begins there, without its content; otherwise raises BadFrame."""
        self._file.seek(offset_bytes)
        frame = self._read(offset_bytes)
        if frame is None or frame.kind != RECORD or len(frame.payload) <= HASH_BYTES:
            raise BadFrame(offset_bytes, "no record begins here")
        chain, raw = frame.payload[:HASH_BYTES], frame.payload[HASH_BYTES:]
        return StoredRecord(offset_bytes, frame.end_bytes, chain, raw, None)

    def _read(self, offset_bytes: int) -> Frame | None:
        return read_frame(self._file, offset_bytes, self.limit_bytes)


def read_entries(
    directory: Path,
    places: Iterable[Place],
    *,
    strict: bool = False,
    away: dict[tuple[str, int], OSError] | None = None,
) -> dict[Place, bytes]:
    """The JSON of records by their places; each segment is opened once.

    Missing or damaged ones are left out: one bad record must not hide the others. So are those that
    cannot be read at this moment, unless they must not count as lost: `strict` raises OSError then;
    `away` collects them by worker and segment, and the others are read.
    """
    entries: dict[Place, bytes] = {}
    by_segment: dict[tuple[str, int], list[int]] = {}
    for worker, segment, offset in places:
        by_segment.setdefault((worker, segment), []).append(offset)
    for (worker, segment), offsets in by_segment.items():
        path = segment_path(directory / worker, segment)
        try:
            for offset, raw in _whole(path, offsets):
                entries[worker, segment, offset] = raw
        except OSError as error:
            if strict:
                raise
            if away is not None:
                away[worker, segment] = error
    return entries


def _whole(path: Path, offsets: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The undamaged records of one segment at these places."""
    with suppress(BadFrame, FileNotFoundError), SegmentReader(path) as reader:
        for offset in sorted(offsets):
            with suppress(BadFrame):
                yield offset, reader.record_at(offset).raw


def cause_of(error: OSError) -> str:
    """Why a file cannot be read at this moment, without its path."""
    return error.strerror or type(error).__name__


def failure_at(place: Path, error: OSError) -> str:
    """The file that failed, or at least the place, and the reason.

    The error of a write to an open file (most often a full disk) does not name the file.
    """
    return f"{error.filename or place}: {error.strerror or error}"


def declared_end(folder: Path, number: int) -> int | None:
    """Where the next segment's header says this one ends; None without such a header."""
    try:
        with SegmentReader(segment_path(folder, number + 1)) as reader:
            header = reader.header
            is_next = (header.worker, header.segment) == (folder.name, number + 1)
            return header.previous_end_bytes if is_next else None
    except (BadFrame, FileNotFoundError):
        return None


def checked_records(
    records: Iterator[StoredRecord], previous_chain: bytes
) -> Iterator[CheckedRecord]:
    """The same records, each with its hashes computed again.

    Raises:
        BadFrame: at the first record whose chain, content or JSON is wrong.
    """
    for stored in records:
        leaf = leaf_hash(stored.raw)
        previous_chain = chain_hash(previous_chain, leaf)
        if previous_chain != stored.chain:
            raise BadFrame(
                stored.offset_bytes, "the chain is broken: a record was changed or moved"
            )
        try:
            entry = decode_entry(stored.raw)
        except msgspec.MsgspecError as error:
            raise BadFrame(stored.offset_bytes, f"not a record: {error}") from error
        _check_content(stored, entry)
        yield CheckedRecord(stored, leaf, entry)


def _check_content(stored: StoredRecord, entry: Entry) -> None:
    expected, found = entry.content, stored.content
    if expected is None and found is None:
        return
    if expected is None or found is None:
        raise BadFrame(stored.offset_bytes, "content is missing or belongs to no record")
    if not expected.matches(found):
        raise BadFrame(stored.offset_bytes, "the content is not the one that was recorded")


def _decode_header(frame: Frame) -> SegmentHeader:
    if frame.kind != HEADER:
        raise BadFrame(0, "the segment does not begin with a header")
    try:
        header = msgspec.json.decode(frame.payload, type=SegmentHeader)
        previous = bytes.fromhex(header.previous_chain)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadFrame(0, f"the header cannot be read: {error}") from error
    if header.format != FORMAT:
        raise BadFrame(0, "the segment has an unknown format version")
    if len(previous) != HASH_BYTES:
        raise BadFrame(0, "the header's hash has the wrong length")
    return header
