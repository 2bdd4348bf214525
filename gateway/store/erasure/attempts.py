"""Notes what each attempt at an erasure found before it destroys anything, in case of a crash.

What is destroyed cannot be counted afterwards. So the attempt that completes a case certifies what
all attempts found together, with what each of them left.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec import Struct, structs
from sqlalchemy import ColumnElement, Select, exists, insert, or_, select, update

from gateway.store.custody.orders import CustodyRefused
from gateway.store.database_clock import database_now_us
from gateway.store.engine import Database
from gateway.store.erasure.kept_holdings import Holdings
from gateway.store.schema.custody import audit_holds, erasure_attempts, erasure_cases


_AT_ONCE: Final = 500


class DatedKey(Struct, frozen=True):
    """A content key by name, and the day it is for."""

    key: str
    day: int


class Attempt(Struct, frozen=True):
    """One attempt; the first found everything, each later one what was left."""

    by: str
    begun_us: int
    keys: tuple[DatedKey, ...]
    kept: Holdings
    folder: str = ""
    """The mark of the audit folder where it was approved; empty if an older program noted it."""


class _Certified(Struct, frozen=True):
    keys_destroyed: tuple[str, ...] = ()


class ErasureAttempts:
    """The attempts at all cases in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, case_id: str) -> list[Attempt]:
        """The attempts at a case, oldest first."""
        columns = erasure_attempts.c
        query = select(columns.found).where(columns.case_id == case_id).order_by(columns.begun_us)
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).scalars().all()
        return [msgspec.json.decode(each, type=Attempt) for each in found]

    async def in_folder(self, case_ids: Sequence[str], folder: str) -> dict[str, list[Attempt]]:
        """By case, the attempts made where this audit folder is.

        Without the keys that the case's certificate names already: these are counted.
        """
        found: dict[str, list[Attempt]] = {}
        columns = erasure_attempts.c
        for at in range(0, len(case_ids), _AT_ONCE):
            some = columns.case_id.in_(case_ids[at : at + _AT_ONCE])
            query = (
                select(columns.case_id, columns.found, erasure_cases.c.certificate)
                .join(erasure_cases, erasure_cases.c.id == columns.case_id)
                .where(some)
                .order_by(columns.begun_us)
            )
            async with self._database.reading() as connection:
                rows = (await connection.execute(query)).all()
            for case_id, said, certificate in rows:
                attempt = msgspec.json.decode(said, type=Attempt)
                if attempt.folder == folder:
                    told = _certified(certificate)
                    keys = tuple(key for key in attempt.keys if key.key not in told)
                    uncounted = structs.replace(attempt, keys=keys)
                    found.setdefault(case_id, []).append(uncounted)
        return found

    async def begun(self, organisation: str) -> dict[str, Attempt]:
        """By case, the last attempt at each open case; none of them was completed."""
        columns = erasure_attempts.c
        query = (
            select(columns.case_id, columns.found)
            .join(erasure_cases, erasure_cases.c.id == columns.case_id)
            .where(erasure_cases.c.organisation == organisation, erasure_cases.c.state == "open")
            .order_by(columns.begun_us)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {case: msgspec.json.decode(found, type=Attempt) for case, found in rows}

    @staticmethod
    def none_of(case_id: str) -> ColumnElement[bool]:
        """Whether no attempt was begun, as a condition for a change of the case."""
        return ~exists().where(erasure_attempts.c.case_id == case_id)

    async def note(self, case_id: str, attempt: Attempt) -> None:
        """Note an attempt before it destroys anything; it began when it claimed the case.

        Raises:
            CustodyRefused: the case has been taken over, or a hold was set since approval: reading
                took its time.
        """
        mine = (erasure_cases.c.id == case_id) & (erasure_cases.c.claimed_us == attempt.begun_us)
        said = msgspec.json.encode(attempt).decode()
        # By the clock that dates requests whose answers end after it (`erased_since`).
        noted_us = await database_now_us(self._database)
        values = {"case_id": case_id, "begun_us": noted_us, "found": said}
        async with self._database.writing() as connection:
            # A process that wants to take the case over waits for this row.
            hold = update(erasure_cases).where(mine).values(claimed_us=attempt.begun_us)
            if not (await connection.execute(hold)).rowcount:
                raise CustodyRefused("somebody else carries it out by now: nothing was destroyed")
            held = (await connection.execute(holds_on(case_id))).first()
            if held is not None:
                raise CustodyRefused(f"hold {held.id} forbids it: {held.reason}")
            await connection.execute(insert(erasure_attempts).values(values))


def _certified(certificate: str) -> frozenset[str]:
    said = msgspec.json.decode(certificate, type=_Certified) if certificate else _Certified()
    return frozenset(said.keys_destroyed)


def holds_on(case_id: str) -> Select[str, str]:
    """Holds in force that cover some of what a case would destroy."""
    holds, cases = audit_holds.c, erasure_cases.c
    return (
        select(holds.id, holds.reason)
        .join_from(audit_holds, erasure_cases, holds.organisation == cases.organisation)
        .where(cases.id == case_id, holds.released_by == "", covers())
    )


def covers() -> ColumnElement[bool]:
    """Whether a hold of one organisation covers some of what a case would destroy."""
    holds, cases = audit_holds.c, erasure_cases.c
    return or_(holds.subject == "", cases.subject == "", holds.subject == cases.subject)


def keys_of(attempts: Sequence[Attempt]) -> list[DatedKey]:
    """All keys that the attempts found, each once."""
    return list({key.key: key for attempt in attempts for key in attempt.keys}.values())


def most_of(attempts: Sequence[Attempt]) -> Holdings:
    """What was kept at most: an attempt does not find what an earlier one destroyed."""
    return max((attempt.kept for attempt in attempts), key=lambda kept: kept.things)
