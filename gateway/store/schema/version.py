"""Reads the schema version of a database, and knows the one this program works with.

It is checked at every start, so it is read without Alembic: a version is the number in front of a
migration's file name, and a migrated database holds its own in Alembic's table of one row. Beside
it stands the floor: the oldest schema whose programs may run on this one (decision 0058).
"""

from pathlib import Path

from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Integer,
    String,
    Table,
    func,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.ext.asyncio import AsyncConnection

import migrations
from gateway.errors import StartupRefused
from gateway.store.engine import Database
from gateway.store.schema.tables import metadata


_MIGRATE = "run `gatewright database migrate`"
NO_SCHEMA = f"the database has no schema yet: {_MIGRATE}"
_NAMED = 3
"""This many tables of another program are named."""
_LOCK = 0x6761_7465
"""Any number, as long as every Gatewright process takes the same one."""

schema_floor = Table(
    "schema_floor",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("floor", String(32), nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
"""One row, written by whoever migrates. Older programs read it, so its form never changes."""


class Migration(Struct, frozen=True):
    """One step of the schema: the version it leads to, and its file's words for it."""

    version: str
    title: str


def known_migrations() -> list[Migration]:
    """Every step that this program knows, the newest last."""
    scripts = Path(migrations.__path__[0], "versions").glob("[0-9]*_*.py")
    names = sorted(script.stem.partition("_") for script in scripts)
    return [Migration(version, title.replace("_", " ")) for version, _, title in names]


def known_schemas() -> list[str]:
    """Every version that the migrations of this program lead through, the newest last."""
    return [each.version for each in known_migrations()]


def newest_schema() -> str:
    """The version of the schema that this program works with."""
    return known_schemas()[-1]


async def schema_of(database: Database) -> str:
    """The version of the schema that a database has; empty when it has none."""
    async with database.reading() as connection:
        return await connection.run_sync(current_schema)


async def require_newest_schema(database: Database) -> None:
    """Check that the schema is this program's own, as whatever goes over everything needs it.

    Raises:
        StartupRefused: it is not.
        NotReady: the database cannot be asked.
    """
    await _require_schema(database, may_be_newer=False)


async def require_permitted_schema(database: Database) -> str:
    """Check that the schema is this program's own, or a newer one on which it may still run.

    Returns:
        A note on a newer one; empty if it is this program's own.

    Raises:
        StartupRefused: it is neither.
        NotReady: the database cannot be asked.
    """
    return await _require_schema(database, may_be_newer=True)


async def _require_schema(database: Database, *, may_be_newer: bool) -> str:
    async with database.reading() as connection:
        return await connection.run_sync(_permitted, may_be_newer)


async def stay_permitted(connection: AsyncConnection) -> None:
    """Check again as `require_permitted_schema`, and hold the schema until this transaction ends.

    On SQLite the transaction has to be a writing one.

    Raises:
        StartupRefused: it changed since, and this program may not run on it.
    """
    await lock_schema(connection, shared=True)
    await connection.run_sync(_permitted, True)  # noqa: FBT003 - handed on by position


async def lock_schema(connection: AsyncConnection, *, shared: bool) -> None:
    """Wait until nobody changes the schema; not `shared`, also until nobody holds it.

    It ends with the transaction. SQLite has one writer at a time, which does the same.
    """
    if connection.dialect.name == "postgresql":
        lock = func.pg_advisory_xact_lock_shared if shared else func.pg_advisory_xact_lock
        await connection.execute(select(lock(literal(_LOCK, BigInteger))))


def _permitted(connection: Connection, may_be_newer: bool) -> str:  # noqa: FBT001 - by run_sync
    needed = newest_schema()
    found = current_schema(connection)
    if found == needed:
        return ""
    refuse_foreign(connection)
    floor = floor_of(connection)
    if not found:
        raise StartupRefused(NO_SCHEMA)
    if may_be_newer and floor and is_newer(found, needed):
        newer = f"the database has schema {found}, which is newer than this program's {needed}"
        if is_newer(floor, needed):
            raise StartupRefused(f"{newer} and needs {floor} at least: upgrade this process")
        return f"{newer} and permits it for now: upgrade this process"
    refuse_newer(found)
    problem = f"the database has schema {found}, this program needs {needed}"
    raise StartupRefused(f"{problem}: {_MIGRATE}")


def refuse_foreign(connection: Connection) -> None:
    """Raise `StartupRefused` for a SQLite file that is another program's.

    A PostgreSQL database may be shared, and has more than one program's tables then.
    """
    names = inspect(connection).get_table_names()
    if connection.dialect.name != "sqlite" or not names or "alembic_version" in names:
        return
    raise StartupRefused(
        f"database.url: {connection.engine.url.database}: this file is another program's: it has"
        f" tables ({', '.join(names[:_NAMED])}), and none of ours"
    )


def refuse_encoding(connection: Connection) -> None:
    """Raise `StartupRefused` for a PostgreSQL database that cannot hold every text."""
    if connection.dialect.name == "postgresql":
        encoding = connection.scalar(text("SELECT current_setting('server_encoding')"))
        if encoding != "UTF8":
            raise StartupRefused(
                f"database.url: this database's encoding is {encoding}: make one with ENCODING"
                " 'UTF8' TEMPLATE template0"
            )


def refuse_newer(found: str) -> None:
    """Raise `StartupRefused` for a version that no migration of this program leads to."""
    if not found.isdecimal():
        raise StartupRefused(f"database.url: schema {found} in this database is another program's")
    if found not in known_schemas():
        raise StartupRefused(
            f"the database has schema {found}, which is newer than this program knows: upgrade it"
        )


def is_newer(version: str, than: str) -> bool:
    """Compares two versions; one that is not ours is not newer than any."""
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def floor_of(connection: Connection) -> str:
    """The oldest schema whose programs may run on this one; empty if that cannot be read."""
    if not inspect(connection).has_table(schema_floor.name):
        return ""
    found = connection.scalars(select(schema_floor.c.floor)).all()
    return found[0] if len(found) == 1 and found[0].isdecimal() else ""


def current_schema(connection: Connection) -> str:
    """The version of the schema behind a connection; empty when it has none."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return connection.scalar(text("SELECT version_num FROM alembic_version")) or ""
