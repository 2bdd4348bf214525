"""What parked lines hold of a lease goes back when that is written off, and else nothing does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.batching.parts import stake_of
from gateway.clock import StoppedClock
from gateway.money.budgets import BudgetKey, Limit
from gateway.store.engine import Database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.parked_money import ParkedMoney, Stake
from gateway.store.money.slices import Budget, Lease, LeaseHolder, without
from gateway.types import Reservation
from tests.gateway.store.money.ledgers import ledger_on
from tests.gateway.store.money.test_leased_ledger import ORG, PATH, state_of


pytestmark = pytest.mark.anyio
LIMIT = 10_000
HELD, LEASE_S = 700, 60.0


class World:
    """A worker that set money aside for lines, and then is not there any more."""

    def __init__(self, database: Database) -> None:
        self.clock = StoppedClock()
        self.table = LeaseTable(database, self.clock, lease_s=LEASE_S)
        self.first = ledger_on(self.table, self.clock)
        self._database = database
        self.money = ParkedMoney(database, self.clock, self.first.holder)
        self.later = ParkedMoney(database, self.clock, LeaseHolder("w1", "next"))

    async def begin(self) -> None:
        await self.table.set_limit(Limit(ORG[0], LIMIT))
        await self.first.start()

    async def park(self, name: str, amount: int = HELD) -> Reservation:
        reservation = await self.first.reserve(PATH, amount)
        await self.money.note([self.stake(name, reservation)])
        return reservation

    def stake(self, name: str, reservation: Reservation) -> Stake:
        pots = self.first.book.pots(reservation)
        slices = tuple((pot.limit.key, 0) for pot in pots)
        until_us = reservation.leased_until_us
        amount = reservation.amount_microusd
        return Stake(name, self.first.holder, amount, until_us, slices)

    async def known(self, money: ParkedMoney, names: list[str]) -> set[str]:
        """For which of them that run still holds all of what it set aside in `ORG`."""
        slices = ((BudgetKey(ORG[0], "total"), 0),)
        return await money.known([Stake(name, money.holder, HELD, 0, slices) for name in names])

    async def killed(self) -> tuple[int, int]:
        """What is spent and leased once its next run has begun."""
        await self._stop()
        await ledger_on(self.table, self.clock).start()
        spent, leased, _ = await state_of(self.table)
        return spent, leased

    async def _stop(self) -> None:
        """Without a word to the database."""
        flusher = self.first._flusher
        assert flusher is not None
        flusher.cancel()


@pytest.fixture
async def world(database: Database) -> World:
    world = World(database)
    await world.begin()
    return world


async def test_what_parked_lines_held_is_not_lost_in_a_crash(world: World) -> None:
    await world.park("a")
    await world.park("b", 300)
    await world.first.reserve(PATH, 40)  # Under way when it crashed: of that nobody knows.
    assert await world.killed() == (40, 0)
    assert await world.known(world.later, ["a", "b"]) == set()


async def test_nor_where_somebody_else_finds_the_lease_over(world: World) -> None:
    await world.park("a")
    world.clock.advance(LEASE_S + 31)
    other = ledger_on(world.table, world.clock, "w2")
    await other.start()
    other.settle(await other.reserve(PATH, LIMIT), 5)
    await other.flush()
    assert (await state_of(world.table))[0] == 5
    assert (
        await world.known(world.money, ["a"]) == set()
    )  # If it is alive, it sets money aside again.


async def test_a_line_that_was_about_to_end_counts_as_spent_and_as_paid(world: World) -> None:
    await world.park("a")
    await world.park("b")
    assert await world.money.begin_ending(["a"]) == set()
    assert await world.killed() == (HELD, 0)
    assert await world.later.begin_ending(["a", "b"]) == {"a"}
    await world.later.forget(["a"])
    assert await world.later.begin_ending(["a", "b"]) == set()


async def test_whoever_leaves_a_line_to_others_leaves_its_end_to_be_found(world: World) -> None:
    """It was begun, and may be booked: whoever ends the line then does not charge it again."""
    await world.park("a")
    await world.park("b")
    await world.money.begin_ending(["a"])
    await world.money.leave(["a", "b"])
    assert await world.known(world.money, ["a", "b"]) == {"a"}
    assert await world.later.begin_ending(["a", "b"]) == {"a"}


async def test_what_a_worker_held_is_not_spent_where_another_ended_its_line_first(
    world: World,
) -> None:
    """That one has booked what it cost: the first one's lease is written off without it."""
    await world.park("a")
    await world.later.forget(["a"])
    assert await world.killed() == (0, 0)


