"""The offline verifier: derives every hash again and names the first bad record of each worker.

It needs the files and nothing else. A plain hash chain shows any change in the middle; that its end
was not cut off is shown by what others hold: pass receipts or projected records as `expected`.
"""

import fcntl
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from gateway.audit.content_keys.keys import KEYS_NAME
from gateway.audit.frames import BadFrame
from gateway.audit.lying_here import folder_lies_here, lies_here
from gateway.audit.reckoning import OF_WORKER
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


_PARCEL = "native_batch"
_RECEIPT = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})\.([0-9]{1,8})\.([0-9]{1,18})\.([0-9a-f]{64})")


class BadRecord(Struct, frozen=True):
    """The first place of a worker's log that is not as it was written."""

    worker: str
    segment: int
    offset_bytes: int
    reason: str

    def __str__(self) -> str:
        place = f"worker {self.worker}, segment {self.segment}, offset {self.offset_bytes}"
        return f"{place}: {self.reason}"


class OpenOf(Struct, frozen=True):
    """Intents of one worker without an outcome."""

    worker: str
    intents: int
    since_us: int
    """When the oldest of them was written."""


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
    """What is worth knowing and no damage, e.g. bytes of a write that a crash cut off."""
    open_of: tuple[OpenOf, ...] = ()
    """The open intents, by worker."""

    @property
    def ok(self) -> bool:
        return not self.bad

    @property
    def first_bad(self) -> BadRecord | None:
        return self.bad[0] if self.bad else None


