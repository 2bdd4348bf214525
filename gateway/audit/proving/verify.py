"""The offline verifier: derives every hash again and names the first bad record of each worker.

It needs the files and nothing else. A plain hash chain shows any change in the middle; only what
others hold shows that its end was not cut off: pass receipts or projected records as `expected`.
"""

import fcntl
import math
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from gateway.audit.content_keys.keys import KEYS_NAME
from gateway.audit.frames import BadFrame
from gateway.audit.lying_here import folder_lies_here, lies_here
from gateway.audit.proving.references import BadRecord, OpenOf, References
from gateway.audit.segments import (
    GENESIS,
    LOCK_NAME,
    CheckedRecord,
    SegmentReader,
    checked_records,
    declared_end,
    list_segments,
    list_workers,
    segment_path,
    written_bytes,
)
from gateway.types import AuditRecord, Receipt


_RECEIPT = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})\.([0-9]{1,8})\.([0-9]{1,18})\.([0-9a-f]{64})")


class VerifyReport(Struct, frozen=True):
    """What a verification counted and found."""

    workers: int
    segments: int
    records: int
    intents: int
    outcomes: int
    admin_actions: int
    open_intents: int
    """Intents without an outcome: in flight now, or cut off by a crash."""
    contents: int
    bad: tuple[BadRecord, ...]
    notes: tuple[str, ...]
    """Noteworthy but no damage, e.g. bytes of a write that a crash cut off."""
    open_of: tuple[OpenOf, ...] = ()
    """The open intents, by worker."""

    @property
    def ok(self) -> bool:
        return not self.bad

    @property
    def first_bad(self) -> BadRecord | None:
        return self.bad[0] if self.bad else None


class ReceiptReport(Struct, frozen=True):
    """Whether one receipt holds, and the other records of its request."""

    reason: str
    """Empty if the record exists, hashes to the receipt, and the chain up to it is intact."""
    records: tuple[AuditRecord, ...]
    later_damage: BadRecord | None = None

    @property
    def ok(self) -> bool:
        return not self.reason


def verify_directory(directory: Path, expected: Iterable[Receipt] = ()) -> VerifyReport:
    """Check all workers' segments; every `expected` receipt must be among them.

    Raises:
        OSError: the directory or a file in it cannot be read.
    """
    walk = _Walk()
    awaited: dict[str, dict[tuple[int, int], str]] = {}
    for receipt in expected:
        place = (receipt.segment, receipt.offset_bytes)
        awaited.setdefault(receipt.worker, {})[place] = receipt.leaf_hash
    workers = list_workers(directory)
    for worker in workers:
        walk.check_worker(directory / worker, worker, awaited.pop(worker, {}))
    for worker in sorted(awaited):
        walk.bad.append(BadRecord(worker, 1, 0, "this worker has no segments, but receipts"))
    walk.references.resolve(workers, walk.bad, walk.notes, partial(_intents, directory, walk.bad))
    return VerifyReport(
        workers=len(workers),
        segments=walk.segments,
        records=sum(walk.stages.values()),
        intents=walk.stages["intent"],
        outcomes=walk.stages["outcome"],
        admin_actions=walk.stages["admin"],
        open_intents=len(walk.references.open),
        contents=walk.contents,
        bad=tuple(walk.bad),
        notes=tuple(walk.notes),
        open_of=walk.references.open_of(),
    )


