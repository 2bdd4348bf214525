"""How long, and how often, a vendor's answers to a parcel are read before its lines go alone."""

from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from gateway.batching.parcel_results import FEW_RESULTS_S, READS_MAX, RESULT_S
from gateway.errors import UpstreamTimeout
from gateway.parcels import VendorBatch, VendorResult
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.engine import open_database
from tests.gateway.batching.parking_lot import Lot, Worker


pytestmark = [pytest.mark.anyio, pytest.mark.either]
LINES = 3
MOST_S = FEW_RESULTS_S + RESULT_S * LINES


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(LINES)
    yield lot
    await database.close()


@pytest.fixture
async def worker(lot: Lot) -> Worker:
    """Whose lines are with their vendor."""
    worker = await lot.worker("w0")
    await worker.park(LINES)
    await worker.tend()
    return worker


async def until_told(lot: Lot, worker: Worker) -> None:
    while "parked" in (await lot.states()).values():
        await worker.tend()


async def test_what_is_too_long_is_read_once_and_what_came_before_counts(
    lot: Lot, worker: Worker
) -> None:
    lot.vendor.faults = ParcelFaults(too_long_after=1)
    await until_told(lot, worker)
    assert lot.vendor.reads == 1
    assert await lot.states() == {1: "succeeded", 2: "waiting", 3: "waiting"}
    costs = {request[:5]: each.cost_microusd for request, each in lot.outcomes().items()}
    assert min(costs.values()) > 0, "the vendor may charge for what nobody could read"


class Trickling:
    """A vendor whose answers come so slowly that a reading is over before they do."""

    def __init__(self, lot: Lot, share: float) -> None:
        self._lot, self._share = lot, share
        self.given_s: list[float] = []

    async def results(
        self, batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        assert lines == LINES
        self.given_s.append(deadline_s)
        async for each in type(self._lot.vendor).results(
            self._lot.vendor, batch, lines, deadline_s
        ):
            yield each
            break
        self._lot.clock.advance(min(self._share * MOST_S, deadline_s))
        raise UpstreamTimeout("it trickles")


@pytest.mark.parametrize(("share", "given"), [(1.0, [1.0]), (0.6, [1.0, 0.4]), (0.1, None)])
async def test_readings_take_no_longer_together_than_one_may(
    lot: Lot,
    worker: Worker,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    given: list[float] | None,
) -> None:
    slow = Trickling(lot, share)
    monkeypatch.setattr(lot.vendor, "results", slow.results)
    await until_told(lot, worker)
    shares = given or [1.0 - share * at for at in range(READS_MAX + 1)]
    assert slow.given_s == pytest.approx([MOST_S * each for each in shares])
    assert await lot.states() == {1: "succeeded", 2: "waiting", 3: "waiting"}


async def test_nothing_is_read_behind_the_last_line_that_waits(
    lot: Lot, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, was_closed = lot.vendor.results, list[bool]()

    async def endless(
        batch: VendorBatch, lines: int, deadline_s: float
    ) -> AsyncGenerator[VendorResult, None]:
        try:
            async for each in whole(batch, lines, deadline_s):
                yield each
            raise AssertionError("it was read on")
        finally:
            was_closed.append(True)

    monkeypatch.setattr(lot.vendor, "results", endless)
    await until_told(lot, worker)
    assert was_closed == [True]
    assert set((await lot.states()).values()) == {"succeeded"}
