"""Lines whose money does not fit any more are paid all the same, and once, whenever it crashes."""

from collections.abc import AsyncIterator

import pytest

from gateway.errors import AuditUnavailable, NotReady
from gateway.money.budgets import Limit
from gateway.store.batching.parcels import CRASHED_REST_US
from gateway.store.engine import open_database
from gateway.types import Reservation
from tests.gateway.batching.parking_lot import ACCOUNT, HELD, LIMIT, Lot, Worker
from tests.gateway.batching.test_leads import before


pytestmark = [pytest.mark.anyio, pytest.mark.either]
TOO_LITTLE = 0  # So that no slice lies idle, which counts as spent when it is lost.


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(4)
    yield lot
    await database.close()


async def unfitting(lot: Lot) -> tuple[Worker, list[str]]:
    """A worker that is to end lines of its last run, for which there is too little by now."""
    first = await lot.worker("w0")
    requests = await first.park(4)
    await first.tend()
    await first.runner.close()
    await first.ledger.close()
    lot.workers.clear()
    await lot.table.set_limit(Limit(ACCOUNT, TOO_LITTLE))
    return await lot.worker("w0"), requests


async def killed(lot: Lot, worker: Worker) -> Worker:
    """Without a word, and its next run."""
    lot.workers.remove(worker)
    await lot.wait(CRASHED_REST_US / 1e6)
    return await lot.worker("w0")


@pytest.mark.parametrize("limit", [TOO_LITTLE, LIMIT])
@pytest.mark.parametrize("reports", [True, False])
async def test_of_a_worker_that_is_killed_before_their_outcomes(
    lot: Lot, limit: int, reports: bool
) -> None:
    """What it booked stands, also where the next run has room for them again."""
    second, requests = await unfitting(lot)
    lot.audit.failing = True
    await second.runner.tend()
    assert [type(each) for each in await second.failures()] == [AuditUnavailable]
    lot.audit.failing = False
    if reports:
        await second.ledger.flush()
    await lot.table.set_limit(Limit(ACCOUNT, limit))
    third = await killed(lot, second)
    await third.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert cost > TOO_LITTLE
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


@pytest.mark.parametrize("place", ["begin_ending", "end"])
async def test_of_a_worker_that_is_killed_around_their_ends(lot: Lot, place: str) -> None:
    second, requests = await unfitting(lot)

    async def crash() -> None:
        raise NotReady("ended on purpose")

    before(second.waiting, place, crash)
    await second.runner.tend()
    assert [type(each) for each in await second.failures()] == [NotReady]
    third = await killed(lot, second)
    await third.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_where_the_database_is_away_as_they_are_booked(lot: Lot) -> None:
    second, requests = await unfitting(lot)
    book = second.late.book

    async def away(late: object) -> bool:
        raise NotReady("away for a moment")

    second.late.book = away  # type: ignore[method-assign]
    await second.runner.tend()
    assert [type(each) for each in await second.failures()] == [NotReady]
    assert lot.outcomes() == {}, "an outcome says what is booked"
    second.late.book = book  # type: ignore[method-assign]
    await lot.wait(CRASHED_REST_US / 1e6)
    await second.ended(requests)
    cost = sum(each.cost_microusd for each in lot.outcomes().values())
    assert (await lot.spent(), await lot.stakes()) == ((cost, 0), 0)


async def test_where_there_was_room_again_before_nothing_was_set_aside(lot: Lot) -> None:
    """A crash counts as spent what is set aside: booked by name besides, it would be paid twice."""
    second, requests = await unfitting(lot)
    reserve = second.ledger.reserve

    async def away(
        accounts: tuple[str, ...],
        amount_microusd: int,
        lease_s: float = 0.0,
        admitted_us: int | None = None,
    ) -> Reservation:
        if not amount_microusd:
            raise NotReady("away for a moment")
        return await reserve(accounts, amount_microusd, lease_s, admitted_us)

    second.ledger.reserve = away  # type: ignore[method-assign]
    await second.runner.tend()
    assert [type(each) for each in await second.failures()] == [NotReady]
    second.ledger.reserve = reserve  # type: ignore[method-assign]
    await lot.table.set_limit(Limit(ACCOUNT, LIMIT))
    await lot.wait(CRASHED_REST_US / 1e6)
    lot.audit.failing = True
    await second.runner.tend()
    assert [type(each) for each in await second.failures()] == [AuditUnavailable]
    lot.audit.failing = False
    third = await killed(lot, second)
    await third.ended(requests)
    assert (await lot.spent(), await lot.stakes()) == ((HELD * len(requests), 0), 0)