def verify_receipt(directory: Path, text: str) -> ReceiptReport:
    """Check one receipt `worker.segment.offset.leafhash` and find its request's other records.

    Raises:
        OSError: the worker's files cannot be read.
    """
    receipt = parse_receipt(text)
    if receipt is None:
        return ReceiptReport("this is no receipt: worker.segment.offset.leafhash expected", ())
    folder = directory / receipt.worker
    if not folder_lies_here(folder):
        return ReceiptReport("there is no such worker here", ())
    walk = _Walk(wanted=receipt)
    walk.check_worker(folder, receipt.worker, {})
    damage = walk.bad[0] if walk.bad else None
    found = walk.found
    if found is None:
        place = (receipt.segment, receipt.offset_bytes)
        if damage and (damage.segment, damage.offset_bytes) <= place:
            return ReceiptReport(f"the chain before it is damaged: {damage}", (), damage)
        return ReceiptReport("no record begins there", (), damage)
    if found.leaf.hex() != receipt.leaf_hash:
        return ReceiptReport("the record there is another one", (), damage)
    request_id = found.entry.record.request_id
    folder_records = _records_of(folder, request_id, damage)
    return ReceiptReport("", folder_records, damage)


def parse_receipt(text: str) -> Receipt | None:
    """The receipt in a response header; None if the text is no receipt."""
    match = _RECEIPT.fullmatch(text.strip())
    if match is None:
        return None
    return Receipt(match[1], int(match[2]), int(match[3]), match[4])


class _Walk:
    """One pass over the files: counters, findings, and damage."""

    def __init__(self, wanted: Receipt | None = None) -> None:
        self.segments = 0
        self.contents = 0
        self.stages = {"intent": 0, "outcome": 0, "admin": 0}
        self.bad: list[BadRecord] = []
        self.notes: list[str] = []
        self.references = References()
        self.found: CheckedRecord | None = None
        self._wanted = wanted

    def _miss_all(self, folder: Path, worker: str) -> None:
        """Judge a worker without segments: content keys prove it had some, signing keys do not."""
        if lies_here(folder / KEYS_NAME):
            self.bad.append(BadRecord(worker, 1, 0, "all its segments are gone"))
        else:
            self.notes.append(f"worker {worker} has no segments")

    def check_worker(self, folder: Path, worker: str, awaited: dict[tuple[int, int], str]) -> None:
        """Walk a worker's chain to its end or to the first bad record, whichever comes first."""
        is_live = _is_being_written(folder)
        numbers = list_segments(folder)
        if not numbers and not awaited:
            self._miss_all(folder, worker)
        if is_live and numbers and _is_begun(segment_path(folder, numbers[-1])):
            numbers.pop()
        chain, end, number = GENESIS, 0, 0
        try:
            for number in range(1, (numbers[-1] if numbers else 0) + 1):
                is_last = number == numbers[-1]
                chain, end = self._check_segment(
                    folder, worker, number, (chain, end), awaited, is_live=is_live
                )
                if is_last:
                    self._check_tail(folder, worker, number, end, is_live=is_live)
                self.segments += 1
        except BadFrame as error:
            is_unmade = error.torn and error.offset_bytes == 0 and number == numbers[-1]
            reason = f"{error.reason}; a restart removes it" if is_unmade else error.reason
            self.bad.append(BadRecord(worker, number, error.offset_bytes, reason))
            return
        for (segment, offset), _ in sorted(awaited.items())[:1]:
            self.bad.append(
                BadRecord(worker, segment, offset, "a record with a receipt is missing")
            )

    def _check_segment(
        self,
        folder: Path,
        worker: str,
        number: int,
        before: tuple[bytes, int],
        awaited: dict[tuple[int, int], str],
        *,
        is_live: bool,
    ) -> tuple[bytes, int]:
        """The chain hash and offset at the segment's end, as the next header states it."""
        path = segment_path(folder, number)
        if not lies_here(path):
            raise BadFrame(0, "the segment is missing")
        limit = declared_end(folder, number)
        with SegmentReader(path, limit) as reader:
            header = reader.header
            if (header.worker, header.segment) != (worker, number):
                raise BadFrame(0, "the header belongs to another segment")
            if (bytes.fromhex(header.previous_chain), header.previous_end_bytes) != before:
                raise BadFrame(0, "the segment does not continue the one before")
            chain, end = reader.start_chain, reader.start_bytes
            try:
                for record in checked_records(reader.records(), chain):
                    self._count(worker, number, record, awaited)
                    chain, end = record.stored.chain, record.stored.end_bytes
            except BadFrame as error:
                # Without a power failure, what comes later in the file was written later.
                if limit is not None or not (error.torn if is_live else error.may_be_unsynced):
                    raise
        if limit is not None:
            self._check_rest(path, worker, end, chain)
        return chain, end

    def _check_rest(self, path: Path, worker: str, end: int, chain: bytes) -> None:
        """Judge what follows a sealed segment: left by a crash or a failed write, or planted."""
        with SegmentReader(path) as reader:
            left = reader.size_bytes - end
            if left <= 0:
                return
            try:
                for _ in checked_records(reader.records(end), chain):
                    pass
            except BadFrame as error:
                if not error.may_be_unsynced:
                    raise
        place = f"worker {worker}, segment {path.stem}, offset {end}"
        self.notes.append(f"{place}: {left} bytes that were never acknowledged")

    def _check_tail(
        self, folder: Path, worker: str, number: int, end: int, *, is_live: bool
    ) -> None:
        """The last segment ends with a complete record, unless somebody is writing right now."""
        size = written_bytes(segment_path(folder, number))
        if size <= end:
            return
        if not is_live:
            reason = f"{size - end} bytes of a record that is cut off; a restart seals them"
            raise BadFrame(end, reason, torn=True)
        self.notes.append(f"worker {worker} is writing segment {number}")

    def _count(
        self,
        worker: str,
        number: int,
        checked: CheckedRecord,
        awaited: dict[tuple[int, int], str],
    ) -> None:
        record, stored, leaf = checked.entry.record, checked.stored, checked.leaf.hex()
        if awaited.pop((number, stored.offset_bytes), leaf) != leaf:
            raise BadFrame(stored.offset_bytes, "the record is not the one in its receipt")
        self.stages[record.stage] += 1
        self.contents += stored.content is not None
        if record.stage == "intent":
            self.references.begin(leaf, worker, record)
        elif record.stage == "outcome" and record.intent:
            self.references.end(worker, number, stored.offset_bytes, record)
        wanted = self._wanted
        if wanted and (wanted.segment, wanted.offset_bytes) == (number, stored.offset_bytes):
            self.found = checked


