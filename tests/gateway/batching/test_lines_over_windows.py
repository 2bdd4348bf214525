"""Lines that wait over the end of a day and a month: who is charged, and what reconcile finds.

They were let through on the last evening of a month, and are charged to that day and month, whoever
ends them, and whatever became of the worker that set their money aside.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Literal

import pytest

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.money.budgets import Limit, WindowKind
from gateway.oversight.homes import BY_LABEL
from gateway.parcels import Parcel
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.batching.parcels import CRASHED_REST_US
from gateway.store.engine import open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.money.spending import Difference, Period, SpendingReader
from tests.gateway.batching.parking_lot import ACCOUNT, DAY_US, HELD, LIMIT, Lot, Worker


pytestmark = [pytest.mark.anyio, pytest.mark.either]
LAST_EVENING = datetime(2027, 1, 31, 23, 30, tzinfo=UTC)
MIDNIGHT = datetime(2027, 2, 1, tzinfo=UTC)
OVER_MIDNIGHT_S = 3600.0
LINE_MICROUSD = 3
"""What the scripted vendor's answer to one costs."""
Fate = Literal["lives", "stops", "is killed", "is taken over"]
FATES: tuple[Fate, ...] = ("lives", "stops", "is killed", "is taken over")


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    lot.clock.advance(LAST_EVENING.timestamp() - lot.clock.utc_us() / 1e6)
    await lot.begin(6)
    await lot.table.set_limit(Limit(ACCOUNT, LIMIT, "day"))
    await lot.table.set_limit(Limit(ACCOUNT, LIMIT, "month"))
    yield lot
    await database.close()


async def over_midnight(lot: Lot, worker: Worker, fate: Fate) -> Worker:
    """Who looks after the lines in the new month; all that is left of the old one is theirs."""
    if fate == "stops":
        lot.workers.clear()
        await worker.runner.close()
        await worker.ledger.close()
    elif fate != "lives":
        lot.workers.clear()
        assert worker.ledger._flusher is not None
        worker.ledger._flusher.cancel()
    await lot.wait(OVER_MIDNIGHT_S)
    if fate == "lives":
        return worker
    later = await lot.worker("w1" if fate == "is taken over" else "w0")
    await lot.wait(CRASHED_REST_US / 1e6)
    return later


async def reconciled(lot: Lot) -> dict[str, Difference]:
    """By kind of window, once all is reported and nothing lies idle."""
    await lot.wait(300.0)
    batch = [
        ProjectedRecord("w0", 1, at, b"{}", known_record=each, known_leaf="0" * 64)
        for at, each in enumerate(lot.audit.records)
    ]
    sink = DatabaseAuditSink(lot.database)
    assert await sink.store(batch, "w0", (1, 0), (1, len(batch)))
    found = await SpendingReader(lot.database, BY_LABEL).differences()
    return {each.window: each for each in found}


async def spent(lot: Lot) -> dict[str, int]:
    await lot.wait(300.0)
    found = await lot.table.budgets()
    assert {each.leased_microusd for each in found} == {0}
    return {each.limit.window: each.spent_microusd for each in found}


def cost_of(lot: Lot, requests: list[str]) -> int:
    return sum(lot.outcomes()[each].cost_microusd for each in requests)


@pytest.mark.parametrize("fate", FATES)
async def test_lines_are_paid_in_the_windows_in_which_they_were_let_through(
    lot: Lot, fate: Fate
) -> None:
    first = await lot.worker("w0")
    requests = await first.park(4)
    await first.tend()
    later = await over_midnight(lot, first, fate)
    await later.ended(requests)
    cost = cost_of(lot, requests)
    assert cost > 0
    assert await spent(lot) == {"total": cost, "day": 0, "month": 0}
    assert {each.difference_microusd for each in (await reconciled(lot)).values()} == {0}
    assert await lot.stakes() == 0


async def test_each_part_of_a_batch_is_paid_where_it_was_let_through(lot: Lot) -> None:
    """Two lines wait over midnight, two come after it; a crash and an end for all of them."""
    first = await lot.worker("w0")
    old = await first.park(2)
    await first.tend()
    later = await over_midnight(lot, first, "is killed")
    new = await later.park(2)
    await later.tend()
    last = await killed(lot, later)
    await last.ended([*old, *new])
    costs = cost_of(lot, old), cost_of(lot, new)
    assert min(costs) > 0
    assert await spent(lot) == {"total": sum(costs), "day": costs[1], "month": costs[1]}
    assert {each.difference_microusd for each in (await reconciled(lot)).values()} == {0}


async def killed(lot: Lot, worker: Worker) -> Worker:
    """Within the same day; what lay idle had gone back, so that nothing but lines is held."""
    await lot.wait(300.0)
    lot.workers.clear()
    assert worker.ledger._flusher is not None
    worker.ledger._flusher.cancel()
    await lot.wait(CRASHED_REST_US / 1e6)
    return await lot.worker("w0")


