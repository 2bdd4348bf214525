"""Projects segments into a sink: records in order, in batches, each exactly once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

import msgspec

from gateway.audit.frames import BadFrame
from gateway.audit.lying_here import folder_lies_here, lies_here
from gateway.audit.projecting.projection import RETIRED, START, AuditSink, Position, ProjectedRecord
from gateway.audit.projecting.recent import RecentRecords
from gateway.audit.segments import (
    SegmentReader,
    StoredRecord,
    cause_of,
    declared_end,
    list_segments,
    list_workers,
    segment_path,
)
from gateway.errors import ToldToOperators
from gateway.telemetry import Event, logger


_BACKOFF_MAX_S = 30.0


class ProjectionBroken(ToldToOperators):
    """A worker's segments do not match what the sink has stored of them."""


async def _nothing() -> None:
    """For a sink that is never put back."""


class Projector:
    """Moves records of all workers in a directory to a sink; any number may run, none twice.

    `durable` tells how far a writer of this process has synced; the projector itself syncs the
    files of other workers before it stores what it read. That writer's latest records come from
    `recent` if it has them without a gap, and are read back only otherwise. `first` is awaited
    before anything is moved; it returns a reason if the sink was put back.
    """

    def __init__(
        self,
        directory: Path,
        sink: AuditSink,
        *,
        durable: Callable[[], Mapping[str, Position]] = dict,
        recent: RecentRecords | None = None,
        first: Callable[[], Awaitable[object]] = _nothing,
        poll_s: float = 0.25,
        batch_records: int = 500,
    ) -> None:
        self._directory = directory
        self._sink = sink
        self._durable = durable
        self._recent = recent
        self._poll_s = poll_s
        self._batch_records = batch_records
        self._positions: dict[str, Position] | None = None
        self._first = first
        self._has_begun = False
        self._seen: dict[str, Position] = {}
        self._moving = asyncio.Lock()
        self.put_back = ""
        """How much less the sink knows than before, if it was put back meanwhile."""
        self.healthy = True
        self.is_retired = False
        """Whether the name of this process's own worker was retired while it ran."""

    async def run(self, stop: asyncio.Event) -> None:
        """Project until `stop` is set, then once more; close the writer before setting it."""
        log = logger()
        delay = self._poll_s
        while True:
            is_last = stop.is_set()
            try:
                await self.catch_up()
            except Exception as error:  # noqa: BLE001 - border: a worker loop outlives its failures
                delay = min(max(delay, self._poll_s) * 2, _BACKOFF_MAX_S)
                # A database's error may quote rows, so only our own messages are shown.
                is_ours = isinstance(error, ProjectionBroken)
                reason = str(error) if is_ours else type(error).__name__
                log.warning(Event.AUDIT_PROJECTION_FAILED, reason=reason)
                self._positions = None
                self.healthy = False
            else:
                delay, self.healthy = self._poll_s, True
            if is_last:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), delay)

    async def catch_up(self) -> int:
        """Project all that is there now; returns how many records that were.

        One broken worker does not hold up the others. A call during another one waits for it, and
        then for what has come since.

        Raises:
            ProjectionBroken: a worker's segments are damaged, cannot be read at this moment, or do
                not fit the sink's position, or what the sink holds is damaged.
        """
        async with self._moving:
            if not self._has_begun:
                await self._first()
                self._has_begun = True
            return await self._catch_up()

    async def waiting(self) -> Mapping[str, int]:
        """How many records of each worker the sink lacks, up to one that cannot be read."""
        positions, lacking = await self._sink.positions(), Counter[str]()
        for worker in await asyncio.to_thread(self._workers):
            here = positions.get(worker, START)
            with suppress(ProjectionBroken):
                while here != RETIRED:
                    batch, here = await self._next(worker, here, None)
                    if not batch:
                        break
                    lacking[worker] += len(batch)
        return lacking

    async def _catch_up(self) -> int:
        stored = 0
        broken: list[ToldToOperators] = []
        for worker in await asyncio.to_thread(self._workers):
            try:
                stored += await self._catch_up_worker(worker)
            except ToldToOperators as error:
                # Damaged segments, or a sink that cannot continue from its contents.
                broken.append(error)
        if broken:
            raise ProjectionBroken("; ".join(map(str, broken))) from broken[0]
        return stored

    async def _catch_up_worker(self, worker: str) -> int:
        stored = 0
        # Later records wait for the next round: a busy log followed to its end would be stored in a
        # transaction for every few records.
        limit = self._durable().get(worker)
        while True:
            if self._positions is None:
                self._positions = await self._not_put_back(await self._sink.positions())
            here = self._positions.get(worker, START)
            if here == RETIRED:
                self.is_retired |= limit is not None
                return stored
            if limit is not None and here >= limit:
                return stored
            batch, there = await self._next(worker, here, limit)
            if not batch:
                return stored
            if await self._store(batch, worker, here, there):
                self._positions[worker] = self._seen[worker] = there
                stored += len(batch)
                if limit is None and len(batch) < self._batch_records:
                    return stored
            else:
                self._positions = None

    async def _not_put_back(self, positions: Mapping[str, Position]) -> dict[str, Position]:
        """A database that lost signed records would give their numbers to other records."""
        behind = [worker for worker, at in self._seen.items() if positions.get(worker, START) < at]
        if behind and await self._first() is not None:
            self.put_back = (
                f"the database knows less of {', '.join(sorted(behind))} than before: it was put"
                " back to an earlier state. Stop every process and start anew"
            )
            raise ProjectionBroken(self.put_back)
        self.put_back = ""
        self._seen = dict(positions)
        return dict(positions)

    async def _next(
        self, worker: str, here: Position, limit: Position | None
    ) -> tuple[list[ProjectedRecord], Position]:
        if self._recent is not None and self._recent.worker == worker:
            known = self._recent.take(here, self._batch_records)
            if known is not None:
                return known
        return await asyncio.to_thread(self._read, worker, here, limit)

    def _workers(self) -> list[str]:
        return list_workers(self._directory) if folder_lies_here(self._directory) else []

    def _read(
        self, worker: str, here: Position, limit: Position | None
    ) -> tuple[list[ProjectedRecord], Position]:
        try:
            return read_batch(self._directory, worker, here, limit, self._batch_records)
        except BadFrame as error:
            raise ProjectionBroken(f"worker {worker} at {here}: {error}") from error
        except FileNotFoundError as error:
            reason = "a segment is missing"
            raise ProjectionBroken(f"worker {worker} at {here}: {reason}") from error
        except OSError as error:
            reason = f"it cannot be read at this moment ({cause_of(error)})"
            raise ProjectionBroken(f"worker {worker} at {here}: {reason}") from error

    async def _store(
        self, batch: list[ProjectedRecord], worker: str, here: Position, there: Position
    ) -> bool:
        try:
            return await self._sink.store(batch, worker, here, there)
        except msgspec.MsgspecError as error:
            raise ProjectionBroken(f"worker {worker} at {here}: {error}") from error


