"""Erasure as a case: who asked, by when, what it would destroy, and a certificate of what it did.

Records and their proofs outlive the content. The certificate says so of each record it looked at:
its content cannot be opened any more, and it is still in the signed log.
"""

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct, structs
from sqlalchemy import insert, select, update

from gateway.audit import offline
from gateway.audit.checkpoints import verifier_keys
from gateway.audit.export import export_records
from gateway.audit.integrator import SignedCheckpoint
from gateway.audit.keys import WrappedKey
from gateway.audit.merkle import inclusion_path
from gateway.audit.projection import SequencedRecord
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.secrets.envelope import MasterKey
from gateway.store.batching.vendor_copies import VendorCopies, VendorCopy
from gateway.store.custody.keeping import DAY_US, content_keys, destroy
from gateway.store.custody.kept_content import KeptContent
from gateway.store.custody.kept_holdings import Holdings
from gateway.store.custody.orders import Custody, CustodyRefused
from gateway.store.engine import Database
from gateway.store.evidence.integration import Integration
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery
from gateway.store.schema.custody import erasure_cases


HOUR_US: Final = 3_600_000_000


class LawClock(Struct, frozen=True):
    """How long a case may stay open, and how long it has to."""

    due_us: int
    notice_us: int = 0
    """For so long whoever it concerns has notice of it; before, nothing is erased."""


LAWS: Final = {
    "gdpr": LawClock(30 * DAY_US),
    "dpdp": LawClock(90 * DAY_US, notice_us=48 * HOUR_US),
    "contract": LawClock(7 * DAY_US),
}
"""By what a case rests on; engineering figures, to be confirmed by counsel.

GDPR, Article 12(3): within a month of the request, counted as thirty days. India's DPDP Rules 2025:
who it concerns is told at least 48 hours before an erasure (rule 8), and answered within ninety
days (rule 14); the 48 hours are a time to wait, not one to be done in. A contract: a week.
"""
LOOKED_AT_MAX: Final = 20_000
CHECKED_MAX: Final = 500
PROOFS_MAX: Final = 20
_ID_BYTES: Final = 6


class ErasureCase(Struct, frozen=True):
    """Somebody's wish to be forgotten, or an organisation's."""

    id: str
    organisation: str
    subject: str
    """The keyed digest of the end user; empty is the whole organisation."""
    law: str
    ticket: str
    opened_by: str
    opened_us: int
    due_us: int
    state: str = "open"
    """`open`, `done` or `withdrawn`."""
    closed_by: str = ""
    closed_us: int = 0
    keys: int = 0
    """How many were destroyed."""
    certificate: str = ""
    """JSON; empty while nothing is done."""
    copies: tuple[VendorCopy, ...] = ()
    """What vendors hold, or held, of it."""

    @property
    def copies_left(self) -> int:
        """How many of them their vendors may still have."""
        return sum([copy.is_left for copy in self.copies])

    @property
    def noticed_us(self) -> int:
        """From when on it may be carried out: whoever it concerns has had notice for so long."""
        clock = LAWS.get(self.law)
        return self.opened_us + (clock.notice_us if clock else 0)


class Consequences(Struct, frozen=True):
    """What an erasure would destroy, or did."""

    keys: int
    first_day: int
    """Days since 1970, UTC; -1 where there is no key."""
    last_day: int
    records: int
    """Records whose content these keys open, among those looked at."""
    looked_at: int
    is_whole: bool
    """Whether every record of these days was looked at."""
    holds: tuple[str, ...]
    """What forbids it."""
    kept: Holdings = Holdings()
    """What files, batches and kept answers hold."""


