"""The blocking half of the writer: a worker's folder, its open segment, the end of its chain.

A group of records becomes one write and one fdatasync, over zeros that are on disk already: a write
that does not make its file longer is synced without the file system's journal (decision 0052).
After an error the open segment is abandoned and never synced again (a second fdatasync may falsely
succeed); the next group goes to a new one, whose header says where the acknowledged part of the old
one ended.
"""

import math
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from gateway.audit.content_digests import faster_digest
from gateway.audit.content_keys.keys import DataKeys, KeyWrapper
from gateway.audit.disk import Disk, FileState
from gateway.audit.frames import (
    CONTENT,
    CONTENT_MAX_BYTES,
    HEAD_BYTES,
    RECORD,
    BadFrame,
    frame_head,
)
from gateway.audit.segments import (
    FORMAT,
    GENESIS,
    LOCK_NAME,
    SegmentHeader,
    SegmentReader,
    checked_records,
    encode_header,
    failure_at,
    list_segments,
    segment_path,
)
from gateway.clock import Clock
from gateway.errors import StartupRefused
from gateway.telemetry import Event, logger
from gateway.types import Receipt


_MIB = 1024 * 1024
_SPACE_CHECK_EVERY_S = 0.1
_ROOM_BYTES = 256 * 1024
_ROOM_AT_FIRST_BYTES = 16 * 1024


class AuditLimits(Struct, frozen=True):
    """Size limits of the log, and how long a caller waits for it."""

    segment_max_bytes: int = 64 * _MIB
    """A segment that reaches this size is closed and a new one begun."""
    content_max_bytes: int = CONTENT_MAX_BYTES
    """Longer content is cut, and the record says by how much."""
    free_floor_bytes: int = 256 * _MIB
    """With less free space than this, nothing is accepted: others share the disk."""
    deadline_s: float = 2.0
    probe_s: float = 1.0
    """How long the device may be silent before a probe checks that it can still write."""
    queue_max_records: int = 20_000
    queue_max_bytes: int = 256 * _MIB
    group_max_bytes: int = 32 * _MIB


class SealContent(Struct, frozen=True):
    """Content on its way to disk, and what it is bound to; its `repr` does not show it."""

    organisation: str
    aad: bytes
    plaintext: bytes
    subject: str = ""

    def __repr__(self) -> str:
        return f"SealContent({len(self.plaintext)} bytes)"


class ChainEnd(NamedTuple):
    """The end of a log: its last acknowledged byte, and the hash of everything before it."""

    segment: int
    offset_bytes: int
    chain: bytes


Written = tuple[Receipt, bytes]
"""One record after its commit: its place, and the bytes that its leaf hash covers."""


