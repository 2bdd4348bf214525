"""Brings a database's schema to the newest version, or back."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, text

import migrations
from gateway.store.engine import open_database
from gateway.store.schema.version import current_schema, newest_schema, refuse_foreign, refuse_newer
from gateway.store.workers import alive, workers


_LOCK = 0x6761_7465  # Any number, as long as every Gatewright process takes the same one.


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration without an `alembic.ini`: the scripts are those of the package."""
    config = Config()
    folder = Path(migrations.__path__[0])
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


class WorkersAlive(Exception):
    """Workers that were heard of a moment ago need the schema that would be taken away."""


async def migrate(url: str, revision: str = "head", *, now_us: int = 0) -> str:
    """Bring the schema to `revision`, all of it or nothing; several processes may try at once.

    Args:
        url: of the database.
        revision: `head`, `base` or a version to go up or down to.
        now_us: the time, where going down is refused while workers are alive.

    Returns:
        The version it has afterwards.

    Raises:
        StartupRefused: it is at a version that this program does not know, or another program's.
        WorkersAlive: it would go down under them.
    """
    database = open_database(url, pooled=False, foreign_keys=False)
    try:
        async with database.writing() as connection:
            if database.kind == "postgresql":
                await connection.execute(
                    text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK}
                )
            await connection.run_sync(_move, revision, now_us)
            return await connection.run_sync(current_schema)
    finally:
        await database.close()


def _move(connection: Connection, revision: str, now_us: int) -> None:
    if revision == "head" and current_schema(connection) == newest_schema():
        return  # Reading every step takes longer than the rest of a start.
    config = alembic_config(connection)
    scripts = ScriptDirectory.from_config(config)
    current = current_schema(connection)
    if current:
        refuse_newer(current)
    else:
        refuse_foreign(connection)
    known = [script.revision for script in scripts.walk_revisions("base", "heads")]
    wanted = scripts.get_current_head() if revision == "head" else revision
    if current and (wanted == "base" or known.index(str(wanted)) > known.index(current)):
        if now_us and inspect(connection).has_table(workers.name):
            _require_none_alive(connection, now_us)
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


def _require_none_alive(connection: Connection, now_us: int) -> None:
    if names := alive(connection, now_us):
        raise WorkersAlive(", ".join(names))