class Erasures:
    """Cases of all organisations of one database."""

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
        self._parts = parts
        self._wrapper = master
        self._kept = KeptContent(settings, database, master, clock)
        self._copies = VendorCopies(database, clock)
        self._clock = clock

    async def open(
        self, actor: str, organisation: str, subject: str, law: str, ticket: str
    ) -> ErasureCase:
        """Raises CustodyRefused without a ticket, or of a law that has no clock here."""
        if law not in LAWS or not ticket.strip():
            raise CustodyRefused("a case needs a ticket, and a law that sets its clock")
        now_us = self._clock.utc_us()
        due_us = now_us + LAWS[law].due_us
        case = ErasureCase(
            secrets.token_hex(_ID_BYTES), organisation, subject, law, ticket, actor, now_us, due_us
        )
        detail = {"case": case.id, "subject": subject, "ticket": ticket, "law": law}
        await self._custody.record(actor, "erasure.opened", organisation, **detail)
        values = structs.asdict(case)
        del values["copies"]
        async with self._database.writing() as connection:
            await connection.execute(insert(erasure_cases).values(values))
        return case

    async def cases(self, organisation: str) -> list[ErasureCase]:
        """Open ones first, the most urgent before the others."""
        query = select(erasure_cases).where(erasure_cases.c.organisation == organisation)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        copies = await self._copies.of_organisation(organisation)
        found = [
            ErasureCase(**row, copies=tuple(each for each in copies if each.case_id == row["id"]))
            for row in rows
        ]
        return sorted(found, key=lambda each: (each.state != "open", each.due_us, each.id))

    async def case(self, organisation: str, case_id: str) -> ErasureCase | None:
        return next((each for each in await self.cases(organisation) if each.id == case_id), None)

    async def consequences(self, organisation: str, subject: str | None) -> Consequences:
        """What erasing would destroy; `subject` None is the whole organisation."""
        keys = await content_keys(self._settings, self._database, organisation, subject)
        rows, looked_at, is_whole = await self._rows(organisation, keys)
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
            records=len(rows),
            looked_at=looked_at,
            is_whole=is_whole,
            holds=tuple(holds),
            kept=(await self._kept.find(organisation, subject)).numbers,
        )

    async def withdraw(self, actor: str, case: ErasureCase) -> None:
        """Close a case without erasing anything. Raises CustodyRefused when it is not open."""
        _require_open(case)
        await self._custody.record(actor, "erasure.withdrawn", case.organisation, case=case.id)
        await self._close(case, actor, state="withdrawn")

    async def erase(self, actor: str, case: ErasureCase) -> ErasureCase:
        """Destroy the keys and what is kept, look whether the proofs still hold, and certify it.

        Raises:
            CustodyRefused: the case is not open, its notice still runs, a hold forbids it, or a
                batch is on its way from one place to another.
            AuditUnavailable: it cannot be recorded, so nothing is destroyed.
            NotReady: not all of it could be destroyed; the case stays open, and does it again.
        """
        _require_open(case)
        if self._clock.utc_us() < case.noticed_us:
            raise CustodyRefused("notice of the erasure still runs: nothing is destroyed before")
        subject = case.subject or None
        await self._custody.require_no_hold(case.organisation, subject)
        keys = await content_keys(self._settings, self._database, case.organisation, subject)
        kept = await self._kept.find(case.organisation, subject, bytes_max=None)
        require_settled(kept.numbers)
        rows, looked_at, is_whole = await self._rows(case.organisation, keys)
        detail = {"case": case.id, "ticket": case.ticket, "subject": case.subject}
        detail |= {"keys": str(len(keys))} | in_numbers(kept.numbers)
        await self._custody.record(actor, "content.erased", case.organisation, **detail)
        now_us = self._clock.utc_us()
        await self._kept.destroy(kept, case.organisation, case.id)
        await destroy(self._settings, self._database, keys, now_us)
        left = await self._kept.find(case.organisation, subject, bytes_max=None)
        said = {
            "case": case.id,
            "organisation": case.organisation,
            "subject": case.subject,
            "ticket": case.ticket,
            "law": case.law,
            "opened_us": case.opened_us,
            "erased_by": actor,
            "erased_us": now_us,
            "keys_destroyed": [key.key for key in keys],
            "records_looked_at": looked_at,
            "all_looked_at": is_whole,
            "kept": kept.numbers,
            "kept_left": left.numbers.things,
            **await self._checked(case.organisation, rows),
        }
        text = msgspec.json.encode(said).decode()
        await self._close(case, actor, state="done", keys=len(keys), certificate=text)
        return await self._again(case)

    async def _rows(
        self, organisation: str, keys: Sequence[WrappedKey]
    ) -> tuple[list[SequencedRecord], int, bool]:
        """The records whose content these keys seal, by the days that the keys are of."""
        if not keys:
            return [], 0, True
        await self._parts.projector.catch_up()
        ids = {key.key for key in keys}
        found: list[SequencedRecord] = []
        days = sorted(key.day for key in keys)
        # A record's own time may be a moment before the key's day, or after it.
        query = AuditQuery(
            organisation=organisation,
            since_us=(days[0] - 1) * DAY_US,
            until_us=(days[-1] + 2) * DAY_US,
        )
        looked_at = 0
        async for row in self._parts.sink.records(query):
            if looked_at >= LOOKED_AT_MAX:
                return found, looked_at, False
            looked_at += 1
            content = row.projected.content if row.projected.raw_json else None
            found += [row] if content is not None and content.key in ids else []
        return found, looked_at, True

    async def _checked(self, organisation: str, rows: Sequence[SequencedRecord]) -> dict[str, Any]:
        """Of each record: is its content shut, does its proof hold."""
        keys = verifier_keys(self._parts.directory)
        said: dict[str, Any] = {"records": len(rows), "checked": 0, "contents_unreadable": 0}
        said |= {"proofs_hold": 0, "checkpoint": "", "keys": keys, "proofs": []}
        checked = rows[:CHECKED_MAX]
        if not checked:
            return said
        said["checked"] = len(checked)
        covering = await self._parts.checkpoint_of(organisation, checked[-1].sequence)
        async for line in export_records(
            _each(checked),
            directory=self._parts.directory,
            keys=self._wrapper,
            second=SecondContents(self._database),
        ):
            said["contents_unreadable"] += "content_error" in line
        if covering is None:
            return said
        said["checkpoint"] = covering.note
        for row in checked:
            proof = await self._proof(organisation, row, covering, keys)
            said["proofs_hold"] += _holds(proof, covering)
            said["proofs"] += [proof] if len(said["proofs"]) < PROOFS_MAX else []
        return said

    async def _proof(
        self,
        organisation: str,
        row: SequencedRecord,
        covering: SignedCheckpoint,
        keys: list[str],
    ) -> dict[str, Any]:
        """As `gateway/audit/offline.py --proof` takes it."""
        path = await self._parts.trees.ask(
            organisation, lambda tile: inclusion_path(row.sequence - 1, covering.size, tile)
        )
        return {
            "sequence": row.sequence,
            "record": row.projected.raw_json.decode(),
            "path": [hash_.hex() for hash_ in path],
            "checkpoint": covering.note,
            "keys": keys,
        }

    async def _again(self, case: ErasureCase) -> ErasureCase:
        found = await self.case(case.organisation, case.id)
        assert found is not None
        return found

    async def _close(self, case: ErasureCase, actor: str, **values: object) -> None:
        values |= {"closed_by": actor, "closed_us": self._clock.utc_us()}
        where = erasure_cases.c.id == case.id
        async with self._database.writing() as connection:
            await connection.execute(update(erasure_cases).where(where).values(**values))


