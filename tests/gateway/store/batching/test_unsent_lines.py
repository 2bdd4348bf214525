"""Which erased lines were provably never sent; it is told in the transaction that destroys them."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import delete, select

from gateway.clock import StoppedClock
from gateway.store.batching.parcel_rows import Loose, TermOver
from gateway.store.batching.parcels import ParcelStore
from gateway.store.batching.unsent_lines import KEPT_US, UnsentLines
from gateway.store.batching.vendor_copies import VendorCopies
from gateway.store.engine import Database, open_database
from gateway.store.schema.batches import batch_lines, batches
from gateway.store.schema.parcels import parcels, parked_lines, unsent_lines
from tests.gateway.store.batching.test_vendor_copies import BATCH
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
PARCELS = {"": 0, "new": 0, "refused": 1, "submitting": 0, "submitted": 0, "collected": 0}
"""One line is in each, numbered from 1 on; with how often it was tried."""
SENDING = 4


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = open_database(database_url)
    async with database.writing() as connection:
        await connection.execute(filled(batches, id=BATCH, state="in_progress"))
        for number, (name, tries) in enumerate(PARCELS.items(), 1):
            if name:
                state = "new" if name == "refused" else name
                row = {"id": name, "batch_id": BATCH, "state": state, "lines": 1, "tries": tries}
                await connection.execute(filled(parcels, **row))
            place = {"batch_id": BATCH, "number": number}
            await connection.execute(filled(batch_lines, **place, state="parked"))
            await connection.execute(filled(parked_lines, **place, parcel=name))
    yield database
    await database.close()


async def erase(database: Database, *numbers: int, pause_s: float = 0.0) -> None:
    """As an erasure does."""
    unsent = UnsentLines(database, StoppedClock())
    copies = VendorCopies(database, StoppedClock(), cancels=False)
    async with database.writing() as connection:
        await unsent.hold(connection, BATCH, numbers)
        await asyncio.sleep(pause_s)
        await copies.order(connection, "case", "acme", BATCH, frozenset(numbers))
        await unsent.note(connection, BATCH, numbers)
        which = batch_lines.c.batch_id == BATCH
        if numbers:
            which &= batch_lines.c.number.in_(numbers)
        await connection.execute(delete(batch_lines).where(which))


async def known(database: Database) -> set[int]:
    unsent = UnsentLines(database, StoppedClock())
    return {number for number in range(1, 9) if await unsent.debt(BATCH, number) == "none"}


async def debt(database: Database) -> str:
    """Of the line in the parcel that is being sent."""
    return await UnsentLines(database, StoppedClock()).debt(BATCH, SENDING)


@pytest.mark.parametrize("numbers", [tuple(range(1, 7)), ()])
async def test_only_what_is_in_no_parcel_or_in_one_that_no_vendor_accepted_is_unsent(
    database: Database, numbers: tuple[int, ...]
) -> None:
    await erase(database, *numbers)
    assert await known(database) == {1, 2, 3}
    assert await debt(database) == "unknown"


@pytest.mark.parametrize(
    ("becomes", "expected"),
    [("new", "none"), ("submitted", "owed"), ("cancelling", "owed"), ("submitting", "unknown")],
)
async def test_of_a_parcel_that_was_being_sent_the_vendors_word_decides(
    database: Database, becomes: str, expected: str
) -> None:
    await erase(database, SENDING)
    store = ParcelStore(database, StoppedClock())
    with pytest.raises(TermOver):
        await store.note("submitting", 7, state="new")
    assert await debt(database) == "unknown"
    await store.note("submitting", 0, state=becomes, tries=1)
    assert await debt(database) == expected


@pytest.mark.parametrize("is_refused", [False, True])
async def test_one_that_is_let_go_of_was_refused_or_not(
    database: Database, *, is_refused: bool
) -> None:
    await erase(database, SENDING)
    await ParcelStore(database, StoppedClock()).forget("submitting", 0, is_refused=is_refused)
    assert await debt(database) == ("none" if is_refused else "owed")


async def test_whether_it_is_refused_is_never_missed(database: Database) -> None:
    """The refusal comes while the line is being erased, and waits for that."""
    store = ParcelStore(database, StoppedClock())

    async def refuse() -> None:
        await asyncio.sleep(0.1)
        await store.note("submitting", 0, state="new", tries=1)

    await asyncio.gather(refuse(), erase(database, SENDING, pause_s=0.5))
    assert await debt(database) == "none"


async def test_a_line_that_is_not_erased_is_not_noted(database: Database) -> None:
    await erase(database, 2, 5)
    assert await known(database) == {2}


async def test_a_parcel_that_was_looked_for_in_vain_may_have_been_sent(database: Database) -> None:
    store = ParcelStore(database, StoppedClock())
    await store.renamed("submitting", "another", 0)
    await store.note("another", 0, state="new", tries=2)  # Refused besides.
    await erase(database, SENDING)
    assert await debt(database) == "owed"


async def test_nor_is_it_unsent_when_it_was_erased_before_it_was_looked_for(
    database: Database,
) -> None:
    await erase(database, SENDING)
    await ParcelStore(database, StoppedClock()).renamed("submitting", "another", 0)
    assert await debt(database) == "owed"


async def test_a_line_is_noted_or_sent_and_never_both(database: Database) -> None:
    """Workers put it into a parcel, and send that, while it is erased."""
    store = ParcelStore(database, StoppedClock())
    loose = Loose(BATCH, "", "", 1, 0, 0, is_all=True)

    async def send() -> tuple[int, bool]:
        await asyncio.sleep(0.1)
        count = await store.make("fresh", loose, "w", 9, 9)
        return count, await store.begin_sending("new", 0, 1, 0)

    (made, is_sent), _ = await asyncio.gather(send(), erase(database, 1, 2, pause_s=0.5))
    async with database.reading() as connection:
        left = (await connection.execute(select(parked_lines.c.number))).scalars().all()
    assert (made, is_sent) == (0, False)
    assert await known(database) == {1, 2}
    assert not {1, 2} & set(left)


async def test_what_nobody_asked_for_in_a_year_is_forgotten(database: Database) -> None:
    """Of a line that was erased since then its worker may still come back and ask."""
    since_us = StoppedClock().utc_us() - KEPT_US
    ages = [("old", since_us - 1), ("edge", since_us), ("new", since_us + KEPT_US)]
    async with database.writing() as connection:
        for name, at_us in ages:
            row = {"batch_id": name, "number": 1, "erased_us": at_us, "parcel": ""}
            await connection.execute(unsent_lines.insert(), row)
    await erase(database, 1)
    async with database.reading() as connection:
        left = (await connection.execute(select(unsent_lines.c.batch_id))).scalars().all()
    assert sorted(left) == sorted(["edge", "new", BATCH])
