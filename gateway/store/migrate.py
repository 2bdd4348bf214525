"""Brings a database's schema to the newest version, or back."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, delete, insert, inspect, text
from sqlalchemy.exc import DBAPIError

import migrations
from gateway.errors import StartupRefused
from gateway.store.engine import open_database
from gateway.store.schema.version import (
    current_schema,
    lock_schema,
    newest_schema,
    refuse_encoding,
    refuse_foreign,
    refuse_newer,
    schema_floor,
)
from gateway.store.workers import alive, alive_below, workers


_LOCK_WAIT_S = 2
"""Others who want a table wait behind a waiting migration, so it does not wait for long."""
_WAIT_FOR_LOCKS = "SELECT set_config('lock_timeout', :wait, true)"
_IN_USE = ("55P03", "40P01")
"""SQLSTATEs of a lock that did not come in time, or of a deadlock."""
_NOT_PERMITTED = "42501"


def alembic_config(connection: Connection | None = None) -> Config:
    """Alembic's configuration without an `alembic.ini`: the scripts are those of the package."""
    config = Config()
    folder = Path(migrations.__path__[0])
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


class WorkersAlive(Exception):
    """Workers that are alive could not go on with the new schema."""


async def migrate(url: str, revision: str = "head", *, now_us: int = 0) -> str:
    """Bring the schema to `revision`, completely or not at all; several processes may try at once.

    Args:
        url: of the database.
        revision: `head`, `base` or a version to go up or down to.
        now_us: the time; with it, going down is refused while workers are alive, and going up while
            workers are alive whose program is older than the floor.

    Returns:
        The version it has afterwards.

    Raises:
        StartupRefused: the schema has a version that this program does not know, or is another
            program's; or somebody holds a table that has to change.
        WorkersAlive: it would go down under them, or too far up.
    """
    database = open_database(url, pooled=False, foreign_keys=False)
    try:
        async with database.writing() as connection:
            # A starting worker holds this lock while it registers, so one of the two sees the
            # other.
            await lock_schema(connection, shared=False)
            if database.kind == "postgresql":
                wait = {"wait": f"{_LOCK_WAIT_S}s"}
                await connection.execute(text(_WAIT_FOR_LOCKS), wait)
            await connection.run_sync(_move_or_say, revision, now_us)
            return await connection.run_sync(current_schema)
    finally:
        await database.close()


def _move_or_say(connection: Connection, revision: str, now_us: int) -> None:
    try:
        _move(connection, revision, now_us)
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", "")
        if state == _NOT_PERMITTED:
            said = str(error.orig.__cause__ if error.orig else error)
            raise StartupRefused(
                f"database.url: {said}: whoever migrates needs CREATE on the schema, and owns its"
                " tables"
            ) from error
        if state not in _IN_USE:
            raise
        raise StartupRefused(
            f"a table that has to change is in use for more than {_LOCK_WAIT_S} seconds: nothing"
            " was changed; run this again when less is going on"
        ) from error


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
        refuse_encoding(connection)
    known = [script.revision for script in scripts.walk_revisions("base", "heads")]
    has_workers = bool(now_us) and inspect(connection).has_table(workers.name)
    wanted = scripts.get_current_head() if revision == "head" else revision
    if current and (wanted == "base" or known.index(str(wanted)) > known.index(current)):
        _require_none(alive(connection, now_us) if has_workers else [])
        command.downgrade(config, revision)
    else:
        floor = _floor(scripts, str(wanted))
        _require_none(alive_below(connection, now_us, floor) if has_workers else [])
        command.upgrade(config, revision)
    _state_floor(connection, _floor(scripts, current_schema(connection)))


def _require_none(workers_alive: list[str]) -> None:
    if workers_alive:
        raise WorkersAlive(", ".join(workers_alive))


def _floor(scripts: ScriptDirectory, revision: str) -> str:
    """The floor stated by a migration; older migrations without one permit no older program."""
    script = scripts.get_revision(revision) if revision else None
    return str(getattr(script.module, "floor", revision)) if script else revision


def _state_floor(connection: Connection, floor: str) -> None:
    if inspect(connection).has_table(schema_floor.name):
        connection.execute(delete(schema_floor))
        connection.execute(insert(schema_floor), {"id": 1, "floor": floor})