async def _each(rows: Sequence[SequencedRecord]) -> AsyncIterator[SequencedRecord]:
    for row in rows:
        yield row


def _holds(proof: dict[str, Any], covering: SignedCheckpoint) -> bool:
    leaf = offline.leaf_hash(proof["record"].encode())
    path = [bytes.fromhex(text) for text in proof["path"]]
    try:
        root = offline.root_from_path(leaf, proof["sequence"] - 1, covering.size, path)
    except offline.Wrong:
        return False
    return root == covering.root


def require_settled(kept: Holdings) -> None:
    """Raises CustodyRefused while lines are on their way from one place to another."""
    if kept.busy:
        batches = "a batch is" if kept.busy == 1 else f"{kept.busy} batches are"
        raise CustodyRefused(
            f"{batches} being taken in or finished: nothing was destroyed, try again later"
        )


def in_numbers(kept: Holdings) -> dict[str, str]:
    """As the record of an erasure says it."""
    return {
        "lines": str(kept.lines),
        "file_lines": str(kept.file_lines),
        "files": str(kept.files),
        "answers": str(kept.answers),
        "not_attributed": str(kept.unnamed),
        "at_vendors": str(kept.at_vendors),
    }


def certified(case: ErasureCase) -> bytes:
    """The certificate, with what has become of vendors' copies by now; empty where there is none.

    What was erased here is certified once; a vendor may need a day more.
    """
    if not case.certificate:
        return b""
    said = msgspec.json.decode(case.certificate, type=dict[str, Any])
    copies = [structs.asdict(copy) for copy in case.copies]
    return msgspec.json.encode(
        said | {"vendor_copies": copies, "vendor_copies_left": case.copies_left}
    )


def _require_open(case: ErasureCase) -> None:
    if case.state != "open":
        raise CustodyRefused(f"the case is {case.state}")
