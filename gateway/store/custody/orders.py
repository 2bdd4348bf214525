"""Custody of content: legal holds, break-glass reveals, erasures; two people, all on record.

Every step is an admin record in the audit log before it takes effect; if it cannot be recorded, it
does not happen. If two people answer at the same moment, one succeeds; the other's deed is recorded
as failed. The caller says who acts: the command line's user or a signed-in person.
"""

import secrets
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Table, and_, func, insert, select, update

from gateway.actors import same_person
from gateway.clock import MINUTE_US, Clock, SteadyClock
from gateway.oversight.deeds import Deeds
from gateway.ports import AuditLog
from gateway.store.engine import Database
from gateway.store.revisions import ring
from gateway.store.schema.audit import audit_checkpoints, audit_sequences
from gateway.store.schema.custody import audit_holds, audit_reveals
from gateway.store.schema.tables import organisations


REVEAL_MINUTES_MAX = 60
COMMENT_CHARS_MAX, LACKING = 1_000, "say why: it stands in the record"
_ID_BYTES = 6


class CustodyRefused(Exception):
    """The request is not allowed; the message says why, `field` names the value concerned."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class CustodyChanged(CustodyRefused):
    """Somebody else acted first, so what the actor saw is outdated."""


class Hold(Struct, frozen=True):
    """Content that must not be erased: all of an organisation's, or that of one subject."""

    id: str
    organisation: str
    subject: str
    reason: str
    set_by: str
    set_us: int
    release_by: str
    """Who asked for its release; empty while nobody did."""
    released_by: str
    """The second person, who agreed; empty while the hold is in force."""


class Reveal(Struct, frozen=True):
    """Permission to read content for a while: an organisation's, or one request's if named."""

    id: str
    organisation: str
    request_id: str
    reason: str
    ticket: str
    asked_by: str
    asked_us: int
    minutes: int
    approved_by: str
    approved_us: int
    used: int
    """How often content was read with it."""
    ended_by: str = ""
    """Who ended it early, or declined it; empty if nobody did."""
    ended_us: int = 0
    ended_comment: str = ""
    """Why; never empty if somebody other than the person who asked declined it."""

    def is_open(self, now_us: int) -> bool:
        is_given = bool(self.approved_by) and not self.ended_by
        return is_given and 0 <= now_us - self.approved_us < self.minutes * MINUTE_US

    @property
    def is_waiting(self) -> bool:
        """Whether nobody has answered yet."""
        return not self.approved_by and not self.ended_by

    @property
    def until_us(self) -> int:
        """When it closes by itself; 0 while it is not approved."""
        return self.approved_us + self.minutes * MINUTE_US if self.approved_by else 0


