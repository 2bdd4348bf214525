"""Sessions of the control plane as rows: how one begins, and when it is over.

Only a digest of a session's id is kept, so reading the table signs nobody in.
"""

import hashlib
import hmac
from typing import Final

from sqlalchemy import ColumnElement, and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import SECOND_US
from gateway.store.schema.tables import admin_sessions, invitations, people, role_grants


IDLE_S: Final = 1800.0
ABSOLUTE_S: Final = 12 * 3600.0
SESSION_OF: Final = (
    select(
        *(admin_sessions.c[name] for name in ("person", "began_us", "seen_us", "proved_us")),
        *(people.c[name] for name in ("name", "title", "disabled_us", "of_token")),
        *(role_grants.c[name] for name in ("role", "organisation", "by_group")),
    )
    .outerjoin(people, people.c.name == admin_sessions.c.person)
    .outerjoin(
        role_grants,
        and_(
            role_grants.c.person == admin_sessions.c.person,
            # A role given by a group counts only in sessions that its provider vouched for.
            or_(role_grants.c.by_group == "", admin_sessions.c.vouched_subject.is_not(None)),
        ),
    )
)
"""A session with its person: one row for each of their roles, or one without any.

Every request to the control plane needs it, so it is one query.
"""


def new_session(
    session_id: str, person: str, now_us: int, ago_s: float | None
) -> dict[str, object]:
    """The row of a session that begins now, proved this long ago; None: unknown."""
    ago_us = now_us if ago_s is None else round(ago_s * SECOND_US)
    return {
        "digest": digest_of(session_id),
        "person": person,
        "began_us": now_us,
        "seen_us": now_us,
        "proved_us": max(now_us - ago_us, 0),
    }


async def is_welcome(connection: AsyncConnection, person: str, mark: bytes | None = None) -> bool:
    """Whether their proof still holds; changes to that wait for this transaction.

    Disabling a person, or setting another password, ends existing sessions: one that began a moment
    later would become valid when they are enabled. `mark` is of the password that proved them.
    People who are not kept in the database are welcome.
    """
    columns = people.c
    query = select(columns.password_hash, columns.disabled_us).where(columns.name == person)
    row = (await connection.execute(query.with_for_update())).one_or_none()
    if row is not None and row.disabled_us is not None:
        return False
    encoded = None if row is None else row.password_hash
    if mark is None:
        return True
    return encoded is not None and hmac.compare_digest(digest_of(encoded), mark)


def is_over(now_us: int) -> ColumnElement[bool]:
    """Whether a row's session was idle, or lasted, too long."""
    return or_(
        admin_sessions.c.seen_us < now_us - round(IDLE_S * SECOND_US),
        admin_sessions.c.began_us < now_us - round(ABSOLUTE_S * SECOND_US),
    )


async def shut_out(connection: AsyncConnection, person: str) -> None:
    """End their sessions and their unused link, which would become valid again with them."""
    for table in (admin_sessions, invitations):
        await connection.execute(delete(table).where(table.c.person == person))


async def end_all(connection: AsyncConnection, person: str) -> int:
    """End all their sessions; returns how many there were."""
    gone = delete(admin_sessions).where(admin_sessions.c.person == person)
    return (await connection.execute(gone)).rowcount


def digest_of(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
