"""People of the control plane, their roles and their sessions, in the database.

All processes see the same: when somebody is signed out, is disabled or loses a role, it takes
effect everywhere with the next request. Only a digest of a session is kept.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Sequence
from contextlib import suppress

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, delete, func, not_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import SECOND_US, Clock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid, Unauthenticated
from gateway.oversight.access import (
    NAMES_OF_PARTS,
    PROVIDED,
    ROLES,
    Grant,
    Person,
    may_grant,
)
from gateway.secrets.passwords import hash_password, proves
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.identity.last_admin import FIRST_ROLE, require_another_admin
from gateway.store.identity.names import check_place_of, checked_name, visible
from gateway.store.identity.person_rows import Given, grants_in, grants_of, person_of
from gateway.store.identity.sessions import (
    ABSOLUTE_S,
    IDLE_S,
    SESSION_OF,
    digest_of,
    end_all,
    is_over,
    is_welcome,
    new_session,
    shut_out,
)
from gateway.store.schema.tables import admin_sessions, organisations, people, role_grants


_SEEN_EVERY_US = 30_000_000


class Session(Struct, frozen=True):
    """Somebody who is signed in now."""

    person: Person
    proved_us: int
    """When they last proved who they are."""


class Proved(Struct, frozen=True):
    """A person who gave their password."""

    person: Person
    mark: bytes | None = None
    """Marks which password that was: it may have changed by the time a session begins."""


class Facts(Struct, frozen=True):
    """What is kept of a person, besides their roles."""

    created_us: int
    disabled_us: int | None
    has_password: bool
    has_subject: bool
    """Whether an OpenID provider vouches for them."""
    sessions: int
    """How many are open now."""
    seen_us: int
    """When one of them was last used, to half a minute; 0 if none is open."""


class PeopleStore:
    """People and sessions of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def add(
        self, name: str, *, title: str = "", password: Secret[str] | None = None, subject: str = ""
    ) -> None:
        """Add a person without any role.

        Args:
            name: lower-case letters, digits and `. _ @ -`.
            title: what people call them.
            password: for signing in here.
            subject: `ISSUER|SUBJECT` of an OpenID provider.

        Raises:
            RequestInvalid: the name is taken or not possible, or the password is too short.
        """
        checked_name(name, is_provided=bool(subject))
        hashed = None if password is None else await asyncio.to_thread(hash_password, password)
        row = {
            "name": name,
            "title": visible(title, "title")[:200],
            "password_hash": hashed,
            "subject": subject or None,
            "created_us": self._clock.utc_us(),
            "disabled_us": None,
        }
        try:
            async with self._database.writing() as connection:
                await connection.execute(people.insert(), row)
        except IntegrityError:
            raise RequestInvalid("there is such a person already", parameter="name") from None

    async def set_password(self, name: str, password: Secret[str]) -> None:
        """Set another password; all sessions under the name end.

        It comes from the operator at the machine: a person the admin token let in counts as a
        person from now on.

        Raises:
            RequestInvalid: there is no such person, or the password is too short.
        """
        hashed = await asyncio.to_thread(hash_password, password)
        await self._change(name, password_hash=hashed, of_token=False)

    async def disable(self, name: str, by: Person | None = None) -> None:
        """Sign a person out until they are enabled; their unused link is withdrawn.

        `by` None is the operator at the machine.

        Raises:
            RequestInvalid: there is no such person, it is the caller, or nobody would be left who
                runs the platform.
        """
        if by is not None and by.name == name:
            raise RequestInvalid("You cannot disable yourself.", parameter="name")
        async with self._database.writing() as connection:
            if by is not None:
                # First of all: a row that is locked earlier would be out of their one order.
                await require_another_admin(connection, name)
            await self._require(connection, name)
            change = update(people).where(people.c.name == name, people.c.disabled_us.is_(None))
            await connection.execute(change.values(disabled_us=self._clock.utc_us()))
            await shut_out(connection, name)

    async def sign_out(self, name: str) -> int:
        """End all sessions of a person; returns how many. RequestInvalid if nobody is called so."""
        async with self._database.writing() as connection:
            await self._require(connection, name)
            return await end_all(connection, name)

    async def enable(
        self, name: str, by: Person | None = None, since_us: int | None = None
    ) -> None:
        """Let a person sign in again, with the roles they hold.

        Raises:
            RequestInvalid: there is no such person.
            ChangedMeanwhile: they were not disabled at `since_us`, but at another time or not at
                all.
            Forbidden: the caller may not give a role that they hold.
        """
        async with self._database.writing() as connection:
            await self._require(connection, name)
            given = (await grants_of(connection, [name])).get(name, Given()).grants
            if by is not None and not all(may_grant(by, grant) for grant in given):
                raise Forbidden("You cannot let somebody in who may do what you may not.")
            change = update(people).where(people.c.name == name)
            if since_us is not None:
                change = change.where(people.c.disabled_us == since_us)
            done = await connection.execute(change.values(disabled_us=None))
            if not done.rowcount:
                raise ChangedMeanwhile("Somebody changed this meanwhile. Nothing was undone.")

    async def facts(self, name: str) -> Facts | None:
        """What is kept of a person; None if there is no such person."""
        columns, now_us = admin_sessions.c, self._clock.utc_us()
        query = select(people).where(people.c.name == name)
        sessions = select(func.count(), func.max(columns.seen_us)).where(
            columns.person == name, not_(is_over(now_us))
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
            count, seen_us = (await connection.execute(sessions)).one()
        if row is None:
            return None
        return Facts(
            row["created_us"],
            row["disabled_us"],
            row["password_hash"] is not None,
            row["subject"] is not None,
            count,
            seen_us or 0,
        )

    async def grant(self, name: str, grant: Grant, grantor: Person | None = None) -> bool:
        """Give a role; `grantor` None is the operator at the machine. False if they held it.

        Raises:
            RequestInvalid: there is no such person, role or organisation's name, or a group gives
                it.
            Forbidden: the grantor may not give what this role permits.
        """
        self._check(grant, grantor)
        async with self._database.writing() as connection:
            await self._require(connection, name)
            row = {"person": name, "role": grant.role, "organisation": grant.organisation}
            await self._require_by_hand(connection, row)
            held = await connection.execute(delete(role_grants).where(_is(row)))
            await connection.execute(role_grants.insert(), row)
        return not held.rowcount

    async def revoke(self, name: str, grant: Grant, grantor: Person | None = None) -> bool:
        """Take a role away; False if they did not hold it.

        Raises like `grant`, and if nobody would be left with the first role.
        """
        self._check(grant, grantor)
        row = {"person": name, "role": grant.role, "organisation": grant.organisation}
        async with self._database.writing() as connection:
            if grantor is not None and grant == FIRST_ROLE:
                # First of all, as in `disable`.
                await require_another_admin(connection, name)
            await self._require(connection, name)
            await self._require_by_hand(connection, row)
            gone = await connection.execute(delete(role_grants).where(_is(row)))
        return bool(gone.rowcount)

    async def listed(self) -> Sequence[Person]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(people).order_by(people.c.name))).mappings()
            found = rows.all()
            given = await grants_of(connection)
        return [person_of(row, given) for row in found]

    async def by_password(self, name: str, password: Secret[str]) -> Proved | None:
        """The person proved by a name and a password; never one that only the gateway may be."""
        async with self._database.reading() as connection:
            query = select(people).where(people.c.name == name)
            row = (await connection.execute(query)).mappings().one_or_none()
            given = await grants_of(connection, [name])
        encoded = row["password_hash"] if row is not None else None
        is_proved = await asyncio.to_thread(proves, password, encoded)
        if row is None or not is_proved or row["disabled_us"] is not None:
            return None
        if name in NAMES_OF_PARTS:
            return None
        return Proved(person_of(row, given), digest_of(row["password_hash"]))

    async def by_subject(self, subject: str, name: str) -> Person | None:
        """The person vouched for by an OpenID provider; added without a role the first time."""
        query = select(people).where(people.c.subject == subject)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            # A person added by two sign-ins at once is one person.
            with suppress(RequestInvalid):
                await self.add(name_of_subject(subject), title=name, subject=subject)
            async with self._database.reading() as connection:
                row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            return None
        async with self._database.reading() as connection:
            given = await grants_of(connection, [row["name"]])
        return None if row["disabled_us"] is not None else person_of(row, given)

    async def has_subject(self, subject: str) -> bool:
        """Whether a person with this subject of a provider exists."""
        query = select(people.c.name).where(people.c.subject == subject)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None

    async def has_organisation(self, name: str) -> bool:
        query = select(organisations.c.name).where(organisations.c.name == name)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).first() is not None

    async def organisations(self) -> dict[str, str]:
        """All organisations' names, and their time zones."""
        query = select(organisations.c.name, organisations.c.time_zone)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {row.name: row.time_zone for row in rows}

    async def begin(
        self,
        name: str,
        proved_ago_s: float | None = 0.0,
        session_id: str = "",
        mark: bytes | None = None,
    ) -> str:
        """Begin a session, proved this long ago (None: unknown); its id is shown once.

        `session_id` must be unguessable; without it one is drawn. `mark` is of the password that
        proved them.

        Raises:
            Unauthenticated: that is not their password any more, or they were disabled.
        """
        session_id = session_id or secrets.token_urlsafe(32)
        now_us = self._clock.utc_us()
        row = new_session(session_id, name, now_us, proved_ago_s)
        async with self._database.writing() as connection:
            if not await is_welcome(connection, name, mark):
                raise Unauthenticated("They were disabled, or the password changed meanwhile.")
            await connection.execute(delete(admin_sessions).where(is_over(now_us)))
            await connection.execute(admin_sessions.insert(), row)
        return session_id

    async def session(self, session_id: str, known: Sequence[Person] = ()) -> Session | None:
        """The session with this id; a lookup keeps it from becoming idle.

        `known` are people who are not kept in the database.
        """
        if not session_id:
            return None
        now_us, digest = self._clock.utc_us(), digest_of(session_id)
        async with self._database.reading() as connection:
            query = SESSION_OF.where(admin_sessions.c.digest == digest)
            rows = (await connection.execute(query)).mappings().all()
        if not rows:
            return None
        row = rows[0]
        idle_us, age_us = now_us - row["seen_us"], now_us - row["began_us"]
        # A session that began in the future would outlast its limit by as much as the clock went
        # back.
        if idle_us > IDLE_S * SECOND_US or not -_SEEN_EVERY_US <= age_us <= ABSOLUTE_S * SECOND_US:
            await self.end(session_id)
            return None
        person = next((each for each in known if each.name == row["person"]), None)
        if person is None:
            if row["name"] is None or row["disabled_us"] is not None:
                return None
            person = person_of(row, grants_in(rows))
        if abs(now_us - row["seen_us"]) > _SEEN_EVERY_US:
            await self._touch(digest, seen_us=now_us)
        return Session(person, row["proved_us"])

    async def prove(self, session_id: str) -> None:
        """Note that they proved again who they are."""
        await self._touch(digest_of(session_id), proved_us=self._clock.utc_us())

    async def end(self, session_id: str) -> None:
        """Sign out; the id is no longer valid anywhere."""
        gone = delete(admin_sessions).where(admin_sessions.c.digest == digest_of(session_id))
        async with self._database.writing() as connection:
            await connection.execute(gone)

    async def forget_over(self) -> None:
        """Delete sessions that nobody ended, a while after they became invalid."""
        gone = delete(admin_sessions).where(is_over(self._clock.utc_us()))
        async with self._database.writing() as connection:
            await connection.execute(gone)

    async def _touch(self, digest: bytes, **values: int) -> None:
        change = update(admin_sessions).where(admin_sessions.c.digest == digest).values(**values)
        async with self._database.writing() as connection:
            await connection.execute(change)

    async def _change(self, name: str, **values: object) -> None:
        async with self._database.writing() as connection:
            await self._require(connection, name)
            await connection.execute(update(people).where(people.c.name == name).values(**values))
            await end_all(connection, name)

    @staticmethod
    def _check(grant: Grant, grantor: Person | None) -> None:
        if grant.role not in ROLES:
            raise RequestInvalid("there is no such role", parameter="role")
        check_place_of(grant)
        if grantor is not None and not may_grant(grantor, grant):
            raise Forbidden("You cannot give or take what you may not do yourself.")

    @staticmethod
    async def _require(connection: AsyncConnection, name: str) -> None:
        query = select(people.c.name).where(people.c.name == name).with_for_update()
        if (await connection.execute(query)).first() is None:
            raise RequestInvalid("there is no such person", parameter="name")

    @staticmethod
    async def _require_by_hand(connection: AsyncConnection, row: dict[str, str]) -> None:
        """Roles given by a group are changed where the group is: raises RequestInvalid."""
        query = select(role_grants.c.by_group).where(_is(row))
        if group := (await connection.execute(query)).scalar_one_or_none():
            reason = f"this role comes from the group {group} of the OpenID provider"
            raise RequestInvalid(f"{reason}: change who is in it there", parameter="role")


def name_of_subject(subject: str) -> str:
    """The name of a person vouched for by a provider: nothing that they can choose."""
    return f"{PROVIDED}{hashlib.sha256(subject.encode()).hexdigest()[:12]}"


def _is(row: dict[str, str]) -> ColumnElement[bool]:
    return and_(*(role_grants.c[name] == value for name, value in row.items()))
