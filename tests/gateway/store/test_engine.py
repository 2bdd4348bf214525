"""How databases are opened, and what happens when one goes away."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import IntegrityError

from gateway.errors import ConfigurationInvalid, NotReady, RequestInvalid
from gateway.pacing.patience import patience
from gateway.store import engine, postgres_driver
from gateway.store.engine import Database, driver_of, open_database, parse_url
from gateway.store.schema.tables import organisations, revisions
from tests.databases import SYNCED


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("given", "driver"),
    [
        ("sqlite:///data/gateway.db", "sqlite+aiosqlite"),
        ("sqlite+aiosqlite:///data/gateway.db", "sqlite+aiosqlite"),
        ("postgres://host/name", "postgresql+asyncpg"),
        ("postgresql://host/name", "postgresql+asyncpg"),
        ("postgresql+asyncpg://host/name", "postgresql+asyncpg"),
    ],
)
def test_a_url_gets_its_asynchronous_driver(given: str, driver: str) -> None:
    assert parse_url(given).drivername == driver


def test_a_file_that_cannot_be_opened_leaves_no_thread_that_complains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command ends at once: the driver's thread would tell a loop that is closed by then."""
    complaints: list[object] = []
    monkeypatch.setattr(threading, "excepthook", complaints.append)

    async def asked() -> None:
        database = open_database(f"sqlite:///{tmp_path / 'nowhere' / 'gateway.db'}", pooled=False)
        with pytest.raises(NotReady):
            async with database.reading():
                raise AssertionError
        await database.close()

    before = set(threading.enumerate())
    for _ in range(40):
        asyncio.run(asked())
        assert set(threading.enumerate()) <= before

    assert complaints == []


async def test_what_another_process_closes_stays_open_here(sqlite_url: str) -> None:
    """Whoever finds no lock of ours takes the log for its own, and what we write then is lost."""
    path = sqlite_url.partition("///")[2]
    count = "SELECT count(*) FROM organisations"
    other = (
        f"import sqlite3; c = sqlite3.connect({path!r}); print(*c.execute({count!r}).fetchone())"
    )

    async def seen_by_another() -> str:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", other), stdout=asyncio.subprocess.PIPE
        )
        return (await process.communicate())[0].decode().strip()

    database = open_database(sqlite_url)
    async with database.reading() as first, database.reading() as second:
        for connection in (first, second):
            await connection.execute(text(count))
    assert await seen_by_another() == "0"
    async with database.writing() as connection:
        row = {"name": "acme", "title": "Acme", "created_us": 1, "time_zone": "UTC"}
        await connection.execute(insert(organisations).values(row))
    assert await seen_by_another() == "1"
    await database.close()


@pytest.mark.parametrize(
    "given",
    ["", "gateway.db", "mysql://host/name", "sqlite://", "sqlite:///:memory:"],
)
def test_a_url_that_names_no_lasting_database_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="database: url"):
        open_database(given)


async def test_a_password_is_in_no_text_about_the_database() -> None:
    database = open_database("postgresql://gate:open-sesame@127.0.0.1:1/name")
    with pytest.raises(NotReady) as caught:
        async with database.reading():
            pass
    assert "open-sesame" not in f"{database!r} {caught.value} {database.engine!r}"
    await database.close()


async def test_sqlite_is_durable_and_keeps_its_references(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "prepare_sqlite", SYNCED)
    database = open_database(sqlite_url)
    async with database.reading() as connection:
        found = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    await database.close()


async def test_a_broken_reference_is_an_error_on_both_databases(database_url: str) -> None:
    database = open_database(database_url)
    with pytest.raises(IntegrityError):
        async with database.writing() as connection:
            await connection.exec_driver_sql(
                "INSERT INTO workspaces (organisation, name, title, created_us)"
                " VALUES ('none', 'w', 'W', 0)"
            )
    await database.close()


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("name", "created_us"), [("a\x00b", 0), ("n", 2**63), ("n", "no number"), ("\ud800", 0)]
)
async def test_what_no_database_keeps_is_refused_and_is_no_outage(
    database_maker: Callable[[str], tuple[str, Callable[[], None]]], name: str, created_us: object
) -> None:
    """A caller who was told to come again would come again for ever."""
    url, end = database_maker("postgresql")
    database = open_database(url)
    row = {"name": name, "title": "T", "time_zone": "UTC", "created_us": created_us}
    with pytest.raises(RequestInvalid, match="no database keeps"):
        async with database.writing() as connection:
            await connection.execute(organisations.insert(), row)
    async with database.reading() as connection:
        assert (await connection.execute(select(organisations))).all() == []
    await database.close()
    end()


