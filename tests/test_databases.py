"""The suite's own databases: a test's database holds nothing from another test."""

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from tests.databases import PostgresServer


pytestmark = [pytest.mark.anyio, pytest.mark.postgres]
TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
ORDER BY relname
"""
LEARNED = "SELECT stawidth FROM pg_statistic WHERE starelid = 'revisions'::regclass"


async def ask(url: str, statement: str) -> list[tuple[object, ...]]:
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(plain)
    try:
        return [tuple(row) for row in await connection.fetch(statement)]
    finally:
        await connection.close()


async def everything(url: str) -> dict[object, list[tuple[object, ...]]]:
    return {name: await ask(url, f"TABLE {name}") for (name,) in await ask(url, TABLES)}


async def test_a_database_that_is_given_back_is_as_new_the_next_time(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_migrated()
    template = make_url(url).set(database=postgres_server._template)
    before = await everything(template.render_as_string(hide_password=False))
    await ask(url, "INSERT INTO organisations (name, title, created_us) VALUES ('acme', '', 7)")
    await ask(url, "UPDATE revisions SET revision = 8")
    await ask(url, "ANALYZE")
    assert await everything(url) != before
    assert await ask(url, LEARNED) != []
    postgres_server.drop(url)

    again = postgres_server.create_migrated()

    assert await everything(again) == before
    assert any(before.values())
    assert await ask(again, LEARNED) == []
    postgres_server.drop(again)


async def test_what_still_asks_for_a_database_that_was_given_back_finds_none(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_migrated()
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    left = await asyncpg.connect(plain)
    postgres_server.drop(url)

    with pytest.raises(asyncpg.PostgresError):
        await left.fetch("SELECT 1")
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await ask(url, "SELECT 1")


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE another (name text)",
        "ALTER TABLE revisions ADD COLUMN another text",
        "ALTER TABLE revisions ALTER COLUMN revision DROP NOT NULL",
        "CREATE INDEX another ON revisions (revision)",
        "DROP TABLE revisions CASCADE",
        "CREATE FUNCTION another() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE SCHEMA another",
        "ALTER DATABASE {name} SET work_mem = 64",
    ],
)
async def test_a_database_with_another_catalogue_is_not_given_out_again(
    postgres_server: PostgresServer, change: str
) -> None:
    url = postgres_server.create_migrated()
    spare = list(postgres_server._spare)
    await ask(url, change.format(name=make_url(url).database))

    postgres_server.drop(url)

    assert postgres_server._spare == spare
