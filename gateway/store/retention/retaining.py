"""Carries out retention in one audit folder: for a command, or for a process by itself.

It runs under the folder's lock, so one process does it at a time. A record says what is to be
destroyed before anything is; then holds are checked once more, and what they cover stays. Doing it
again after a crash does no harm.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from gateway.audit.content_keys.erasure import finish_broken_off
from gateway.audit.disk import Disk
from gateway.clock import DAY_US, Clock
from gateway.configuration.settings import Settings
from gateway.errors import AuditUnavailable, ToldToOperators
from gateway.oversight.deeds import Deeds
from gateway.ports import AuditLog
from gateway.store.custody.audit_folders import FolderHere
from gateway.store.custody.orders import CustodyReader
from gateway.store.custody.uninterrupted import to_its_end
from gateway.store.engine import Database
from gateway.store.retention.keeping import Expired, destroy, expired
from gateway.store.retention.reports import RetentionReport, RetentionReports


ACTION: Final = "content.retired"
LOCK_NAME: Final = "retention.lock"
TOGETHER: Final = 100
"""This many organisations lose their keys at once: key files are rewritten each time."""
_HELD: Final = "held"


class RetentionBusy(ToldToOperators):
    """Another process is doing this in the same audit folder."""


class Retention:
    """Retention by one process in its folder."""

    def __init__(
        self, settings: Settings, database: Database, log: AuditLog, clock: Clock, *, worker: str
    ) -> None:
        """`worker` is the name under which `log` is written."""
        self._settings, self._database, self._clock = settings, database, clock
        self._directory = settings.path(settings.audit.directory)
        self._here = FolderHere(database, self._directory, worker, clock)
        self._custody, self._deeds = CustodyReader(database), Deeds(log, clock)
        self._reports = RetentionReports(database)
        self._worker = worker

    async def look(self, *, is_sure: bool = False) -> AsyncIterator[Expired]:
        """What there is to destroy, by organisation; destroys and reports nothing."""
        today = self._clock.utc_us() // DAY_US
        async for found in expired(
            self._settings, self._database, self._custody, today, is_sure=is_sure
        ):
            yield found

    async def tell(self) -> tuple[Expired, ...]:
        """Report the state here, if nothing is to be destroyed, or can be.

        Raises:
            RetentionBusy: another process is doing this.
            OSError: what lies here cannot be read.
            NotReady: the database does not answer.
        """
        async with self._alone(is_to_destroy=False):
            mark = (await self._here.tell()).folder
            found = [each async for each in self.look()]
            await self._say(mark, [(each, 0) for each in found])
        return tuple(found)

    async def carry_out(self, actor: str, *, is_sure: bool = False) -> AsyncIterator[Expired]:
        """Destroy what is due, and report the new state; yields what was found, once it is gone.

        `is_sure` means that somebody confirms the date, whatever the log shows.

        Raises:
            RetentionBusy: another process is doing this.
            AuditUnavailable: it cannot be recorded, so nothing more is destroyed.
            OSError: not all could be destroyed; repeating this is harmless.
            NotReady: the database does not answer.
        """
        async with self._alone():
            await asyncio.to_thread(finish_broken_off, self._directory, Disk())
            mark = (await self._here.tell()).folder
            done, waiting = list[tuple[Expired, int]](), list[Expired]()
            async for found in self.look(is_sure=is_sure):
                waiting.append(found)
                if sum(bool(each.due) for each in waiting) >= TOGETHER:
                    for each in await self._destroyed(waiting, mark, actor, is_sure=is_sure):
                        done.append((each, len(each.due)))
                        yield each
                    waiting.clear()
            for each in await self._destroyed(waiting, mark, actor, is_sure=is_sure):
                done.append((each, len(each.due)))
                yield each
            await self._say(mark, done)

    async def _destroyed(
        self, found: Sequence[Expired], mark: str, actor: str, *, is_sure: bool
    ) -> list[Expired]:
        """What was found, after applying holds that were set meanwhile."""
        ended = {each.organisation: each for each in found}
        waiting = [each for each in found if each.due]
        while waiting:
            left = await to_its_end(self._destroy(waiting, mark, actor, is_sure=is_sure))
            ended |= {each.organisation: each for each in left}
            waiting = [each for each in left if each.due]
        return list(ended.values())

    async def _destroy(
        self, found: Sequence[Expired], mark: str, actor: str, *, is_sure: bool
    ) -> list[Expired]:
        """Destroy keys; returns those put under a hold meanwhile, of which nothing is destroyed."""
        recorded = dict[str, str]()
        try:
            for each in found:
                record = await self._record(each, mark, actor, is_sure=is_sure)
                recorded[each.organisation] = record
            spared = await self._spared(found)
            for each in spared:
                await self._failed(each.organisation, actor, _HELD, recorded)
                del recorded[each.organisation]
            keys = [key for each in found if each.organisation in recorded for key in each.due]
            await destroy(self._settings, self._database, keys, self._clock.utc_us())
        except BaseException as error:
            # The failure is reported even if the log has no room for it.
            with suppress(AuditUnavailable):
                for name in sorted(recorded):
                    await self._failed(name, actor, type(error).__name__, recorded)
            raise
        return spared

    async def _record(self, found: Expired, mark: str, actor: str, *, is_sure: bool) -> str:
        detail = {"class": found.retention_class, "keys": str(len(found.due)), "folder": mark}
        detail |= {"clock": "said to be right"} if is_sure else {}
        about = found.organisation
        return (await self._deeds.record(actor, ACTION, about, **detail)).leaf_hash

    async def _failed(
        self, organisation: str, actor: str, error: str, recorded: dict[str, str]
    ) -> None:
        record = recorded[organisation]
        await self._deeds.record(actor, ACTION, organisation, error=error, record=record)

    async def _spared(self, found: Sequence[Expired]) -> list[Expired]:
        held = dict[str, set[str]]()
        for hold in await self._custody.holds():
            held.setdefault(hold.organisation, set()).add(hold.subject)
        now = [each.spared(held.get(each.organisation, ())) for each in found]
        return [new for new, old in zip(now, found, strict=True) if new.due != old.due]

    async def _say(self, mark: str, found: Sequence[tuple[Expired, int]]) -> None:
        now_us = self._clock.utc_us()
        said = [self._report(mark, each, gone, now_us) for each, gone in found]
        await self._reports.put(mark, said)

    def _report(self, mark: str, found: Expired, gone: int, now_us: int) -> RetentionReport:
        left = [found.left_day] if found.left_day else []
        if not gone:
            left += [key.day for key in found.due]
        return RetentionReport(
            folder=mark,
            organisation=found.organisation,
            told_by=self._worker,
            looked_us=now_us,
            days=found.days,
            due=len(found.due) - gone,
            held=len(found.held),
            unsure=len(found.unsure),
            over_day=min(left) + found.days + 1 if left else 0,
            gone=gone,
            gone_us=now_us if gone else 0,
        )

    @asynccontextmanager
    async def _alone(self, *, is_to_destroy: bool = True) -> AsyncIterator[None]:
        """Keep other processes out of this folder; a process that is killed releases it."""
        disk, lock = Disk(), None
        try:
            lock = disk.lock(self._directory / LOCK_NAME)
        except BlockingIOError as error:
            raise RetentionBusy("another process carries it out in this audit folder") from error
        except OSError:
            # A process that only looks also reports how late a folder is in which nothing can be
            # destroyed.
            if is_to_destroy:
                raise
        try:
            yield
        finally:
            if lock is not None:
                disk.close(lock)
