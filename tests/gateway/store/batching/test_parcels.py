"""Parcels in a real database: put together, led for a term, and let go of."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from gateway.clock import StoppedClock
from gateway.store.batching.parcel_rows import TEND_US, Loose, ParcelRow, TermOver
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.past_parcels import KEPT_US
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines, past_parcels
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


async def test_lines_that_cannot_go_with_a_parcel_wait_for_another(
    database: Database, store: ParcelStore
) -> None:
    await parked(database, a="old", b="old", c="old", d="old")
    for name in ("p", "q"):
        loose = Loose(BATCH, "old", "gpt", 4, 36, 0, is_all=True)
        await store.make(name, loose, "w0.1", 2, 100)
    row = await store.take("p", "w0.1")
    assert row is not None
    with pytest.raises(TermOver):
        await store.begin_sending("p", row.term + 1, 1, 5, [2])
    assert list(await store.numbers("p")) == [1, 2]
    assert await store.begin_sending("p", row.term, 1, 5, [2, 3])
    assert list(await store.numbers("p")) == [1]
    assert list(await store.numbers("q")) == [3, 4]
    (loose,) = await store.loose("w0.1", 0)
    assert loose.count == 1


async def let_go(database: Database, clock: StoppedClock, vendor_id: str) -> ParcelRow:
    """What its sender knows of a parcel that another found, read and let go of meanwhile."""
    store = ParcelStore(database, clock)
    async with database.writing() as connection:
        row = {"id": f"p-{vendor_id}", "batch_id": BATCH, "state": "submitting", "lines": 1}
        await connection.execute(filled(parcels, **row))
    sender = await store.take(f"p-{vendor_id}", "w0.1")
    assert sender is not None
    clock.advance(TEND_US / 1e6)
    other = await store.take(f"p-{vendor_id}", "w1.1")
    assert other is not None
    await store.note(other.parcel_id, other.term, state="collected", vendor_id=vendor_id)
    await store.forget(other.parcel_id, other.term, is_refused=False)
    return sender


async def test_a_batch_that_another_found_and_let_go_of_is_no_second_one(
    database: Database,
) -> None:
    clock = StoppedClock()
    sender = await let_go(database, clock, "v1")
    store = ParcelStore(database, clock)
    assert await store.found_late(sender, "v1")
    assert not await store.found_late(sender, "v2")
    assert await store.due("w2.1", 10) == []


async def test_what_was_let_go_of_is_remembered_for_thirty_days(database: Database) -> None:
    clock = StoppedClock()
    await let_go(database, clock, "v1")
    clock.advance(KEPT_US / 1e6)
    await let_go(database, clock, "v2")
    await let_go(database, clock, "v3")
    async with database.reading() as connection:
        names = (await connection.execute(select(past_parcels.c.id))).scalars().all()
    assert sorted(names) == ["p-v2", "p-v3"]


async def test_a_parcel_that_its_vendor_never_had_is_not_remembered(database: Database) -> None:
    await let_go(database, StoppedClock(), "")
    async with database.reading() as connection:
        assert (await connection.execute(select(past_parcels))).all() == []