@pytest.mark.parametrize(("name", "created_us"), [("n", 2**63), ("n", -(10**40)), ("\ud800", 0)])
async def test_what_sqlite_cannot_be_given_is_refused_wherever_it_stands(
    sqlite_url: str, name: str, created_us: int
) -> None:
    database = open_database(sqlite_url)
    row = {"name": name, "title": "T", "time_zone": "UTC", "created_us": created_us}
    columns = organisations.c
    here = (columns.name == name) & (columns.created_us == created_us)
    with pytest.raises(RequestInvalid, match="no database keeps"):
        async with database.writing() as connection:
            await connection.execute(organisations.insert(), row)
    with pytest.raises(RequestInvalid, match="no database keeps"):
        async with database.reading() as connection:
            await connection.execute(select(organisations).where(here))
    async with database.reading() as connection:
        assert (await connection.execute(select(organisations))).all() == []
    await database.close()


async def test_an_overflow_of_our_own_within_a_transaction_is_nobodys_request(
    sqlite_url: str,
) -> None:
    database = open_database(sqlite_url)
    with pytest.raises(OverflowError):
        async with database.reading():
            float(10**400)
    await database.close()


async def test_who_is_cancelled_leaves_no_lock_behind_while_his_statements_live(
    sqlite_url: str,
) -> None:
    """They live as long as something refers to them: the trace of an error does, for one."""
    database, other = open_database(sqlite_url), open_database(sqlite_url)
    asked, answered = threading.Event(), threading.Event()
    kept: list[object] = []

    def slow() -> int:
        asked.set()
        return answered.wait(10)

    async def write() -> None:
        async with database.writing() as connection:
            driver = await driver_of(connection)
            await driver.create_function("slow", 0, slow)
            kept.append(await driver.execute("SELECT 1 UNION ALL SELECT 2"))
            await connection.execute(text("SELECT slow()"))

    writer = asyncio.create_task(write())
    assert await asyncio.to_thread(asked.wait, 10)
    writer.cancel()
    await asyncio.sleep(0)
    answered.set()
    with pytest.raises(asyncio.CancelledError):
        await writer

    async with other.writing() as connection:
        await connection.execute(update(revisions).values(revision=7))
    assert kept

    await other.close()
    await database.close()


async def test_a_transaction_that_fails_leaves_nothing(database_url: str) -> None:
    database = open_database(database_url)

    async def change_and_fail() -> None:
        async with database.writing() as connection:
            await connection.exec_driver_sql("UPDATE revisions SET revision = 99")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await change_and_fail()
    async with database.reading() as connection:
        rows = await connection.exec_driver_sql("SELECT revision FROM revisions")
        assert rows.scalar_one() == 1
    await database.close()


async def test_writers_that_read_first_lose_no_update(database_url: str) -> None:
    first, second = open_database(database_url), open_database(database_url)

    async def add(number: int) -> None:
        async with (first, second)[number % 2].writing() as connection:
            query = "SELECT revision FROM revisions"
            if first.kind == "postgresql":
                query += " FOR UPDATE"
            seen = (await connection.exec_driver_sql(query)).scalar_one()
            await asyncio.sleep(0)
            await connection.execute(update(revisions).values(revision=seen + 1))

    await asyncio.gather(*(add(number) for number in range(20)))
    async with first.reading() as connection:
        rows = await connection.exec_driver_sql("SELECT revision FROM revisions")
        assert rows.scalar_one() == 21
    await first.close()
    await second.close()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.postgres
async def test_a_connection_to_a_server_that_became_read_only_is_not_used_again(
    database_url: str,
) -> None:
    database, operator = open_database(database_url, pool_size=1), open_database(database_url)
    name = database.url.database
    async with operator.writing() as connection:
        await connection.exec_driver_sql(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = on'
        )
    with pytest.raises(NotReady):
        async with database.writing() as connection:
            await connection.exec_driver_sql("UPDATE revisions SET revision = 2")
    async with operator.writing() as connection:
        await connection.exec_driver_sql(
            f'ALTER DATABASE "{name}" SET default_transaction_read_only = off'
        )
    # The connection that was opened read-only would refuse this.
    async with database.writing() as connection:
        await connection.exec_driver_sql("UPDATE revisions SET revision = 2")
    await database.close()
    await operator.close()


