"""SQLite that answers and takes nothing: whoever asks whether a process is ready is told why."""

from pathlib import Path

import pytest
from sqlalchemy import update

from gateway.clock import StoppedClock
from gateway.errors import NotReady
from gateway.pacing.patience import patience
from gateway.store.engine import Database, open_database
from gateway.store.glance import write_nothing_new
from gateway.store.revisions import RevisionWatcher, bump, current
from gateway.store.schema.tables import revisions
from tests.full_disk import room_for


pytestmark = pytest.mark.anyio


async def _grow(database: Database) -> None:
    with patience():
        async with database.writing() as connection:
            await bump(connection)


async def test_a_full_disk_is_a_reason_not_to_be_ready_until_something_is_taken(
    sqlite_url: str,
) -> None:
    database = open_database(sqlite_url)
    watcher = RevisionWatcher(database, StoppedClock())
    await _grow(database)
    assert watcher.problem() == ""
    with room_for(4096), pytest.raises(NotReady, match=r"^the database takes no writes$"):
        await _grow(database)
    assert watcher.problem() == "The database takes no writes: its disk fails."
    assert await current(database) > 0, "it answers"

    async with database.writing() as connection:
        nowhere = update(revisions).where(revisions.c.revision < 0).values(revision=1)
        await connection.execute(nowhere)
    assert watcher.problem(), "a full disk takes what changes nothing"

    before = await current(database)
    await write_nothing_new(database)
    assert watcher.problem() == ""
    assert await current(database) == before
    await database.close()


async def test_who_writes_nothing_new_finds_a_full_disk(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    await current(database)
    with room_for(4096), pytest.raises(NotReady):
        await write_nothing_new(database)
    assert database.refusal == "its disk fails"
    await database.close()


async def test_what_waits_too_long_is_no_refusal(sqlite_url: str, tmp_path: Path) -> None:
    """Somebody who writes for long holds others up, and the file takes what they say."""
    database, other = open_database(sqlite_url), open_database(sqlite_url)
    async with other.writing() as connection:
        await bump(connection)
        with pytest.raises(NotReady):
            await _impatient(database)
    assert database.refusal == ""
    await database.close()
    await other.close()


async def _impatient(database: Database) -> None:
    async with database.writing() as connection:
        await bump(connection)
