"""Erasure agreed to by two people: what it would destroy, and a certificate of what it did.

Records and their proofs outlive the content. The certificate says of each record that it checked
that the content cannot be opened any more and that the record is still in the signed log.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct

from gateway.audit.content_keys.keys import WrappedKey
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.segments import cause_of
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.secrets.envelope import MasterKey
from gateway.store.custody.audit_folders import FolderHere
from gateway.store.custody.elsewhere import awaited_workers, workers_elsewhere
from gateway.store.custody.orders import Custody, CustodyRefused, said_with
from gateway.store.engine import Database
from gateway.store.erasure.attempts import Attempt, DatedKey, keys_of, most_of
from gateway.store.erasure.cases import (
    ErasureCase,
    ErasureCases,
    require_asked,
    require_open,
)
from gateway.store.erasure.erased_records import ErasedRecords
from gateway.store.erasure.folder_reports import FolderReport, row_of
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.erasure.kept_holdings import Holding, Holdings
from gateway.store.erasure.made_of import MadeOf
from gateway.store.erasure.reach import ErasureReach
from gateway.store.evidence.integration import Integration
from gateway.store.retention.keeping import content_keys, damaged_key_lines, destroy


class Consequences(Struct, frozen=True):
    """What an erasure would destroy, or has destroyed."""

    keys: int
    first_day: int
    """Days since 1970, UTC; -1 if there is no key."""
    last_day: int
    records: int
    """Those of the records looked at whose content these keys open."""
    looked_at: int
    is_whole: bool
    """Whether the key of every record of these days is known and is kept here."""
    holds: tuple[str, ...]
    """The holds that forbid it."""
    kept: Holdings = Holdings()
    """What files, batches and kept answers hold."""
    unreadable: int = 0
    """Records of these days that are damaged or gone: the keys of their content are unknown."""
    is_cut: bool = False
    """Whether there are more records of these days than are looked at."""
    elsewhere: tuple[str, ...] = ()
    """Workers whose keys lie in other audit folders: they destroy those, which are not counted."""


class Erasures:
    """Carries out erasure cases of all organisations of one database."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        custody: Custody,
        parts: Integration,
        master: MasterKey,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._database = database
        self._custody = custody
        self.cases = ErasureCases(database, custody, clock)
        self.reach = ErasureReach(database, clock)
        self._parts = parts
        self._wrapper = master
        self._records = ErasedRecords(parts, master)
        self._kept, self._made = KeptContent(settings, database, master, clock), MadeOf(database)
        self._clock = clock
        self._here = FolderHere(database, parts.directory, settings.audit.worker, clock)

    async def consequences(self, organisation: str, subject: str | None) -> Consequences:
        """What an erasure would destroy; `subject` None is the complete organisation.

        Raises:
            CustodyRefused: something that has to be read for it cannot be read at the moment.
        """
        with _reading():
            keys = await content_keys(self._settings, self._database, organisation, subject)
            found = await self._records.rows(organisation, _dated(keys))
            elsewhere = await self._elsewhere(organisation)
            kept = (await self._kept.find(organisation, subject)).numbers
        holds = [
            hold.id
            for hold in await self._custody.holds(organisation)
            if not hold.subject or subject in (None, hold.subject)
        ]
        days = [key.day for key in keys]
        return Consequences(
            keys=len(keys),
            first_day=min(days, default=-1),
            last_day=max(days, default=-1),
            records=len(found.rows),
            looked_at=found.looked_at,
            is_whole=found.is_whole,
            holds=tuple(holds),
            kept=kept,
            unreadable=found.unreadable,
            is_cut=found.is_cut,
            elsewhere=elsewhere,
        )

    async def require_no_hold(self, organisation: str, subject: str | None) -> None:
        """Raise CustodyRefused if a hold covers any of it; `subject` None is everybody."""
        await self._custody.require_no_hold(organisation, subject)

    async def ask(self, actor: str, case: ErasureCase) -> None:
        """Request that a case be carried out, for somebody else to approve; records its numbers.

        Raises:
            CustodyRefused: it is not open, was requested already, a hold forbids it, or the log
                cannot be read at the moment.
        """
        require_open(case)
        await self._custody.require_no_hold(case.organisation, case.subject or None)
        told = await self.consequences(case.organisation, case.subject or None)
        numbers = {"keys": str(told.keys), "records": str(told.records)}
        await self.cases.ask(actor, case, numbers | in_numbers(told.kept))

    async def approve(self, actor: str, case: ErasureCase, comment: str) -> ErasureCase:
        """Destroy the keys and what is kept, check whether the proofs still hold, and certify it.

        Raises:
            CustodyRefused: nobody else requested it, its notice still runs, a hold forbids it, a
                batch is being moved, somebody else is carrying it out, or the log cannot be read at
                the moment; nothing was destroyed.
            AuditUnavailable: it cannot be recorded, so nothing is destroyed.
            NotReady: not all of it could be destroyed; the case stays open, to be repeated.
        """
        require_asked(case, actor)
        said = said_with(comment)
        if self._clock.utc_us() < case.noticed_us:
            raise CustodyRefused("notice of the erasure still runs: nothing is destroyed before")
        await self._custody.require_no_hold(case.organisation, case.subject or None)
        claimed_us, done = await self.cases.claim(case), None
        try:
            done = await self._destroyed(actor, case, said, claimed_us)
        finally:
            if done is None:
                await self.cases.release(case, claimed_us)
        closed = await self.cases.close(case, claimed_us, closed_by=actor, comment=said, **done)
        await self.reach.note_reached()
        return await self.cases.found(closed.id)

    async def _destroyed(
        self, actor: str, case: ErasureCase, comment: str, claimed_us: int
    ) -> dict[str, Any]:
        """How many keys are gone, those of crashed attempts included, and the certificate."""
        subject = case.subject or None
        with _reading():
            keys = await content_keys(self._settings, self._database, case.organisation, subject)
            kept = await self._kept.find(case.organisation, subject, bytes_max=None)
            require_settled(kept.numbers)
            folder = await self._here.tell()
            here = Attempt(actor, claimed_us, _dated(keys), kept.numbers, folder.folder)
            attempts = [*await self.cases.attempts.of(case.id), here]
            # What another folder's attempt found is reported by that folder: some may be left
            # there.
            all_keys = keys_of([each for each in attempts if each.folder in ("", folder.folder)])
            found = await self._records.rows(case.organisation, all_keys)
            damaged = await damaged_key_lines(self._settings, self._wrapper)
            awaited = await awaited_workers(self._database, case.organisation)
        detail = {"case": case.id, "ticket": case.ticket, "subject": case.subject}
        detail |= {"asked_by": case.asked_by, "comment": comment}
        detail |= {"keys": str(len(keys))} | in_numbers(kept.numbers)
        async with self._custody.doing(actor, "content.erased", case.organisation, **detail):
            await self.cases.attempts.note(case.id, here)
        now_us = self._clock.utc_us()
        await self._kept.destroy(kept, case.organisation, case.id)
        if subject is None:
            await self._kept.stop(sorted(kept.arriving))
        await destroy(self._settings, self._database, keys, now_us)
        left, late = await self._left(case, kept)
        said = {
            **_of_case(case, actor, now_us),
            "keys_destroyed": [key.key for key in all_keys],
            "attempts": [_told(each) for each in attempts],
            "records_looked_at": found.looked_at,
            "records_unreadable": found.unreadable,
            "all_looked_at": found.is_whole,
            "key_lines_damaged": damaged,
            "kept": most_of(attempts),
            "kept_all_looked_at": kept.numbers.is_whole,
            "kept_left": left,
            "kept_arriving": late,
            **await self._records.checked(case.organisation, found.rows),
        }
        keys_here = tuple(all_keys)
        report = FolderReport(
            case.id, folder.folder, folder.workers, self._settings.audit.worker, keys_here
        )
        report = msgspec.structs.replace(report, seen_us=claimed_us, done_us=now_us)
        return {
            "keys": len(all_keys),
            "certificate": msgspec.json.encode(said).decode(),
            "awaited": msgspec.json.encode(awaited).decode(),
            "report": row_of(report),
        }

    async def _left(self, case: ErasureCase, kept: Holding) -> tuple[int, list[str]]:
        """How much remains that no case waits for, and the names of what has still to go.

        The latter is looked at when it has arrived: what was arriving, or was made of what was
        destroyed.
        """
        left = await self._kept.find(case.organisation, case.subject or None, bytes_max=None)
        there = {*left.lines, *(file.file_id for file, _ in left.files)}
        # An organisation's arriving content was stopped, unless it had arrived by then.
        late = kept.arriving | left.arriving if case.subject else kept.arriving & there
        late |= await self._made.since(case.organisation, kept, left)
        goes = await self._made.part(left, late)
        return left.numbers.things - goes.numbers.things, sorted(late)

    async def _elsewhere(self, organisation: str) -> tuple[str, ...]:
        return await workers_elsewhere(self._database, self._parts.directory, organisation)


