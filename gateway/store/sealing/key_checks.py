"""Tells whether a key is the database's own, by a known text that each key sealed.

The first process that uses a key stores the text; if several start at once, one does. A master key
that opens what its predecessor sealed takes its place; the database remembers every master key that
it had, so that none is removed while something depends on it.
"""

import hmac
from collections.abc import Awaitable, Callable, Collection

from msgspec import Struct
from sqlalchemy import delete, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.secrets.envelope import MasterKey, UnwrapFailed
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.schema.tables import key_checks
from gateway.store.speech import insert_into


MASTER_KEY = "master_key"
_ONE_OF_THEM = f"{MASTER_KEY}:"
"""Before the id of a master key that this database has, or had."""
_KNOWN = b"gatewright: this key is the one"
_ONE_PEPPER = "pepper:"
Vouched = Callable[[AsyncConnection, MasterKey], Awaitable[bool]]
"""Whether a database's contents allow a key of which no check was kept yet."""
Begun = Callable[[AsyncConnection, MasterKey], Awaitable[None]]
"""What is done with a database's first key, in the transaction that makes it that."""


class KeyCheck(Struct, frozen=True):
    """What a database says about a key."""

    is_own: bool
    key_id: str
    """The id of the key that it was begun with; empty if it holds no check at all."""


def pepper_check(version: int) -> str:
    """The name of the check of a pepper: each version is a key of its own."""
    return f"{_ONE_PEPPER}{version}"


def key_of_pepper(pepper: bytes) -> MasterKey:
    """A key derived from a pepper for its check alone; nothing else is sealed by it."""
    return MasterKey(Secret(hmac.digest(pepper, b"gatewright pepper check", "sha256")))


async def asked(connection: AsyncConnection, name: str, key: MasterKey) -> KeyCheck | None:
    """What a database says about a key; None if it knows none by this name yet.

    A master key that comes without its predecessor is compared with what that one left.
    """
    names = (name, f"{name}:{key.key_id}") if name == MASTER_KEY else (name,)
    query = select(key_checks).where(key_checks.c.name.in_(names))
    rows = (await connection.execute(query)).all()
    told = next((row.key_id for row in rows if row.name == name), None)
    if told is None:
        return None
    return KeyCheck(any(_opens(key, row.name, bytes(row.sealed)) for row in rows), told)


def _opens(key: MasterKey, name: str, sealed: bytes) -> bool:
    try:
        return key.unwrap(sealed, _about(name)) == _KNOWN
    except UnwrapFailed:
        return False


async def checked(
    database: Database,
    name: str,
    key: MasterKey,
    clock: Clock,
    vouched: Vouched,
    begun: Begun | None = None,
) -> KeyCheck:
    """Whether a key is a database's own; the first one is, unless it is not `vouched` for.

    A key that comes with its predecessor replaces it.

    Raises:
        NotReady: the database does not answer.
    """
    found = await foreseen(database, name, key, vouched)
    if not found.is_own:
        return found
    unknown = key.key_ids - await _known(database, name)
    if found.key_id == key.key_id and not unknown:
        return found
    # Vouching may read for long: nobody else who starts waits for it. What is sealed under another
    # key meanwhile was sealed by the process that first left a check, and that one counts.
    async with database.writing() as connection:
        added = insert_into(database.kind, key_checks).values(_row(name, key, clock))
        is_first = (await connection.execute(added.on_conflict_do_nothing())).rowcount
        kept = await asked(connection, name, key)
        assert kept is not None
        if kept.is_own:
            mine = (key_checks.c.name == name) & (key_checks.c.key_id != key.key_id)
            row = _row(name, key, clock)
            await connection.execute(update(key_checks).where(mine).values(**row))
            kept = KeyCheck(is_own=True, key_id=key.key_id)
            if name == MASTER_KEY and (key.others or not is_first):
                await _remember(connection, database, key, clock)
        if begun is not None and is_first:
            await begun(connection, key)
    return kept


async def _remember(
    connection: AsyncConnection, database: Database, key: MasterKey, clock: Clock
) -> None:
    """Record this key and those beside it, each by a row under its own id."""
    for each in (key, *key.others):
        row = _row(f"{_ONE_OF_THEM}{each.key_id}", each, clock)
        known = insert_into(database.kind, key_checks).values(row)
        await connection.execute(known.on_conflict_do_nothing())


async def foreseen(database: Database, name: str, key: MasterKey, vouched: Vouched) -> KeyCheck:
    """What `checked` would say, without storing anything. Raises NotReady as it does."""
    async with database.reading() as connection:
        found = await asked(connection, name, key)
        return found or KeyCheck(is_own=await vouched(connection, key), key_id="")


async def keep_anew(
    database: Database, name: str, key: MasterKey, clock: Clock, lost: Collection[str] = ()
) -> None:
    """Make this key the database's own; master keys that do not stand beside it are lost.

    So are the keys of these other checks.
    """
    async with database.writing() as connection:
        gone = key_checks.c.name.in_([name, *lost])
        await connection.execute(delete(key_checks).where(gone))
        await connection.execute(key_checks.insert(), _row(name, key, clock))
        if name == MASTER_KEY:
            is_one = key_checks.c.name.startswith(_ONE_OF_THEM, autoescape=True)
            is_lost = key_checks.c.key_id.not_in(key.key_ids)
            await connection.execute(delete(key_checks).where(is_one & is_lost))


async def known_masters(connection: AsyncConnection) -> set[str]:
    """Ids of the master keys that this database has, or had before, and that were not lost."""
    is_one = key_checks.c.name.startswith(_ONE_OF_THEM, autoescape=True)
    query = select(key_checks.c.key_id).where(or_(key_checks.c.name == MASTER_KEY, is_one))
    return set((await connection.execute(query)).scalars())


async def known_peppers(connection: AsyncConnection) -> set[int]:
    """Versions of the peppers that this database has, or had before, and that were not lost."""
    is_one = key_checks.c.name.startswith(_ONE_PEPPER, autoescape=True)
    names = (await connection.execute(select(key_checks.c.name).where(is_one))).scalars()
    return {int(name.removeprefix(_ONE_PEPPER)) for name in names}


async def _known(database: Database, name: str) -> set[str]:
    async with database.reading() as connection:
        if name == MASTER_KEY:
            return await known_masters(connection)
        query = select(key_checks.c.key_id).where(key_checks.c.name == name)
        return set((await connection.execute(query)).scalars())


async def is_contradicted(connection: AsyncConnection, master: MasterKey, sealed_by: str) -> bool:
    """Whether content that does not open is not lost: it was begun with another master key.

    Or the database has had the key that sealed this, and this process does not have it.
    """
    found = await asked(connection, MASTER_KEY, master)
    is_elsewhere = sealed_by not in master.key_ids
    return found is not None and (
        not found.is_own or (is_elsewhere and sealed_by in await known_masters(connection))
    )


def _row(name: str, key: MasterKey, clock: Clock) -> dict[str, object]:
    sealed = key.wrap(_KNOWN, _about(name))
    return {"name": name, "key_id": key.key_id, "sealed": sealed, "made_us": clock.utc_us()}


def _about(name: str) -> bytes:
    return f"gatewright key check\x00{name}".encode()
