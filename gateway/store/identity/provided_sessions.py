"""Sessions that an OpenID provider vouched for, and the sign-outs that it tells us of.

Subject and session of the provider are kept as digests, its identity token is sealed under a key of
its own that is bound to the row: all of it goes with the row, whichever way the session ends. Each
sign-out message of the provider is accepted once among all processes, and remembered for as long as
it could be sent again; a sign-in that was under way when it came gets no session any more.
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Index,
    LargeBinary,
    Table,
    and_,
    delete,
    false,
    func,
    or_,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import NotReady, RequestInvalid
from gateway.secrets.content_keys import ContentKey, fresh_key, opened_key
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.identity.sessions import digest_of, is_over, is_welcome, new_session
from gateway.store.schema.tables import admin_sessions, metadata


HEARD_MAX: Final = 50_000
"""The most sign-outs that are remembered; another one waits until some of them are forgotten."""
ID_TOKEN_CHARS_MAX: Final = 6000
"""A longer one would not fit into the address that it is sent in, and is not kept."""
_TURN: Final = 0x6F69_6463
ABOUT: Final = "id token"

heard_logouts = Table(
    "heard_logouts",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("vouched_subject", LargeBinary(32)),
    Column("vouched_sid", LargeBinary(32)),
    Column("issued_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Index(None, "until_us"),
)
"""Sign-outs received from a provider, by the digest of their numbers."""


class Vouching(Struct, frozen=True):
    """A sign-in as its provider describes it."""

    subject: str
    """`ISSUER|SUBJECT`."""
    sid: str
    """`ISSUER|SID`, the provider's own session; empty if it does not say."""
    issued_us: int
    """When it was issued, by the provider's clock."""
    id_token: Secret[str]


class Logout(Struct, frozen=True):
    """A sign-out at the provider: of one of its sessions, or of all of a person's."""

    number: str
    """`ISSUER|JTI`: no two are the same."""
    subject: str
    """`ISSUER|SUBJECT`; may be empty if there is a `sid`."""
    sid: str
    """`ISSUER|SID`; empty for all sessions of the subject."""
    issued_us: int
    until_us: int
    """When it is no longer accepted."""


class LogoutKnown(RequestInvalid):
    """It was received before."""

    def __init__(self) -> None:
        super().__init__("This sign-out was heard before.")