def _dated(keys: Sequence[WrappedKey]) -> tuple[DatedKey, ...]:
    return tuple(DatedKey(key.key, key.day) for key in keys)


def _of_case(case: ErasureCase, actor: str, now_us: int) -> dict[str, object]:
    """The first part of the certificate."""
    return {
        "case": case.id,
        "organisation": case.organisation,
        "subject": case.subject,
        "ticket": case.ticket,
        "law": case.law,
        "opened_us": case.opened_us,
        "asked_by": case.asked_by,
        "asked_us": case.asked_us,
        "erased_by": actor,
        "erased_us": now_us,
    }


def _told(attempt: Attempt) -> dict[str, object]:
    """An attempt in the certificate: what there was for it to destroy."""
    said: dict[str, object] = {"by": attempt.by, "begun_us": attempt.begun_us}
    return said | {"keys_found": [key.key for key in attempt.keys], "kept_found": attempt.kept}


@contextmanager
def _reading() -> Iterator[None]:
    """Refuse while something cannot be read: it must not count as nothing there."""
    try:
        yield
    except (OSError, ProjectionBroken) as error:
        reason = cause_of(error) if isinstance(error, OSError) else str(error)
        raise CustodyRefused(
            f"the audit log cannot be read at this moment ({reason}): nothing was destroyed"
        ) from error


def require_settled(kept: Holdings) -> None:
    """Raise CustodyRefused while lines are being moved."""
    if kept.busy:
        batches = "a batch is" if kept.busy == 1 else f"{kept.busy} batches are"
        raise CustodyRefused(
            f"{batches} being taken in or finished: nothing was destroyed, try again later"
        )


def in_numbers(kept: Holdings) -> dict[str, str]:
    """The numbers as the record of an erasure gives them."""
    return {
        "lines": str(kept.lines),
        "file_lines": str(kept.file_lines),
        "files": str(kept.files),
        "answers": str(kept.answers),
        "conversations": str(kept.conversations),
        "not_attributed": str(kept.unnamed),
        "at_vendors": str(kept.at_vendors),
    }
