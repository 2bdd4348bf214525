"""Erasures carried out in the audit folder of this process, wherever they were agreed to.

Who holds a folder looks for cases that it has not done its part of, destroys the keys that it has,
and says so. What it found is noted before any of it goes, so that a crash at any moment loses no
count; a hold is looked at in the same transaction. What was destroyed once is destroyed again
without harm.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from gateway.audit.content_keys.erasure import OlderKeys, destroy_ids, older_keys
from gateway.audit.content_keys.keys import KeyWrapper, WrappedKey
from gateway.audit.disk import Disk
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.segments import failure_at
from gateway.clock import HOUR_US, Clock
from gateway.configuration.settings import Settings
from gateway.errors import StartupRefused
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.ports import AuditLog
from gateway.store.custody.audit_folders import AuditFolder, FolderHere
from gateway.store.custody.erased_records import ErasedRecords, FoundRecords
from gateway.store.custody.erasure_attempts import DatedKey, ErasureAttempts, keys_of
from gateway.store.custody.erasure_reach import ErasureReach
from gateway.store.custody.folder_reports import FolderReport, FolderReports, PendingCase
from gateway.store.custody.orders import CustodyRefused
from gateway.store.engine import Database
from gateway.store.evidence.integration import Integration
from gateway.telemetry import Event


ACTOR: Final = "gateway"
ACTION: Final = "content.erased"
LATER_US: Final = HOUR_US
"""Keys that were made so long after a case was closed are younger than it.