class CustodyReader:
    """Reads holds and reveals; this needs neither a log nor any key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def holds(self, organisation: str | None = None) -> Sequence[Hold]:
        """The holds in force."""
        where = audit_holds.c.released_by == ""
        if organisation is not None:
            where &= audit_holds.c.organisation == organisation
        found: list[Hold] = await self._read(audit_holds, Hold, where)
        return found

    async def reveals(self, since_us: int, organisation: str | None = None) -> Sequence[Reveal]:
        """Reveals requested or approved since then, oldest first, for the weekly report."""
        where = (audit_reveals.c.asked_us >= since_us) | (audit_reveals.c.approved_us >= since_us)
        if organisation is not None:
            where &= audit_reveals.c.organisation == organisation
        found: list[Reveal] = await self._read(audit_reveals, Reveal, where)
        return found

    async def _read(self, table: Table, kind: Any, where: ColumnElement[bool]) -> Any:
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(table).where(where))).mappings().all()
        return sorted((kind(**row) for row in rows), key=_age)


class Custody(CustodyReader):
    """Changes holds and reveals: by two people, with a record of each step."""

    def __init__(self, database: Database, audit: AuditLog, clock: Clock) -> None:
        super().__init__(database)
        self._deeds = Deeds(audit, clock)
        self._clock, self._steady = clock, SteadyClock(clock)

    def ends_by_us(self) -> int:
        """The time by which reveals end: a clock that is set back does not lengthen them."""
        return max(self._clock.utc_us(), self._steady.utc_us())

    async def set_hold(self, actor: str, organisation: str, subject: str, reason: str) -> Hold:
        """Set a hold; CustodyRefused without a reason, AuditUnavailable as with every change."""
        reason = said_with(reason, "reason")
        hold = Hold(_new_id(), organisation, subject, reason, actor, self._clock.utc_us(), "", "")
        await self.record(actor, "hold.set", organisation, hold=hold.id, reason=reason)
        await self._insert(audit_holds, hold)
        return hold

    async def release_hold(self, actor: str, hold_id: str, seen: str | None = None) -> bool:
        """Ask for a release, or as the second person release; returns whether it is released now.

        `seen` is the person shown as asking, empty for nobody: of two people who only want to ask,
        the second would otherwise release. None if the caller does not say.

        Raises:
            CustodyRefused: there is no such hold, or the same person came twice.
            CustodyChanged: somebody other than the person shown asks for the release.
        """
        hold = _one(await self._read(audit_holds, Hold, audit_holds.c.id == hold_id), "hold")
        if hold.released_by:
            raise CustodyRefused("the hold was released already")
        if hold.release_by and same_person(actor, hold.release_by):
            raise CustodyRefused("a hold is released by a second person")
        if seen is not None and seen != hold.release_by:
            asks = f"{hold.release_by} asked" if hold.release_by else "nobody asks"
            when = "meanwhile" if hold.release_by else "any more"
            raise CustodyChanged(f"{asks} for its release {when}")
        if not hold.release_by:
            async with self._deeds.doing(
                actor, "hold.release_asked", hold.organisation, hold=hold_id
            ):
                await self._change(audit_holds, _as_was(hold), release_by=actor)
            return False
        async with self._deeds.doing(actor, "hold.released", hold.organisation, hold=hold_id):
            await self._change(audit_holds, _as_was(hold), released_by=actor)
        # An erasure that the hold stopped in some audit folder continues.
        await ring(self._database)
        return True

    async def keep_hold(self, actor: str, hold_id: str, comment: str = "") -> None:
        """Decline a release that was asked for; the person who asked withdraws it this way.

        Raises:
            CustodyRefused: there is no such hold, nobody asked, or somebody else's request is
                declined without a reason.
        """
        hold = _one(await self._read(audit_holds, Hold, audit_holds.c.id == hold_id), "hold")
        if not hold.release_by or hold.released_by:
            raise CustodyRefused("nobody asks for the release of this hold")
        is_declined = not same_person(actor, hold.release_by)
        said = said_with(comment) if is_declined or comment.strip() else ""
        told = {"hold": hold_id, "comment": said}
        async with self._deeds.doing(actor, "hold.release_declined", hold.organisation, **told):
            await self._change(audit_holds, _as_was(hold), release_by="")

    async def hold(self, organisation: str, hold_id: str) -> Hold | None:
        """One of an organisation's holds, released or not; None if it has no such hold."""
        where = (audit_holds.c.id == hold_id) & (audit_holds.c.organisation == organisation)
        found = await self._read(audit_holds, Hold, where)
        return found[0] if found else None

    async def require_no_hold(self, organisation: str, subject: str | None) -> None:
        """Raises CustodyRefused if a hold covers any of it; `subject` None means everybody."""
        for hold in await self.holds(organisation):
            if not hold.subject or subject in (None, hold.subject):
                raise CustodyRefused(f"hold {hold.id} forbids it: {hold.reason}")

    async def ask_reveal(
        self,
        actor: str,
        organisation: str,
        request_id: str,
        *,
        reason: str,
        ticket: str,
        minutes: int,
    ) -> Reveal:
        """Ask to read one request's content, or all content if `request_id` is empty.

        Raises:
            CustodyRefused: it does not say why and for how long, or names a request by blanks.
        """
        if request_id and not request_id.strip():
            raise CustodyRefused("which request is it? Without any it is all content", "request_id")
        request_id = request_id.strip()
        for field, said in {"reason": reason, "ticket": ticket}.items():
            said_with(said, field, "a reveal needs a reason and a ticket")
        if not 1 <= minutes <= REVEAL_MINUTES_MAX:
            raise CustodyRefused(f"a reveal lasts 1 to {REVEAL_MINUTES_MAX} minutes", "minutes")
        now_us = self._clock.utc_us()
        reveal = Reveal(
            _new_id(), organisation, request_id, reason, ticket, actor, now_us, minutes, "", 0, 0
        )
        await self.record(
            actor,
            "reveal.asked",
            organisation,
            reveal=reveal.id,
            request_id=request_id,
            reason=reason,
            ticket=ticket,
        )
        await self._insert(audit_reveals, reveal)
        return reveal

    async def approve_reveal(self, actor: str, reveal_id: str) -> Reveal:
        """Approve; CustodyRefused if it is unknown, ended, approved already, or the actor's own."""
        reveal = await self._reveal(reveal_id)
        if reveal.ended_by:
            raise CustodyRefused("the reveal was declined or ended")
        if reveal.approved_by:
            raise CustodyRefused("the reveal was approved already")
        if same_person(actor, reveal.asked_by):
            raise CustodyRefused("a reveal is approved by a second person")
        values = {"approved_by": actor, "approved_us": self._clock.utc_us()}
        async with self._deeds.doing(
            actor, "reveal.approved", reveal.organisation, reveal=reveal_id
        ):
            await self._change(audit_reveals, _as_answered(reveal), **values)
        return await self._reveal(reveal_id)

    async def end_reveal(self, actor: str, reveal_id: str, comment: str = "") -> Reveal:
        """Decline a waiting reveal, or close an open one, at once and for good.

        Raises:
            CustodyRefused: it is unknown, over already, or another's is declined without a reason.
        """
        reveal, now_us = await self._reveal(reveal_id), self._clock.utc_us()
        if not reveal.is_waiting and not reveal.is_open(self.ends_by_us()):
            raise CustodyRefused("the reveal is over already")
        is_declined = reveal.is_waiting and actor != reveal.asked_by
        said = said_with(comment) if is_declined or comment.strip() else ""
        action = "reveal.declined" if reveal.is_waiting else "reveal.ended"
        told = {"reveal": reveal_id, "comment": said}
        values = {"ended_by": actor, "ended_us": now_us, "ended_comment": said}
        async with self._deeds.doing(actor, action, reveal.organisation, **told):
            await self._change(audit_reveals, _as_answered(reveal), **values)
        return await self._reveal(reveal_id)

    async def use_reveal(self, actor: str, reveal_id: str) -> Reveal:
        """Call before content is shown, which only the person who asked may see.

        Raises:
            CustodyRefused: it is not, or no longer, open, or somebody else asked for it.
        """
        reveal = await self.require_open(actor, reveal_id)
        async with self._deeds.doing(actor, "reveal.used", reveal.organisation, reveal=reveal_id):
            await self._change(audit_reveals, _as_answered(reveal), used=audit_reveals.c.used + 1)
        return reveal

    async def require_open(self, actor: str, reveal_id: str) -> Reveal:
        """The same without counting: long content is shown only as long as the reveal lasts."""
        reveal = await self._reveal(reveal_id)
        if actor != reveal.asked_by:
            raise CustodyRefused("content is shown to who asked for the reveal")
        if reveal.ended_by:
            raise CustodyRefused("the reveal was declined or ended")
        if not reveal.is_open(self.ends_by_us()):
            raise CustodyRefused(
                "the reveal has expired" if reveal.approved_by else "the reveal is not approved"
            )
        if await self._was_signed_past(reveal):
            raise CustodyRefused("the reveal has expired")
        return reveal

    async def reveal(self, organisation: str, reveal_id: str) -> Reveal | None:
        """One of an organisation's reveals; None if it has no such reveal."""
        columns = audit_reveals.c
        where = (columns.id == reveal_id) & (columns.organisation == organisation)
        found = await self._read(audit_reveals, Reveal, where)
        return found[0] if found else None

    async def record(self, actor: str, action: str, organisation: str, **detail: str) -> None:
        """Write one admin record; it is durable when this returns."""
        await self._deeds.record(actor, action, organisation, **detail)

    def doing(
        self, actor: str, action: str, organisation: str, **detail: str
    ) -> AbstractAsyncContextManager[None]:
        """Wrap a deed: it is recorded before it begins, and again if it failed."""
        return self._deeds.doing(actor, action, organisation, **detail)

    async def _reveal(self, reveal_id: str) -> Reveal:
        found = await self._read(audit_reveals, Reveal, audit_reveals.c.id == reveal_id)
        return _one(found, "reveal")  # type: ignore[no-any-return]

    async def _was_signed_past(self, reveal: Reveal) -> bool:
        """Whether its log was signed while it was open, and again since its end.

        Signing times never go back: a clock that is set back reopens it for no later process.
        """
        columns = audit_checkpoints.c
        is_since = columns.signed_us >= reveal.approved_us
        query = select(func.min(columns.signed_us), func.max(columns.signed_us)).where(
            columns.organisation == reveal.organisation, is_since
        )
        async with self._database.reading() as connection:
            first_us, last_us = (await connection.execute(query)).one()
        return first_us is not None and first_us < reveal.until_us <= last_us

    async def _insert(self, table: Table, row: Struct) -> None:
        values = {name: getattr(row, name) for name in row.__struct_fields__}
        async with self._database.writing() as connection:
            await connection.execute(insert(table).values(values))

    async def _change(self, table: Table, as_was: ColumnElement[bool], **values: Any) -> None:
        """Raises CustodyChanged if the row is no longer as the actor saw it."""
        async with self._database.writing() as connection:
            done = await connection.execute(update(table).where(as_was).values(**values))
        if done.rowcount != 1:
            raise CustodyChanged("somebody else was faster; look at it again")