async def test_a_line_that_has_ended_holds_nothing(world: World) -> None:
    reservation = await world.park("a")
    await world.money.begin_ending(["a"])
    world.first.settle(reservation, 250)
    await world.money.forget(["a"])
    assert await world.known(world.money, ["a"]) == set()
    await world.first.flush()
    spent, _ = await world.killed()
    assert spent == HELD  # The rest of its slice is lost as that of any request.


async def test_whoever_leaves_in_good_order_holds_nothing(world: World) -> None:
    reservation = await world.park("a")
    await world.money.let_go()
    assert await world.known(world.money, ["a"]) == set()
    world.first.release(reservation)
    assert await world.killed() == (HELD, 0)


async def test_whoever_ends_or_leaves_one_line_leaves_alone_what_the_others_hold(
    world: World,
) -> None:
    """Else their cost would be charged twice, or their money lost in the next crash."""
    for name in ("a", "b", "c", "d"):
        await world.park(name)
    await world.money.begin_ending(["a", "b"])
    await world.money.forget(["a"])
    await world.money.leave(["c"])
    assert await world.known(world.money, ["a", "b", "c", "d"]) == {"b", "d"}
    assert await world.killed() == (3 * HELD, 0), "only d waits and comes back"
    assert await world.later.begin_ending(["d"]) == set()
    assert await world.later.begin_ending(["b"]) == {"b"}


async def test_a_line_that_another_run_only_holds_is_not_paid_for(world: World) -> None:
    await world.park("a")
    assert await world.later.begin_ending(["a"]) == set()
    assert await world.known(world.money, ["a"]) == {"a"}


async def test_a_line_that_ended_unannounced_takes_nothing_from_the_next_crash(
    world: World,
) -> None:
    """What others hold of the same slice then is lost, and does not come back in its place."""
    reservation = await world.park("a")
    world.first.settle(reservation, HELD)
    await world.money.forget(["a"])
    await world.first.reserve(PATH, 500)
    await world.first.flush()
    assert await world.killed() == (HELD + 500, 0)


async def test_whoever_leaves_takes_along_what_is_over_of_others_and_nothing_else(
    world: World,
) -> None:
    reservation = await world.park("a")
    await world.money.begin_ending(["a"])
    await world.killed()
    await world.later.let_go()
    assert await world.known(world.money, ["a"]) == {"a"}
    world.clock.advance((reservation.leased_until_us - world.clock.utc_us()) / 1e6)
    await world.later.let_go()
    assert await world.known(world.money, ["a"]) == set()


@pytest.mark.parametrize("leaves", [True, False])
async def test_what_was_held_by_who_died_is_not_lost_where_nobody_asks_for_long(
    world: World, *, leaves: bool
) -> None:
    """Its lease was over before the line's time was: nobody had what was set aside for the line."""
    reservation = await world.park("a")
    await world.first.reserve(PATH, 40)  # Under way when it crashed.
    await world.first.flush()
    await world._stop()
    world.clock.advance((reservation.leased_until_us - world.clock.utc_us()) / 1e6 + 86_400.0)
    if leaves:
        await world.later.let_go()
    other = ledger_on(world.table, world.clock, "w2")
    await other.start()
    other.settle(await other.reserve(PATH, 100), 5)
    await other.close()
    assert (await state_of(world.table))[:2] == (45, 0)


async def test_of_each_budget_comes_back_what_was_held_of_that_one(world: World) -> None:
    for limit in (Limit(PATH[3], LIMIT), Limit(ORG[0], LIMIT, "day")):
        await world.table.set_limit(limit)
    await world.first.refresh()
    await world.money.note([stake_of(world.first, "a", await world.first.reserve(PATH, HELD))])
    await world.first.reserve(PATH, 500)  # Under way when it crashed.
    await world.killed()
    rows = await world.table.budgets()
    assert [(row.spent_microusd, row.leased_microusd) for row in rows] == [(500, 0)] * 3


