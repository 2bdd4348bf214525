"""A known text that each key outside of the database sealed: whether a key is the database's own.

The first process that uses a key leaves the text. Of several that start at once one does.
"""

import hmac
from collections.abc import Awaitable, Callable

from msgspec import Struct
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.secrets.envelope import MasterKey, UnwrapFailed
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.schema.tables import key_checks
from gateway.store.speech import insert_into


MASTER_KEY = "master_key"
_KNOWN = b"gatewright: this key is the one"
Vouched = Callable[[AsyncConnection, MasterKey], Awaitable[bool]]
"""Whether what lies in a database does not speak against a key that nothing was kept of yet."""


class KeyCheck(Struct, frozen=True):
    """What a database says of a key."""

    is_own: bool
    key_id: str
    """Of the key that it was begun with; empty where it holds no check of any."""


def pepper_check(version: int) -> str:
    """The name of the check of a pepper: each version is a key of its own."""
    return f"pepper:{version}"


def key_of_pepper(pepper: bytes) -> MasterKey:
    """A key of a pepper's own, for its check alone; nothing else is sealed by it."""
    return MasterKey(Secret(hmac.digest(pepper, b"gatewright pepper check", "sha256")))


async def asked(connection: AsyncConnection, name: str, key: MasterKey) -> KeyCheck | None:
    """What a database says of a key; None where it knows of none by this name yet."""
    query = select(key_checks.c.key_id, key_checks.c.sealed).where(key_checks.c.name == name)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return None
    try:
        is_own = key.unwrap(bytes(row.sealed), _about(name)) == _KNOWN
    except UnwrapFailed:
        is_own = False
    return KeyCheck(is_own, row.key_id)


async def checked(
    database: Database, name: str, key: MasterKey, clock: Clock, vouched: Vouched
) -> KeyCheck:
    """Whether a key is a database's own; the first one is, unless it is not `vouched` for.

    Raises:
        NotReady: the database does not answer.
    """
    found = await foreseen(database, name, key, vouched)
    if found.key_id or not found.is_own:
        return found
    # Vouching may read long: nobody else who starts waits for that. What is sealed under another
    # key meanwhile was sealed by who left a check first, and that one counts.
    async with database.writing() as connection:
        added = insert_into(database.kind, key_checks).values(_row(name, key, clock))
        await connection.execute(added.on_conflict_do_nothing())
        kept = await asked(connection, name, key)
    assert kept is not None
    return kept


async def foreseen(database: Database, name: str, key: MasterKey, vouched: Vouched) -> KeyCheck:
    """What `checked` would say; nothing is kept. Raises NotReady as it does."""
    async with database.reading() as connection:
        found = await asked(connection, name, key)
        return found or KeyCheck(is_own=await vouched(connection, key), key_id="")


async def keep_anew(database: Database, name: str, key: MasterKey, clock: Clock) -> None:
    """From now on this key is the database's own."""
    async with database.writing() as connection:
        await connection.execute(delete(key_checks).where(key_checks.c.name == name))
        await connection.execute(key_checks.insert(), _row(name, key, clock))


async def is_contradicted(connection: AsyncConnection, master: MasterKey) -> bool:
    """Whether the database was begun with another master key: what does not open is not lost."""
    found = await asked(connection, MASTER_KEY, master)
    return found is not None and not found.is_own


def _row(name: str, key: MasterKey, clock: Clock) -> dict[str, object]:
    sealed = key.wrap(_KNOWN, _about(name))
    return {"name": name, "key_id": key.key_id, "sealed": sealed, "made_us": clock.utc_us()}


def _about(name: str) -> bytes:
    return f"gatewright key check\x00{name}".encode()