async def is_known(database: Database, organisation: str) -> bool:
    """Whether such an organisation, or its log, exists: a mistyped name would protect nobody."""
    columns = (organisations.c.name, audit_sequences.c.organisation)
    async with database.reading() as connection:
        for column in columns:
            query = select(column).where(column == organisation)
            if (await connection.execute(query)).first() is not None:
                return True
    return False


def said_with(text: str, field: str = "comment", lacking: str = LACKING) -> str:
    """The trimmed comment of a deed; raises CustodyRefused if it is empty or too long."""
    said = text.strip()
    if not said:
        raise CustodyRefused(lacking, field)
    if len(said) > COMMENT_CHARS_MAX:
        raise CustodyRefused(f"a {field} has at most {COMMENT_CHARS_MAX:,} characters", field)
    return said


def _as_was(hold: Hold) -> ColumnElement[bool]:
    """The row as it was read: of two people who answer at once, the second does not find it."""
    columns = audit_holds.c
    return and_(
        columns.id == hold.id,
        columns.release_by == hold.release_by,
        columns.released_by == hold.released_by,
    )


def _as_answered(reveal: Reveal) -> ColumnElement[bool]:
    """The same for a reveal; how often it was used may differ."""
    columns = audit_reveals.c
    return and_(
        columns.id == reveal.id,
        columns.approved_by == reveal.approved_by,
        columns.ended_by == reveal.ended_by,
    )


def _age(row: Any) -> int:
    return row.set_us if isinstance(row, Hold) else int(row.asked_us)


def _one(found: Any, kind: str) -> Any:
    if not found:
        raise CustodyRefused(f"there is no such {kind}")
    return found[0]


def _new_id() -> str:
    return secrets.token_hex(_ID_BYTES)
