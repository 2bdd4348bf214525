"""PostgreSQL behind a pooler, in either mode."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import text, update
from sqlalchemy.engine import make_url

from gateway.clock import SystemClock
from gateway.errors import NotReady
from gateway.store import postgres_driver
from gateway.store.engine import Database, Held, open_database
from gateway.store.revisions import RevisionWatcher, bump
from gateway.store.schema.tables import revisions
from tests.databases import PostgresServer
from tests.pgbouncer import NEEDED, PgBouncer


pytestmark = [pytest.mark.anyio, pytest.mark.postgres, NEEDED]
MODES = ["session", "transaction"]


@pytest.fixture(params=MODES)
def pgbouncer(
    request: pytest.FixtureRequest, tmp_path: Path, direct_url: str
) -> Iterator[PgBouncer]:
    pgbouncer = PgBouncer(tmp_path, direct_url, request.param)
    pgbouncer.start()
    yield pgbouncer
    pgbouncer.stop()


@pytest.fixture
def direct_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture
async def pair(pgbouncer: PgBouncer, direct_url: str) -> AsyncIterator[tuple[Database, Database]]:
    """As two workers have them."""
    pair = (open_database(pgbouncer.url(direct_url)), open_database(pgbouncer.url(direct_url)))
    yield pair
    for each in pair:
        await each.close()


async def test_a_statement_is_never_answered_with_that_of_another_worker(
    pair: tuple[Database, Database], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process counts its statements from one: here each connection counts for itself."""
    counts: dict[int, int] = {}

    def counted(connection: object, prefix: str) -> str:
        counts[id(connection)] = counts.get(id(connection), 0) + 1
        return f"__asyncpg_{prefix}_{counts[id(connection)]:x}__"

    monkeypatch.setattr(asyncpg.Connection, "_get_unique_id", counted)

    async def ask(number: int) -> None:
        worker = number % 2
        query = text(f"SELECT 'worker {worker}, ' || CAST(:number AS text)")
        for _ in range(10):
            async with pair[worker].writing() as connection:
                said = (await connection.execute(query, {"number": str(number)})).scalar_one()
                await asyncio.sleep(0)
            assert said == f"worker {worker}, {number}"
            assert [(worker,)] == [(*row,) for row in await pair[worker].peek(f"SELECT {worker}")]

    await asyncio.gather(*(ask(number) for number in range(8)))


async def test_writers_that_read_first_lose_no_update(pair: tuple[Database, Database]) -> None:
    async def add(number: int) -> None:
        async with pair[number % 2].writing() as connection:
            query = "SELECT revision FROM revisions FOR UPDATE"
            seen = (await connection.exec_driver_sql(query)).scalar_one()
            await asyncio.sleep(0)
            await connection.execute(update(revisions).values(revision=seen + 1))

    await asyncio.gather(*(add(number) for number in range(20)))
    assert [(*row,) for row in await pair[0].peek("SELECT revision FROM revisions")] == [(21,)]


async def test_who_is_paused_loses_a_transaction_and_nobody_else_does(
    pair: tuple[Database, Database],
    pgbouncer: PgBouncer,
    direct_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a worker sets for its session would cut off a command that gets the same one."""
    monkeypatch.setattr(postgres_driver, "_IDLE_TRANSACTION_S", 0.3)
    paused, other = pair
    more = update(revisions).values(revision=revisions.c.revision + 100)
    held = Held(other)

    async def is_paused() -> None:
        async with paused.writing() as connection:
            await connection.execute(more)
            async with asyncio.timeout(20.0), held.transaction() as driver:
                await driver.execute("UPDATE revisions SET revision = revision + 1")
            await connection.execute(more)

    with pytest.raises(NotReady):
        await is_paused()
    await held.let_go()
    command = open_database(pgbouncer.url(direct_url), pooled=False)
    async with command.writing() as connection:
        await connection.execute(update(revisions).values(revision=revisions.c.revision + 1))
        await asyncio.sleep(0.6)
    assert [(*row,) for row in await paused.peek("SELECT revision FROM revisions")] == [(3,)]
    await command.close()


async def test_changes_are_heard_also_after_a_restart_of_the_pooler(
    pair: tuple[Database, Database], pgbouncer: PgBouncer
) -> None:
    heard = asyncio.Queue[int]()

    async def follow() -> None:
        async for revision in RevisionWatcher(pair[0], SystemClock(), poll_s=0.05).changes(1):
            heard.put_nowait(revision)

    async def change() -> None:
        async with pair[1].writing() as connection:
            await bump(connection)

    following = asyncio.create_task(follow())
    async with asyncio.timeout(20.0):
        await change()
        assert await heard.get() == 2
        pgbouncer.stop()
        with pytest.raises(NotReady):
            await change()
        pgbouncer.start()
        await change()
        assert await heard.get() == 3
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_only_behind_a_pooler_statements_have_no_names(
    pair: tuple[Database, Database], direct_url: str
) -> None:
    direct = open_database(direct_url)
    names = "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"
    for database, is_direct in ((direct, True), (pair[0], False)):
        async with database.reading() as connection:
            found = (await connection.exec_driver_sql(names)).scalar_one()
        assert bool(found) is is_direct
        assert database.has_sessions is is_direct
    assert make_url(direct_url).database == pair[0].url.database
    await direct.close()


@pytest.mark.parametrize("pgbouncer", ["session"], indirect=True)
async def test_nobody_waits_long_for_a_session_that_a_pooler_does_not_have(
    pgbouncer: PgBouncer, direct_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command has no limit of its own: it would wait until this test is broken off."""
    monkeypatch.setattr(postgres_driver, "_CONNECT_S", 0.5)
    pgbouncer.stop()
    pgbouncer.tell("default_pool_size = 1\nquery_wait_timeout = 0\n")
    pgbouncer.start()
    database = open_database(pgbouncer.url(direct_url), pooled=False)
    async with database.reading() as connection:
        await connection.exec_driver_sql("SELECT 1")
        with pytest.raises(NotReady):
            await database.peek("SELECT 1")
    await database.close()


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that a server under another account may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("pgbouncer", ["session"], indirect=True)
async def test_a_password_that_expires_is_read_anew_for_each_connection(
    pgbouncer: PgBouncer, direct_url: str, tmp_path: Path, readable: Path
) -> None:
    """As tokens of a cloud's accounts are, which somebody writes into a file."""
    passwords, users = tmp_path / "passwords", readable / "users"
    user = make_url(direct_url).username

    def expect(password: str) -> None:
        users.write_text(f'"{user}" "{password}"\n')
        pgbouncer.stop()
        pgbouncer.start()

    def write(password: str) -> None:
        passwords.write_text(f"*:*:*:*:{password}\n")
        passwords.chmod(0o600)

    users.write_text("")
    pgbouncer.tell(f"auth_type = plain\nauth_file = {users}\n")
    address = f"{pgbouncer.url(direct_url)}?passfile={passwords}&sslmode=prefer"
    database = open_database(address, pooled=False)
    for password in ("first-token", "second-token"):
        expect(password)
        with pytest.raises(NotReady):
            await database.peek("SELECT 1")
        write(password)
        assert [(*row,) for row in await database.peek("SELECT 1")] == [(1,)]
    await database.close()
