"""The audit log of a worker: callers wait on the event loop, one thread writes for all of them.

There is no timer between a record and its commit: records of one turn of the loop go to the thread
together, and while it syncs, the next group forms. All callers of a group are woken by one call.
"""

import asyncio
from collections import deque
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from msgspec import Struct

from gateway.audit.content_keys.keys import KeyWrapper
from gateway.audit.device import AuditLimits, ChainEnd, SealContent, SegmentDevice, Written
from gateway.audit.disk import Disk
from gateway.audit.entries import content_aad, encode_record
from gateway.audit.open_intents import OpenIntents
from gateway.audit.precedence import Precedence
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.audit.projecting.recent import RecentRecords
from gateway.audit.segments import is_worker_name
from gateway.clock import Clock
from gateway.durations import Durations
from gateway.errors import AuditUnavailable, ConfigurationInvalid
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord, Receipt


_HEARTBEATS_PER_DEADLINE = 8
_LATE_S = 0.001
_APPEND_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5)
_REFUSAL = "The audit log cannot be written, so nothing was done."


class WriterStats(Struct, frozen=True):
    """What was written since the start, and what is waiting."""

    healthy: bool
    pending_records: int
    pending_bytes: int
    oldest_pending_s: float
    records_total: int
    groups_total: int
    failures_total: int


class _Waiting(Struct, frozen=True):
    """One record of a group, and the future that its caller waits for."""

    future: asyncio.Future[Receipt]
    record: AuditRecord
    record_json: bytes
    content: SealContent | None


class _Group(Struct, frozen=True):
    """The records from one turn of the loop."""

    born_s: float
    members: list[_Waiting]
    length_bytes: int


