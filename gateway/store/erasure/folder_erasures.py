"""Carries out erasures in the audit folder of this process, wherever they were agreed to.

The process that holds a folder looks for cases whose part here is not done, destroys the keys that
it has, and reports it. What it found is noted before any of it is destroyed, so a crash at any
moment loses no count; holds are checked in the same transaction. Destroying something twice does no
harm.
"""

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import msgspec

from gateway.audit.content_keys.erasure import KeysByAge, damaged_keys, destroy_ids
from gateway.audit.content_keys.keys import KeyWrapper, WrappedKey
from gateway.audit.disk import Disk
from gateway.audit.segments import failure_at
from gateway.clock import HOUR_US, SECOND_US, Clock
from gateway.configuration.settings import Settings
from gateway.errors import GatewrightError, StartupRefused, ToldToOperators, operators_reason
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.ports import AuditLog
from gateway.store.custody.audit_folders import AuditFolder, FolderHere
from gateway.store.custody.orders import CustodyRefused
from gateway.store.custody.uninterrupted import to_its_end
from gateway.store.engine import Database
from gateway.store.erasure.attempts import DatedKey, ErasureAttempts, keys_of
from gateway.store.erasure.erased_records import ErasedRecords, FoundRecords, unchecked
from gateway.store.erasure.folder_reports import FolderReport, FolderReports, PendingCase
from gateway.store.erasure.reach import ErasureReach
from gateway.store.evidence.integration import Integration
from gateway.telemetry import Event, logger


ACTOR: Final = "gateway"
ACTION: Final = "content.erased"
LATER_US: Final = HOUR_US
"""Keys made this long after a case was closed count as younger than it.

Clocks of machines differ: an erasure should rather take an hour too much than miss a key that was
dated too late by a clock ahead. A process that had checked for cases within that time before it
heard of this one knows that the case covers all keys there, however they are dated.
"""
FOR_EVER_US: Final = sys.maxsize
START_S: Final = 20.0
"""A start carries out cases for this long; the rest is done besides requests."""
_DOUBLED_MAX: Final = 4
"""Sixteen minutes, if the first rest is one."""
Files = Mapping[str, Sequence[WrappedKey]]
"""The keys in each worker's files."""


class _Pending(NamedTuple):
    """A case, and whether it was closed so recently that no key is younger."""

    case: PendingCase
    is_recent: bool

    @property
    def scope(self) -> tuple[str, str | None, int]:
        case = self.case
        until_us = FOR_EVER_US if self.is_recent else case.closed_us + LATER_US
        return case.organisation, case.subject or None, until_us


