"""How workers hear of a change."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import aclosing, suppress

import pytest
from sqlalchemy import update
from structlog.testing import capture_logs

from gateway.clock import StoppedClock, SystemClock
from gateway.identity import Peppers
from gateway.pacing import rhythm
from gateway.store.engine import Database, open_database
from gateway.store.evidence.awaited import AwaitedTable
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.revisions import RevisionWatcher, bump, current
from gateway.store.schema.tables import revisions


pytestmark = pytest.mark.anyio
NEVER_S = 3600.0
PEPPERS = Peppers({1: secrets.token_bytes(32)})
NEW = NewKey(Place("acme", "research", "bot"), "robot", "ada")


async def raise_counter(database: Database) -> None:
    async with database.writing() as connection:
        await bump(connection)


async def change_heard(
    watcher: RevisionWatcher, database: Database, is_waiting: Callable[[], bool]
) -> int:
    """What a watcher yields for a change that is made while it waits."""
    before = await current(database)
    async with asyncio.timeout(20.0), aclosing(watcher.changes(before)) as changes:
        heard = asyncio.ensure_future(anext(changes))
        while not is_waiting():
            await asyncio.sleep(0.01)
        await raise_counter(database)
        return await heard - before


def test_the_poll_alone_is_fast_enough_for_a_revoked_key() -> None:
    assert rhythm.REVISIONS_S <= 0.3


async def test_a_watcher_hears_a_change_by_polling(database: Database) -> None:
    clock = StoppedClock()
    watcher = RevisionWatcher(database, clock, poll_s=0.02)
    clock.advance(5.0)
    assert await change_heard(watcher, database, lambda: watcher.age_s() == 0.0) == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_on_postgresql_the_bell_wakes_a_watcher_that_hardly_polls(database: Database) -> None:
    clock = StoppedClock()
    watcher = RevisionWatcher(database, clock, poll_s=NEVER_S)
    clock.advance(5.0)
    assert await change_heard(watcher, database, lambda: watcher.age_s() == 0.0) == 1


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_a_bell_that_was_cut_is_hung_again(database: Database, database_url: str) -> None:
    other = open_database(database_url)
    watcher = RevisionWatcher(other, SystemClock(), poll_s=0.02)
    revision = await current(database)
    async with asyncio.timeout(20.0), aclosing(watcher.changes(revision)) as changes:
        for _ in range(3):
            heard = asyncio.ensure_future(anext(changes))
            await raise_counter(database)
            assert await heard == revision + 1
            revision += 1
            async with database.writing() as connection:
                await connection.exec_driver_sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
    await other.close()


async def test_a_revoked_key_leaves_the_table_of_another_worker(
    database: Database, database_url: str
) -> None:
    store = KeyStore(database, PEPPERS, SystemClock())
    key = await store.issue(NEW)
    other = open_database(database_url)
    theirs = KeyStore(other, PEPPERS, SystemClock())
    table = await theirs.table()
    assert key.key_id in table.records
    watcher = RevisionWatcher(other, SystemClock())
    async with asyncio.timeout(20.0), aclosing(watcher.changes(table.revision)) as changes:
        await store.revoke(key.key_id)
        await anext(changes)
    assert key.key_id not in (await theirs.table()).records
    await other.close()


async def test_a_watcher_goes_stale_while_the_database_is_away() -> None:
    clock = StoppedClock()
    away = open_database("postgresql+asyncpg://postgres@127.0.0.1:1/nothing")
    watcher = RevisionWatcher(away, clock, poll_s=0.01)
    async with aclosing(watcher.changes(0)) as changes:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(changes), 0.1)
    clock.advance(61.0)
    assert watcher.age_s() == 61.0
    await away.close()


async def test_a_counter_that_went_back_is_followed_no_more(database: Database) -> None:
    for _ in range(3):
        await raise_counter(database)
    clock, revision = StoppedClock(), await current(database)
    watcher = RevisionWatcher(database, clock, poll_s=0.01)
    clock.advance(5.0)
    with capture_logs() as lines:
        async with aclosing(watcher.changes(revision)) as changes:
            heard = asyncio.ensure_future(anext(changes))
            while watcher.age_s():
                await asyncio.sleep(0.01)
            async with database.writing() as connection:
                await connection.execute(update(revisions).values(revision=revision - 2))
            while not lines:
                await asyncio.sleep(0.01)
            clock.advance(30.0)
            for _ in range(4):  # Changes in the database of yesterday do not make it today's.
                await raise_counter(database)
                await asyncio.sleep(0.05)

            assert not heard.done()
            assert watcher.age_s() == 30.0
            heard.cancel()
            with suppress(asyncio.CancelledError):
                await heard
    assert [line["event"] for line in lines] == ["snapshot:database_older"]


async def test_a_worker_that_is_awaited_follows_nothing_until_it_is_started_anew(
    database: Database,
) -> None:
    clock, revision = StoppedClock(), await current(database)
    watcher = RevisionWatcher(database, clock, worker="w0", poll_s=0.01)
    with capture_logs() as lines:
        async with aclosing(watcher.changes(revision)) as changes:
            heard = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0.05)
            assert watcher.problem() == ""
            await AwaitedTable(database).expect(["w0"])
            while not lines:
                await asyncio.sleep(0.01)
            # Whoever gives it up, or brings its records, does not make it good again.
            await AwaitedTable(database).finish()
            await asyncio.sleep(0.05)
            clock.advance(30.0)
            await raise_counter(database)
            await asyncio.sleep(0.05)

            assert not heard.done()
            assert watcher.age_s() == 30.0
            assert "was put back" in watcher.problem()
            heard.cancel()
            with suppress(asyncio.CancelledError):
                await heard
    (line,) = lines
    assert "awaits this worker" in line["reason"]
