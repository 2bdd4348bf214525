"""What is owed all the same is booked on an account that has nothing left."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted
from gateway.money.budgets import Limit
from gateway.store.engine import Database
from gateway.store.money.slices import Claim, Grant, LeaseHolder
from gateway.store.revisions import current
from gateway.types import Reservation
from tests.gateway.store.money.ledgers import LossyTable, ledger_on, sums
from tests.gateway.store.money.test_leased_ledger import ORG, state_of


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_reported", [False, True])
async def test_nothing_is_reserved_where_everything_is_spent_and_some_is_set_aside(
    database: Database, *, is_reported: bool
) -> None:
    clock = StoppedClock()
    table = LossyTable(database, clock)
    await table.set_limit(Limit(ORG[0], 100, "total"))
    ledger = ledger_on(table, clock)
    await ledger.start()
    _open = await ledger.reserve(ORG, 40)
    other = await ledger.reserve(ORG, 50)
    ledger.settle(other, 90)  # More than was set aside: the account is overdrawn.
    if is_reported:
        await ledger.flush()
    owed = await ledger.reserve(ORG, 0)
    ledger.settle(owed, 7)
    await ledger.flush()
    assert (await state_of(table))[0] == 97
    await ledger.close()


@pytest.mark.parametrize(("held", "rounds"), [(0, 10), (30, 60)])
async def test_what_holds_nothing_any_more_is_booked_however_late_it_ends(
    database: Database, held: int, rounds: int
) -> None:
    """It never did, or not for so long; another worker asks for the same budget meanwhile."""
    clock = StoppedClock()
    table = LossyTable(database, clock)
    await table.set_limit(Limit(ORG[0], 1000, "total"))
    ledger, other = ledger_on(table, clock, "w1"), ledger_on(table, clock, "w2")
    for each in (ledger, other):
        await each.start()
    owed = await ledger.reserve(ORG, held)
    for _ in range(rounds):
        clock.advance(20.0)
        other.settle(await other.reserve(ORG, 1), 1)
        for each in (ledger, other):
            await each.flush()
    ledger.settle(owed, 70)
    for each in (ledger, other):
        await each.close()
    assert await state_of(table) == (70 + rounds, 0, 930 - rounds)


@pytest.mark.parametrize("account", [ORG[0], "user:acme/ann"])
async def test_other_workers_hear_at_once_that_a_budget_is_overdrawn(
    database: Database, account: str
) -> None:
    """What one of them had leased ahead went on to be spent, for as long as its requests ran and
    none of them ended: until one does, it has nothing to report, and so hears nothing."""
    clock, path = StoppedClock(), (*ORG, account)[-1:]
    table = LossyTable(database, clock)
    await table.set_limit(Limit(account.replace("ann", "*"), 10_000))
    one, other = ledger_on(table, clock, "w1"), ledger_on(table, clock, "w2", 900)
    for each in (one, other):
        await each.start()
    begun = await other.reserve(path, 10)  # And 900 ahead.
    dear = await one.reserve(path, 100)
    before = await current(database)
    one.settle(dear, 100)
    await one.flush()
    assert await current(database) == before, "nobody is woken for what is well"

    one.settle(await one.reserve(path, 0), 50_000)
    await one.flush()

    assert await current(database) > before
    await other.refresh()  # As whoever follows the counter does.
    with pytest.raises(BudgetExhausted):
        await other.reserve(path, 1)
    assert (await sums(table, account)) == (50_100, 10)
    other.settle(begun, 10)
    for each in (one, other):
        await each.close()
    assert (await sums(table, account)) == (50_110, 0)


async def test_an_end_user_who_was_let_through_without_money_is_not_forgotten_meanwhile(
    database: Database,
) -> None:
    table = LossyTable(database, StoppedClock())
    await table.set_limit(Limit("user:acme/*", 100))
    ledger = ledger_on(table, StoppedClock())
    await ledger.start()
    owed = await ledger.reserve((*ORG, "user:acme/ann"), 0)
    for _ in range(15):
        await ledger.flush()
    ledger.settle(owed, 70)
    await ledger.close()
    (ann,) = await table.budgets_of(["user:acme/ann"])
    assert (ann.spent_microusd, ann.leased_microusd) == (70, 0)


@pytest.mark.parametrize("amount", [0, 10])
async def test_an_end_user_who_comes_without_money_while_being_forgotten_pays_all_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch, amount: int
) -> None:
    """Beside another who comes before that, with money or without."""
    table = LossyTable(database, StoppedClock())
    await table.set_limit(Limit("user:acme/*", 100))
    ledger, path = ledger_on(table, StoppedClock()), (*ORG, "user:acme/ann")
    await ledger.start()
    ledger.settle(await ledger.reserve(path, 10), 10)
    exchange = table.exchange
    coming: list[asyncio.Task[Reservation]] = []

    async def comes(holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        if any(claim.is_last for claim in claims):
            coming.append(asyncio.create_task(ledger.reserve(path, amount)))
            await asyncio.sleep(0)
        return await exchange(holder, claims)

    monkeypatch.setattr(table, "exchange", comes)
    while not coming:
        await ledger.flush()
    monkeypatch.undo()
    owed = [await ledger.reserve(path, 0), await coming[0]]
    await ledger.flush()
    for each in owed:
        ledger.settle(each, 20)
    await ledger.close()
    (ann,) = await table.budgets_of(["user:acme/ann"])
    assert (ann.spent_microusd, ann.leased_microusd) == (50, 0)
