"""Which batches at vendors an erasure must reach, down to the parcel, and none that it need not."""

import pytest
from sqlalchemy import delete, select, update

from gateway.clock import StoppedClock
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines, vendor_copies
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
BATCH = "batch_1"


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
    found = {each.parcel: each.lines for each in await copies.of_cases(["case"])}
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


async def test_a_parcel_that_is_read_is_not_reached_for_lines_that_wait_elsewhere(
    database: Database,
) -> None:
    await with_parcels(database, {"read": (2,), "one": (5, 6)}, made=2)
    assert await ordered(database, frozenset({5}), cancels=True) == {"one": (1, True)}


async def test_of_lines_that_may_be_in_what_was_read_no_more_are_told_than_there_are(
    database: Database,
) -> None:
    await with_parcels(database, {"read": (2,), "empty": ()}, made=3)
    found = await ordered(database, frozenset({1, 3, 4, 5}), cancels=True)
    assert found == {"read": (2, False), "empty": (3, False)}


async def test_each_case_has_orders_of_its_own(database: Database) -> None:
    await with_parcels(database, {"one": (1, 2)}, made=2)
    copies = VendorCopies(database, StoppedClock())
    async with database.writing() as connection:
        await copies.order(connection, "first", "acme", BATCH, frozenset({1}))
        await copies.order(connection, "second", "acme", BATCH, frozenset({2}))
        await copies.order(connection, "second", "other", "batch_2", frozenset({2}))
    cases = {each.case_id for each in await copies.open_of("one")}
    assert cases == {"first", "second"}
    assert await copies.of_organisation("other") == []
    async with database.writing() as connection:
        ended = update(vendor_copies).where(vendor_copies.c.case_id == "first")
        await connection.execute(ended.values(state="unsent"))
    await copies.end("one", "kept", "v1", "words")
    found = {each.case_id: each for each in await copies.of_organisation("acme")}
    assert (found["first"].state, found["first"].is_left) == ("unsent", False)
    assert (found["second"].state, found["second"].is_left) == ("kept", True)


async def test_what_was_sent_after_an_erasure_is_followed_by_the_next_one(
    database: Database,
) -> None:
    """Else it would be said of its lines, too, that no vendor ever had them."""
    await with_parcels(database, {"fresh": (1, 2, 3)}, made=3)
    copies, store = VendorCopies(database, StoppedClock()), ParcelStore(database, StoppedClock())
    assert await ordered(database, frozenset({1}), cancels=True) == {"fresh": (1, True)}
    async with database.writing() as connection:
        await connection.execute(delete(parked_lines).where(parked_lines.c.number == 1))
    await copies.end("fresh", "unsent", "", "")
    await store.note("fresh", 0, is_erased=0)
    assert await store.begin_sending("fresh", 0, 2, 0)
    await store.note("fresh", 0, state="submitted", vendor_id="v1")
    assert await ordered(database, frozenset({2, 3}), cancels=True) == {"fresh": (2, True)}
    (copy,) = await copies.open_of("fresh")
    assert (copy.state, copy.vendor_id, copy.ended_us, copy.is_left) == ("ordered", "v1", 0, True)