def read_batch(
    directory: Path, worker: str, here: Position, limit: Position | None, count_max: int
) -> tuple[list[ProjectedRecord], Position]:
    """Up to `count_max` records from a position on, and the position after them.

    Raises:
        BadFrame: a frame is damaged, or the position lies behind its segment's end.
    """
    folder = directory / worker
    batch: list[ProjectedRecord] = []
    number, offset = here
    while len(batch) < count_max and (limit is None or number <= limit[0]):
        sealed_at = declared_end(folder, number)
        if sealed_at is not None and offset > sealed_at:
            raise BadFrame(offset, f"segment {number} was sealed before this place")
        if offset == sealed_at:
            # It has nothing left to read, and may be gone.
            number, offset = number + 1, 0
            continue
        end = limit[1] if limit and limit[0] == number else sealed_at
        path = segment_path(folder, number)
        if sealed_at is None:
            _require_newest(folder, number)
            # By opening the file, not by listing its folder: an unreadable file is not a missing
            # one.
            if not lies_here(path):
                break
        with SegmentReader(path, end) as reader:
            if offset > reader.size_bytes:
                raise BadFrame(offset, f"segment {number} ends before this place")
            if limit is None:
                reader.sync()
            room = count_max - len(batch)
            records = _take(reader, offset, room, may_be_torn=end is None)
            batch += [
                ProjectedRecord(worker, number, stored.offset_bytes, stored.raw)
                for stored in records
            ]
            offset = records[-1].end_bytes if records else max(offset, reader.start_bytes)
        if sealed_at is None or offset < sealed_at:
            break
        number, offset = number + 1, 0
    return batch, (number, offset)


def _require_newest(folder: Path, number: int) -> None:
    """Raises BadFrame if a later segment follows that is not the next: all would be missed."""
    later = [known for known in list_segments(folder) if known > number]
    if later and later != [number + 1]:
        raise BadFrame(0, f"segment {number + 1} is missing or damaged")
    if later:
        try:
            with SegmentReader(segment_path(folder, later[0])):
                return
        except BadFrame as error:
            if not error.torn:
                raise


def _take(
    reader: SegmentReader, offset_bytes: int, count_max: int, *, may_be_torn: bool
) -> list[StoredRecord]:
    """Complete records from an offset on; one that is being written is left for later."""
    records: list[StoredRecord] = []
    try:
        for stored in islice(reader.records(offset_bytes), count_max):
            records.append(stored)  # noqa: PERF402 - what was read before a torn frame is kept
    except BadFrame as error:
        if not (error.may_be_unsynced and may_be_torn):
            raise
    return records
