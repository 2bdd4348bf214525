"""Brings a database's schema to the newest version, and refuses to start on any other."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

import migrations
from gateway.errors import StartupRefused
from gateway.store.engine import Database, open_database


_LOCK = 0x6761_7465  # Any number, as long as every Gatewright process takes the same one.


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration without an `alembic.ini`: the scripts are those of the package."""
    config = Config()
    folder = Path(migrations.__path__[0])
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def newest_schema() -> str:
    """The version of the schema that this program works with."""
    head = ScriptDirectory.from_config(alembic_config()).get_current_head()
    assert head is not None
    return head


async def schema_of(database: Database) -> str:
    """The version of the schema that a database has; empty when it has none."""
    async with database.reading() as connection:
        return await connection.run_sync(_current_schema)


async def migrate(url: str, revision: str = "head") -> str:
    """Bring the schema to `revision`, all of it or nothing; several processes may try at once.

    Args:
        url: of the database.
        revision: `head`, `base` or a version to go up or down to.

    Returns:
        The version it has afterwards.
    """
    database = open_database(url, pooled=False, foreign_keys=False)
    try:
        async with database.writing() as connection:
            if database.kind == "postgresql":
                await connection.execute(
                    text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK}
                )
            await connection.run_sync(_move, revision)
            return await connection.run_sync(_current_schema)
    finally:
        await database.close()


async def require_newest_schema(database: Database) -> None:
    """Check that the schema fits this program.

    Raises:
        StartupRefused: it does not.
        NotReady: the database cannot be asked.
    """
    found, needed = await schema_of(database), newest_schema()
    if found == needed:
        return
    if not found:
        problem = "the database has no schema yet"
    elif found in _known_schemas():
        problem = f"the database has schema {found}, this program needs {needed}"
    else:
        raise StartupRefused(
            f"the database has schema {found}, which is newer than this program knows: upgrade it"
        )
    raise StartupRefused(f"{problem}: run `gatewright database migrate`")


def _known_schemas() -> set[str]:
    return {
        script.revision for script in ScriptDirectory.from_config(alembic_config()).walk_revisions()
    }


def _current_schema(connection: Connection) -> str:
    return MigrationContext.configure(connection).get_current_revision() or ""


def _move(connection: Connection, revision: str) -> None:
    config = alembic_config(connection)
    scripts = ScriptDirectory.from_config(config)
    current = _current_schema(connection)
    known = [script.revision for script in scripts.walk_revisions("base", "heads")]
    wanted = scripts.get_current_head() if revision == "head" else revision
    if current and (wanted == "base" or known.index(str(wanted)) > known.index(current)):
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)
