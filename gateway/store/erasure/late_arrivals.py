"""Erases content that was still arriving during an erasure, once all of it is there.

The same holds for what was made of erased things meanwhile. In the erasure of a whole organisation
that is what was there before the rest of its work could be stopped.

The certificate names such content and is not complete before it is gone. Whichever process comes
first claims the case.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import select, update

from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import GatewrightError, ToldToOperators
from gateway.oversight.deeds import Deeds
from gateway.pacing import rhythm
from gateway.pacing.upkeep import Duty
from gateway.ports import AuditLog
from gateway.secrets.credentials import master_key
from gateway.store.batching.files import kept_files
from gateway.store.claims import is_unclaimed
from gateway.store.custody.orders import CustodyRefused
from gateway.store.engine import Database
from gateway.store.erasure.attempts import holds_on
from gateway.store.erasure.cases import CLAIM_US
from gateway.store.erasure.erasing import in_numbers
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.kept_holdings import Holding
from gateway.store.erasure.late_notes import Arrived, LateNotes
from gateway.store.erasure.made_of import MadeOf
from gateway.store.erasure.waiting_cases import AT_ONCE, WAITS_FOR_MORE, WaitingCases
from gateway.store.schema.custody import erasure_cases
from gateway.telemetry import Event


ACTOR: Final = "gateway"
ACTION: Final = "content.erased"
_DOUBLED_MAX: Final = 4
"""Sixteen minutes, if the first rest is one."""
_C = erasure_cases.c


class _Waiting(Struct, frozen=True):
    id: str
    organisation: str
    subject: str
    ticket: str
    asked_by: str
    closed_by: str
    certificate: str

    @property
    def arriving(self) -> Sequence[str]:
        """Files and batches, by id."""
        return msgspec.json.decode(self.certificate, type=_Named).kept_arriving


class _Named(Struct, frozen=True):
    kept_arriving: tuple[str, ...] = ()


class _Ended(Struct, frozen=True):
    """An attempt that completed what it found."""

    is_over: bool
    """Whether nothing is awaited any more."""
    is_whole: bool
    """Whether everything was looked at."""


class LateArrivals:
    """Finishes all cases in one database that wait for content still arriving."""

    def __init__(self, settings: Settings, database: Database, log: AuditLog, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._kept = KeptContent(settings, database, master_key(settings), clock)
        self._made, self._deeds = MadeOf(database), Deeds(log, clock)
        self._cases, self._notes = WaitingCases(database), LateNotes(database)
        self._resting: dict[str, tuple[int, float]] = {}
        """By case, how often it failed in a row, and until when it rests by the monotonic clock."""

    @property
    def duty(self) -> Duty:
        """The process's periodic duty, besides requests."""
        return Duty("late arrivals", rhythm.ERASURES_S, self.tend, Event.UPKEEP_FAILED)

    async def tend(self) -> None:
        """Erase from what has arrived by now; the rest is looked at the next time.

        A case that fails does not hold up others. It rests, since each try is recorded twice: a
        minute, then twice as long each time, up to sixteen.

        Raises what the first that failed did:
            OSError: the list of what is erased cannot be written.
            AuditUnavailable: it cannot be recorded, so nothing is destroyed.
            NotReady: not all of it could be done; the next time goes on.
        """
        failed = list[Exception]()
        for case in await self._waiting():
            failures, until_s = self._resting.get(case.id, (0, -math.inf))
            if self._clock.monotonic_s() < until_s:
                continue
            try:
                await self._tend(case)
            except (OSError, GatewrightError, ToldToOperators) as error:
                failed.append(error)
                rest_s = rhythm.ERASURES_S * 2 ** min(failures, _DOUBLED_MAX)
                self._resting[case.id] = failures + 1, self._clock.monotonic_s() + rest_s
            else:
                self._resting.pop(case.id, None)
        if failed:
            raise failed[0]

    async def _tend(self, case: _Waiting) -> None:
        if not await self._is_there(case) or not (claimed_us := await self._claim(case)):
            return
        ended: _Ended | None = None
        try:
            ended = await self._carried_out(case, claimed_us)
        except CustodyRefused:
            pass  # A hold was set while it was read, or somebody else is at it: nothing went.
        finally:
            await self._release(case, claimed_us, ended)

    async def _waiting(self) -> Sequence[_Waiting]:
        columns = [_C[name] for name in _Waiting.__struct_fields__]
        ids, found = await self._cases.ids(), list[_Waiting]()
        async with self._database.reading() as connection:
            for at in range(0, len(ids), AT_ONCE):
                some = select(*columns).where(_C.id.in_(ids[at : at + AT_ONCE]), WAITS_FOR_MORE)
                rows = (await connection.execute(some.order_by(_C.closed_us))).all()
                found += [_Waiting(*row) for row in rows]
        return found

    async def _is_there(self, case: _Waiting) -> bool:
        """Whether all has arrived or was given up, and no batch of it is being moved."""
        files = select(kept_files.c.id).where(
            kept_files.c.id.in_(case.arriving), kept_files.c.is_whole.is_(False)
        )
        async with self._database.reading() as connection:
            if (await connection.execute(files.limit(1))).first() is not None:
                return False
        return not await self._made.is_moving(case.arriving)

    async def _claim(self, case: _Waiting) -> int:
        """Claim a case; returns when, or 0 if another process has it or a hold forbids it."""
        now_us = self._clock.utc_us()
        mine = (_C.id == case.id) & (_C.certificate == case.certificate)
        is_free = is_unclaimed(_C.claimed_us, now_us, CLAIM_US)
        async with self._database.writing() as connection:
            taken = update(erasure_cases).where(mine, is_free).values(claimed_us=now_us)
            if not (await connection.execute(taken)).rowcount:
                return 0
            if (await connection.execute(holds_on(case.id))).first() is None:
                return now_us
            await connection.execute(update(erasure_cases).where(mine).values(claimed_us=0))
        return 0

    async def _release(self, case: _Waiting, claimed_us: int, ended: _Ended | None) -> None:
        """Release a case, with the totals of all attempts if this one completed.

        Incomplete attempts are in the notes, and are counted by the one that completes.
        """
        mine = (_C.id == case.id) & (_C.claimed_us == claimed_us)
        values: dict[str, object] = {"claimed_us": 0}
        if ended is not None:
            more = await self._notes.counted(case.id)
            values |= {"certificate": _amended(case.certificate, more, ended)}
        async with self._database.writing() as connection:
            released = await connection.execute(update(erasure_cases).where(mine).values(values))
            if ended is not None and released.rowcount:
                await self._notes.settle(connection, case.id, is_over=ended.is_over)

    async def _carried_out(self, case: _Waiting, claimed_us: int) -> _Ended:
        """Erase what has arrived; raises CustodyRefused if that is no longer permitted."""
        found = await self._found(case)
        if is_any := _is_any(case, found):
            detail = {"case": case.id, "ticket": case.ticket, "subject": case.subject}
            detail |= {"asked_by": case.asked_by, "agreed_by": case.closed_by}
            detail |= in_numbers(found.numbers)
            async with self._deeds.doing(ACTOR, ACTION, case.organisation, **detail):
                arrived = Arrived.of(found, await self._made.there(found.lines))
                await self._notes.note(case.id, ACTOR, claimed_us, found.numbers, arrived)
                await self._kept.destroy(found, case.organisation, case.id)
        left = await self._found(case) if is_any else found
        # If a batch was made of it meanwhile, or it changed, it is looked at once more.
        is_seen = not left.arriving and await self._is_there(case)
        is_over = is_seen and not _is_any(case, left)
        return _Ended(is_over=is_over, is_whole=found.numbers.is_whole)

    async def _found(self, case: _Waiting) -> Holding:
        """What arrived, and what was made of it; what was requested since stays."""
        found = await self._kept.find(case.organisation, case.subject or None, bytes_max=None)
        return await self._made.part(found, case.arriving)


def _is_any(case: _Waiting, found: Holding) -> bool:
    """Whether there is anything to erase; an organisation's batch goes even without its lines."""
    return bool(found.numbers.things or (found.lines and not case.subject))


def _amended(certificate: str, more: Mapping[str, int], ended: _Ended) -> str:
    said = msgspec.json.decode(certificate, type=dict[str, Any])
    kept = said["kept"]
    added = {name: kept[name] + count for name, count in more.items()}
    is_whole = said["kept_all_looked_at"] and ended.is_whole
    said |= {"kept": kept | added, "kept_all_looked_at": is_whole}
    if ended.is_over:
        said["kept_arrived"] = said.pop("kept_arriving")
    return msgspec.json.encode(said).decode()