class SegmentDevice:
    """One worker's segments. Used by one thread only after its construction."""

    def __init__(
        self,
        directory: Path,
        worker: str,
        keys: KeyWrapper,
        clock: Clock,
        limits: AuditLimits,
        disk: Disk,
    ) -> None:
        self._worker = worker
        self._folder = directory / worker
        self._clock = clock
        self._limits = limits
        self._disk = disk
        self._keys = DataKeys(self._folder, keys, clock, disk)
        self._digest = faster_digest()
        self._content_max_bytes = min(limits.content_max_bytes, CONTENT_MAX_BYTES)
        self._lock_descriptor = -1
        self._descriptor = -1
        self._path = self._folder
        self._file_id = (0, 0)
        self._reach_bytes = 0
        """The length of the open segment's file, including the zeros to be overwritten."""
        self._lock_state: FileState | None = None
        self._space_checked_s = -math.inf
        self._space_checked_at = 0
        self._is_draft = False
        """Whether the next segment's file exists because creating it failed half-way."""
        self.end = self.found = ChainEnd(0, 0, GENESIS)
        """The present end of the chain, and its end when this process began."""

    def open(self) -> None:
        """Take the worker's lock, find the end of its chain, and begin a segment there.

        Raises:
            StartupRefused: another process writes here, or the folder cannot be used.
        """
        try:
            self._disk.make_folder(self._folder)
            self._lock()
            self.end = self.found = find_end(self._folder, self._disk)
            self._begin_segment()
        except BlockingIOError as error:
            raise StartupRefused(
                f"audit worker {self._worker}: another process writes its segments"
            ) from error
        except OSError as error:
            self.close()
            said = failure_at(self._folder, error)
            raise StartupRefused(f"audit worker {self._worker}: {said}") from error
        except BadFrame as error:
            self.close()
            raise StartupRefused(f"audit worker {self._worker}: {error}") from error

    def commit(self, group: list[tuple[bytes, SealContent | None]]) -> list[Written]:
        """Make a group durable; an empty one only checks that this is possible.

        Raises:
            OSError: nothing of the group counts as written; the next call begins a new segment.
        """
        if self._descriptor < 0 or self.end.offset_bytes >= self._limits.segment_max_bytes:
            self._begin_segment()
        self._require_space()
        try:
            return self._write_group(group)
        except BaseException:
            self._abandon_segment()
            raise

    def close(self) -> None:
        try:
            self._finish_segment()
            with suppress(OSError):  # Then the next start removes it.
                self._discard_draft()
        finally:
            # Whatever happened to the segment: the folder must not stay locked.
            if self._lock_descriptor >= 0:
                descriptor, self._lock_descriptor = self._lock_descriptor, -1
                self._disk.close(descriptor)

    def _require_space(self) -> None:
        """Check free space ten times a second, or after writing a good part of the floor."""
        now = self._clock.monotonic_s()
        written = abs(self.end.offset_bytes - self._space_checked_at)
        is_fresh = now - self._space_checked_s < _SPACE_CHECK_EVERY_S
        if is_fresh and written < self._limits.free_floor_bytes // 16:
            return
        self._space_checked_s = -math.inf
        if self._disk.free_bytes(self._descriptor) < self._limits.free_floor_bytes:
            raise OSError("less space is left than the audit log's floor")
        self._space_checked_s, self._space_checked_at = now, self.end.offset_bytes

    def _write_group(self, group: list[tuple[bytes, SealContent | None]]) -> list[Written]:
        """The hottest code of the log: twice for each request, so it makes few calls.

        `leaf` and `chain` are `entries.leaf_hash` and `entries.chain_hash`, inlined.
        """
        segment, offset, chain = self.end
        worker, seal = self._worker, self._seal
        frames: list[bytes] = []
        written: list[Written] = []
        self._keys.look_at_the_clock()
        for record_json, sealing in group:
            if sealing is None:
                entry = b'{"record":%b}' % record_json
            else:
                sealed, reference = seal(sealing)
                frames.append(frame_head(CONTENT, sealed))
                frames.append(sealed)
                offset += HEAD_BYTES + len(sealed)
                entry = b'{"record":%b,"content":%b}' % (record_json, reference)
            leaf = sha256(b"\x00" + entry).digest()
            chain = sha256(b"\x02" + chain + leaf).digest()
            payload = chain + entry
            frames.append(frame_head(RECORD, payload))
            frames.append(payload)
            written.append((Receipt(worker, segment, offset, leaf.hex()), entry))
            offset += HEAD_BYTES + len(payload)
        if frames:
            if offset > self._reach_bytes:
                room = self._room_after(offset)
                frames.append(bytes(room))
                self._reach_bytes = offset + room
            self._disk.write_at(self._descriptor, b"".join(frames), self.end.offset_bytes)
            self._disk.sync(self._descriptor)
        # Checked after the sync: a file deleted at any moment before is not acknowledged.
        state = self._disk.state(self._path)
        if state is None or state != (*self._file_id, self._reach_bytes):
            raise OSError("the audit segment was deleted, replaced or cut")
        self.end = ChainEnd(segment, offset, chain)
        return written

    def _room_after(self, offset_bytes: int) -> int:
        """How many zeros to write after a group: as many bytes as the file has, up to a limit.

        A command that leaves one record needs none, and a group's callers would wait for them too.
        """
        wanted = min(max(offset_bytes, _ROOM_AT_FIRST_BYTES), _ROOM_BYTES)
        return max(0, min(wanted, self._limits.segment_max_bytes - offset_bytes))

    def _seal(self, sealing: SealContent) -> tuple[bytes, bytes]:
        """The stored form of a content, and the JSON of its ContentReference."""
        plaintext = sealing.plaintext
        limit = self._content_max_bytes
        cut = len(plaintext) - limit
        kept = plaintext if cut <= 0 else plaintext[:limit]
        key, sealed = self._keys.seal(sealing.organisation, sealing.subject, sealing.aad, kept)
        digest, length = self._digest.of(sealed), len(sealed)
        lost = f'"cut_bytes":{cut},' if cut > 0 else ""
        # An `entries.ContentReference`, inlined.
        text = f'{{"key":"{key}","length_bytes":{length},{lost}"{self._digest.name}":"{digest}"}}'
        return sealed, text.encode()

    def _begin_segment(self) -> None:
        self._finish_segment()
        self._lock()
        header = SegmentHeader(
            format=FORMAT,
            worker=self._worker,
            segment=self.end.segment + 1,
            previous_chain=self.end.chain.hex(),
            previous_end_bytes=self.end.offset_bytes,
            created_us=self._clock.utc_us(),
        )
        frame, chain = encode_header(header)
        path = segment_path(self._folder, header.segment)
        self._discard_draft()
        descriptor = self._disk.create(path)
        try:
            self._disk.write(descriptor, frame)
            self._disk.sync(descriptor)
            self._disk.sync_folder(self._folder)
            state = self._disk.state(path)
            if state is None:
                raise FileNotFoundError(path)
        except OSError:
            self._is_draft = True
            self._disk.close(descriptor)
            raise
        self._descriptor, self._path = descriptor, path
        self._file_id = (state.device, state.inode)
        self._reach_bytes = len(frame)
        self.end = ChainEnd(header.segment, len(frame), chain)

    def _discard_draft(self) -> None:
        """Remove a file without a header, which a verifier would take for a break in the chain."""
        if self._is_draft:
            self._lock()
            self._disk.remove(segment_path(self._folder, self.end.segment + 1))
            self._is_draft = False

    def _finish_segment(self) -> None:
        """Close a segment written without errors, without the zeros after its end.

        Zeros that cannot be cut off, or that remain because the process was killed, do no harm.
        """
        if self._descriptor >= 0 and self._reach_bytes > self.end.offset_bytes:
            with suppress(OSError):
                self._disk.cut(self._descriptor, self.end.offset_bytes)
        self._abandon_segment()

    def _abandon_segment(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            self._disk.close(descriptor)

    def _lock(self) -> None:
        """Lock the folder as it is now: it may have been replaced since the start."""
        path = self._folder / LOCK_NAME
        if self._lock_descriptor >= 0:
            if self._disk.state(path) == self._lock_state:
                return
            descriptor, self._lock_descriptor = self._lock_descriptor, -1
            self._disk.close(descriptor)
        self._lock_descriptor = self._disk.lock(path)
        self._lock_state = self._disk.state(path)


def find_end(folder: Path, disk: Disk) -> ChainEnd:
    """The end of the last segment's chain; anything after it stays on disk, outside the chain.

    A file without a complete header (a crash while it was made) holds nothing and is removed.

    Raises:
        BadFrame: the last segment's header was changed.
        OSError: the folder cannot be read.
    """
    log = logger()
    numbers = list_segments(folder)
    while numbers:
        number = numbers.pop()
        path = segment_path(folder, number)
        try:
            reader = SegmentReader(path)
        except BadFrame as error:
            if not error.torn:
                raise
            disk.remove(path)
            continue
        with reader:
            # A killed process may have written it without a sync; a power failure could keep what
            # follows but lose this.
            reader.sync(disk)
            end, chain = reader.start_bytes, reader.start_chain
            try:
                for record in checked_records(reader.records(), chain):
                    end, chain = record.stored.end_bytes, record.stored.chain
            except BadFrame as error:
                # Not cut off but changed: service continues, and the verifier will report the
                # place.
                is_cut = error.may_be_unsynced
                event = Event.AUDIT_TAIL_CUT if is_cut else Event.AUDIT_SEGMENT_DAMAGED
                log.warning(event, segment=number, offset_bytes=end, reason=error.reason)
        return ChainEnd(number, end, chain)
    return ChainEnd(0, 0, GENESIS)
