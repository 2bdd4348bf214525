"""Erasure cases in the database: opened, asked for by one person, agreed to by another, closed.

Opening a case destroys nothing. Whoever wants it carried out asks for that, and somebody else
agrees or declines; nobody does both. While it is being carried out it is claimed, so that nobody
else carries it out at the same time and nobody declines what is half done.
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, structs
from sqlalchemy import ColumnElement, RowMapping, Select, case, func, insert, select, update

from gateway.actors import same_person
from gateway.clock import DAY_US, HOUR_US, Clock
from gateway.store.batching.vendor_copies import VendorCopies, VendorCopy
from gateway.store.claims import is_unclaimed
from gateway.store.custody.orders import Custody, CustodyRefused, said_with
from gateway.store.engine import Database
from gateway.store.erasure.attempts import ErasureAttempts
from gateway.store.pages import START, Order, Part, count_by, part_behind
from gateway.store.revisions import bump, revision_in
from gateway.store.schema.custody import erasure_cases, erasure_reports


CLAIM_US: Final = HOUR_US // 4
"""After this long, whoever claimed a case is assumed to have crashed, and it may be tried again."""


class LawClock(Struct, frozen=True):
    """The time limits of a case."""

    due_us: int
    notice_us: int = 0
    """How long the person concerned has notice; nothing is erased earlier."""


LAWS: Final = {
    "gdpr": LawClock(30 * DAY_US),
    "dpdp": LawClock(90 * DAY_US, notice_us=48 * HOUR_US),
    "contract": LawClock(7 * DAY_US),
}
"""Time limits by legal basis; engineering figures, to be confirmed by counsel.

GDPR, Article 12(3): within a month of the request, counted as thirty days. India's DPDP Rules 2025:
the person concerned is told at least 48 hours before an erasure (rule 8), and answered within
ninety days (rule 14); the 48 hours are a time to wait, not a deadline. A contract: a week.
"""
_C: Final = erasure_cases.c
_LISTED: Final = Order(
    (case((_C.state == "open", 0), else_=1).label("is_over"), _C.due_us, _C.id),
)
"""Open cases first, the most urgent before the others."""
_AS_ASKED: Final = Order((_C.asked_us, _C.id))
_ID_BYTES: Final = 6
_ENDS: Final = {"done": "agreed to and carried out"}
"""How a state is described as somebody's deed; `withdrawn` needs no other word."""


class ErasureCase(Struct, frozen=True):
    """A request to erase an end user's content, or an organisation's."""

    id: str
    organisation: str
    subject: str
    """The keyed digest of the end user; empty for the complete organisation."""
    law: str
    ticket: str
    opened_by: str
    opened_us: int
    due_us: int
    state: str = "open"
    """`open`, `done` or `withdrawn`."""
    closed_by: str = ""
    """For a finished case, who approved what `asked_by` requested."""
    closed_us: int = 0
    keys: int = 0
    """How many keys were destroyed."""
    certificate: str = ""
    """JSON; empty while nothing is done."""
    asked_by: str = ""
    """Who requests that it be carried out now; empty if nobody does."""
    asked_us: int = 0
    claimed_us: int = 0
    """When someone began to carry it out; 0 while nobody does."""
    declined_by: str = ""
    """Who declined the last request to carry it out."""
    declined_us: int = 0
    comment: str = ""
    """The comment on the last verdict."""
    closed_revision: int = 0
    """The counter of changes that told the workers of its end; 0 if none did."""
    reached_us: int = 0
    """When the last audit folder that it waited for had reported; 0 before that."""
    awaited: str = ""
    """JSON: the workers whose folders it waits for; empty if that was not recorded."""
    copies: tuple[VendorCopy, ...] = ()
    """The copies of its content that vendors hold, or held."""

    @property
    def copies_left(self) -> int:
        """How many copies vendors may still have."""
        return sum([copy.is_left for copy in self.copies])

    @property
    def noticed_us(self) -> int:
        """When the notice to the person concerned is over and the case may be carried out."""
        clock = LAWS.get(self.law)
        return self.opened_us + (clock.notice_us if clock else 0)

    def is_claimed(self, now_us: int) -> bool:
        """Whether, as far as is known, somebody is carrying it out now."""
        return now_us - CLAIM_US < self.claimed_us < now_us + CLAIM_US

    @property
    def is_asked(self) -> bool:
        """Whether it waits for a second person to decide."""
        return self.state == "open" and bool(self.asked_by)