class ReceiptReport(Struct, frozen=True):
    """Whether one receipt holds, and what belongs to the same request."""

    reason: str
    """Empty when the record is there, hashes to the receipt, and the chain up to it is whole."""
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
    walk.check_references()
    return VerifyReport(
        workers=len(workers),
        segments=walk.segments,
        records=sum(walk.stages.values()),
        intents=walk.stages["intent"],
        outcomes=walk.stages["outcome"],
        admin_actions=walk.stages["admin"],
        open_intents=len(walk.intents) - len(walk.closed),
        contents=walk.contents,
        bad=tuple(walk.bad),
        notes=tuple(walk.notes),
        open_of=walk.open_of(),
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
    """The receipt that a response header carried, or None when the text is none."""
    match = _RECEIPT.fullmatch(text.strip())
    if match is None:
        return None
    return Receipt(match[1], int(match[2]), int(match[3]), match[4])


class _Walk:
    """One pass over the files: counters, what was found, and what is bad."""

    def __init__(self, wanted: Receipt | None = None) -> None:
        self.segments = 0
        self.contents = 0
        self.stages = {"intent": 0, "outcome": 0, "admin": 0}
        self.bad: list[BadRecord] = []
        self.notes: list[str] = []
        self.intents: dict[str, tuple[str, str, int]] = {}
        """By leaf: of which request, in whose log, and when."""
        self.closed: set[str] = set()
        self.again = 0
        """Outcomes of requests that had one."""
        self.found: CheckedRecord | None = None
        self._wanted = wanted
        self._workers: set[str] = set()
        self._unresolved: list[tuple[BadRecord, AuditRecord]] = []

    def _miss_all(self, folder: Path, worker: str) -> None:
        """It never got to one, or had some: it seals nothing before, though commands may sign."""
        if lies_here(folder / KEYS_NAME):
            self.bad.append(BadRecord(worker, 1, 0, "all its segments are gone"))
        else:
            self.notes.append(f"worker {worker} has no segments")

    def check_worker(self, folder: Path, worker: str, awaited: dict[tuple[int, int], str]) -> None:
        """Walk a worker's chain to its end or to the first bad record, whichever comes first."""
        self._workers.add(worker)
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

    def check_references(self) -> None:
        """Outcomes whose intent was not found before them: another worker may have had it."""
        elsewhere = 0
        for bad, record in self._unresolved:
            if self._is_of(record):
                self._close(record)
            elif record.intent not in self.intents and _may_be_elsewhere(record, self._workers):
                elsewhere += 1
            elif bad.worker not in {known.worker for known in self.bad}:
                self.bad.append(bad)
        if elsewhere:
            self.notes.append(
                f"{elsewhere} outcomes are of intents in logs of other workers, which are not here"
            )
        if self.again:
            self.notes.append(
                f"{self.again} outcomes are of requests that have one besides: of each the first"
                " that was numbered counts"
            )

    def open_of(self) -> tuple[OpenOf, ...]:
        """Intents without an outcome, by worker."""
        found: dict[str, OpenOf] = {}
        for leaf, (_, worker, utc_us) in self.intents.items():
            if leaf not in self.closed:
                known = found.get(worker) or OpenOf(worker, 0, utc_us)
                oldest_us = min(known.since_us, utc_us)
                found[worker] = OpenOf(worker, known.intents + 1, oldest_us)
        return tuple(found[worker] for worker in sorted(found))

    def _close(self, outcome: AuditRecord) -> None:
        self.again += outcome.intent in self.closed
        self.closed.add(outcome.intent)

    def _is_of(self, outcome: AuditRecord) -> bool:
        known = self.intents.get(outcome.intent)
        return known is not None and known[0] == outcome.request_id

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
        """The chain hash and offset at the segment's end: where the next header says it is."""
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
                # While the power is on, what lies behind was written after what lies before.
                if limit is not None or not (error.torn if is_live else error.may_be_unsynced):
                    raise
        if limit is not None:
            self._check_rest(path, worker, end, chain)
        return chain, end

    def _check_rest(self, path: Path, worker: str, end: int, chain: bytes) -> None:
        """What lies behind a sealed segment: left by a crash or a failed write, or planted."""
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
        """The last segment ends with a whole record, unless somebody is writing right now."""
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
            self.intents[leaf] = (record.request_id, worker, record.utc_us)
        elif record.stage == "outcome" and record.intent:
            self._resolve(worker, number, stored.offset_bytes, record)
        wanted = self._wanted
        if wanted and (wanted.segment, wanted.offset_bytes) == (number, stored.offset_bytes):
            self.found = checked

    def _resolve(self, worker: str, number: int, offset_bytes: int, record: AuditRecord) -> None:
        if self._is_of(record):
            self._close(record)
            return
        reason = "the outcome names an intent that is not of its request"
        self._unresolved.append((BadRecord(worker, number, offset_bytes, reason), record))


def _may_be_elsewhere(outcome: AuditRecord, here: Collection[str]) -> bool:
    """Whether an outcome says that somebody else began: a vendor's parcel is read by any worker."""
    worker = outcome.detail.get(OF_WORKER, "")
    return worker not in here if worker else outcome.detail.get("path") == _PARCEL


def _records_of(folder: Path, request_id: str, damage: BadRecord | None) -> tuple[AuditRecord, ...]:
    """A request's records in an intact part of a worker's log, in their order."""
    found: list[AuditRecord] = []
    with suppress(BadFrame):
        for place, record in _intact_records(folder):
            if damage and place >= (damage.segment, damage.offset_bytes):
                break
            if record.request_id == request_id:
                found.append(record)
    return tuple(found)


def _intact_records(folder: Path) -> Iterator[tuple[tuple[int, int], AuditRecord]]:
    """Each record with its segment and offset; raises BadFrame at the first damage."""
    for number in list_segments(folder):
        with SegmentReader(segment_path(folder, number), declared_end(folder, number)) as reader:
            for record in checked_records(reader.records(), reader.start_chain):
                yield (number, record.stored.offset_bytes), record.entry.record


def _is_begun(path: Path) -> bool:
    """Whether a segment's header is not whole yet."""
    try:
        with SegmentReader(path):
            return False
    except BadFrame as error:
        return error.torn


def _is_being_written(folder: Path) -> bool:
    """Whether a writer holds the folder's lock now: then what it is writing is no damage."""
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
