"""Invitations: one-time links with which people choose the password they sign in with.

Only a digest of a link is kept. Whoever makes a link could follow it themselves, so it is worth
nothing unless its maker may give every role that its person holds, both when it is made and when it
is used. A person invited by the admin token, or by somebody whom it let in, counts as the token
where two people are needed, until a person, or the operator at the machine, lets them in anew.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import Select, delete, select
from sqlalchemy import update as update_rows
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.actors import OF_MACHINE
from gateway.clock import Clock
from gateway.errors import Forbidden, RequestInvalid, Unauthenticated
from gateway.oversight.access import NAMES_OF_PARTS, TOKEN_PERSON, Person, may_grant
from gateway.secrets.passwords import hash_password
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.identity.person_rows import people_in, person_in
from gateway.store.identity.sessions import new_session
from gateway.store.schema.tables import admin_sessions, invitations, people


GOOD_FOR_S: Final = 72 * 3600.0
CODE_BYTES: Final = 32
REFUSAL: Final = (
    "this link is not good any more: it was used, replaced or withdrawn, it is old, or you were "
    "given a role since that its maker may not give"
)
BEYOND: Final = "You cannot let somebody in who may do what you may not do yourself."


class Invitation(Struct, frozen=True):
    """An unused link, without its code."""

    person: str
    made_by: str
    made_us: int
    until_us: int


class Invitations:
    """The links of one database; each person has at most one."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def pending(self) -> dict[str, Invitation]:
        """Links that would let their person in now, by the person's name."""
        columns = invitations.c
        query = select(columns.person, columns.made_by, columns.made_us, columns.until_us)
        query = query.where(columns.until_us > self._clock.utc_us())
        async with self._database.reading() as connection:
            found = [Invitation(*row) for row in (await connection.execute(query)).all()]
            names = {name for each in found for name in (each.person, each.made_by)}
            known = await people_in(connection, sorted(names))
        return {
            each.person: each
            for each in found
            if each.person in known and _may_let_in(_maker(each.made_by, known), known[each.person])
        }

    async def shut(self, names: Sequence[str]) -> frozenset[str]:
        """Those without any way to sign in: no password, no provider, no link."""
        query = select(people.c.name).where(
            people.c.name.in_(names), people.c.password_hash.is_(None), people.c.subject.is_(None)
        )
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).scalars().all()
        return frozenset(found) - (await self.pending()).keys()

    async def make(self, name: str, made_by: str, maker: Person | None = None) -> str:
        """Make a code, shown once, replacing any earlier one; `maker` None is the operator.

        Raises:
            RequestInvalid: there is no such person, or they are disabled or use a provider.
            Forbidden: the maker may not give a role that the person holds.
        """
        code = secrets.token_urlsafe(CODE_BYTES)
        now_us = self._clock.utc_us()
        row = {"digest": _digest(code), "person": name, "made_by": made_by, "made_us": now_us}
        row |= {"until_us": now_us + round(GOOD_FOR_S * 1_000_000)}
        # Locked, so that of two made at once the later replaces the earlier.
        async with self._database.writing() as connection:
            await connection.execute(_locked(name))
            await _require_open(connection, name, maker)
            await connection.execute(delete(invitations).where(invitations.c.person == name))
            await connection.execute(invitations.insert(), row)
        return code

    async def withdraw(self, name: str) -> None:
        """Withdraw a link; it is no error if there is none."""
        async with self._database.writing() as connection:
            await connection.execute(delete(invitations).where(invitations.c.person == name))

    async def whose(self, code: str) -> str:
        """The person whom a code lets in; raises Unauthenticated, always with the same words."""
        async with self._database.reading() as connection:
            return (await self._whose(connection, code))[0]

    async def redeem(self, code: str, password: Secret[str]) -> str:
        """Set the password of the code's person, and sign them in; the session id is shown once.

        Their other sessions and links end. It is one transaction: disabling them, or setting
        another password, ends this session as well.

        Raises:
            Unauthenticated: the code is not valid, for every reason with the same words.
            RequestInvalid: the password is too short.
        """
        # Before the costly hashing: nobody makes us do it without a code.
        name = await self.whose(code)
        hashed = await asyncio.to_thread(hash_password, password)
        session_id = secrets.token_urlsafe(CODE_BYTES)
        async with self._database.writing() as connection:
            # Locked before the link, in the same order as when disabling a person.
            await connection.execute(_locked(name))
            _, of_token = await self._whose(connection, code)
            # Only the one who deletes it has it: of two at the same time, one finds nothing.
            gone = delete(invitations).where(invitations.c.digest == _digest(code))
            if not (await connection.execute(gone)).rowcount:
                raise Unauthenticated(REFUSAL)
            change = update_rows(people).where(people.c.name == name)
            await connection.execute(change.values(password_hash=hashed, of_token=of_token))
            await connection.execute(delete(invitations).where(invitations.c.person == name))
            await connection.execute(delete(admin_sessions).where(admin_sessions.c.person == name))
            begun = new_session(session_id, name, self._clock.utc_us(), 0.0)
            await connection.execute(admin_sessions.insert(), begun)
        return session_id

    async def _whose(self, connection: AsyncConnection, code: str) -> tuple[str, bool]:
        """The code's person, and whether a holder of the admin token may have used it."""
        query = select(invitations).where(
            invitations.c.digest == _digest(code), invitations.c.until_us > self._clock.utc_us()
        )
        row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            raise Unauthenticated(REFUSAL)
        maker = _maker(str(row["made_by"]), await people_in(connection, [row["made_by"]]))
        try:
            await _require_open(connection, row["person"], maker)
        except (RequestInvalid, Forbidden):
            raise Unauthenticated(REFUSAL) from None
        return str(row["person"]), maker is not None and maker.of_token


def _locked(name: str) -> Select[tuple[str]]:
    return select(people.c.name).where(people.c.name == name).with_for_update()


async def _require_open(connection: AsyncConnection, name: str, maker: Person | None) -> None:
    query = select(people.c.subject, people.c.disabled_us).where(people.c.name == name)
    row = (await connection.execute(query)).one_or_none()
    person = await person_in(connection, name)
    if row is None or person is None or name in NAMES_OF_PARTS:
        raise RequestInvalid("there is no such person", parameter="name")
    if row.disabled_us is not None:
        raise RequestInvalid("This person is disabled: enable them first.", parameter="name")
    if row.subject is not None:
        reason = "This person signs in through the OpenID provider: there is no password to choose."
        raise RequestInvalid(reason, parameter="name")
    if not _may_let_in(maker, person):
        raise Forbidden(BEYOND)


def _maker(name: str, found: Mapping[str, Person]) -> Person | None:
    """The maker of a link; None is the operator."""
    if name == TOKEN_PERSON.name:
        return TOKEN_PERSON
    return None if name.startswith(OF_MACHINE) else found.get(name, Person(name))


def _may_let_in(maker: Person | None, person: Person) -> bool:
    if maker is None:
        return True
    return not maker.is_disabled and all(may_grant(maker, grant) for grant in person.grants)


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.strip().encode()).digest()