def _records_of(folder: Path, request_id: str, damage: BadRecord | None) -> tuple[AuditRecord, ...]:
    """A request's records in an intact part of a worker's log, in order."""
    records = (checked.entry.record for checked in _intact_records(folder, damage))
    return tuple(record for record in records if record.request_id == request_id)


def _intents(
    directory: Path, bad: Iterable[BadRecord], leaves: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Those leaves that are intents in an intact part of any log, with their requests."""
    damage = {each.worker: each for each in bad}
    for worker in list_workers(directory):
        for checked in _intact_records(directory / worker, damage.get(worker)):
            record = checked.entry.record
            if record.stage == "intent" and (leaf := checked.leaf.hex()) in leaves:
                yield leaf, record.request_id


def _intact_records(folder: Path, damage: BadRecord | None) -> Iterator[CheckedRecord]:
    """A worker's records up to the first damage, or to one that is known."""
    end = (damage.segment, damage.offset_bytes) if damage else (math.inf, 0)
    for number, checked in _numbered(folder):
        if (number, checked.stored.offset_bytes) >= end:
            return
        yield checked


def _numbered(folder: Path) -> Iterator[tuple[int, CheckedRecord]]:
    """Each record with the number of its segment, up to the first damage."""
    with suppress(BadFrame):
        for number in list_segments(folder):
            path = segment_path(folder, number)
            with SegmentReader(path, declared_end(folder, number)) as reader:
                for checked in checked_records(reader.records(), reader.start_chain):
                    yield number, checked


def _is_begun(path: Path) -> bool:
    """Whether a segment's header is still incomplete."""
    try:
        with SegmentReader(path):
            return False
    except BadFrame as error:
        return error.torn


def _is_being_written(folder: Path) -> bool:
    """Whether a writer holds the folder's lock now: then its unfinished write is no damage."""
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
