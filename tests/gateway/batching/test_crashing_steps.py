"""Steps that crash again and again take no place from those that do not."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from gateway.batching.parcel_runner import PARCELS_MAX
from gateway.batching.steps import Steps
from gateway.errors import NotReady
from gateway.parcels import VendorBatch
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.engine import open_database
from gateway.store.schema.batches import batches
from gateway.store.schema.parcels import parcels
from tests.gateway.batching.parking_lot import POLL_S, Lot, Worker
from tests.gateway.store.rows import filled


pytestmark = [pytest.mark.anyio, pytest.mark.either]


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(3)
    yield lot
    await database.close()


async def with_others_before_it(lot: Lot, batch_id: str, vendor_id: str) -> Worker:
    """A worker whose own parcel is with its vendor, and parcels of a batch that were due before."""
    worker = await lot.worker("w0")
    await worker.park(3)
    lot.vendor.faults = ParcelFaults(is_slow=True)
    await worker.tend(2)
    lot.vendor.faults = ParcelFaults()
    async with lot.database.writing() as connection:
        for at in range(3 * PARCELS_MAX):
            row = {"id": f"p-{at}", "batch_id": batch_id, "state": "submitted", "tender": ""}
            place = {"made_us": lot.clock.utc_us(), "vendor_id": vendor_id, "due_us": 1}
            await connection.execute(filled(parcels, **row, **place))
    return worker


async def is_answered(lot: Lot, worker: Worker) -> bool:
    for _ in range(20):
        await lot.wait(POLL_S)
        await worker.runner.tend()
        tasks = list(worker.runner._moving._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=0.05)
        if set((await lot.states()).values()) == {"succeeded"}:
            return True
    return False


async def test_parcels_of_a_batch_whose_key_does_not_open_keep_no_other_one_waiting(
    lot: Lot,
) -> None:
    other = await lot.batches.make(structs.replace(lot.batch, batch_id="batch_"))
    worker = await with_others_before_it(lot, other.batch_id, "scripted-9")
    async with lot.database.writing() as connection:
        lost = batches.update().where(batches.c.id == other.batch_id)
        await connection.execute(lost.values(wrapped_key=b"no key of ours"))
    with capture_logs() as lines:
        assert await is_answered(lot, worker)
    told = [each for each in lines if each["event"] == "batch:failed"]
    assert [each["error_class"] for each in told] == ["BatchUnreadable"], "once, and in one place"
    # They are still there, for when the right key is.
    assert len(await lot.rows()) >= 3 * PARCELS_MAX


async def test_nor_do_parcels_at_which_every_step_crashes(lot: Lot) -> None:
    worker = await with_others_before_it(lot, lot.batch.batch_id, "scripted-9")
    look = lot.vendor.look

    async def looks(vendor_id: str, deadline_s: float) -> VendorBatch:
        if vendor_id == "scripted-9":
            raise NotReady("what it needs is not there")
        return await look(vendor_id, deadline_s)

    lot.vendor.look = looks  # type: ignore[method-assign]
    assert await is_answered(lot, worker)


async def test_what_rests_after_a_crash_keeps_its_name_and_takes_no_place() -> None:
    wake = asyncio.Event()
    steps = Steps(wake)

    async def crash() -> None:
        raise NotReady("what it needs is not there")

    steps.begin("bad", "b-1", crash())
    assert len(steps) == 1
    await wake.wait()
    steps.tidy()
    assert ("bad" in steps, len(steps)) == (True, 0)
    await steps.cancel()
    steps.tidy()
    assert ("bad" in steps, len(steps)) == (False, 0)
