"""Where a parcel goes, step by step, as its vendor takes it, refuses it or says nothing."""

from collections.abc import AsyncIterator

import pytest

from gateway.batching.parcel_runner import LOOKS_MIN, REFUSALS_MAX, RESENDS_MAX
from gateway.parcels import FULL_STATUSES
from gateway.providers.scripted_parcels import ParcelFaults
from gateway.store.engine import open_database
from tests.gateway.batching.parking_lot import Lot, Worker


pytestmark = pytest.mark.anyio


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(3)
    yield lot
    await database.close()


async def handing_over(lot: Lot, faults: ParcelFaults) -> Worker:
    worker = await lot.worker("w0")
    await worker.park(3)
    lot.vendor.faults = faults
    return worker


async def sent(lot: Lot, worker: Worker) -> int:
    """How often the parcel was, until it is no more."""
    names = set()
    while rows := await lot.rows():
        names |= {(each.parcel_id, each.tries) for each in rows if each.state == "submitting"}
        await worker.tend()
    return len({name for name, _ in names})


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_a_vendor_that_fails_at_every_parcel_gets_its_lines_one_by_one_in_the_end(
    lot: Lot, status: int
) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=status))
    await worker.tend()
    assert await sent(lot, worker) == RESENDS_MAX + 1
    assert set((await lot.states()).values()) == {"waiting"}
    assert [each.cost_microusd for each in lot.outcomes().values()] == [0, 0, 0]
    assert (await lot.spent(), await lot.stakes()) == ((0, 0), 0)


@pytest.mark.parametrize("status", [500, 503])
async def test_a_parcel_that_was_taken_in_spite_of_what_its_vendor_said_is_not_sent_again(
    lot: Lot, status: int
) -> None:
    worker = await handing_over(lot, ParcelFaults(made_status=status))
    await worker.tend()
    assert await sent(lot, worker) == 1
    assert len(lot.taken()) == 1
    assert set((await lot.states()).values()) == {"succeeded"}


@pytest.mark.parametrize("status", sorted(FULL_STATUSES))
async def test_a_vendor_that_has_no_room_is_asked_a_few_times(lot: Lot, status: int) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=status))
    await worker.tend()
    for tries in range(1, REFUSALS_MAX + 1):
        (row,) = await lot.rows()
        assert (row.state, row.tries) == ("new", tries)
        while (await lot.rows())[:1] == [row]:
            await worker.tend()
    assert await lot.rows() == []
    assert set((await lot.states()).values()) == {"waiting"}


async def test_a_parcel_whose_sending_was_broken_off_is_looked_for_before_it_is_sent_again(
    lot: Lot,
) -> None:
    worker = await handing_over(lot, ParcelFaults(submit_status=500))
    await worker.tend()
    (first,) = await lot.rows()
    lot.vendor.faults = ParcelFaults()
    looks = 0
    while (row := (await lot.rows())[0]).state == "submitting":
        looks += row.tries >= looks
        await worker.tend()
    assert looks == LOOKS_MIN + 1
    assert (row.state, row.resent, lot.taken()) == ("new", 1, [])
    assert row.parcel_id != first.parcel_id
