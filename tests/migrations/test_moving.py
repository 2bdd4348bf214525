"""From SQLite to PostgreSQL: every table's rows arrive as they were, or none does."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    insert,
    select,
    update,
)

from gateway.errors import StartupRefused
from gateway.store.engine import Database, open_database
from gateway.store.moving import copy_all
from gateway.store.schema.tables import organisations, revisions
from gateway.store.schema.version import schema_floor
from tests.databases import PostgresServer


pytestmark = [pytest.mark.anyio, pytest.mark.postgres]


@pytest.fixture
async def source(sqlite_url: str) -> AsyncIterator[Database]:
    # Rows that refer to each other are put in in any order.
    database = open_database(sqlite_url, pooled=False, foreign_keys=False)
    yield database
    await database.close()


@pytest.fixture
def target_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture
async def target(target_url: str) -> AsyncIterator[Database]:
    database = open_database(target_url, pooled=False)
    yield database
    await database.close()


def _tables(connection: Connection) -> MetaData:
    there = MetaData()
    there.reflect(connection)
    return there


def _value(column: Column[Any], number: int) -> object:
    """In the second row whatever may be missing is."""
    if number == 2 and column.nullable:
        return None
    kinds: list[tuple[type, object]] = [
        (JSON, [f"w{number}"]),
        (Boolean, number == 1),
        (Float, number / 2),
        (Integer, number),
        (LargeBinary, bytes([number])),
    ]
    return next((value for kind, value in kinds if isinstance(column.type, kind)), f"w{number}")


async def _rows(database: Database, tables: MetaData) -> dict[str, list[str]]:
    async with database.reading() as connection:
        return {
            table.name: sorted(map(repr, (await connection.execute(select(table))).all()))
            for table in tables.sorted_tables
        }


async def test_every_table_arrives_as_it_was(
    source: Database, target: Database, tmp_path: Path
) -> None:
    async with source.writing() as connection:
        tables = await connection.run_sync(_tables)
        await connection.execute(update(revisions).values(revision=7))
        filled = [
            table
            for table in tables.sorted_tables
            if table.name not in ("alembic_version", schema_floor.name, revisions.name)
        ]
        for table in filled:
            for number in (1, 2):
                row = {column.name: _value(column, number) for column in table.columns}
                await connection.execute(insert(table).values(row))
    copied = await copy_all(source, target, tmp_path / "audit")
    assert copied == {table.name: 2 for table in filled} | {revisions.name: 1}
    assert await _rows(target, tables) == await _rows(source, tables)


async def test_a_database_in_use_is_not_copied_over(
    source: Database, target: Database, tmp_path: Path
) -> None:
    mine = {"name": "acme", "title": "Acme", "created_us": 1}
    async with target.writing() as connection:
        await connection.execute(insert(organisations).values(mine))
    with pytest.raises(StartupRefused, match="`organisations` has rows"):
        await copy_all(source, target, tmp_path / "audit")