class FolderErasures:
    """Erasures by one process; `tend` is called repeatedly, and before content is read."""

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
        """`worker` is the name under which `log` is written; only one process has it at a time."""
        database: Database = parts.database
        self._directory, self._wrapper = parts.directory, wrapper
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
        """Set when somebody changed what workers follow: perhaps a case was closed."""
        self._oldest_us = 0
        self._asked_s: float | None = None
        """When the cases were last read, by the monotonic clock."""
        self._known: frozenset[str] = frozenset()
        """The cases that were not done here at that time."""
        self._failures = 0
        """How often in a row not all could be destroyed."""
        self._rests_until_s = -math.inf
        self._log = logger()

    def outstanding_s(self) -> float:
        """Age of the oldest approved case that waits for a folder or a file; 0 without one."""
        if not self._oldest_us:
            return 0.0
        return max(self._clock.utc_us() - self._oldest_us, 0) / 1_000_000

    @property
    def duty(self) -> Duty:
        """The process's periodic duty, besides requests."""
        period_s = rhythm.ERASURES_S
        return Duty("erasures", period_s, self.tend, Event.UPKEEP_FAILED, wake=self.wake)

    async def catch_up(self) -> None:
        """Carry out what was approved meanwhile, before the folder's content is used.

        Raises:
            StartupRefused: the folder cannot be read, or its keys cannot be destroyed.
        """
        try:
            await self.tend(for_s=START_S)
        except OSError as error:
            said = failure_at(self._directory, error)
            raise StartupRefused(f"audit: an erasure cannot be carried out: {said}") from error

    async def tend(self, for_s: float = math.inf, *, at_once: bool = False) -> None:
        """Do this folder's part of every case, and note which cases that completes.

        After `for_s` no further case is begun; the next call goes on. After a failure, each of
        which is recorded, it rests: a minute, then twice as long each time, up to sixteen. A new
        case, or `at_once`, ends that.

        Raises:
            OSError: not all could be destroyed; the next call goes on.
            AuditUnavailable: it cannot be recorded, so nothing of that case was destroyed.
            NotReady: the database does not answer.
        """
        until_s = self._clock.monotonic_s() + for_s
        async with self._one_at_a_time:
            try:
                await self._tend(until_s, at_once=at_once)
            finally:
                # Also if this folder is the one that fails: its own metric has to show that.
                self._oldest_us = await self._reach.note_reached()

    async def _tend(self, until_s: float, *, at_once: bool) -> None:
        folder = await self._folder()
        is_first, known = self._asked_s is None, self._known
        pending = await self._pending(folder)
        is_due = self._clock.monotonic_s() >= self._rests_until_s
        if not is_first and not (pending and (is_due or at_once or self._known - known)):
            return
        async with self._rest_if_it_fails():
            files = await self._keys(folder, pending)
            if is_first:
                await self._destroy_again(folder, files)
            await self._report(folder, pending, files, until_s)

    async def require_done(self, organisation: str) -> None:
        """Call this before showing content of an organisation that lies here.

        Raises:
            CustodyRefused: an erasure of some of it is under way here, or could not be carried out.
        """
        try:
            await self.tend(at_once=True)
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

    @asynccontextmanager
    async def _rest_if_it_fails(self) -> AsyncIterator[None]:
        is_done = False
        try:
            yield
            is_done = True
        finally:
            self._failures = 0 if is_done else self._failures + 1
            rest_s = rhythm.ERASURES_S * 2 ** min(self._failures - 1, _DOUBLED_MAX)
            now_s = self._clock.monotonic_s()
            self._rests_until_s = -math.inf if is_done else now_s + rest_s

    async def _pending(self, folder: AuditFolder) -> Sequence[_Pending]:
        asked_s, known = self._asked_s, self._known
        now_s = self._clock.monotonic_s()
        cases = await self._reports.pending(folder)
        self._asked_s, self._known = now_s, frozenset([each.id for each in cases])
        is_recent = asked_s is not None and (now_s - asked_s) * SECOND_US < LATER_US
        return [_Pending(each, is_recent and each.id not in known) for each in cases]

    async def _folder(self) -> AuditFolder:
        try:
            return await self._here.tell()
        except OSError as error:
            if (told := self._here.told) is not None:
                waiting = await self._reports.pending(told)
                await self._say_unseen(told, [each.id for each in waiting], error)
            raise

    async def _keys(self, folder: AuditFolder, pending: Sequence[_Pending]) -> Files:
        """All keys that lie here, by worker."""
        try:
            return await asyncio.to_thread(self._here.keys)
        except OSError as error:
            await self._say_unseen(folder, [each.case.id for each in pending], error)
            raise

    async def _say_unseen(
        self, folder: AuditFolder, case_ids: Sequence[str], error: OSError
    ) -> None:
        """Note in each case that waits for this folder why it cannot be read."""
        by = folder.folder, folder.workers, self._worker
        unseen = [FolderReport(each, *by, found=()) for each in case_ids]
        await self._reports.failed(unseen, _reason(error))

    async def _destroy_again(self, folder: AuditFolder, files: Files) -> None:
        """Destroy what a restored backup, or a copy of the folder, brought back.

        The list of erased keys covers this too, unless it was restored as well.
        """
        gone = await self._reports.done_here(folder)
        back = gone.intersection(key.key for lines in files.values() for key in lines)
        if back:
            await self._destroy(sorted(back))
            self._log.warning(Event.AUDIT_ERASED_AGAIN, count=len(back))

    async def _report(
        self, folder: AuditFolder, pending: Sequence[_Pending], files: Files, until_s: float
    ) -> None:
        ids = [each.case.id for each in pending]
        known = await self._reports.of(ids, only_state=True)
        attempts = await self._attempts.in_folder(ids, folder.folder)
        keys = {name: KeysByAge([lines]) for name, lines in files.items()} if pending else {}
        damaged = await self._damaged() if pending else 0
        empty: list[FolderReport] = []
        for each in pending:
            case = each.case
            parted = [
                of.older(*each.scope) for name, of in keys.items() if name not in case.covered
            ]
            earlier = keys_of(attempts.get(case.id, ()))
            found = [*earlier, *(_dated(key) for part in parted for key in part.found)]
            report = FolderReport(
                case.id,
                folder.folder,
                folder.workers,
                self._worker,
                tuple({key.key: key for key in found}.values()),
                sum(part.younger for part in parted),
                self._clock.utc_us(),
                checked=msgspec.json.encode(_damage(damaged)).decode(),
            )
            is_begun = any(
                one.folder == folder.folder and one.is_begun for one in known.get(case.id, ())
            )
            if not (found or is_begun):
                empty.append(msgspec.structs.replace(report, done_us=report.seen_us))
            elif self._clock.monotonic_s() < until_s:
                await self._carry_out(case, report, damaged)
        await self._reports.had_none(empty)

    async def _damaged(self) -> int:
        """Lines of key files whose owner cannot be told: these stay."""
        return len(await asyncio.to_thread(damaged_keys, self._directory, self._wrapper))

    async def _carry_out(self, case: PendingCase, report: FolderReport, damaged: int) -> None:
        claimed = await self._reports.claim(report)
        if claimed is None or claimed.held_by:
            return
        is_done, failure = False, ""
        try:
            found = await self._looked_at(case, claimed)
            # Reading may have taken long.
            if await self._reports.may_go(claimed):
                is_done = await to_its_end(self._finish(case, claimed, found, damaged))
        except (OSError, GatewrightError, ToldToOperators) as error:
            failure = _reason(error)
            raise
        finally:
            if failure:
                await self._reports.failed([claimed], failure)
            elif not is_done:
                await self._reports.release(claimed)

    async def _finish(
        self, case: PendingCase, report: FolderReport, found: FoundRecords, damaged: int
    ) -> bool:
        """Whether this is the first report that it is done."""
        checked = await self._destroyed(case, report, found) | _damage(damaged)
        said = msgspec.json.encode(checked).decode()
        return await self._reports.done(msgspec.structs.replace(report, checked=said))

    async def _destroyed(
        self, case: PendingCase, report: FolderReport, found: FoundRecords
    ) -> dict[str, object]:
        """What was found in the keys' records afterwards."""
        detail = {"case": case.id, "ticket": case.ticket, "subject": case.subject}
        detail |= {"asked_by": case.asked_by, "agreed_by": case.closed_by}
        detail |= {"folder": report.folder, "keys": str(len(report.found))}
        async with self._deeds.doing(ACTOR, ACTION, case.organisation, **detail):
            await self._destroy([key.key for key in report.found])
        is_whole = found.is_whole
        try:
            checked = await self._records.checked(case.organisation, found.rows)
        except (OSError, ToldToOperators, StartupRefused):
            # The keys are gone, whatever state the log is in; that it is damaged is reported
            # elsewhere.
            checked, is_whole = unchecked(found.rows), False
        return checked | {
            "records_looked_at": found.looked_at,
            "records_unreadable": found.unreadable,
            "all_looked_at": is_whole,
        }

    async def _destroy(self, keys: Sequence[str]) -> None:
        now_us = self._clock.utc_us()
        await asyncio.to_thread(
            destroy_ids, self._directory, self._list_folder, keys, now_us, Disk()
        )

    async def _looked_at(self, case: PendingCase, report: FolderReport) -> FoundRecords:
        """Records of the keys, before these go; an unreadable log delays nothing."""
        try:
            return await self._records.rows(case.organisation, report.found)
        except (OSError, ToldToOperators):
            return FoundRecords([], 0, is_cut=True)


def _reason(error: BaseException) -> str:
    return operators_reason(error) or type(error).__name__


def _damage(lines: int) -> dict[str, object]:
    return {"key_lines_damaged": lines}


def _dated(key: WrappedKey) -> DatedKey:
    return DatedKey(key.key, key.day)