async def test_whoever_waits_for_a_connection_is_refused_before_two_seconds(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 14 of the fault matrix: a bounded wait, and then an error that may be tried again."""
    assert engine._WAIT_S < 2.0
    # Shorter, so that a busy machine has time to spare.
    monkeypatch.setattr(engine, "_WAIT_S", 0.3)
    database = open_database(database_url, pool_size=2)
    begun_s = time.monotonic()
    async with AsyncExitStack() as held:
        for _ in range(3):
            _ = await held.enter_async_context(database.reading())

        async def ask() -> float:
            with pytest.raises(NotReady) as refused:
                await database.peek("SELECT 1")
            assert refused.value.retry_after_s
            return time.monotonic() - begun_s

        waits = await asyncio.gather(*(ask() for _ in range(20)))
    assert max(waits) < 2.0
    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT 1"))).scalar_one() == 1
    await database.close()


async def test_a_duty_beside_requests_waits_for_a_connection_where_a_caller_is_refused(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a start all duties begin at once; where the machine was slow, most of them failed."""
    monkeypatch.setattr(engine, "_WAIT_S", 0.1)
    database = open_database(database_url, pool_size=1)
    async with AsyncExitStack() as held:
        for _ in range(2):
            _ = await held.enter_async_context(database.reading())
        with patience():
            duty = asyncio.create_task(revision(database))
        with pytest.raises(NotReady):
            await revision(database)
        await asyncio.sleep(0.3)
        assert not duty.done()
    assert await duty >= 0
    await database.close()


async def bump(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(update(revisions).values(revision=revisions.c.revision + 1))


async def revision(database: Database) -> int:
    async with database.reading() as connection:
        return int((await connection.execute(text("SELECT revision FROM revisions"))).scalar_one())


async def refused(database: Database) -> float:
    """How long a writer waited before it was told to come again."""
    begun_s = time.monotonic()
    with pytest.raises(NotReady) as error:
        await bump(database)
    assert error.value.retry_after_s
    return time.monotonic() - begun_s


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_who_is_paused_within_a_transaction_holds_nobody_up_for_long(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a machine is stopped: what it holds is given up for it, and it is told so."""
    monkeypatch.setattr(postgres_driver, "_IDLE_TRANSACTION_S", 0.3)
    paused, other = open_database(database_url), open_database(database_url)
    more = update(revisions).values(revision=revisions.c.revision + 100)

    async def is_paused() -> None:
        async with paused.writing() as connection:
            await connection.execute(more)
            await asyncio.wait_for(bump(other), 20.0)
            await connection.execute(more)

    with pytest.raises(NotReady):
        await is_paused()
    assert await revision(other) == 2
    # It goes on, on another connection.
    await bump(paused)
    assert await revision(other) == 3
    # A command of an operator may take its time between two steps.
    command = open_database(database_url, pooled=False)
    async with command.writing() as connection:
        await connection.execute(update(revisions).values(revision=revisions.c.revision + 1))
        await asyncio.sleep(0.6)
    assert await revision(other) == 4
    for each in (paused, other, command):
        await each.close()


async def patient(database: Database) -> None:
    with patience():
        await bump(database)


@pytest.mark.parametrize("of_another_process", [False, True])
async def test_callers_who_want_to_write_to_sqlite_are_refused_in_time_and_duties_wait(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, *, of_another_process: bool
) -> None:
    """As at PostgreSQL's pool; whether this process holds the lock or another does."""
    monkeypatch.setattr(engine, "_WAIT_S", 0.3)
    database = open_database(sqlite_url)
    holder = open_database(sqlite_url) if of_another_process else database
    command = open_database(sqlite_url, pooled=False)
    async with AsyncExitStack() as held:
        _ = await held.enter_async_context(holder.writing())
        duties = [asyncio.create_task(patient(database)), asyncio.create_task(bump(command))]
        waits = await asyncio.gather(*(refused(database) for _ in range(30)))
        assert min(waits) >= 0.2
        assert not any(duty.done() for duty in duties)
    await asyncio.gather(*duties)
    await bump(database)
    # Nothing that was refused has happened, nor holds anything.
    assert await revision(database) == 1 + len(duties) + 1
    for each in {database, holder, command}:
        await each.close()


async def test_a_crowd_of_writers_is_served_or_refused_and_none_is_lost(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some have turns, some come too late, some leave: what took effect is what was said to."""
    monkeypatch.setattr(engine, "_WAIT_S", 0.2)
    databases = open_database(sqlite_url), open_database(sqlite_url)

    async def write(number: int) -> bool:
        try:
            if number % 7 == 0:
                await patient(databases[number % 2])
            else:
                await bump(databases[number % 2])
        except NotReady:
            assert number % 7, "a duty was refused"
            return False
        return True

    tasks = [asyncio.create_task(write(number)) for number in range(300)]
    await asyncio.sleep(0)
    leaving = [task for task in tasks[200:] if task.cancel()]
    said = await asyncio.gather(*tasks, return_exceptions=True)
    assert leaving
    written = said.count(True)
    gone = sum(isinstance(each, asyncio.CancelledError) for each in said)
    assert not [each for each in said if isinstance(each, Exception)]
    assert written + said.count(False) + gone == len(tasks)
    # Whoever left before its turn has written nothing; none was at its commit then.
    assert await revision(databases[0]) == 1 + written
    assert all(await asyncio.gather(write(1), write(2)))
    for each in databases:
        await each.close()
