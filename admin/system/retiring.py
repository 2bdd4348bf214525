"""Retires the names of lost workers by two people, and closes what they left open.

It reads what `gatewright audit gone` reads; outcomes are written into this process's own log. Every
deed is recorded, with the signed-in person, before it is done. All may raise NotReady.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from litestar.exceptions import NotFoundException, PermissionDeniedException
from msgspec import Struct, structs, to_builtins

from admin.second_person import ASKED, reason_in
from gateway.actors import same_person
from gateway.audit.disk import Disk
from gateway.audit.last_refusal import LastRefusal
from gateway.audit.lifelessness import WorkerLives, lock_if_here, taken
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.second import is_second
from gateway.audit.writer import SegmentedAuditLog
from gateway.batching.left_open import SETTLE_S, LeftBehind, left_open
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import AuditUnavailable, ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.oversight.access import Permission, Person, allows
from gateway.oversight.deeds import Deeds
from gateway.store.engine import Database
from gateway.store.evidence.recovery import projector_for
from gateway.store.evidence.retirements import Retirement, Retirements, Shown
from gateway.store.evidence.retiring import Retiring, Standing
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.unended import Silent, UnendedReader
from gateway.store.identity.people_lists import PeopleLists


_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
"""What may be a folder of segments."""
OWN_LOG: Final = "this is the log of the admin listener itself, which is writing it right now"


class GoneLine(Struct, frozen=True):
    """A worker that was not heard of for long, and who asked for its retirement."""

    silent: Silent
    waiting: Retirement | None = None


class GonePage(Struct, frozen=True):
    """All of them, and those that were retired."""

    gone: tuple[GoneLine, ...]
    retired: tuple[GoneLine, ...]
    read_us: int


class GoneWorker(Struct, frozen=True):
    """One worker, with what is known of it now."""

    worker: str
    heard_us: int
    """0 where that is forgotten."""
    retired_us: int
    retired_by: str
    reason: str
    left: LeftBehind
    is_here: bool
    """Whether its segments, or some of them, are in this listener's audit folder."""
    refused: str
    """Why it cannot be retired, whoever asks; empty where it can."""
    waiting: Retirement | None
    more: str
    """How more is open than was shown when it was asked for; empty where it is not."""
    history: tuple[Retirement, ...]
    read_us: int