class ErasureCaseReader:
    """Reads the cases of all organisations of one database; needs no key."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._copies = VendorCopies(database, clock)

    async def of(self, organisation: str) -> list[ErasureCase]:
        """All cases: open ones first, the most urgent before the others."""
        async with self._database.reading() as connection:
            query = _LISTED.reading(_of(organisation))
            rows = (await connection.execute(query)).mappings().all()
        copies = _by_case(await self._copies.of_organisation(organisation))
        return [structs.replace(_case_of(row), copies=copies.get(row["id"], ())) for row in rows]

    async def case(self, organisation: str, case_id: str) -> ErasureCase | None:
        query = select(erasure_cases).where(_C.organisation == organisation, _C.id == case_id)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return (await self._with_copies([ErasureCase(**row)]))[0] if row else None

    async def found(self, case_id: str) -> ErasureCase:
        """The case with this id; raises CustodyRefused if there is none."""
        query = select(_C.organisation).where(_C.id == case_id)
        async with self._database.reading() as connection:
            organisation = (await connection.execute(query)).scalar_one_or_none()
        case = await self.case(organisation, case_id) if organisation else None
        if case is None:
            raise CustodyRefused("there is no such case")
        return case

    async def _with_copies(self, cases: Sequence[ErasureCase]) -> list[ErasureCase]:
        copies = _by_case(await self._copies.of_cases([each.id for each in cases]))
        return [structs.replace(each, copies=copies.get(each.id, ())) for each in cases]


class ErasureCases(ErasureCaseReader):
    """The cases of all organisations in one database."""

    def __init__(self, database: Database, custody: Custody, clock: Clock) -> None:
        super().__init__(database, clock)
        self._custody = custody
        self.attempts = ErasureAttempts(database)
        self._clock = clock

    async def open(
        self, actor: str, organisation: str, subject: str, law: str, ticket: str
    ) -> ErasureCase:
        """Open a case; raises CustodyRefused without a ticket, or for a law unknown here."""
        if law not in LAWS:
            reason = f"the law that sets its clock is one of {', '.join(LAWS)}"
            raise CustodyRefused(reason, "law")
        if not ticket.strip():
            raise CustodyRefused("a case needs a ticket", "ticket")
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

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[ErasureCase]:
        """A page of the cases; `after` is the key of the last one before it."""
        part = await self._part(_of(organisation), _LISTED, (first, after), limit)
        return part.of(await self._with_copies(part.rows))

    async def urgent(self, organisation: str, limit: int) -> tuple[Part[ErasureCase], int]:
        """Open cases, most urgent first, and how many are late; without vendors' copies."""
        is_open = _C.state == "open"
        late = select(func.count()).where(
            _C.organisation == organisation, is_open, _C.due_us < self._clock.utc_us()
        )
        async with self._database.reading() as connection:
            late_count = int((await connection.execute(late)).scalar_one())
        query = _of(organisation).where(is_open)
        return await self._part(query, _LISTED, START, limit), late_count

    async def dues(self, organisation: str) -> list[int]:
        """When the open cases are due."""
        query = select(_C.due_us).where(_C.organisation == organisation, _C.state == "open")
        async with self._database.reading() as connection:
            return list((await connection.execute(query)).scalars())

    async def states(self, organisation: str) -> Counter[str]:
        """How many cases there are in each state."""
        async with self._database.reading() as connection:
            return await count_by(connection, _C.state, _C.organisation == organisation)

    async def erased(self, organisation: str, subjects: Sequence[str]) -> dict[str, list[int]]:
        """When content of each subject was erased, everybody's included; a subject may be empty."""
        query = select(_C.subject, _C.closed_us).where(
            _C.organisation == organisation,
            _C.state == "done",
            _C.subject.in_({*subjects, ""}),
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {
            subject: [row.closed_us for row in rows if row.subject in (subject, "")]
            for subject in subjects
        }

    async def asked(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[ErasureCase]:
        """Cases that wait for a second person, longest waiting first; without vendors' copies."""
        query = select(erasure_cases).where(*_waits(organisation))
        return await self._part(query, _AS_ASKED, (first, after), limit)

    async def asked_by(self, organisation: str) -> Counter[str]:
        """How many of them wait, by who made the request."""
        async with self._database.reading() as connection:
            return await count_by(connection, _C.asked_by, *_waits(organisation))

    async def ask(self, actor: str, case: ErasureCase, told: dict[str, str]) -> None:
        """Request that a case be carried out now; `told`, for the record, is what it would destroy.

        Raises:
            CustodyRefused: it is not open, or was requested already.
        """
        require_open(case)
        if case.asked_by:
            raise CustodyRefused(f"{case.asked_by} asked for it already")
        detail = {"case": case.id, "ticket": case.ticket, "subject": case.subject} | told
        await self._custody.record(actor, "erasure.asked", case.organisation, **detail)
        now_us = self._clock.utc_us()
        await self.change(case, asked_by=actor, asked_us=now_us)

    async def decline(self, actor: str, case: ErasureCase, comment: str) -> None:
        """Decline a request to carry the case out; the case stays open.

        Raises:
            CustodyRefused: there is no request, it is their own, or they give no reason.
        """
        require_asked(case, actor)
        said = said_with(comment)
        detail = {"case": case.id, "asked_by": case.asked_by, "comment": said}
        await self._custody.record(actor, "erasure.declined", case.organisation, **detail)
        now_us = self._clock.utc_us()
        values = {"declined_by": actor, "declined_us": now_us, "comment": said}
        await self.change(case, asked_by="", asked_us=0, **values)

    async def recall(self, actor: str, case: ErasureCase) -> None:
        """Withdraw one's own request; raises CustodyRefused if there is none or another's."""
        require_wanted(case)
        if not same_person(actor, case.asked_by):
            raise CustodyRefused("what was asked for is taken back by who asked")
        await self._custody.record(actor, "erasure.recalled", case.organisation, case=case.id)
        await self.change(case, asked_by="", asked_us=0)

    async def withdraw(self, actor: str, case: ErasureCase) -> None:
        """Close a case without erasing anything.

        Raises:
            CustodyRefused: it is not open, or an attempt destroyed some of it.
        """
        require_open(case)
        if await self.attempts.of(case.id):
            raise CustodyRefused("an erasure that was begun is carried out to its end")
        await self._custody.record(actor, "erasure.withdrawn", case.organisation, case=case.id)
        closed = {"closed_by": actor, "closed_us": self._clock.utc_us()}
        # Checked again with the change: an attempt may have begun, and failed, since.
        unbegun = self.attempts.none_of(case.id)
        await self.change(case, unbegun, state="withdrawn", asked_by="", asked_us=0, **closed)

    async def claim(self, case: ErasureCase) -> int:
        """Claim a case to carry it out; returns when. Raises CustodyRefused if another did."""
        now_us = self._clock.utc_us()
        await self.change(case, claimed_us=now_us)
        return now_us

    async def release(self, case: ErasureCase, claimed_us: int) -> None:
        """Release a case after a failure: it may be tried again at once."""
        mine = (_C.id == case.id) & (_C.claimed_us == claimed_us)
        async with self._database.writing() as connection:
            await connection.execute(update(erasure_cases).where(mine).values(claimed_us=0))

    async def close(
        self, case: ErasureCase, claimed_us: int, report: dict[str, Any], **values: object
    ) -> ErasureCase:
        """Close a case that was carried out here, as the row `report` says; all workers hear it."""
        mine = (_C.id == case.id) & (_C.claimed_us == claimed_us)
        done = values | {"state": "done", "closed_us": self._clock.utc_us(), "claimed_us": 0}
        async with self._database.writing() as connection:
            await bump(connection)
            done["closed_revision"] = await revision_in(connection)
            if (
                await connection.execute(update(erasure_cases).where(mine).values(**done))
            ).rowcount:
                await connection.execute(insert(erasure_reports).values(report))
        return await self.found(case.id)

    async def change(self, case: ErasureCase, *also: ColumnElement[bool], **values: object) -> None:
        """Change a case; raises CustodyRefused if it has changed since, or is being carried out.

        `also` are further conditions that must hold.
        """
        now_us = self._clock.utc_us()
        as_seen = (
            (_C.id == case.id)
            & (_C.state == "open")
            & (_C.asked_by == case.asked_by)
            & is_unclaimed(_C.claimed_us, now_us, CLAIM_US)
        )
        async with self._database.writing() as connection:
            change = update(erasure_cases).where(as_seen, *also)
            done = await connection.execute(change.values(**values))
        if not done.rowcount:
            raise CustodyRefused("somebody else decided it meanwhile, or it is being carried out")

    async def _part(
        self, query: Select[Any], order: Order, place: tuple[int, str], limit: int
    ) -> Part[ErasureCase]:
        async with self._database.reading() as connection:
            return await part_behind(connection, query, order, place, limit, _case_of)


def _by_case(copies: Sequence[VendorCopy]) -> dict[str, tuple[VendorCopy, ...]]:
    found: dict[str, tuple[VendorCopy, ...]] = {}
    for each in copies:
        found[each.case_id] = (*found.get(each.case_id, ()), each)
    return found


def _of(organisation: str) -> Select[Any]:
    return select(erasure_cases).where(_C.organisation == organisation)


def _case_of(row: RowMapping) -> ErasureCase:
    return ErasureCase(**{column.name: row[column.name] for column in _C})


def _waits(organisation: str) -> tuple[ColumnElement[bool], ...]:
    return _C.organisation == organisation, _C.state == "open", _C.asked_by != ""


def require_open(case: ErasureCase) -> None:
    """Raise CustodyRefused with who closed it: latecomers no longer see it in a list."""
    if case.state != "open":
        end = _ENDS.get(case.state, case.state)
        raise CustodyRefused(f"the case {case.ticket} was {end} by {case.closed_by} already")


def require_wanted(case: ErasureCase) -> None:
    """Raise CustodyRefused unless it was requested: an empty name would match anybody's."""
    require_open(case)
    if not case.asked_by:
        raise CustodyRefused("nobody asks for this erasure to be carried out")


def require_asked(case: ErasureCase, actor: str) -> None:
    """Raise CustodyRefused unless somebody other than the actor requested it."""
    require_wanted(case)
    if same_person(actor, case.asked_by):
        raise CustodyRefused("an erasure is agreed to by somebody else than who asked for it")