async def test_a_line_is_held_no_more_where_one_of_its_levels_was_taken(world: World) -> None:
    await world.table.set_limit(Limit(PATH[3], LIMIT))
    await world.first.refresh()
    stake = stake_of(world.first, "a", await world.first.reserve(PATH, HELD))
    await world.money.note([stake])
    world.clock.advance(LEASE_S + 31)
    assert await world.money.known([stake]) == {"a"}
    other = ledger_on(world.table, world.clock, "w2")
    await other.start()
    other.release(await other.reserve(ORG, 5))
    await other.close()


@pytest.mark.parametrize(("run", "start_us"), [("earlier", 0), ("this", 86_400_000_000)])
async def test_what_another_run_or_another_window_held_does_not_come_back_for_what_is_lost(
    world: World, run: str, start_us: int
) -> None:
    """Such a note outlives its lease where the limit was removed, and set again since."""
    holder = world.first.holder if run == "this" else LeaseHolder("w1", "earlier")
    until_us = world.clock.utc_us() + 10**9
    slices = ((BudgetKey(ORG[0], "total"), start_us),)
    await world.money.note([Stake("old", holder, HELD, until_us, slices)])
    await world.first.reserve(PATH, 500)
    assert await world.killed() == (500, 0)


async def test_what_was_held_in_a_day_that_is_over_is_not_missed(world: World) -> None:
    await world.table.set_limit(Limit(ORG[0], LIMIT, "day"))
    await world.first.refresh()
    stake = stake_of(world.first, "a", await world.first.reserve(PATH, HELD))
    assert len(stake.slices) == 2
    await world.money.note([stake])
    world.clock.advance(86_400.0)
    await world.first.reserve(PATH, 1)  # A new day has begun.
    assert await world.money.known([stake]) == {"a"}


async def test_what_was_set_aside_for_too_long_ago_is_not_given_back(world: World) -> None:
    """While its worker lived: what was free of its slice by then, others may have."""
    await world.park("a")
    for _ in range(19):
        world.clock.advance(50.0)
        await world.first.flush()
        await world.first.reserve(PATH, 1)
    assert world.first.left_microusd(PATH) == LIMIT - 18
    await world.first.reserve(PATH, HELD)
    await world.first.flush()
    assert (await world.killed())[0] == HELD + 18


async def test_noting_it_twice_is_noting_it_once(world: World) -> None:
    reservation = await world.park("a")
    await world.money.note([world.stake("a", reservation)])
    assert await world.killed() == (0, 0)


def ledger_has(book: LeasedLedger, reservation: Reservation) -> int:
    return len(book.book.pots(reservation))


async def test_a_reservation_that_has_ended_is_nowhere(world: World) -> None:
    reservation = await world.first.reserve(PATH, 10)
    assert ledger_has(world.first, reservation) == 1
    world.first.release(reservation)
    assert ledger_has(world.first, reservation) == 0


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 2000))
def test_a_write_off_loses_no_more_than_is_outstanding(
    amount: int, spent: int, parked: int, before: int
) -> None:
    lease = Lease(ORG[0], "total", "w1", "one", 0, amount, spent, 0)
    outstanding = max(amount - spent, 0)
    budget = Budget(Limit(ORG[0], LIMIT), 0, before, outstanding)
    after = without(budget, lease, parked)
    assert after.leased_microusd == 0
    assert after.spent_microusd == before + max(outstanding - parked, 0)


async def test_of_a_limit_that_is_removed_lines_hold_nothing(world: World) -> None:
    """Set anew it begins with nothing spent: what a crash leaves unreported is spent of that one.

    The line's own money is set aside anew by whoever looks after it.
    """
    await world.park("a")
    await world.table.remove_limit(ORG[0], "total", str(LIMIT))
    assert await world.known(world.money, ["a"]) == set()
    await world.table.set_limit(Limit(ORG[0], LIMIT))
    await world.first.refresh()
    await world.first.reserve(PATH, 1_000)  # Under way when it crashed.
    assert await world.killed() == (1_000, 0)
