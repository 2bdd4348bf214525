"""Parcels in a real database: put together, led for a term, and let go of."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from gateway.clock import StoppedClock
from gateway.store.batching.parcel_rows import Loose
from gateway.store.batching.parcels import ParcelStore
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
BATCH = "batch_1"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = open_database(database_url)
    async with database.writing() as connection:
        await connection.execute(filled(batches, id=BATCH, state="in_progress"))
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> ParcelStore:
    return ParcelStore(database, StoppedClock())


async def parked(database: Database, **providers: str) -> None:
    """A line for each letter, numbered by it, that waits for this provider."""
    async with database.writing() as connection:
        for number, provider in enumerate(providers.values(), 1):
            place = {"batch_id": BATCH, "number": number}
            await connection.execute(filled(batch_lines, **place, state="parked"))
            row = place | {"provider": provider, "target": "gpt", "holder": "w0.1", "size_bytes": 9}
            await connection.execute(filled(parked_lines, **row))


async def test_a_parcel_holds_only_lines_of_its_provider(
    database: Database, store: ParcelStore
) -> None:
    """A target may have got another provider between two of its lines."""
    await parked(database, a="old", b="new", c="old")
    loose = await store.loose("w0.1", 0)
    assert sorted((each.provider, each.count) for each in loose) == [("new", 1), ("old", 2)]
    for each in loose:
        assert await store.make(f"to-{each.provider}", each, "w0.1", 10, 10**6) == each.count
    assert list(await store.numbers("to-old")) == [1, 3]
    assert list(await store.numbers("to-new")) == [2]
    async with database.reading() as connection:
        rows = await connection.execute(select(parcels.c.id, parcels.c.provider, parcels.c.lines))
        assert sorted(map(tuple, rows)) == [("to-new", "new", 1), ("to-old", "old", 2)]


@pytest.mark.parametrize(
    ("lines_max", "bytes_max", "expected"),
    [(2, 100, [1, 2]), (10, 18, [1, 2]), (10, 17, [1]), (10, 3, [1]), (10, 100, [1, 2, 3])],
)
async def test_a_parcel_holds_so_many_lines_and_bytes_and_at_least_one_line(
    database: Database, store: ParcelStore, lines_max: int, bytes_max: int, expected: list[int]
) -> None:
    await parked(database, a="old", b="old", c="old")
    loose = Loose(BATCH, "old", "gpt", 3, 27, 0, is_all=True)
    assert await store.make("p", loose, "w0.1", lines_max, bytes_max) == len(expected)
    assert list(await store.numbers("p")) == expected
