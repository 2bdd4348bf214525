"""Several workers on one database: limits that hold, crashes, lost answers, changed limits."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.clock import StoppedClock, SystemClock
from gateway.errors import BudgetExhausted, NotReady, RequestInvalid
from gateway.money.budgets import BudgetKey, Limit, WindowKind
from gateway.store.engine import Database, open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.revisions import current
from gateway.store.schema.tables import organisations
from tests.gateway.store.money.ledgers import LossyTable, ledger_on


pytestmark = pytest.mark.anyio
PATH = ("org:acme", "ws:acme/research", "proj:acme/research/bot", "key:abc")
ORG = ("org:acme",)


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LossyTable:
    return LossyTable(database, clock)


@asynccontextmanager
async def workers_on(
    url: str, count: int, flush_every_s: float
) -> AsyncIterator[tuple[LeaseTable, list[LeasedLedger]]]:
    """So many workers, each with connections of its own, not yet started."""
    databases = [open_database(url) for _ in range(count)]
    tables = [LeaseTable(database, SystemClock()) for database in databases]
    yield (
        tables[0],
        [
            LeasedLedger(table, SystemClock(), f"w{number}", flush_every_s=flush_every_s)
            for number, table in enumerate(tables)
        ],
    )
    for database in databases:
        await database.close()


async def state_of(table: LeaseTable, window: WindowKind = "total") -> tuple[int, int, int]:
    """Spent, leased and left of the organisation."""
    key = BudgetKey(ORG[0], window)
    budget = next(budget for budget in await table.budgets() if budget.limit.key == key)
    return budget.spent_microusd, budget.leased_microusd, budget.left_microusd


async def add_organisation(database: Database) -> None:
    async with database.writing() as connection:
        row = {"name": "acme", "title": "", "created_us": 0, "time_zone": "UTC"}
        await connection.execute(organisations.insert(), row)


async def becomes(ledger: LeasedLedger, *, reporting: bool) -> None:
    while ledger.is_reporting is not reporting:
        await asyncio.sleep(0.01)


async def spend(ledger: LeasedLedger, amount: int, cost: int | None = None) -> None:
    ledger.settle(await ledger.reserve(PATH, amount), amount if cost is None else cost)


async def test_many_tasks_of_many_workers_admit_what_the_limit_is_worth(
    database_url: str,
) -> None:
    price, worth = 1000, 100
    admitted: list[int] = []
    async with workers_on(database_url, 4, 0.05) as (table, ledgers):
        await table.set_limit(Limit("org:acme", worth * price))
        await table.set_limit(Limit("key:abc", 10 * worth * price, "month"))
        for ledger in ledgers:
            await ledger.start()

        async def request(ledger: LeasedLedger) -> None:
            try:
                reservation = await ledger.reserve(PATH, price)
            except BudgetExhausted:
                return
            admitted.append(price)
            await asyncio.sleep(0.001)
            ledger.settle(reservation, price)

        await asyncio.gather(*(request(ledger) for ledger in ledgers for _ in range(100)))
        for ledger in ledgers:
            await ledger.close()
        assert 98 <= len(admitted) <= worth
        spent, leased, left = await state_of(table)
        assert (spent, leased) == (sum(admitted), 0)
        assert left == worth * price - spent


async def test_workers_whose_true_costs_are_lower_spend_nearly_all_and_never_more(
    database_url: str,
) -> None:
    limit, reserved, cost = 100_000, 1000, 317
    spent_truly = 0
    async with workers_on(database_url, 3, 0.02) as (table, ledgers):
        await table.set_limit(Limit("org:acme", limit))
        for ledger in ledgers:
            await ledger.start()

        async def client(ledger: LeasedLedger) -> None:
            nonlocal spent_truly
            while True:
                try:
                    reservation = await ledger.reserve(PATH, reserved)
                except BudgetExhausted:
                    return
                await asyncio.sleep(0)
                ledger.settle(reservation, cost)
                spent_truly += cost

        await asyncio.gather(*(client(ledger) for ledger in ledgers for _ in range(5)))
        for ledger in ledgers:
            await ledger.close()
        spent, leased, left = await state_of(table)
        assert (spent, leased) == (spent_truly, 0)
        assert 0 <= left < 3 * reserved


async def test_closing_gives_everything_back_that_was_not_spent(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1_000_000))
    ledger = ledger_on(table, clock)
    await ledger.start()
    await spend(ledger, 1000, 400)
    assert (await state_of(table))[1] > 0
    await ledger.close()
    assert await state_of(table) == (400, 0, 999_600)


async def test_what_lies_unused_for_ten_reports_goes_back_and_what_is_used_stays(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1_000_000))
    ledger = ledger_on(table, clock, slice_microusd=5000)
    await ledger.start()
    await spend(ledger, 1000)
    for _ in range(9):
        await ledger.flush()
    await spend(ledger, 100)
    for _ in range(10):
        await ledger.flush()
    assert await state_of(table) == (1100, 4900, 994_000), "it was used in between"
    await ledger.flush()
    assert await state_of(table) == (1100, 0, 998_900)
    await ledger.close()


async def test_a_crashed_worker_that_comes_back_counts_its_slice_as_spent(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1_000_000))
    crashed = ledger_on(table, clock, slice_microusd=5000)
    await crashed.refresh()
    await spend(crashed, 1000, 400)
    _, leased, left = await state_of(table)
    assert leased == 6000
    again = ledger_on(table, clock)
    await again.start()
    assert await state_of(table) == (leased, 0, left)
    await again.close()


async def test_a_worker_that_is_gone_is_written_off_by_another_after_its_lease(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    gone, other = ledger_on(table, clock, "gone"), ledger_on(table, clock, "other")
    await gone.refresh()
    await other.refresh()
    await gone.reserve(PATH, 900)
    await spend(other, 50)
    clock.advance(91.0)
    with pytest.raises(BudgetExhausted):
        await other.reserve(PATH, 51)
    await spend(other, 50)
    await other.close()
    assert await state_of(table) == (1000, 0, 0)


async def test_a_worker_whose_clock_is_behind_is_not_written_off_at_once(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    behind, other = ledger_on(table, clock, "behind"), ledger_on(table, clock, "other")
    await behind.refresh()
    await other.refresh()
    held = await behind.reserve(PATH, 900)
    clock.advance(89.0)
    await spend(other, 50)
    await other.close()
    assert await state_of(table) == (50, 900, 50)
    behind.settle(held, 10)
    await behind.close()

    assert await state_of(table) == (60, 0, 940)


async def test_what_a_worker_that_is_gone_held_of_each_account_is_written_off_in_its_turn(
    table: LossyTable, clock: StoppedClock
) -> None:
    """Whoever claims on one account settles the leases of that one, and leaves the others be."""
    for account in (ORG[0], PATH[3]):
        await table.set_limit(Limit(account, 1000))
    gone, other = ledger_on(table, clock, "gone"), ledger_on(table, clock, "other")
    await gone.refresh()
    await other.refresh()
    await gone.reserve(PATH, 900)
    clock.advance(91.0)
    for account in (ORG[0], PATH[3]):
        other.settle(await other.reserve((account,), 100), 100)
        with pytest.raises(BudgetExhausted):
            await other.reserve((account,), 1)
    await other.close()

    sums = {
        row.limit.account: (row.spent_microusd, row.leased_microusd)
        for row in await table.budgets()
    }
    assert sums == dict.fromkeys((ORG[0], PATH[3]), (1000, 0))


async def test_a_limit_below_nothing_and_a_zone_that_is_none_are_refused_and_change_nothing(
    table: LossyTable, database: Database
) -> None:
    await add_organisation(database)
    await table.set_limit(Limit(ORG[0], 0))
    before = await current(database)
    with pytest.raises(RequestInvalid) as caught:
        await table.set_limit(Limit(ORG[0], -1))
    with pytest.raises(RequestInvalid):
        await table.set_time_zone("acme", "Nowhere/At-All")

    assert caught.value.parameter == "limit_microusd"
    assert await state_of(table) == (0, 0, 0)
    assert await current(database) == before


async def test_every_worker_is_told_when_a_limit_is_set_or_removed_or_its_zone_changes(
    table: LossyTable, database: Database
) -> None:
    await add_organisation(database)
    seen = [await current(database)]
    for change in (
        table.set_limit(Limit(ORG[0], 100, "day")),
        table.set_limit(Limit(ORG[0], 200, "day")),
        table.set_time_zone("acme", "Asia/Kolkata"),
        table.remove_limit(ORG[0], "day"),
    ):
        await change
        seen.append(await current(database))

    assert sorted(set(seen)) == seen


async def test_a_worker_that_slept_past_its_lease_asks_before_it_reserves_again(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    sleeper, other = ledger_on(table, clock, "sleeper"), ledger_on(table, clock, "other")
    await sleeper.refresh()
    await other.refresh()
    asleep = await sleeper.reserve(PATH, 600)
    clock.advance(91.0)
    await spend(other, 400)
    sleeper.settle(asleep, 600)
    with pytest.raises(BudgetExhausted):
        await sleeper.reserve(PATH, 1)
    await other.close()
    await sleeper.close()
    assert await state_of(table) == (1000, 0, 0)


async def test_a_running_worker_keeps_its_lease(table: LossyTable, clock: StoppedClock) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    ledger, other = ledger_on(table, clock, "w1"), ledger_on(table, clock, "w2")
    await ledger.refresh()
    await other.refresh()
    reservation = await ledger.reserve(PATH, 600)
    for _ in range(10):
        clock.advance(40.0)
        await ledger.flush()
        await other.flush()
    ledger.settle(reservation, 100)
    await ledger.close()
    assert await state_of(table) == (100, 0, 900)


async def test_what_a_burst_of_dear_requests_left_goes_back_while_others_come(
    table: LossyTable, clock: StoppedClock
) -> None:
    """A crash counts it as spent, and where requests never cease nothing is ever quiet."""
    await table.set_limit(Limit("org:acme", 1_000_000))
    ledger = ledger_on(table, clock, slice_microusd=1000)
    await ledger.refresh()
    burst = [await ledger.reserve(PATH, 5000) for _ in range(10)]
    for reservation in burst:
        ledger.settle(reservation, 1)
    for _ in range(12):
        await spend(ledger, 10)
        await ledger.flush()
    spent, leased, _ = await state_of(table)
    assert spent == 10 + 12 * 10
    assert leased <= 1000


async def test_what_lies_with_another_worker_is_waited_for(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 600))
    holder, asker = ledger_on(table, clock, "w1"), ledger_on(table, clock, "w2", pauses=201)
    for ledger, amount in ((holder, 400), (asker, 100)):
        await ledger.refresh()
        ledger.release(await ledger.reserve(PATH, amount))
    waiting = asyncio.create_task(asker.reserve(PATH, 600))
    for _ in range(12):  # What lies idle for ten rounds goes back.
        await holder.flush()
    assert (await waiting).amount_microusd == 600
    assert await state_of(table) == (0, 600, 0)


async def test_what_another_worker_keeps_is_not_waited_for_for_ever(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 600))
    holder, asker = ledger_on(table, clock, "w1"), ledger_on(table, clock, "w2", pauses=5)
    await holder.refresh()
    await asker.refresh()
    await holder.reserve(PATH, 400)
    asked, began_s = table.exchanges, time.monotonic()
    with pytest.raises(BudgetExhausted):
        await asker.reserve(PATH, 600)
    assert table.exchanges == asked + 6
    assert time.monotonic() - began_s > 0.04, "it pauses before it asks again"


@pytest.mark.parametrize("set_s", [0.0, -3600.0])
async def test_what_is_held_is_leased_anew_when_half_of_its_time_is_over(
    table: LossyTable, clock: StoppedClock, set_s: float
) -> None:
    """Also by a clock that was set back: time passed all the same."""
    await table.set_limit(Limit("org:acme", 1000))
    ledger = ledger_on(table, clock)
    await ledger.refresh()
    await ledger.reserve(PATH, 600)
    asked = table.exchanges
    clock.jump(set_s)
    clock.advance(29.9)
    await ledger.flush()
    assert table.exchanges == asked
    clock.advance(0.2)
    await ledger.flush()
    assert table.exchanges == asked + 1


async def test_a_lost_answer_changes_no_sum(table: LossyTable, clock: StoppedClock) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    ledger = ledger_on(table, clock)
    await ledger.start()
    table.losses = 1
    with pytest.raises(NotReady):
        await ledger.reserve(PATH, 10)
    await spend(ledger, 1000, 300)
    table.losses = 1
    with pytest.raises(NotReady):
        await ledger.flush()
    await ledger.flush()
    spent, leased, left = await state_of(table)
    assert (spent, leased + left) == (300, 700)
    await ledger.close()
    assert await state_of(table) == (300, 0, 700)


@pytest.mark.parametrize("is_last", [False, True])
async def test_money_that_a_lost_answer_leased_goes_back_with_the_next_report(
    table: LossyTable, clock: StoppedClock, is_last: bool
) -> None:
    """Also where that is the last one: nobody would give it back any more."""
    await table.set_limit(Limit("org:acme", 1000))
    ledger = ledger_on(table, clock)
    await (ledger.refresh() if is_last else ledger.start())
    table.losses = 1
    with pytest.raises(NotReady):
        await ledger.reserve(PATH, 10)
    assert (await state_of(table))[1] > 0
    await (ledger.close() if is_last else ledger.flush())
    assert await state_of(table) == (0, 0, 1000)
    await ledger.close()


async def test_requests_go_on_in_their_slice_while_the_database_is_away(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1_000_000))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=0.01, patience_s=0.0)
    await ledger.start()
    await spend(ledger, 1000)
    table.losses = 1 << 30
    await spend(ledger, 1000)
    with pytest.raises(NotReady):
        await ledger.reserve(PATH, 900_000)
    async with asyncio.timeout(20.0):
        await becomes(ledger, reporting=False)
        await spend(ledger, 1000)
        table.losses = 0
        await becomes(ledger, reporting=True)
    await ledger.close()
    assert await state_of(table) == (3000, 0, 997_000)


async def test_a_lower_limit_holds_as_soon_as_it_is_heard(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1_000_000))
    ledger = ledger_on(table, clock, slice_microusd=100_000)
    await ledger.start()
    await spend(ledger, 1000)
    await table.set_limit(Limit("org:acme", 1500))
    await ledger.refresh()
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(PATH, 501)
    await spend(ledger, 500)
    await table.set_limit(Limit("org:acme", 2000))
    await ledger.refresh()
    await spend(ledger, 500)
    await ledger.close()
    assert await state_of(table) == (2000, 0, 0)


async def test_a_new_limit_binds_and_a_removed_one_frees(
    table: LossyTable, clock: StoppedClock
) -> None:
    ledger = ledger_on(table, clock)
    await ledger.start()
    early = await ledger.reserve(PATH, 10**9)
    await table.set_limit(Limit("org:acme", 10))
    await ledger.refresh()
    ledger.settle(early, 10**9)  # It was admitted when nothing was limited.
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(PATH, 11)
    late = await ledger.reserve(PATH, 10)
    await table.remove_limit("org:acme")
    await ledger.refresh()
    ledger.settle(late, 10)
    await spend(ledger, 10**9)
    assert ledger.left_microusd(PATH) is None
    await ledger.close()


async def test_another_kind_of_window_stands_beside_the_first_and_starts_with_nothing_spent(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 100))
    ledger = ledger_on(table, clock)
    await ledger.start()
    await spend(ledger, 70)
    await ledger.flush()
    await table.set_limit(Limit("org:acme", 100, "month"))
    await ledger.refresh()
    await spend(ledger, 30)
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(PATH, 1)
    await ledger.close()
    assert await state_of(table, "total") == (100, 0, 0)
    assert await state_of(table, "month") == (30, 0, 70)
    await table.remove_limit("org:acme", "total")
    assert [budget.limit.window for budget in await table.budgets()] == ["month"]


async def test_a_limit_that_is_removed_is_that_of_one_account_in_one_kind_of_window(
    table: LossyTable,
) -> None:
    windows: tuple[WindowKind, ...] = ("day", "month")
    for account in (ORG[0], PATH[3]):
        for window in windows:
            await table.set_limit(Limit(account, 100, window))
    await table.remove_limit(ORG[0], "day")
    kept = {budget.limit.key for budget in await table.budgets()}
    assert kept == {(ORG[0], "month"), (PATH[3], "day"), (PATH[3], "month")}


async def test_an_overrun_of_one_worker_is_heard_by_the_others(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    one, other = ledger_on(table, clock, "one"), ledger_on(table, clock, "other")
    await one.refresh()
    await other.refresh()
    await spend(one, 10, cost=1200)
    await one.flush()
    with pytest.raises(BudgetExhausted):
        await other.reserve(PATH, 1)
    assert (await state_of(table))[2] == -200


async def test_a_request_that_is_cancelled_while_it_waits_reserves_nothing(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit("org:acme", 1000))
    ledger = ledger_on(table, clock)
    await ledger.start()
    waiting = asyncio.create_task(ledger.reserve(PATH, 600))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await spend(ledger, 1000)
    await ledger.close()
    assert await state_of(table) == (1000, 0, 0)


async def test_a_reporter_that_ends_by_a_fault_is_seen_and_what_is_leased_goes_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with workers_on(database_url, 1, 0.01) as (table, (ledger,)):
        await table.set_limit(Limit("org:acme", 10**9))
        await ledger.start()
        await spend(ledger, 1000)

        async def fault() -> None:
            raise ArithmeticError

        monkeypatch.setattr(ledger, "flush", fault)
        await becomes(ledger, reporting=False)
        monkeypatch.undo()
        await ledger.close()

        assert await state_of(table) == (1000, 0, 10**9 - 1000)


@pytest.mark.parametrize("amounts", [(0, 0), (0, 5), (5, 0), (0, 0, 5, 0)])
async def test_requests_that_cost_nothing_wait_beside_each_other_and_beside_paid_ones(
    table: LossyTable, clock: StoppedClock, amounts: tuple[int, ...]
) -> None:
    """A free target's requests ask for slices too: the limit may be used up already."""
    await table.set_limit(Limit("org:acme", 1000))
    ledger = ledger_on(table, clock)
    await ledger.start()

    taken = await asyncio.gather(*(ledger.reserve(ORG, amount) for amount in amounts))

    assert [each.amount_microusd for each in taken] == list(amounts)
    assert ledger.left_microusd(ORG) == 1000 - sum(amounts)
    assert not ledger._held._awaited