class ProvidedSessions:
    """Sessions and received sign-outs of one database."""

    def __init__(self, database: Database, master: MasterKey, clock: Clock) -> None:
        self._database = database
        self._master = master
        self._clock = clock

    async def begin(
        self, name: str, vouching: Vouching, proved_ago_s: float | None = 0.0
    ) -> str | None:
        """Begin a session, whose id is shown once.

        None if the provider ended it meanwhile, or the person was disabled.
        """
        session_id, now_us = secrets.token_urlsafe(32), self._clock.utc_us()
        row = new_session(session_id, name, now_us, proved_ago_s) | self._kept(session_id, vouching)
        async with self._database.writing() as connection:
            await self._take_turn(connection)
            ended = select(heard_logouts.c.digest).where(_ends(vouching)).limit(1)
            if (await connection.execute(ended)).first() is not None:
                return None
            if not await is_welcome(connection, name):
                return None
            await connection.execute(delete(admin_sessions).where(is_over(now_us)))
            await connection.execute(admin_sessions.insert(), row)
        return session_id

    async def id_token(self, session_id: str) -> Secret[str] | None:
        """The identity token of a session that a provider vouched for; None for any other.

        Empty if none was kept, or this master key does not open it.
        """
        columns, digest = admin_sessions.c, digest_of(session_id)
        query = select(columns.vouched_subject, columns.id_token_key, columns.id_token)
        async with self._database.reading() as connection:
            row = (await connection.execute(query.where(columns.digest == digest))).one_or_none()
        if row is None or row.vouched_subject is None:
            return None
        if row.id_token is None:
            return Secret("")
        try:
            key: ContentKey = opened_key(self._master, row.id_token_key, ABOUT, digest.hex())
            return Secret(key.open(row.id_token).decode())
        except NotReady:
            return Secret("")

    async def whose(self, logout: Logout) -> Sequence[str]:
        """The people whom this sign-out concerns, each of them once.

        Raises:
            LogoutKnown: it was received before.
        """
        query = select(admin_sessions.c.person).where(_ended_by(logout)).distinct()
        async with self._database.reading() as connection:
            await self._require_new(connection, logout)
            rows = await connection.execute(query.order_by(admin_sessions.c.person))
            return rows.scalars().all()

    async def end(self, logout: Logout) -> int:
        """End what a provider says has ended; returns the number of sessions.

        Raises:
            LogoutKnown: it was received before, by whichever process.
            NotReady: too many are remembered already.
        """
        now_us = self._clock.utc_us()
        row = {
            "digest": _mark(logout.number),
            "vouched_subject": _mark(logout.subject),
            "vouched_sid": _mark(logout.sid),
            "issued_us": logout.issued_us,
            "until_us": logout.until_us,
        }
        async with self._database.writing() as connection:
            await self._take_turn(connection)
            await self._require_new(connection, logout)
            old = delete(heard_logouts).where(heard_logouts.c.until_us < now_us)
            await connection.execute(old)
            count = select(func.count()).select_from(heard_logouts)
            if (await connection.execute(count)).scalar_one() >= HEARD_MAX:
                raise NotReady("too many sign-outs are remembered already")
            await connection.execute(heard_logouts.insert(), row)
            gone = await connection.execute(delete(admin_sessions).where(_ended_by(logout)))
            return gone.rowcount

    def _kept(self, session_id: str, vouching: Vouching) -> dict[str, object]:
        digest = digest_of(session_id)
        kept: dict[str, object] = {
            "vouched_subject": _mark(vouching.subject),
            "vouched_sid": _mark(vouching.sid),
        }
        id_token = vouching.id_token.reveal()
        if len(id_token) > ID_TOKEN_CHARS_MAX:
            return kept
        key = fresh_key(self._master, ABOUT, digest.hex())
        sealed = {"id_token_key": key.kept_as, "id_token": key.seal(id_token.encode())}
        return kept | sealed | {"master_key_id": key.sealed_by}

    async def _take_turn(self, connection: AsyncConnection) -> None:
        """Serialise sign-ins and sign-outs: neither misses what the other writes.

        SQLite has one writer at a time anyway.
        """
        if self._database.kind == "postgresql":
            lock = text("SELECT pg_advisory_xact_lock(:lock)")
            await connection.execute(lock, {"lock": _TURN})

    @staticmethod
    async def _require_new(connection: AsyncConnection, logout: Logout) -> None:
        columns = heard_logouts.c
        query = select(columns.digest).where(columns.digest == _mark(logout.number))
        if (await connection.execute(query)).first() is not None:
            raise LogoutKnown


def _ended_by(logout: Logout) -> ColumnElement[bool]:
    """The sessions that a sign-out ends."""
    columns = admin_sessions.c
    is_theirs = columns.vouched_subject == _mark(logout.subject)
    if not logout.sid:
        # Without either, NULL would match every session that no provider vouched for.
        return is_theirs if logout.subject else false()
    is_named = columns.vouched_sid == _mark(logout.sid)
    if not logout.subject:
        return is_named
    # A session without the provider's name cannot be told apart from the one it means: it ends too.
    return and_(is_theirs, or_(is_named, columns.vouched_sid.is_(None)))


def _ends(vouching: Vouching) -> ColumnElement[bool]:
    """The received sign-outs that end a sign-in: the same from the other side."""
    columns = heard_logouts.c
    is_theirs = columns.vouched_subject == _mark(vouching.subject)
    is_named = columns.vouched_sid == _mark(vouching.sid)
    if not vouching.sid:
        ends: ColumnElement[bool] = is_theirs
    else:
        ends = or_(
            and_(columns.vouched_sid.is_(None), is_theirs),
            and_(is_named, or_(columns.vouched_subject.is_(None), is_theirs)),
        )
    # A sign-in after the sign-out was vouched for again.
    return and_(ends, columns.issued_us >= vouching.issued_us)


def _mark(name: str) -> bytes | None:
    """A digest, so that every name has the same length and the table names nobody."""
    return hashlib.sha256(name.encode()).digest() if name else None