class SegmentedAuditLog:
    """The durable AuditLog: `await start()`, append, `await close()`, all on one event loop."""

    def __init__(
        self,
        directory: Path,
        worker: str,
        *,
        keys: KeyWrapper,
        clock: Clock,
        limits: AuditLimits | None = None,
        disk: Disk | None = None,
    ) -> None:
        """Raises ConfigurationInvalid if the worker's name is not a safe folder name."""
        if not is_worker_name(worker):
            reason = "must be 1 to 64 of a-z, 0-9, _ and -, not starting with _ or -"
            raise ConfigurationInvalid("settings", "worker", reason)
        self._worker = worker
        self.recent = RecentRecords(worker)
        self.open = OpenIntents()
        self._limits = limits or AuditLimits()
        self._device = SegmentDevice(directory, worker, keys, clock, self._limits, disk or Disk())
        self._queue: SimpleQueue[_Group | None] = SimpleQueue()
        self._forming: list[_Waiting] = []
        self._forming_bytes = 0
        self.appended = Durations(_APPEND_BOUNDS_S)
        """The time from a record's hand-over until it is durable; only the thread adds to it."""
        self._outstanding: deque[_Group] = deque()
        self._pending_records = self._pending_bytes = 0
        self._records_total = self._groups_total = self._failures_total = 0
        self._end = self._device.end
        self._state = "new"
        self._failing = self._stalled = False
        self._committed_s = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._finished: asyncio.Future[None]
        self._heartbeat: asyncio.TimerHandle | None = None

    @property
    def healthy(self) -> bool:
        """Whether the next record can probably be written; checked at least every second."""
        return self._state == "open" and not self._failing and not self._stalled

    @property
    def position(self) -> tuple[int, int]:
        """Segment and offset up to which everything is durable."""
        return self._end.segment, self._end.offset_bytes

    @property
    def worker(self) -> str:
        return self._worker

    def stats(self) -> WriterStats:
        oldest = self._outstanding[0].born_s if self._outstanding else None
        return WriterStats(
            healthy=self.healthy,
            pending_records=self._pending_records,
            pending_bytes=self._pending_bytes,
            oldest_pending_s=0.0 if oldest is None else self._loop.time() - oldest,
            records_total=self._records_total,
            groups_total=self._groups_total,
            failures_total=self._failures_total,
        )

    async def start(self) -> None:
        """Recover the chain, begin a segment, and start the thread.

        Raises:
            StartupRefused: another process writes here, or the folder cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._finished = self._loop.create_future()
        await asyncio.to_thread(self._device.open)
        self._end, found = self._device.end, self._device.found
        self.recent.add(
            (found.segment, found.offset_bytes) if found.segment else START, self.position, []
        )
        self._state = "open"
        Thread(target=self._write_until_closed, name=f"audit-{self._worker}", daemon=True).start()
        self._committed_s = self._loop.time()
        self._beat()

    async def close(self) -> None:
        """Write what is waiting, then release the folder. May be called twice."""
        if self._state == "open":
            self._state = "closed"
            self._hand_over()
            self._queue.put(None)
        if self._state == "closed":
            await asyncio.shield(self._finished)
            if self._heartbeat is not None:
                self._heartbeat.cancel()

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        return await self.join(record, content)

    def join(self, record: AuditRecord, content: bytes | None = None) -> asyncio.Future[Receipt]:
        """Add a record to the group that is forming; see `append`, which also waits for it."""
        if (
            self._state != "open"
            or self._stalled
            or self._pending_records >= self._limits.queue_max_records
            or self._pending_bytes >= self._limits.queue_max_bytes
        ):
            raise AuditUnavailable(_REFUSAL)
        kept, record_json = encode_record(record)
        sealing = None
        length = len(record_json)
        if content is not None:
            sealing = SealContent(kept.organisation, content_aad(kept), content, kept.subject)
            length += len(content)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        if not self._forming:
            self._loop.call_soon(self._hand_over)
        self._forming.append(_Waiting(future, kept, record_json, sealing))
        self._forming_bytes += length
        self._pending_records += 1
        self._pending_bytes += length
        # If the caller is cancelled, the record is still written.
        return future

    def _hand_over(self) -> None:
        if self._forming:
            self._put(_Group(self._loop.time(), self._forming, self._forming_bytes))
            self._forming, self._forming_bytes = [], 0

    def _put(self, group: _Group) -> None:
        self._outstanding.append(group)
        self._queue.put(group)

    def _beat(self) -> None:
        """Fail callers whose deadline has passed, and probe a device that has been silent."""
        now = self._loop.time()
        deadline_s, probe_s = self._limits.deadline_s, self._limits.probe_s
        # A group that comes in between is still far from its deadline at the next check.
        often_s = deadline_s / _HEARTBEATS_PER_DEADLINE if self._outstanding else deadline_s / 2
        interval = min(often_s, probe_s)
        for group in self._outstanding:
            left_s = group.born_s + self._limits.deadline_s - now
            if left_s > 0:
                # Nobody waits much longer than the deadline: the next group is checked in time.
                interval = min(interval, left_s + _LATE_S)
                break
            self._stalled = True
            self._refuse(group)
        is_silent = self._state == "open" and not self._outstanding
        if is_silent and now - self._committed_s >= self._limits.probe_s:
            self._put(_Group(now, [], 0))
        self._heartbeat = self._loop.call_later(interval, self._beat)

    def _refuse(self, group: _Group) -> None:
        for waiting in group.members:
            if not waiting.future.done():
                waiting.future.set_exception(AuditUnavailable(_REFUSAL))

    def _resolve(self, groups: list[_Group], written: list[Written] | None, end: ChainEnd) -> None:
        """Back on the loop: the thread has finished these groups, in order."""
        self._failing, self._stalled = written is None, False
        before, self._end = self.position, end
        self._committed_s = self._loop.time()
        members = [waiting for group in groups for waiting in group.members]
        for group in groups:
            self._outstanding.popleft()
            self._pending_bytes -= group.length_bytes
            if written is None:
                self._refuse(group)
        self._pending_records -= len(members)
        if written is None:
            self._failures_total += len(members)
        elif written:
            self._records_total += len(written)
            self._groups_total += 1
            self.recent.add(before, self.position, list(map(self._answer, members, written)))
        elif self.position != before:
            # A probe began a new segment: if that were not noted, there would be a gap.
            self.recent.add(before, self.position, [])

    def _answer(self, waiting: _Waiting, written: Written) -> ProjectedRecord:
        """Wake one caller, and keep its record for the projection."""
        receipt, entry = written
        self.open.note(waiting.record, receipt)
        if not waiting.future.done():
            waiting.future.set_result(receipt)
        elif not waiting.future.cancelled():
            self.open.note_refused(waiting.record, receipt)
        return ProjectedRecord(
            self._worker,
            receipt.segment,
            receipt.offset_bytes,
            entry,
            waiting.record,
            receipt.leaf_hash,
        )

    def _write_until_closed(self) -> None:
        """The thread: take all that is waiting, commit it, wake the callers."""
        log = logger()
        precedence = Precedence()
        was_failing = False
        closing = False
        while not closing:
            groups, closing = self._take()
            if not groups:
                continue
            batch = [(item.record_json, item.content) for group in groups for item in group.members]
            written: list[Written] | None = None
            reason = ""
            try:
                written = self._device.commit(batch)
            except Exception as error:  # noqa: BLE001 - border: a worker loop answers its callers
                reason = str(error) if isinstance(error, OSError) else type(error).__name__
            if written is None and not was_failing:
                log.error(Event.AUDIT_WRITE_FAILED, worker=self._worker, reason=reason)
            if was_failing and written is not None:
                log.info(Event.AUDIT_WRITE_RECOVERED, worker=self._worker)
            was_failing = written is None
            if written is not None:
                self._note_durable(groups)
            self._loop.call_soon_threadsafe(self._resolve, groups, written, self._device.end)
            precedence.note(len(batch))
        try:
            self._device.close()
        except OSError as error:
            # All that was acknowledged is already synced, so `close` may still succeed.
            log.warning(Event.AUDIT_WRITE_FAILED, worker=self._worker, reason=str(error))
        self._loop.call_soon_threadsafe(self._finished.set_result, None)

    def _note_durable(self, groups: list[_Group]) -> None:
        now_s = self._loop.time()
        for group in groups:
            self.appended.add(round((now_s - group.born_s) * 1e6), len(group.members))

    def _take(self) -> tuple[list[_Group], bool]:
        """All groups that are waiting now, up to a bounded size, and whether they are the last."""
        groups: list[_Group] = []
        length = 0
        first = self._queue.get()
        try:
            while first is not None:
                groups.append(first)
                length += first.length_bytes
                if length >= self._limits.group_max_bytes:
                    return groups, False
                first = self._queue.get_nowait()
        except Empty:
            return groups, False
        return groups, True
