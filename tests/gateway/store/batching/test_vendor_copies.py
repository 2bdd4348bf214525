"""Which batches at vendors an erasure must reach, down to the parcel, and none that it need not."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from gateway.clock import StoppedClock
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
BATCH = "batch_1"


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = open_database(database_url)
    yield database
    await database.close()


async def with_parcels(database: Database, waiting: dict[str, tuple[int, ...]], made: int) -> None:
    """Parcels of one batch that were made with so many lines, of which these still wait."""
    async with database.writing() as connection:
        await connection.execute(filled(batches, id=BATCH, state="in_progress"))
        for parcel, numbers in waiting.items():
            state = "new" if parcel == "fresh" else "submitted"
            row = {"id": parcel, "batch_id": BATCH, "state": state, "lines": made}
            await connection.execute(filled(parcels, **row))
            for number in numbers:
                place = {"batch_id": BATCH, "number": number}
                await connection.execute(filled(batch_lines, **place, state="parked"))
                await connection.execute(filled(parked_lines, **place, parcel=parcel))


async def ordered(
    database: Database, numbers: frozenset[int], *, cancels: bool
) -> dict[str, tuple[int, bool]]:
    """By parcel: how many erased lines it is said to hold, and whether it is cancelled."""
    copies = VendorCopies(database, StoppedClock(), cancels=cancels)
    expected = await copies.count({BATCH: numbers})
    for _ in range(2):
        async with database.writing() as connection:
            await copies.order(connection, "case", "acme", BATCH, numbers)
    async with database.reading() as connection:
        rows = (await connection.execute(select(parcels.c.id, parcels.c.is_erased))).all()
    found = {each.parcel: each.lines for each in await copies.of_case("acme", "case")}
    assert len(found) == expected
    return {row.id: (found[row.id], bool(row.is_erased)) for row in rows if row.id in found}


@pytest.mark.parametrize("cancels", [True, False])
async def test_only_parcels_with_erased_lines_are_reached(
    database: Database, *, cancels: bool
) -> None:
    await with_parcels(database, {"one": (1, 2), "two": (3, 4), "fresh": (5, 6)}, made=2)
    found = await ordered(database, frozenset({1, 3, 4, 5}), cancels=cancels)
    # Nobody else is in the second, and the one that was not sent is put together again.
    assert found == {"one": (1, cancels), "two": (2, True), "fresh": (1, True)}


async def test_a_line_that_was_answered_may_still_be_with_a_vendor(database: Database) -> None:
    await with_parcels(database, {"read": (2,), "whole": (7, 8)}, made=2)
    assert await ordered(database, frozenset({1}), cancels=True) == {"read": (1, False)}


async def test_of_a_whole_batch_every_parcel_goes(database: Database) -> None:
    await with_parcels(database, {"one": (1, 2), "read": ()}, made=2)
    found = await ordered(database, frozenset(), cancels=False)
    assert found == {"one": (2, True), "read": (2, True)}


async def test_a_parcel_is_not_sent_with_lines_that_were_just_erased(database: Database) -> None:
    await with_parcels(database, {"fresh": (1, 2)}, made=2)
    store = ParcelStore(database, StoppedClock())
    await ordered(database, frozenset({1}), cancels=False)
    assert not await store.begin_sending("fresh", 0, 2, 0)
    await store.note("fresh", 0, is_erased=0)
    assert await store.begin_sending("fresh", 0, 1, 0)


async def test_a_parcel_that_gets_another_name_keeps_its_orders(database: Database) -> None:
    await with_parcels(database, {"one": (1, 2)}, made=2)
    await ordered(database, frozenset({1}), cancels=True)
    await ParcelStore(database, StoppedClock()).renamed("one", "another", 0)
    copies = VendorCopies(database, StoppedClock())
    (open_one,) = await copies.open_of("another")
    assert (open_one.case_id, open_one.parcel_state, open_one.is_left) == ("case", "new", True)
    await copies.end("another", "deleted", "v1", "")
    assert await copies.open_of("another") == []
    (ended,) = await copies.of_organisation("acme")
    assert (ended.state, ended.vendor_id, ended.is_left) == ("deleted", "v1", False)