class RetirementDesk:
    """One for the whole process: what it ends it ends once, from whichever page."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        records: DatabaseAuditSink,
        log: SegmentedAuditLog,
        *,
        deeds: Deeds,
        people: PeopleLists,
        clock: Clock,
    ) -> None:
        self._directory = settings.path(settings.audit.directory)
        self._records = records
        self._log = log
        self._deeds = deeds
        self._people = people
        self._clock = clock
        self._projector = projector_for(settings, database, records, clock)
        self._retiring = Retiring(database, records, clock)
        self._unended = UnendedReader(database, clock)
        self._left = left_open(database, records, log, clock)
        self.cases = Retirements(database, clock)
        self._turn = asyncio.Lock()
        self._refusal = LastRefusal(log)

    async def read(self) -> GonePage:
        """What the list shows."""
        waiting = {each.worker: each for each in (await self.cases.waiting()).rows}
        lines = [GoneLine(each, waiting.get(each.worker)) for each in await self._unended.silent()]
        return GonePage(
            tuple(line for line in lines if not line.silent.retired_us),
            tuple(line for line in lines if line.silent.retired_us),
            self._clock.utc_us(),
        )

    async def one(self, worker: str) -> GoneWorker:
        """What the page of one shows; raises NotFoundException where nobody knows the name."""
        await self._require_known(worker)
        left = await self._left.look(worker)
        refused, heard_us = "", 0
        try:
            heard_us = (await self._standing(worker, left)).heard_us
        except RequestInvalid as error:
            refused = error.message
        known = {each.worker: each for each in await self._unended.silent()}.get(worker)
        waiting = await self.cases.waiting_of(worker)
        return GoneWorker(
            worker=worker,
            heard_us=known.heard_us if known else heard_us,
            retired_us=known.retired_us if known else 0,
            retired_by=known.retired_by if known else "",
            reason=known.reason if known else "",
            left=left,
            is_here=await asyncio.to_thread((self._directory / worker).is_dir),
            refused=refused,
            waiting=waiting,
            more=more_than_shown(waiting, left) if waiting else "",
            history=tuple(await self.cases.of(worker)),
            read_us=self._clock.utc_us(),
        )

    async def left(self, worker: str) -> LeftBehind:
        """What is open of a worker now."""
        return await self._left.look(worker)

    async def others(self, asked_by: str) -> list[str]:
        """Who may agree to what somebody asks for."""
        return [
            each.name
            for each in await self._people.able(Permission.WORKERS_APPROVE_RETIREMENT)
            if not same_person(each.name, asked_by)
        ]

    async def ask(self, person: Person, worker: str, reason: str) -> Retirement:
        """Have somebody else decide whether a worker's name is retired.

        Raises:
            NotFoundException: nobody knows the name.
            WorkerLives: it holds the lock of its segments.
            RequestInvalid: it was heard of, is retired or asked for already, or no reason is given.
        """
        await self._require_known(worker)
        reason = reason_in(reason)
        async with self._gone(worker) as (standing, left):
            shown = _shown(standing, left)
            after = {"worker": worker, "reason": reason} | _counts(left)
            async with self._deeds.doing(person.name, "worker.retirement_asked", "", after=after):
                return await self.cases.ask(worker, shown, person.name, reason)

    async def approve(self, person: Person, retirement_id: str, comment: str) -> LeftBehind:
        """Retire the name that somebody else asked for, and end what its worker left open.

        Raises:
            NotFoundException: nobody asked for it.
            Forbidden: they asked for it themselves.
            WorkerLives, ChangedMeanwhile: it lives, or left more than was shown.
            RequestInvalid: it does not wait any more, or has no comment.
            AuditUnavailable: its name is retired, and some requests are still to be ended.
        """
        found = await self._found(person, retirement_id, Permission.WORKERS_APPROVE_RETIREMENT)
        if same_person(person.name, found.asked_by):
            raise Forbidden(ASKED)
        comment = reason_in(comment)
        async with self._gone(found.worker) as (standing, left):
            more = more_than_shown(found, left)
            if more:
                raise ChangedMeanwhile(more)
            after = _deed(found) | {"reason": found.reason, "comment": comment} | _counts(left)
            async with self._deeds.doing(
                person.name, "worker.retired", "", before=to_builtins(standing), after=after
            ):
                await self.cases.approve(found.id, person.name, comment)
            return await self._end(person, found.worker)

    async def decline(self, person: Person, retirement_id: str, comment: str) -> Retirement:
        """Leave the worker as it is; raises NotFoundException, Forbidden, RequestInvalid."""
        found = await self._found(person, retirement_id, Permission.WORKERS_APPROVE_RETIREMENT)
        if same_person(person.name, found.asked_by):
            raise Forbidden(ASKED)
        comment = reason_in(comment)
        after = _deed(found) | {"comment": comment}
        async with self._deeds.doing(person.name, "worker.retirement_declined", "", after=after):
            return await self.cases.end(found.id, person.name, comment, "declined")

    async def withdraw(self, person: Person, retirement_id: str) -> Retirement:
        """Take back what one asked for; raises NotFoundException, Forbidden, RequestInvalid."""
        found = await self._found(person, retirement_id, Permission.WORKERS_RETIRE)
        async with self._deeds.doing(
            person.name, "worker.retirement_withdrawn", "", after=_deed(found)
        ):
            return await self.cases.end(found.id, person.name, "", "withdrawn")

    async def finish(self, person: Person, worker: str) -> LeftBehind:
        """End what is still open of a retired worker: lines that went on, or what a crash left.

        Raises:
            NotFoundException: nobody knows the name.
            RequestInvalid: it is not retired.
        """
        await self._require_known(worker)
        if not (await self._retiring.standing(worker)).retired_us:
            raise RequestInvalid(f"the name {worker} is not retired", parameter="worker")
        async with self._held(worker):
            left = await self._left.look(worker)
            after = {"worker": worker} | _counts(left)
            async with self._deeds.doing(person.name, "worker.ending_resumed", "", after=after):
                return await self._end(person, worker)

    @asynccontextmanager
    async def _gone(self, worker: str) -> AsyncIterator[tuple[Standing, LeftBehind]]:
        """How a worker stands that cannot come back while this lasts; raises RequestInvalid."""
        async with self._held(worker):
            left = await self._left.look(worker)
            yield await self._standing(worker, left), left

    @asynccontextmanager
    async def _held(self, worker: str) -> AsyncIterator[None]:
        async with self._turn:
            descriptor = await taken(partial(lock_if_here, self._directory / worker, worker))
            try:
                await self._catch_up()
                yield
            finally:
                if descriptor is not None:
                    Disk().close(descriptor)

    async def _standing(self, worker: str, left: LeftBehind) -> Standing:
        if worker == self._log.worker:
            raise WorkerLives(OWN_LOG)
        standing = await self._retiring.standing(worker)
        if standing.retired_us:
            raise RequestInvalid(f"the name {worker} is retired already", parameter="worker")
        if not standing.heard_us and left == LeftBehind():
            # Logs of commands and of admin listeners are such: nobody says that they live.
            raise RequestInvalid(f"nothing of {worker} is open, and it never said that it serves")
        return standing

    async def _end(self, person: Person, worker: str) -> LeftBehind:
        """Write outcomes, after what was written before is known."""
        await self._require_settled()
        log = self._log.worker
        if not await self._retiring.begin_ending(worker, log):
            raise RequestInvalid(f"somebody else is ending what {worker} left: come again")
        try:
            ended = await self._left.end(worker, SETTLE_S)
        except AuditUnavailable:
            self._refusal.note()
            raise
        counts = {name: str(count) for name, count in structs.asdict(ended).items()}
        await self._deeds.record(person.name, "worker.requests_ended", "", worker=worker, **counts)
        await self._catch_up()
        await self._retiring.finish_ending(worker, log)
        await self._unended.count()
        return ended

    async def _require_settled(self) -> None:
        """Whatever our log refused lately is written by now, and known, or it never will be."""
        if self._refusal.may_be_written:
            raise AuditUnavailable("the log has not said yet what it wrote: come again")
        if self._refusal.is_noted:
            await self._catch_up()
            self._refusal.forget()

    async def _catch_up(self) -> None:
        try:
            await self._projector.catch_up()
        except ProjectionBroken as error:
            raise RequestInvalid(
                f"the log cannot be read to its end ({error}): `gatewright audit fsck` says more"
            ) from error

    async def _require_known(self, worker: str) -> None:
        """Before anything looks for its folder: only names that the database knows are names."""
        if is_second(worker) or not _NAME.fullmatch(worker):
            raise NotFoundException
        if worker not in await self._records.positions():
            silent = await self._unended.silent()
            if worker not in {each.worker for each in silent}:
                raise NotFoundException

    async def _found(self, person: Person, retirement_id: str, wanted: Permission) -> Retirement:
        """The inbox belongs to an organisation, workers to all of them: it is asked again here."""
        if not allows(person, wanted):
            raise PermissionDeniedException("no role permits this")
        found = await self.cases.retirement(retirement_id)
        if found is None:
            raise NotFoundException
        if found.state != "waiting":
            raise RequestInvalid(f"this is {found.state}", parameter="id")
        return found


def more_than_shown(found: Retirement, left: LeftBehind) -> str:
    """How more would be ended now than was shown to who asked; empty where it would not."""
    shown = found.shown
    if left.requests <= shown.requests and left.lines <= shown.lines:
        return ""
    now, then = left.requests + left.lines, shown.requests + shown.lines
    return (
        f"more would be ended by now than was shown when {found.asked_by} asked for it:"
        f" {now} instead of {then}. Look at it and ask anew"
    )


def _shown(standing: Standing, left: LeftBehind) -> Shown:
    place = (standing.position, standing.second, standing.heard_us)
    return Shown(*place, **structs.asdict(left))


def _counts(left: LeftBehind) -> dict[str, object]:
    found: dict[str, object] = structs.asdict(left)
    return found


def _deed(found: Retirement) -> dict[str, object]:
    return {"worker": found.worker, "retirement": found.id, "asked_by": found.asked_by}