Clocks of machines differ: of a person who is erased rather an hour too much goes than a key that a
clock ahead dated too late.
"""


class FolderErasures:
    """Of one process; `tend` is called again and again, and before content is read."""

    def __init__(
        self,
        settings: Settings,
        parts: Integration,
        wrapper: KeyWrapper,
        log: AuditLog,
        clock: Clock,
        *,
        worker: str,
    ) -> None:
        """`worker` is the name under which `log` is written: one process has it at a time."""
        database: Database = parts.database
        self._directory = parts.directory
        self._list_folder = settings.path(settings.audit.checkpoint_directory)
        self._here = FolderHere(database, parts.directory, worker, clock)
        self._reports = FolderReports(database, clock)
        self._attempts = ErasureAttempts(database)
        self._records = ErasedRecords(parts, wrapper)
        self._deeds = Deeds(log, clock)
        self._reach = ErasureReach(database, clock)
        self._clock, self._worker = clock, worker
        self._one_at_a_time = asyncio.Lock()
        self.wake = asyncio.Event()
        """Somebody changed what workers follow: perhaps a case was closed."""
        self._oldest_us = 0

    def outstanding_s(self) -> float:
        """Since the oldest case was agreed to that some folder has not done; 0 for none."""
        if not self._oldest_us:
            return 0.0
        return max(self._clock.utc_us() - self._oldest_us, 0) / 1_000_000

    @property
    def duty(self) -> Duty:
        """What the process does for it beside requests."""
        period_s = rhythm.ERASURES_S
        return Duty("erasures", period_s, self.tend, Event.UPKEEP_FAILED, wake=self.wake)

    async def catch_up(self) -> None:
        """Before anything else is done with what lies here: what was agreed to meanwhile.

        Raises:
            StartupRefused: the folder cannot be read, or its keys cannot be destroyed.
        """
        try:
            await self.tend()
        except OSError as error:
            said = failure_at(self._directory, error)
            raise StartupRefused(f"audit: an erasure cannot be carried out: {said}") from error

    async def tend(self) -> None:
        """Do this folder's part of every case, and note which cases that completes.

        Raises:
            OSError: not all could be destroyed; the next time goes on.
            AuditUnavailable: it cannot be recorded, so nothing of that case was destroyed.
            NotReady: the database does not answer.
        """
        async with self._one_at_a_time:
            folder = await self._here.tell()
            pending = await self._reports.pending(folder)
            if pending:
                await self._report(folder, pending)
            self._oldest_us = await self._reach.note_reached()

    async def require_done(self, organisation: str) -> None:
        """Before content of an organisation is shown that lies here.

        Raises:
            CustodyRefused: an erasure of some of it is under way here, or could not be carried out.
        """
        try:
            await self.tend()
        except OSError as error:
            raise CustodyRefused(
                f"an erasure cannot be carried out here: {error.strerror}"
            ) from error
        folder = await self._here.tell()
        left = [
            each
            for each in await self._reports.pending(folder)
            if each.organisation == organisation
        ]
        known = await self._reports.of([each.id for each in left])
        for case in left:
            mine = [each for each in known.get(case.id, ()) if each.folder == folder.folder]
            if not any(each.held_by for each in mine):
                raise CustodyRefused(
                    f"erasure {case.id} is being carried out in this audit folder: try again later"
                )

    async def _report(self, folder: AuditFolder, pending: Sequence[PendingCase]) -> None:
        lines = await asyncio.to_thread(self._here.keys)
        ids = [each.id for each in pending]
        known = await self._reports.of(ids)
        attempts = await self._attempts.in_folder(ids, folder.folder)
        empty: list[FolderReport] = []
        for case in pending:
            keys = _of_case(lines, case)
            earlier = keys_of(attempts.get(case.id, ()))
            found = {key.key: key for key in (*earlier, *map(_dated, keys.found))}
            report = FolderReport(
                case.id,
                folder.folder,
                folder.workers,
                self._worker,
                tuple(found.values()),
                keys.younger,
                self._clock.utc_us(),
            )
            is_known = any(each.folder == folder.folder for each in known.get(case.id, ()))
            if found or is_known:
                await self._carry_out(case, report)
            else:
                now_us = self._clock.utc_us()
                empty.append(msgspec.structs.replace(report, done_us=now_us))
        await self._reports.had_none(empty)

    async def _carry_out(self, case: PendingCase, report: FolderReport) -> None:
        claimed = await self._reports.claim(report)
        if claimed is None or claimed.held_by:
            return
        is_done = False
        try:
            checked = await self._destroyed(case, claimed)
            is_done = await self._reports.done(msgspec.structs.replace(claimed, checked=checked))
        finally:
            if not is_done:
                await self._reports.release(claimed)

    async def _destroyed(self, case: PendingCase, report: FolderReport) -> str:
        """What was seen of the keys' records afterwards, as JSON."""
        found = await self._looked_at(case, report)
        detail = {"case": case.id, "ticket": case.ticket, "subject": case.subject}
        detail |= {"asked_by": case.asked_by, "agreed_by": case.closed_by}
        detail |= {"folder": report.folder, "keys": str(len(report.found))}
        async with self._deeds.doing(ACTOR, ACTION, case.organisation, **detail):
            ids = [key.key for key in report.found]
            await asyncio.to_thread(
                destroy_ids, self._directory, self._list_folder, ids, self._clock.utc_us(), Disk()
            )
        said: dict[str, object] = {
            "records_looked_at": found.looked_at,
            "records_unreadable": found.unreadable,
            "all_looked_at": found.is_whole,
        }
        said |= await self._records.checked(case.organisation, found.rows)
        return msgspec.json.encode(said).decode()

    async def _looked_at(self, case: PendingCase, report: FolderReport) -> FoundRecords:
        """Records of the keys, before these go; a log that cannot be read holds nothing up."""
        try:
            return await self._records.rows(case.organisation, report.found)
        except (OSError, ProjectionBroken):
            return FoundRecords([], 0, is_cut=True)


def _of_case(lines: Sequence[Sequence[WrappedKey]], case: PendingCase) -> OlderKeys:
    return older_keys(lines, case.organisation, case.subject or None, case.closed_us + LATER_US)


def _dated(key: WrappedKey) -> DatedKey:
    return DatedKey(key.key, key.day)
