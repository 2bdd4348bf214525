"""What is owed after a reservation is gone is booked on every level, once, whatever crashes."""

import asyncio

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted
from gateway.money.budgets import BudgetKey, Limit, WindowKind
from gateway.store.engine import Database
from gateway.store.money.late_bookings import KEPT_US, LateBookings, LateCost
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Claim, LeaseHolder
from gateway.store.revisions import current
from gateway.store.schema.tables import late_bookings
from tests.gateway.store.money.ledgers import ledger_on


pytestmark = pytest.mark.anyio
ORG, ANN, BOB, ALL = "org:acme", "user:acme/ann", "user:acme/bob", "user:acme/*"
DAY_S = 86_400.0


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LeaseTable:
    return LeaseTable(database, clock, end_users_max=1)


async def limited(table: LeaseTable, *windows: WindowKind) -> None:
    for account in (ORG, ALL):
        for window in windows:
            await table.set_limit(Limit(account, 1000, window))


async def introduced(table: LeaseTable, account: str, window: WindowKind = "total") -> None:
    """As a first request of an end user does."""
    claim = Claim(BudgetKey(account, window), -1, 0, 0, 0)
    await table.exchange(LeaseHolder("w1", "a"), [claim])


async def spent(table: LeaseTable) -> dict[tuple[str, str], int]:
    rows = await table.budgets(None)
    return {(row.limit.account, row.limit.window): row.spent_microusd for row in rows}


def late(clock: StoppedClock, *accounts: str, request: str = "req_1") -> LateCost:
    return LateCost(request, accounts or (ORG, ANN), 70, clock.utc_us())


async def test_workers_hear_of_a_late_booking_that_overdraws_what_they_hold(
    table: LeaseTable, database: Database, clock: StoppedClock
) -> None:
    await limited(table, "total")
    ledger = ledger_on(table, clock, "w1", 100)
    await ledger.start()
    begun = await ledger.reserve((ORG,), 10)
    before = await current(database)
    await LateBookings(database, clock).book(late(clock, ORG))
    assert await current(database) == before

    dear = replace(late(clock, ORG, request="req_2"), cost_microusd=5_000)
    await LateBookings(database, clock).book(dear)

    assert await current(database) > before
    await ledger.refresh()
    with pytest.raises(BudgetExhausted):
        await ledger.reserve((ORG,), 1)
    ledger.settle(begun, 10)
    await ledger.close()
    assert (await spent(table))[ORG, "total"] == 5_080


async def test_every_level_pays_once_the_end_user_too(
    table: LeaseTable, database: Database, clock: StoppedClock
) -> None:
    await limited(table, "total", "day")
    await introduced(table, ANN)
    await introduced(table, ANN, "day")
    cost = late(clock, ORG, "ws:acme/unlimited", ANN)
    done = await asyncio.gather(*(LateBookings(database, clock).book(cost) for _ in range(5)))
    assert sorted(done) == [False] * 4 + [True]
    assert await LateBookings(database, clock).book(late(clock, request="req_2"))
    found = await spent(table)
    assert {found[account, window] for account in (ORG, ANN) for window in ("total", "day")} == {
        140
    }
    assert found[ALL, "total"] == found[ALL, "day"] == 0


async def test_an_end_user_beyond_the_bound_pays_with_the_others(
    table: LeaseTable, database: Database, clock: StoppedClock
) -> None:
    await limited(table, "total")
    await introduced(table, ANN)
    await introduced(table, "user:acme/others")
    await LateBookings(database, clock).book(late(clock, ORG, BOB))
    found = await spent(table)
    assert (found["user:acme/others", "total"], found[ANN, "total"]) == (70, 0)
    assert (BOB, "total") not in found


async def test_a_window_that_is_over_is_let_be_and_so_is_a_limit_that_came_later(
    table: LeaseTable, database: Database, clock: StoppedClock
) -> None:
    await limited(table, "day", "total")
    cost = late(clock)
    clock.advance(2 * DAY_S)
    await table.set_limit(Limit("key:abc", 1000, "total"))
    assert await LateBookings(database, clock).book(
        LateCost("req_1", (ORG, "key:abc"), cost.cost_microusd, cost.admitted_us)
    )
    found = await spent(table)
    assert found[ORG, "total"] == 70
    assert found[ORG, "day"] == found["key:abc", "total"] == 0


async def test_a_day_that_nobody_else_began_pays_what_is_booked_on_it(
    table: LeaseTable, database: Database, clock: StoppedClock
) -> None:
    """The row is of an earlier day until then: what was added to that would be forgotten."""
    await limited(table, "day")
    clock.advance(2 * DAY_S)
    assert await LateBookings(database, clock).book(late(clock, ORG))
    assert (await spent(table))[ORG, "day"] == 70


async def test_what_workers_hold_stays_theirs_and_they_hear_of_it(
    table: LeaseTable, database: Database, clock: StoppedClock
) -> None:
    await limited(table, "total")
    ledger = ledger_on(table, clock)
    await ledger.start()
    held = await ledger.reserve((ORG, ANN), 900)
    await LateBookings(database, clock).book(late(clock))
    ledger.settle(held, 800)
    await ledger.flush()
    await ledger.close()
    found = await spent(table)
    assert found[ORG, "total"] == found[ANN, "total"] == 870
    assert ledger.left_microusd((ORG,)) == 130


async def test_a_request_that_a_crash_cut_off_is_paid_by_its_end_user_once(
    table: LeaseTable, clock: StoppedClock
) -> None:
    """Nobody books these late: they are counted when the slices are written off."""
    await limited(table, "total")
    for _ in range(3):
        crashed = ledger_on(table, clock)
        await crashed.start()
        if await spent(table) == {(ORG, "total"): 0, (ALL, "total"): 0}:
            await crashed.reserve((ORG, ANN), 70)
    found = await spent(table)
    assert found[ORG, "total"] == found[ANN, "total"] == 70


async def test_what_was_booked_is_known_for_more_than_a_year_and_forgotten_then(
    database: Database, clock: StoppedClock
) -> None:
    bookings = LateBookings(database, clock)
    assert await bookings.book(late(clock))
    assert KEPT_US > 366 * DAY_S * 1e6
    clock.advance(KEPT_US / 1e6)
    assert not await bookings.book(late(clock))
    clock.advance(1)
    await bookings.book(late(clock, request="req_2"))
    async with database.reading() as connection:
        rows = (await connection.execute(select(late_bookings.c.request_id))).scalars().all()
    assert rows == ["req_2"]
