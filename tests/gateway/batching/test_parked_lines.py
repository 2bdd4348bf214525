"""Money of lines that wait: held by one worker, and by nobody once the line has ended."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs
from sqlalchemy import delete

from gateway.batching.parcel_runner import GATHER_S
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines
from tests.gateway.batching.parking_lot import HELD, RESERVED_S, Lot, Worker


pytestmark = pytest.mark.anyio


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(4)
    yield lot
    await database.close()


async def both(lot: Lot) -> tuple[Worker, Worker, list[str], list[str]]:
    """Two workers that parked half of the lines each."""
    first, second = await lot.worker("w0"), await lot.worker("w1")
    return first, second, await first.park(2), await second.park(2)


async def taken_over(lot: Lot) -> tuple[Worker, list[str]]:
    """The second does not come to its lines, so the first has them answered with its own."""
    first, second, own, others = await both(lot)
    await lot.wait(GATHER_S)
    await first.ended(own + others)
    assert set((await lot.states()).values()) == {"succeeded"}
    return second, others


async def test_each_worker_hands_over_what_it_parked_itself(lot: Lot) -> None:
    """Whoever hands over a line holds money for it: once is enough."""
    first, second, own, others = await both(lot)
    await first.tend()
    await second.tend()
    handed = [[line.call.request_id for line in each.parcel.lines] for each in lot.taken()]
    assert handed == [own, others]
    assert await lot.spent() == (0, 4 * HELD)


async def test_what_a_worker_holds_for_lines_that_another_ended_goes_back(lot: Lot) -> None:
    second, _ = await taken_over(lot)
    spent = sum(each.cost_microusd for each in lot.outcomes().values())
    assert await lot.spent() == (spent, 2 * HELD)
    assert second.parked.holds_any()
    await second.parked.drop_ended(lot.lines)
    assert await lot.spent() == (spent, 0)
    assert (await lot.stakes(), second.parked.holds_any()) == (0, False)


async def test_it_stays_aside_as_long_as_they_wait(lot: Lot) -> None:
    worker = await lot.worker("w0")
    await worker.park(4)
    await worker.tend()
    await worker.parked.drop_ended(lot.lines)
    assert (await lot.spent(), await lot.stakes()) == ((0, 4 * HELD), 4)


async def test_of_lines_that_are_gone_it_goes_back_when_they_are_on_record(lot: Lot) -> None:
    """A batch of files keeps no line; of one that was erased its cost may still be booked."""
    second, others = await taken_over(lot)
    recorded = lot.outcomes().pop(others[0])
    lot.audit.records.remove(recorded)
    async with lot.database.writing() as connection:
        await connection.execute(delete(batch_lines))
    await second.parked.drop_ended(lot.lines)
    assert (await lot.spent())[1] == HELD
    assert await lot.stakes() == 1
    lot.audit.records.append(structs.replace(recorded, cost_microusd=0))
    await second.parked.drop_ended(lot.lines)
    assert (await lot.spent())[1] == 0
    assert await lot.stakes() == 0


async def test_a_worker_leaves_in_good_order_whatever_it_held_for_too_long(lot: Lot) -> None:
    worker = await lot.worker("w0")
    await worker.park(4)
    for _ in range(2):  # Ended by the ledger, and forgotten.
        lot.clock.advance(RESERVED_S)
        await worker.ledger.flush()
    await worker.runner.close()
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)
    assert not worker.parked.holds_any()
