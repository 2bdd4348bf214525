"""From segments to signed checkpoints: projector, trees and integrator of one worker, combined.

The data plane runs it beside its requests; the command line uses the same parts for proofs.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final

from gateway.audit.content_keys.erasure import apply_list, damaged_keys, erased_keys, listed_here
from gateway.audit.content_keys.keys import KeyWrapper
from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import ProjectionBroken, Projector
from gateway.audit.proving.checkpoints import open_signer
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.integrator import Integrator, LogForked, LogPutBack, TreeDamaged
from gateway.audit.segments import failure_at
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import NotReady, StartupRefused
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.ports import AuditLog
from gateway.store.engine import Database
from gateway.store.evidence.cut_off import CutOff
from gateway.store.evidence.deeds_again import DeedsAgain, needs_decision
from gateway.store.evidence.gone_workers import GoneWorkers, LinesLeft
from gateway.store.evidence.held_keys import held_subjects, spared
from gateway.store.evidence.numbered_places import require_what_was_numbered
from gateway.store.evidence.older_database import Older, OlderDatabase
from gateway.store.evidence.recovery import Recovery
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.evidence.unended import UnendedReader
from gateway.store.workers import WorkerTable
from gateway.telemetry import Event, logger


PROJECTION_RECORDS = 2_000
"""A round costs about 2 ms of transaction however many records it moves; nobody waits for it."""
_LACKS: Final = (
    "the database lacks a checkpoint that was exported from it: it was put back to an earlier"
    " state. Stop every process and start anew"
)


class Integration:
    """Call `open` before the first request, `project` every second, `sign` every few seconds."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        clock: Clock,
        keys: KeyWrapper,
        log: SegmentedAuditLog | None = None,
        *,
        lines: LinesLeft | None = None,
        evidence: AuditLog | None = None,
        drain_log: Callable[[], None] = lambda: None,
    ) -> None:
        """Opens nothing yet; `log` is this process's own writer, if it has one.

        `lines` makes the part that ends lines of batches left open by a gone worker; `evidence` is
        the log with its second device; `drain_log` shows what is logged before the worker is ready.
        """
        self._settings = settings.audit
        self.database = database
        self._clock = clock
        self._keys = keys
        self._log, self._drain_log = logger(), drain_log
        self.directory = settings.path(settings.audit.directory)
        self.sink = DatabaseAuditSink(database, self.directory)
        self.trees = DatabaseAuditTrees(database)
        self._second = SecondContents(database)
        self.unended = UnendedReader(database, clock)
        self.files = CheckpointFiles(settings.path(settings.audit.checkpoint_directory), Disk())
        self._older = OlderDatabase(database, self.files, clock)
        self.recovery = Recovery(
            database, self._older, self.files, clock, self.directory, drain_log
        )
        self.projector = Projector(
            self.directory,
            self.sink,
            recent=log.recent if log else None,
            durable=(lambda: {log.worker: log.position}) if log else dict,
            first=self._begin,
            batch_records=PROJECTION_RECORDS,
        )
        self._writes = () if log is None else (log.worker,)
        self._integrator: Integrator | None = None
        self._lacks, self._began_older = "", False
        self._projected_s: float | None = None
        """When a projection last began that brought all that was durable into the database."""
        self._cut_off: CutOff | None = None
        self._gone: GoneWorkers | None = None
        self._wake: asyncio.Event | None = None
        if log is not None:
            parts = (self.directory, log, self.sink, self._second)
            catch_up = self.projector.catch_up
            self._cut_off = CutOff(*parts, clock=clock, catch_up=catch_up, evidence=evidence)
            self._wake = log.open.wake
            self._gone = GoneWorkers(
                *parts, WorkerTable(database), clock=clock, catch_up=catch_up, lines=lines
            )

    @property
    def problem(self) -> str:
        """Why nothing may be added to this log; empty while all is well."""
        return self._integrator.problem if self._integrator else ""

    @property
    def not_reckoned(self) -> tuple[str, ...]:
        """Why some records have no number, or some requests no end, for now; empty if all have."""
        parts = (part.problem for part in (self._cut_off, self._gone) if part is not None)
        return tuple(filter(None, parts))

    @property
    def put_back(self) -> str:
        """How much the database has lost; empty unless it was put back."""
        return self.projector.put_back or self._lacks

    @property
    def is_retired(self) -> bool:
        """Whether this worker's name was retired: what it writes is no longer read."""
        return self.projector.is_retired

    async def require_what_was_numbered(self) -> None:
        """Raise StartupRefused if segments of this worker were put back or removed."""
        await require_what_was_numbered(self.database, self.directory, self._settings.worker)

    async def erase_again(self) -> None:
        """Destroy keys on the list of erased ones that a backup brought back, wherever they lie.

        Keys whose destruction had failed half-way stay if a hold was set since.

        Raises:
            StartupRefused: the list, or a file of keys, cannot be used.
        """
        try:
            folder = self.files.directory
            erased = await asyncio.to_thread(erased_keys, folder)
            stay = await self._held_back(erased)
            again = await asyncio.to_thread(apply_list, self.directory, folder, Disk(), stay)
        except OSError as error:
            raise StartupRefused(
                f"audit: keys, or the list of erased ones: {error.strerror}"
            ) from error
        again += await self._second.destroy([each for each in erased if each not in stay])
        if again:
            self._log.warning(Event.AUDIT_ERASED_AGAIN, count=again)

    async def _held_back(self, erased: Mapping[str, int]) -> frozenset[str]:
        held = await held_subjects(self.database) if erased else {}
        if not held:
            return frozenset()
        there = await asyncio.to_thread(listed_here, self.directory, self.files.directory)
        keys = [*there, *await self._second.keys(list(erased))]
        return await spared(self.database, held, keys, erased)

    async def _tell_damaged(self) -> None:
        try:
            damaged = await asyncio.to_thread(damaged_keys, self.directory, self._keys)
        except OSError as error:
            raise StartupRefused(f"audit: keys: {error.strerror}") from error
        for line in damaged:
            self._log.error(Event.AUDIT_KEY_DAMAGED, worker=line.worker, reason=str(line))

    async def open(self) -> None:
        """Erase again what a backup brought back, project, and compare with what was signed.

        What a restored database has lost is charged and revoked again; where only people can do
        that, this waits until somebody has decided.

        Raises:
            StartupRefused: the log is shorter than its checkpoints or the database say, or differs
                from them; a tree is damaged; the signing key or the list of erased keys cannot be
                used.
        """
        try:
            await self._open()
        except (LogForked, TreeDamaged) as error:
            raise StartupRefused(f"audit: {error}") from error

    async def _open(self) -> None:
        await self.erase_again()
        await self._tell_damaged()
        await self.require_what_was_numbered()
        older = await self._begin_recovery()
        is_behind = older is not None or await self.recovery.is_under_way()
        if is_behind:
            await self.recovery.tell(self._settings.worker)
        is_whole = True
        try:
            await self.projector.catch_up()
        except ProjectionBroken as error:
            # Service goes on in a new segment; the verifier says what is affected.
            self._log.error(Event.AUDIT_PROJECTION_FAILED, reason=str(error))
            is_whole = False
        while is_behind and await self.recovery.bring(self._settings.worker):
            await self._make_safe(older, is_whole=is_whole)
        if is_behind:
            await self._keep_signed(is_whole=is_whole)
        if is_whole:
            await self._compare_and_sign()
        if self._cut_off is not None:
            await self._cut_off.open(is_current=is_whole)

    async def _begin(self) -> Older | None:
        older = await self.recovery.begin(*self._writes)
        self._began_older |= older is not None
        return older

    async def _begin_recovery(self) -> Older | None:
        try:
            return await self.recovery.begin()
        except OSError as error:
            raise StartupRefused(f"audit: exported checkpoints: {error.strerror}") from error

    async def _keep_signed(self, *, is_whole: bool) -> None:
        """Keep what was signed, unless the log contradicts it; the next start then secures it.

        While a log is incomplete nobody can tell. If nothing were kept, the next look, within
        seconds by this process, would take the database for one that was just put back.
        """
        if is_whole:
            await self.integrator().check()
        await self.recovery.keep_signed()

    async def _compare_and_sign(self) -> None:
        await self.integrator().check()
        # Sign what a crash left unsigned before requests come, since they would be served first.
        with suppress(NotReady):
            await self.integrator().sign_grown()

    async def _make_safe(self, older: Older | None, *, is_whole: bool) -> None:
        known = await self._older.known_deeds()
        since = await self._older.deeds_since(known)
        deeds = Counter(deed.action for deed in since)
        again = await DeedsAgain(self.database, self.sink, self._clock).perform(known)
        everybody = {self._settings.worker, *await self.recovery.awaited.workers()}
        charged = await self._older.charge_again(everybody)
        lost = await self.recovery.awaited.lost()
        named = ", ".join(f"{deeds[action]} {action}" for action in sorted(deeds)) or "none"
        gone = ", ".join(f"{lost[name]} of {name}" for name in sorted(lost))
        self._log.error(
            Event.AUDIT_DATABASE_OLDER,
            count=deeds.total(),
            cost_microusd=charged,
            reason=f"{older or 'another worker lacks a checkpoint'}: {again}; deeds since: {named}"
            + (f"; records that are lost: {gone}" if gone else ""),
        )
        # Logged once: a start that is told to end now leaves no other trace.
        self._drain_log()
        if undecided := [deed.sequence for deed in since if needs_decision(deed.action)]:
            await self.recovery.keep_signed()
            await self.recovery.awaited.await_decision(undecided)
        else:
            # Before the recovery is over: otherwise a process that starts in between would await
            # everybody again. Others may go on; this one is refused afterwards.
            with suppress(StartupRefused, LogForked, TreeDamaged):
                await self._keep_signed(is_whole=is_whole)
            await self.recovery.awaited.finish()

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
            except OSError as error:
                said = failure_at(folder, error)
                raise StartupRefused(f"audit: the signing key cannot be used: {said}") from error
            except ValueError as error:
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
        """The worker's periodic duties for the log, besides requests."""
        broken = Event.AUDIT_PROJECTION_FAILED
        duties = (
            Duty("projection", rhythm.PROJECTION_S, self.project, broken),
            Duty("checkpoints", rhythm.CHECKPOINTS_S, self.sign, Event.AUDIT_CHECKPOINT_FAILED),
        )
        if self._cut_off is None or self._gone is None:
            return duties
        ours, gone, failed = self._cut_off.tend, self._gone.tend, Event.UPKEEP_FAILED
        return (
            *duties,
            Duty("open intents", rhythm.OPEN_INTENTS_S, ours, failed, self._wake),
            Duty("gone workers", rhythm.GONE_WORKERS_S, gone, failed),
            Duty("unended", rhythm.GONE_WORKERS_S, self.unended.count, failed),
        )

    async def drain(self) -> None:
        """Bring the database up to date and sign it a last time; log what prevents it.

        A backup older than this end can then be recognised.
        """
        try:
            if self._cut_off is not None:
                with suppress(OSError):  # Then the next start reads a little more.
                    await self._cut_off.mark()
            if self._gone is not None:
                await self._gone.close()
            await self.projector.catch_up()
            if self._integrator is not None:
                async with self._signing() as integrator:
                    await integrator.sign_grown()
        except ProjectionBroken as error:
            self._log.error(Event.AUDIT_PROJECTION_FAILED, reason=str(error))
        except (LogForked, TreeDamaged) as error:
            self._log.error(Event.AUDIT_CHECKPOINT_FAILED, reason=str(error))

    async def project(self) -> None:
        """Bring all that is durable into the database; raises ProjectionBroken, NotReady."""
        began_s = self._clock.monotonic_s()
        await self.projector.catch_up()
        self._projected_s = began_s

    def projection_lag_s(self) -> float | None:
        """Seconds since the database last had every record; None before that first happens."""
        known_s = self._projected_s
        return None if known_s is None else self._clock.monotonic_s() - known_s

    def checkpoint_age_s(self) -> float | None:
        """Age of the newest checkpoint, in the log where it is oldest; None before the first."""
        return self._integrator.age_s() if self._integrator is not None else None

    async def sign(self) -> None:
        """Sign every log whose newest checkpoint has become old."""
        async with self._signing() as integrator:
            await integrator.sign_due()

    @asynccontextmanager
    async def _signing(self) -> AsyncIterator[Integrator]:
        """Give the signer; if the database was put back, begin recovery so that all hear of it."""
        try:
            yield self.integrator()
        except LogPutBack:
            # If something that was readable a moment ago cannot be read now, the next look tries
            # again.
            with suppress(OSError):
                if await self.recovery.begin(*self._writes) is not None:
                    self._lacks = _LACKS
            raise

    async def checkpoint_of(self, organisation: str, size: int) -> SignedCheckpoint | None:
        """A checkpoint that covers this many records: an earlier one, or one signed now."""
        known = await self.trees.covering(organisation, size)
        if known is not None:
            return known
        await self.projector.catch_up()
        async with self._signing() as integrator:
            # A command on a restored database shows what it has brought back.
            if not self._began_older:
                await integrator.require_kept()
            return await integrator.sign_now(organisation, size)