async def test_lines_that_a_vendor_has_twice_are_paid_twice_and_said_to_be(
    lot: Lot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker that was stopped right before its call, and woke in the next month."""
    stopped, woken, submit = asyncio.Event(), asyncio.Event(), lot.vendor.submit

    async def late(parcel: Parcel, deadline_s: float) -> str:
        if not stopped.is_set():
            stopped.set()
            await woken.wait()
        return await submit(parcel, deadline_s)

    monkeypatch.setattr(lot.vendor, "submit", late)
    first, second = await lot.worker("w0"), await lot.worker("w1")
    requests = await first.park(2)
    while not stopped.is_set():
        await first.runner.tend()
        await asyncio.sleep(0.05)
        await lot.wait(1.0)
    await lot.wait(OVER_MIDNIGHT_S)
    await second.ended(requests)
    cost = cost_of(lot, requests)
    woken.set()
    assert await first.failures() == []
    await first.reservations.drop_ended(lot.lines)
    assert len(lot.taken()) == 2
    assert await spent(lot) == {"total": cost + 2 * HELD, "day": 2 * HELD, "month": 2 * HELD}
    assert {each.difference_microusd for each in (await reconciled(lot)).values()} == {0}
    again = [each for name, each in lot.outcomes().items() if name not in requests]
    assert [each.cost_microusd for each in again] == [HELD, HELD]
    assert {each.detail["batch"] for each in again} == {lot.batch.batch_id}
    assert {each.detail["cost"] for each in again} == {"reserved"}


@pytest.mark.parametrize("window", ["day", "total"])
async def test_what_has_no_room_any_more_is_charged_to_the_windows_it_was_let_through_in(
    lot: Lot, window: WindowKind
) -> None:
    """Of a day that is used up nothing is needed; of all time too little, and it is booked so."""
    first = await lot.worker("w0")
    requests = await first.park(2)
    await first.tend()
    await lot.table.set_limit(Limit(ACCOUNT, 0, window))
    later = await over_midnight(lot, first, "stops")
    await later.ended(requests)
    cost = cost_of(lot, requests)
    assert cost > 0
    assert await spent(lot) == {"total": cost, "day": 0, "month": 0}
    assert {each.difference_microusd for each in (await reconciled(lot)).values()} == {0}


async def test_a_full_day_keeps_no_line_of_another_one_from_its_money(lot: Lot) -> None:
    first = await lot.worker("w0")
    await first.park(2)
    await first.tend()
    await lot.table.set_limit(Limit(ACCOUNT, 0, "day"))
    later = await over_midnight(lot, first, "stops")
    await later.tend()
    found = {each.limit.window: each.leased_microusd for each in await lot.table.budgets()}
    assert (await lot.stakes(), found["day"], found["total"]) == (2, 0, 2 * HELD)


@pytest.mark.parametrize("fate", FATES)
async def test_a_limit_that_is_set_while_lines_wait_is_not_charged_with_them(
    lot: Lot, fate: Fate
) -> None:
    """Whether it is the first of its kind, or takes the place of one that is gone."""
    first = await lot.worker("w0")
    requests = await first.park(2)
    await first.tend()
    await lot.table.remove_limit(ACCOUNT, "total")
    await lot.wait(60.0)
    await lot.table.set_limit(Limit(ACCOUNT, LIMIT))
    await first.ledger.refresh()
    later = await over_midnight(lot, first, fate)
    await later.ended(requests)
    assert cost_of(lot, requests) > 0
    assert await spent(lot) == {"total": 0, "day": 0, "month": 0}
    assert {each.difference_microusd for each in (await reconciled(lot)).values()} == {0}


async def until(lot: Lot, moment_us: int) -> None:
    """To the microsecond."""
    left_us = moment_us - lot.clock.utc_us()
    await lot.wait(max(left_us / 1e6 - 1, 0.0))
    lot.clock.advance((moment_us - lot.clock.utc_us()) / 1e6)
    assert lot.clock.utc_us() == moment_us
    for worker in lot.workers:
        await worker.ledger.flush()


@pytest.mark.parametrize(
    ("ending", "answers", "fate"),
    [
        ("cancelled", "all", "lives"),
        ("cancelled", "some", "is taken over"),
        ("cancelled", "never", "lives"),
        ("expired", "some", "lives"),
        ("expired", "none", "is killed"),
        ("expired", "all", "stops"),
    ],
)
async def test_a_batch_that_ends_at_midnight_is_paid_on_either_side_as_each_line_was_let_through(
    lot: Lot, ending: str, answers: str, fate: Fate
) -> None:
    """Two in the last microsecond of a month, two in the first of the next; it ends a day later."""
    lot.vendor.faults = ParcelFaults(is_slow=True, is_endless=answers == "never")
    first = await lot.worker("w0")
    midnight_us = round(MIDNIGHT.timestamp() * 1e6)
    await until(lot, midnight_us - 1)
    old = await first.park(2)
    await until(lot, midnight_us)
    new = await first.park(2)
    while not lot.taken():
        await first.tend()
    await until(lot, midnight_us + DAY_US)
    if answers in {"all", "some"}:
        lot.vendor.faults = ParcelFaults(unsent=frozenset({2, 3} if answers == "some" else ()))
    if ending == "cancelled":
        assert await lot.batches.cancel(lot.batch)
    else:
        await lot.batches.wind_up(lot.batch.batch_id, "expired")
    later = first if fate == "lives" else await over_midnight(lot, first, fate)
    await later.ended([*old, *new])
    costs = cost_of(lot, old), cost_of(lot, new)
    answered = {"all": 2, "some": 1, "none": 0}
    if answers in answered:
        assert costs == (answered[answers] * LINE_MICROUSD,) * 2
    else:
        assert costs[0] == costs[1] > 2 * LINE_MICROUSD
    assert await spent(lot) == {"total": sum(costs), "day": 0, "month": costs[1]}
    assert {each.difference_microusd for each in (await reconciled(lot)).values()} == {0}
    reader = SpendingReader(lot.database, BY_LABEL)
    period = Period(midnight_us - DAY_US, midnight_us + 40 * DAY_US, "acme")
    (whole,) = await reader.totals(period, [])
    days = await reader.totals(period, ["day", "batch"])
    assert whole.cost_microusd == sum(each.cost_microusd for each in days) == sum(costs)
    assert {each.group[1] for each in days} == {lot.batch.batch_id}
    assert await lot.stakes() == 0
