"""A ledger after time went by: days that ended, clocks that were set, answers that were lost."""

from collections.abc import AsyncIterator, Sequence

import pytest

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted, NotReady
from gateway.money.budgets import BudgetKey, Limit
from gateway.store.engine import Database, open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Claim, Grant, LeaseHolder


pytestmark = pytest.mark.anyio
ORG = ("org:acme",)
EACH = "user:acme/*"
ANN = ("org:acme", "user:acme/ann")
DAY_S, HOUR_S = 86_400.0, 3600.0
LAPSED_S = 61.0
"""A lease is over."""
WRITTEN_OFF_S = 91.0


class LossyTable(LeaseTable):
    """A lease table whose next answers are lost after their transaction took effect."""

    losses = 0

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        grants = await super().exchange(holder, claims)
        if self.losses:
            self.losses -= 1
            raise NotReady("the database does not answer")
        return grants


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = open_database(database_url)
    yield database
    await database.close()


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LossyTable:
    return LossyTable(database, clock)


async def started(table: LeaseTable, clock: StoppedClock, worker: str = "w1") -> LeasedLedger:
    """A ledger that reports only when it is told to."""
    ledger = LeasedLedger(
        table, clock, worker, slice_microusd=0, flush_every_s=3600.0, patience_s=0.0
    )
    await ledger.start()
    return ledger


async def spend(ledger: LeasedLedger, amount: int, accounts: tuple[str, ...] = ORG) -> None:
    ledger.settle(await ledger.reserve(accounts, amount), amount)


async def sums(table: LeaseTable, account: str = ORG[0]) -> tuple[int, int]:
    """Spent and leased of an account."""
    (budget,) = [each for each in await table.budgets(None) if each.limit.account == account]
    return budget.spent_microusd, budget.leased_microusd


@pytest.mark.parametrize("is_new_here", [False, True])
async def test_the_morning_after_all_of_a_days_limit_is_left_before_anybody_reserves(
    table: LossyTable, clock: StoppedClock, *, is_new_here: bool
) -> None:
    """A policy that refuses whom little is left to would otherwise refuse for ever."""
    await table.set_limit(Limit(ORG[0], 1000, "day"))
    ledger = await started(table, clock)
    await spend(ledger, 1000)
    await ledger.flush()
    asked = await started(table, clock, "w2") if is_new_here else ledger
    assert asked.left_microusd(ORG) == 0
    clock.advance(DAY_S)

    assert asked.left_microusd(ORG) == 1000
    await spend(asked, 300)
    assert asked.left_microusd(ORG) == 700
    await ledger.close()
    await asked.close()


async def test_what_others_gave_back_is_heard_of_by_who_only_asks_what_is_left(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    other = await started(table, clock, "other")
    held = await other.reserve(ORG, 900)
    ledger = await started(table, clock)
    await spend(ledger, 100)
    await ledger.flush()
    other.release(held)
    await other.close()

    assert ledger.left_microusd(ORG) == 0, "as last heard"
    await ledger.flush()
    assert ledger.left_microusd(ORG) == 0, "that is not long ago"
    clock.advance(LAPSED_S)
    assert ledger.left_microusd(ORG) == 0
    await ledger.flush()
    assert ledger.left_microusd(ORG) == 900
    await ledger.close()
    assert await sums(table) == (100, 0)


async def test_who_asks_what_is_left_to_an_end_user_who_never_came_leaves_no_row(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)

    assert ledger.left_microusd(ANN) == 100
    await ledger.flush()

    assert [each.limit.account for each in await table.budgets(None)] == [EACH]
    await ledger.close()


async def test_an_end_user_whose_row_went_with_the_day_has_a_budget_of_its_own_the_next(
    table: LossyTable, clock: StoppedClock
) -> None:
    """Else whoever asks first after midnight would share the budget of all who are too many."""
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    await spend(ledger, 100, ANN)
    await ledger.flush()
    clock.advance(DAY_S)
    assert await table.forget_past_users() == 1

    await spend(ledger, 60, ANN)
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(ANN, 41)
    await ledger.close()
    accounts = {each.limit.account for each in await table.budgets(None)}
    assert accounts == {EACH, "user:acme/ann"}
    assert await sums(table, "user:acme/ann") == (60, 0)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, 2 * DAY_S])
async def test_a_clock_that_is_set_gives_nothing_back_that_a_request_on_its_way_holds(
    table: LossyTable, clock: StoppedClock, jump_s: float
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    held = await ledger.reserve(ORG, 600)
    clock.jump(jump_s)
    await ledger.flush()

    with pytest.raises(BudgetExhausted):
        await ledger.reserve(ORG, 401)
    await spend(ledger, 400)
    assert ledger.settle(held, 550).cost_microusd == 550
    await ledger.close()
    assert await sums(table) == (950, 0)


async def test_a_lost_answer_after_a_write_off_counts_nothing_twice(
    table: LossyTable, clock: StoppedClock
) -> None:
    """The slice that was written off is not the one that came of the lost answer."""
    await table.set_limit(Limit(ORG[0], 1000))
    ledger, other = await started(table, clock), await started(table, clock, "other")
    await spend(ledger, 100)
    held = await ledger.reserve(ORG, 200)
    await ledger.flush()
    clock.advance(WRITTEN_OFF_S)
    await spend(other, 50)
    await other.close()
    assert await sums(table) == (350, 0), "what it held counts as spent"

    ledger.settle(held, 200)
    table.losses = 1
    with pytest.raises(NotReady):
        await ledger.flush()
    await ledger.flush()
    await spend(ledger, 600)
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(ORG, 51)
    await ledger.close()
    assert await sums(table) == (950, 0)


@pytest.mark.parametrize("limit", [500, 1000])
async def test_a_limit_that_was_removed_and_set_again_starts_with_nothing_spent_or_leased(
    table: LossyTable, clock: StoppedClock, limit: int
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    await spend(ledger, 300)
    await ledger.flush()
    held = await ledger.reserve(ORG, 200)
    await table.remove_limit(*BudgetKey(ORG[0], "total"))
    await table.set_limit(Limit(ORG[0], limit))
    await ledger.refresh()

    ledger.settle(held, 200)
    await ledger.flush()
    await spend(ledger, limit)
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(ORG, 1)
    await ledger.close()
    assert await sums(table) == (limit, 0)
