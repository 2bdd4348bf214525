"""The full check of an organisation's log, in its own thread: one at a time, with progress.

The thread has its own event loop and connection, so that pages are served meanwhile. It reads all
records, derives every hash again, and compares with the tree and with what was signed.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from gateway.audit.disk import Disk
from gateway.audit.projecting.projection import SequencedRecord
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.checkpoints import verifier_keys
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.fsck import check_log
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import GatewrightError
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.store.engine import Database, open_database
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.evidence.recovery import projector_for
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.told_deeds import CALLED_LOST, ToldDeeds
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.telemetry import Event, logger


NOTES_MAX: Final = 500
"""Signatures that one check verifies: all of them, or so many spread over the whole time."""
CHECKED: Final = "integrity.checked"
NOT_WHOLE: Final = "log_not_whole"
UNFINISHED: Final = "The last check could not be finished, or not be recorded."


class Checked(Struct, frozen=True):
    """How a full check ended; `reason` is empty when the log is whole."""

    organisation: str
    records: int
    checkpoints: int
    checkpoints_all: int
    reason: str
    began_us: int
    ended_us: int
    lost: int = 0
    """Records that somebody declared lost: their leaves are in the tree."""


class Running(Struct, frozen=True):
    """How far a check is, of how many records."""

    organisation: str
    records: int
    records_all: int
    began_us: int
    now_us: int

    @property
    def per_second(self) -> float:
        return self.records * 1_000_000 / max(self.now_us - self.began_us, 1)


class _StoppedError(Exception):
    """The listener stops; the check is given up and says nothing."""


class LogChecker:
    """Runs checks; what the last one of each organisation found is kept in the log, as a deed."""

    def __init__(
        self, settings: Settings, records: DatabaseAuditSink, deeds: Deeds, clock: Clock
    ) -> None:
        self._settings = settings
        self._records = records
        self._deeds = deeds
        self._clock = clock
        self._task: asyncio.Task[None] | None = None
        self._stop = threading.Event()
        self._organisation = ""
        self._count = self._count_all = self._began_us = 0
        self._ended: dict[str, Checked] = {}
        self._problems: dict[str, str] = {}

    @property
    def running(self) -> Running | None:
        """The check that runs now, whichever organisation it is about."""
        if self._task is None or self._task.done():
            return None
        return Running(
            self._organisation,
            self._count,
            self._count_all,
            self._began_us,
            self._clock.utc_us(),
        )

    async def last(self, organisation: str) -> Checked | None:
        """How the last check ended: of this process, or as the log has it; raises NotReady."""
        if organisation not in self._ended:
            query = AuditQuery(organisation=OPERATORS, action=CHECKED, about=organisation)
            rows = await self._records.newest(query, 1)
            if not rows:
                return None
            after = rows[0].projected.record.detail.get("after", "")
            self._ended[organisation] = msgspec.json.decode(after, type=Checked)
        return self._ended[organisation]

    def problem(self, organisation: str) -> str:
        """Why its last check, begun in this process, has no end; empty otherwise."""
        return self._problems.get(organisation, "")

    def begin(self, organisation: str, actor: str) -> bool:
        """Start a check; False while another one runs."""
        if self.running is not None:
            return False
        self._organisation, self._count, self._count_all = organisation, 0, 0
        self._began_us = self._clock.utc_us()
        self._task = asyncio.create_task(self._run(organisation, actor))
        return True

    async def stop(self) -> None:
        """Give up what runs."""
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, organisation: str, actor: str) -> None:
        """What goes wrong here is logged and said; it says nothing about the log."""
        self._problems[organisation] = UNFINISHED
        try:
            found = await asyncio.to_thread(asyncio.run, self._check(organisation))
            self._ended[organisation] = found
            error = NOT_WHOLE if found.reason else ""
            after = msgspec.to_builtins(found)
            await self._deeds.record(actor, CHECKED, organisation, after=after, error=error)
        except _StoppedError:
            return
        except (GatewrightError, OSError, msgspec.MsgspecError) as failure:
            name = type(failure).__name__
            logger().warning(Event.AUDIT_CHECK_FAILED, error_class=name)
            return
        del self._problems[organisation]

    async def _check(self, organisation: str) -> Checked:
        """In the thread; only plain numbers are shared with the pages."""
        directory = self._settings.path(self._settings.audit.directory)
        database = open_database(self._settings.database_url, pooled=False)
        try:
            trees = DatabaseAuditTrees(database)
            self._count_all = (await trees.sizes()).get(organisation, 0)
            total, some = await trees.spread(organisation, 0, 2**62, NOTES_MAX)
            chosen = with_newest(some, await trees.latest(organisation, 1))
            chosen += self._exported(organisation)
            sink = DatabaseAuditSink(database, directory)
            query = AuditQuery(organisation=organisation)
            rows = self._counted(sink.records(query, strict=True))
            keys = verifier_keys(directory)
            lost = await AwaitedTable(database).lost_leaves(organisation)
            count, bad = await check_log(organisation, rows, chosen, trees, keys, lost)
            undeclared = await self._undeclared(database, sink) if lost else ""
        finally:
            await database.close()
        ended = self._end(organisation, count, len(chosen), str(bad) if bad else undeclared)
        gone = sum(number <= count for number in lost)
        said = 0 if undeclared else gone
        return replace(ended, records=count - gone, checkpoints_all=total, lost=said)

    async def _undeclared(self, database: Database, sink: DatabaseAuditSink) -> str:
        """That the database calls more lost than deeds do, of all logs together; else empty.

        A deed says how many, and not whose. One that was just written may have no number yet.
        """
        lost, told = (await AwaitedTable(database).lost()).total(), ToldDeeds(sink)
        if lost > await told.declared_lost():
            with suppress(ProjectionBroken):
                await projector_for(self._settings, database, sink, self._clock).catch_up()
        declared = await told.declared_lost()
        return CALLED_LOST.format(lost, declared) if lost > declared else ""

    def _exported(self, organisation: str) -> list[SignedCheckpoint]:
        """The newest one outside the database: a restored backup does not bring it back."""
        folder = self._settings.path(self._settings.audit.checkpoint_directory)
        found = CheckpointFiles(folder, Disk()).newest_of_all().get(organisation)
        return [found] if found else []

    async def _counted(
        self, rows: AsyncIterator[SequencedRecord]
    ) -> AsyncIterator[SequencedRecord]:
        async for row in rows:
            if self._stop.is_set():
                raise _StoppedError
            self._count += 1
            yield row

    def _end(self, organisation: str, records: int, checkpoints: int, reason: str) -> Checked:
        return Checked(
            organisation,
            records,
            checkpoints,
            checkpoints,
            reason,
            self._began_us,
            self._clock.utc_us(),
        )


def with_newest(
    chosen: Sequence[SignedCheckpoint], newest: Sequence[SignedCheckpoint]
) -> list[SignedCheckpoint]:
    """Some that were chosen evenly, oldest first, and the newest, which may not be among them."""
    return [*chosen, *(each for each in newest if each not in chosen[-1:])]
