"""What a worker held that is gone for good comes right in the books, also where nobody asks."""

import pytest

from gateway.batching.parts import stake_of
from gateway.clock import StoppedClock
from gateway.money.budgets import Limit
from gateway.store.engine import Database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.parked_money import ParkedMoney
from tests.gateway.store.money.ledgers import ORG, spend, started, sums


pytestmark = pytest.mark.anyio
LEASE_S, OVER_S, LOOK_S = 60.0, 91.0, 601.0
OTHERS = ("org:globex",)
EACH, ANN, DAY_S = "user:acme/*", "user:acme/ann", 86_400.0


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LeaseTable:
    return LeaseTable(database, clock, lease_s=LEASE_S)


def killed(ledger: LeasedLedger) -> None:
    """Without a word to the database."""
    flusher = ledger._flusher
    assert flusher is not None
    flusher.cancel()


async def test_what_a_dead_worker_held_is_spent_though_nobody_asks_for_its_budget(
    table: LeaseTable, clock: StoppedClock
) -> None:
    for account in (*ORG, *OTHERS):
        await table.set_limit(Limit(account, 10_000))
    dead = await started(table, clock)
    await spend(dead, 100)
    await dead.flush()
    await dead.reserve(ORG, 700)
    killed(dead)
    living = await started(table, clock, "w2")
    for _ in range(21):  # What it holds itself is renewed meanwhile.
        await spend(living, 1, OTHERS)
        held = await living.reserve(OTHERS, 5)
        await living.flush()
        clock.advance(30.0)
        living.settle(held, 5)
    assert await sums(table) == (100, 700)

    await living._forget_past()

    assert await sums(table) == (800, 0)
    await living.close()
    assert await sums(table, OTHERS[0]) == (21 * 6, 0)


async def test_nobody_who_may_live_loses_anything(table: LeaseTable, clock: StoppedClock) -> None:
    await table.set_limit(Limit(ORG[0], 10_000))
    ledger = await started(table, clock)
    held = await ledger.reserve(ORG, 700)
    clock.advance(OVER_S - 2)
    assert await table.write_off_dead() == 0
    assert await sums(table) == (0, 700)
    ledger.settle(held, 30)
    await ledger.close()
    assert await sums(table) == (30, 0)


async def test_more_leases_than_are_looked_at_at_once_end_between_reports(
    table: LeaseTable, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote off thousands in one go reported nothing for a minute, and lost its own."""
    monkeypatch.setattr("gateway.store.money.dead_leases._AT_ONCE_MAX", 2)
    accounts = [f"org:o{number}" for number in range(5)]
    dead = await started(table, clock)
    for account in accounts:
        await table.set_limit(Limit(account, 100))
    await dead.refresh()
    for account in accounts:
        await dead.reserve((account,), 7)
    killed(dead)
    living = await started(table, clock, "w2")
    clock.advance(LOOK_S)
    for count in (2, 4, 5, 5):
        await living._forget_past()
        found = [await sums(table, account) for account in accounts]
        assert (found.count((7, 0)), found.count((0, 7))) == (count, 5 - count)
    await dead.reserve((accounts[0],), 7)
    killed(dead)
    clock.advance(OVER_S)
    await living._forget_past()
    assert await sums(table, accounts[0]) == (7, 7), "the next look is minutes away"
    await living.close()


async def test_what_is_parked_at_a_vendor_goes_back_as_it_does_for_who_asks(
    table: LeaseTable, clock: StoppedClock, database: Database
) -> None:
    await table.set_limit(Limit(ORG[0], 10_000))
    dead = await started(table, clock)
    money = ParkedMoney(database, clock, dead.holder)
    await money.note([stake_of(dead, "a", await dead.reserve(ORG, 700, 3600.0))])
    await dead.reserve(ORG, 40)
    killed(dead)
    clock.advance(OVER_S)
    await table.write_off_dead()
    assert await sums(table) == (40, 0)


async def test_the_row_of_an_end_user_goes_who_was_never_seen_again(
    table: LeaseTable, clock: StoppedClock
) -> None:
    """Else whoever crashed would leave rows that count among those there may be, for ever."""
    await table.set_limit(Limit(EACH, 100, "day"))
    dead = await started(table, clock)
    await dead.reserve((ANN,), 30)
    killed(dead)
    clock.advance(DAY_S)
    assert await table.forget_past_users() == 0
    await table.write_off_dead()
    clock.advance(DAY_S)
    assert await table.forget_past_users() == 1
