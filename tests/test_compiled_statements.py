"""A compiled statement serves the next database of the same kind, and no other."""

from typing import Any

import pytest
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.store.engine import open_database
from gateway.store.schema.tables import organisations
from tests.compiled_statements import CompiledStatements
from tests.databases import PostgresServer


def named(name: str) -> Select[Any]:
    return select(organisations.c.name).where(organisations.c.name == name)


async def names_in(url: str, known: CompiledStatements, name: str) -> list[str]:
    opened = open_database(url)  # For its driver and its pragmas.
    engine = create_async_engine(opened.url, execution_options={"compiled_cache": known})
    try:
        async with engine.begin() as connection:
            await connection.execute(
                organisations.insert(), {"name": name, "title": "", "created_us": 1}
            )
            return [row.name for row in (await connection.execute(named(name))).all()]
    finally:
        await engine.dispose()


@pytest.mark.anyio
@pytest.mark.postgres
async def test_two_databases_of_a_kind_share_statements_and_each_finds_its_own_rows(
    sqlite_url: str, postgres_server: PostgresServer
) -> None:
    known = CompiledStatements()
    urls = [postgres_server.create_migrated() for _ in range(2)]

    assert await names_in(sqlite_url, known, "acme") == ["acme"]
    of_sqlite = len(known)
    assert await names_in(sqlite_url, known, "globex") == ["globex"]
    assert len(known) == of_sqlite >= 2

    assert await names_in(urls[0], known, "acme") == ["acme"]
    of_both = len(known)
    assert of_both > of_sqlite
    assert await names_in(urls[1], known, "globex") == ["globex"]
    assert len(known) == of_both
    for url in urls:
        postgres_server.drop(url)


@pytest.mark.anyio
async def test_what_tests_open_takes_statements_from_there(sqlite_url: str) -> None:
    first, second = open_database(sqlite_url), open_database(sqlite_url)
    caches = [
        each.engine.sync_engine.get_execution_options()["compiled_cache"]
        for each in (first, second)
    ]
    assert isinstance(caches[0], CompiledStatements)
    assert caches[0] is caches[1]
    for each in (first, second):
        await each.close()
