"""How databases are opened, and what happens when one goes away."""

import asyncio
import time
from contextlib import AsyncExitStack

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError

from gateway.errors import ConfigurationInvalid, NotReady
from gateway.store.engine import open_database, parse_url
from gateway.store.schema.tables import revisions


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


async def test_sqlite_is_durable_and_keeps_its_references(sqlite_url: str) -> None:
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
    database_url: str,
) -> None:
    """Row 14 of the fault matrix: a bounded wait, and then an error that may be tried again."""
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
