"""From segments to signed checkpoints: projector, trees and integrator of one worker, put together.

The data plane runs it beside its requests; the command line uses the same parts for proofs.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from gateway import rhythm
from gateway.audit.checkpoints import open_signer
from gateway.audit.disk import Disk
from gateway.audit.erasure import apply_list, erased_keys
from gateway.audit.integrator import (
    CheckpointFiles,
    Integrator,
    LogForked,
    SignedCheckpoint,
    TreeDamaged,
)
from gateway.audit.keys import KeyWrapper
from gateway.audit.open_intents import keep_mark
from gateway.audit.projection import START
from gateway.audit.projector import ProjectionBroken, Projector
from gateway.audit.reckoning import OpenIntent, closing, open_intents
from gateway.audit.segments import list_segments, segment_path
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import AuditUnavailable, StartupRefused
from gateway.store.engine import Database
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.telemetry import Event, logger
from gateway.upkeep import Duty


PROJECTION_RECORDS = 2_000
"""A round costs about 2 ms of transaction however many records it moves; nobody waits for it."""


class Integration:
    """`open` before the first request, `project` every second, `sign` every few seconds."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        clock: Clock,
        keys: KeyWrapper,
        log: SegmentedAuditLog | None = None,
    ) -> None:
        """Opens nothing yet; `log` is this process's own writer, if it has one."""
        self._settings = settings.audit
        self._clock = clock
        self._keys = keys
        self._log = logger()
        self.directory = settings.path(settings.audit.directory)
        self.sink = DatabaseAuditSink(database, self.directory)
        self.trees = DatabaseAuditTrees(database)
        self._second = SecondContents(database)
        self.files = CheckpointFiles(settings.path(settings.audit.checkpoint_directory), Disk())
        if log is None:
            self.projector = Projector(self.directory, self.sink, batch_records=PROJECTION_RECORDS)
        else:
            self.projector = Projector(
                self.directory,
                self.sink,
                recent=log.recent,
                durable=lambda: {log.worker: log.position},
                batch_records=PROJECTION_RECORDS,
            )
        self._integrator: Integrator | None = None
        self._own = log

    @property
    def problem(self) -> str:
        """Why this log must not be added to; empty while all is well."""
        return self._integrator.problem if self._integrator else ""

    async def open(self) -> None:
        """Erase again what a backup brought back, project, and compare with what was signed.

        Raises:
            StartupRefused: the log is shorter or other than its checkpoints or the database say,
                the signing key or the list of erased keys cannot be used.
        """
        try:
            folder = self.files.directory
            again = await asyncio.to_thread(apply_list, self.directory, folder, Disk())
            erased = await asyncio.to_thread(erased_keys, folder)
        except OSError as error:
            raise StartupRefused(f"audit: the list of erased keys: {error.strerror}") from error
        again += await self._second.destroy(list(erased))
        if again:
            self._log.warning(Event.AUDIT_ERASED_AGAIN, count=again)
        await self._require_what_was_numbered()
        try:
            await self.projector.catch_up()
        except ProjectionBroken as error:
            # Service goes on in a new segment; the verifier says what is affected.
            self._log.error(Event.AUDIT_PROJECTION_FAILED, reason=str(error))
            return
        try:
            await self.integrator().check()
        except (LogForked, TreeDamaged) as error:
            raise StartupRefused(f"audit: {error}") from error
        if self._own is not None:
            await self._close_cut_off(self._own)

    async def _close_cut_off(self, log: SegmentedAuditLog) -> None:
        """Give what an earlier run left open an outcome, unless it has one in the database."""
        folder, here = self.directory / log.worker, log.position[0]
        left = await asyncio.to_thread(open_intents, folder, here)
        cut_off = [
            each
            for each in left.requests
            if await self.sink.outcome(each.record.organisation, each.record.request_id) is None
        ]
        cut_off += await self._carried(log.worker)
        now_us = self._clock.utc_us()
        try:
            await asyncio.gather(*(log.append(closing(each, now_us)) for each in cut_off))
        except AuditUnavailable as error:
            self._log.error(Event.AUDIT_WRITE_FAILED, worker=log.worker, reason=error.message)
            return
        log.open.adopt(left.lines)
        if cut_off:
            self._log.warning(Event.AUDIT_CUT_OFF, worker=log.worker, count=len(cut_off))
            await self.projector.catch_up()

    async def _carried(self, worker: str) -> list[OpenIntent]:
        """What was left open of that which the database took while the disk could not."""
        found = []
        for request_id in await self._second.open_requests(worker):
            query = AuditQuery(stage="intent", request_id=request_id)
            for row in await self.sink.newest(query, 1):
                intent = OpenIntent(row.projected.record, row.projected.leaf_hash)
                found += [] if "batch" in intent.record.detail else [intent]
        return found

    async def mark_open(self) -> None:
        """Keep what is open now for whoever starts next; raises OSError, and is done again."""
        log = self._own
        mark = log.open.mark(*log.position) if log is not None else None
        if log is not None and mark is not None:
            await asyncio.to_thread(keep_mark, self.directory / log.worker, mark, Disk())

    async def _require_what_was_numbered(self) -> None:
        """Refuse segments that end before what the database has numbered of them.

        What was numbered had been synced. Going on would give places in the log a second time.
        """
        worker = self._settings.worker
        segment, offset = (await self.sink.positions()).get(worker, START)
        if offset == 0:
            # It stands before a segment that was not begun when it looked: the one before is done.
            segment, offset = segment - 1, 1
        size = await asyncio.to_thread(_size_of, self.directory / worker, segment)
        if segment and size is not None and size < offset:
            raise StartupRefused(
                f"audit worker {worker}: the database knows segment {segment} up to byte {offset},"
                f" of which {size} are here: an old backup was restored, or records were removed."
                " Restore the newest segments, or give the worker a new name"
            )

    def integrator(self) -> Integrator:
        """The signer of checkpoints; its key is read, or made, the first time.

        Raises:
            StartupRefused: the key cannot be read, written or unwrapped.
        """
        if self._integrator is None:
            folder = self.directory / self._settings.worker
            name = f"{self._settings.log_name}/{self._settings.worker}"
            try:
                signer = open_signer(folder, name, self._keys, self._clock, Disk())
            except (OSError, ValueError) as error:
                raise StartupRefused(f"audit: the signing key cannot be used: {error}") from error
            self._integrator = Integrator(
                self.trees,
                signer,
                self.files,
                self._clock,
                log_name=self._settings.log_name,
                period_s=self._settings.checkpoint_period_s,
            )
        return self._integrator

    @property
    def duties(self) -> tuple[Duty, ...]:
        """What the worker does for it beside requests."""
        broken = Event.AUDIT_PROJECTION_FAILED
        return (
            Duty("projection", rhythm.PROJECTION_S, self.projector.catch_up, broken),
            Duty("checkpoints", rhythm.CHECKPOINTS_S, self.sign, Event.AUDIT_CHECKPOINT_FAILED),
            Duty("open intents", rhythm.OPEN_INTENTS_S, self.mark_open, Event.UPKEEP_FAILED),
        )

    async def drain(self) -> None:
        """Bring the database up to date and sign it, a last time; what stands in the way is said.

        A backup that is older than this end can then be told from it.
        """
        try:
            with suppress(OSError):  # Then the next start reads a little more.
                await self.mark_open()
            await self.projector.catch_up()
            if self._integrator is not None:
                await self._integrator.sign_grown()
        except ProjectionBroken as error:
            self._log.error(Event.AUDIT_PROJECTION_FAILED, reason=str(error))
        except (LogForked, TreeDamaged) as error:
            self._log.error(Event.AUDIT_CHECKPOINT_FAILED, reason=str(error))

    async def sign(self) -> None:
        """Sign every log whose newest checkpoint has become old."""
        await self.integrator().sign_due()

    async def checkpoint_of(self, organisation: str, size: int) -> SignedCheckpoint | None:
        """One that covers this many records: an earlier one, or signed now."""
        await self.projector.catch_up()
        known = await self.trees.covering(organisation, size)
        return known or await self.integrator().sign_now(organisation, size)


def _size_of(folder: Path, segment: int) -> int | None:
    """Bytes of a segment; 0 where the log ends before it, None where only this one is missing."""
    try:
        return segment_path(folder, segment).stat().st_size
    except FileNotFoundError:
        later = folder.is_dir() and any(known > segment for known in list_segments(folder))
        return None if later else 0
