"""A ledger after time went by: days that ended, clocks that were set, answers that were lost."""

import asyncio
from contextlib import suppress

import pytest

from gateway.clock import DAY_US, StoppedClock
from gateway.errors import BudgetExhausted, NotReady
from gateway.money.budgets import BudgetKey, Limit
from gateway.store.engine import Database
from gateway.store.money import held_slices
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import HeldSlice
from tests.gateway.store.money.ledgers import ORG, LossyTable, ledger_on, spend, started, sums


pytestmark = pytest.mark.anyio
EACH = "user:acme/*"
ANN = ("org:acme", "user:acme/ann")
DAY_S, HOUR_S = 86_400.0, 3600.0
LAPSED_S = 61.0
"""A lease is over."""
WRITTEN_OFF_S = 91.0


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LossyTable:
    return LossyTable(database, clock)


async def test_what_is_left_of_several_budgets_is_left_of_the_tightest(
    table: LossyTable, clock: StoppedClock
) -> None:
    """A policy that spares whom little is left to looks at it, and a request pays at each level."""
    ledger = await started(table, clock)
    assert ledger.left_microusd(("org:acme", "key:abc")) is None
    for account, limit in (("org:acme", 9_000), ("key:abc", 400), ("ws:acme/research", 5_000)):
        await table.set_limit(Limit(account, limit))
    await ledger.refresh()
    for path in (("org:acme", "key:abc", "ws:acme/research"), ("key:abc", "org:acme")):
        assert ledger.left_microusd(path) == 400
    await spend(ledger, 300, ("org:acme", "key:abc"))
    assert ledger.left_microusd(("org:acme", "key:abc")) == 100
    assert ledger.left_microusd(("org:acme",)) == 8_700
    await ledger.close()


class PassingClock(StoppedClock):
    """Every look at it takes a microsecond."""

    def utc_us(self) -> int:
        self.advance(1e-6)
        return super().utc_us()


async def test_a_request_is_of_the_moment_whose_window_it_is_charged_to(
    database: Database,
) -> None:
    """Wherever in its journey midnight strikes, also while it waits for money."""
    clock = PassingClock()
    table = LossyTable(database, clock)
    await table.set_limit(Limit(ORG[0], 10**6, "day"))
    ledger = await started(table, clock)
    struck = set()
    for looks in range(1, 25):
        clock.advance(DAY_S - clock.utc_us() % DAY_US / 1e6 - looks * 1e-6)
        asked_us = clock.utc_us()
        reservation = await ledger.reserve(ORG, 1)
        (part,) = ledger.book.pots(reservation)
        assert isinstance(part, HeldSlice)
        assert asked_us < reservation.admitted_us < clock.utc_us()
        assert reservation.admitted_us // DAY_US * DAY_US == part.window_start_us
        struck.add(reservation.admitted_us % DAY_US < HOUR_S)
        ledger.release(reservation)
    assert struck == {False, True}
    await ledger.close()


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


async def test_the_morning_after_a_change_the_new_limit_is_left_and_after_its_end_none(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000, "day"))
    ledger = await started(table, clock)
    await spend(ledger, 400)
    await table.set_limit(Limit(ORG[0], 500, "day"))
    await ledger.refresh()
    assert ledger.left_microusd(ORG) == 100
    clock.advance(DAY_S)
    assert ledger.left_microusd(ORG) == 500
    await table.remove_limit(ORG[0])
    await ledger.refresh()
    assert ledger.left_microusd(ORG) is None, "policy would go on as if there were a limit"
    await ledger.close()


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


@pytest.mark.parametrize(("set_s", "passed_s"), [(0.0, 61.0), (61.0, 0.0), (-HOUR_S, 61.0)])
async def test_whoever_decides_by_what_is_left_hears_it_first_where_that_was_long_ago(
    table: LossyTable, clock: StoppedClock, set_s: float, passed_s: float
) -> None:
    """By either clock: the one of days, and the one that nobody sets."""
    await table.set_limit(Limit(ORG[0], 10_000))
    ledger, other = await started(table, clock), await started(table, clock, "other")
    for each, amount in ((ledger, 100), (other, 900)):
        await spend(each, amount)
        await each.flush()

    asked = table.exchanges
    assert await ledger.left_now_microusd(ORG) == 9_900, "that was heard just now"
    assert table.exchanges == asked
    clock.jump(set_s)
    clock.advance(passed_s)
    both = await asyncio.gather(*(ledger.left_now_microusd(ORG) for _ in range(2)))
    assert both == [9_000, 9_000], "the first one who asks already knows"
    assert table.exchanges == asked + 1
    assert await ledger.left_now_microusd(ORG) == 9_000
    assert table.exchanges == asked + 1
    for each in (ledger, other):
        await each.close()
    assert await sums(table) == (1_000, 0)


async def test_who_asks_what_is_left_leases_what_the_request_then_takes(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 10_000))
    await table.set_limit(Limit(EACH, 5_000))
    ledger = ledger_on(table, clock, slice_microusd=500)
    await ledger.start()
    assert await ledger.left_now_microusd(ANN) == 5_000
    assert [leased for _, leased in [await sums(table), await sums(table, ANN[1])]] == [500, 500]
    asked = table.exchanges
    await spend(ledger, 300, ANN)
    assert table.exchanges == asked

    await spend(ledger, 4_600, ANN)
    clock.advance(LAPSED_S)
    assert await ledger.left_now_microusd(ANN) == 100
    assert (await sums(table, ANN[1]))[1] == 0, "the last 2 % are for whoever needs them"
    await ledger.close()


async def test_what_is_left_is_not_guessed_where_nobody_answers(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    await spend(ledger, 100)
    table.losses = 1
    assert await ledger.left_now_microusd(ORG) == 900, "as long as it was heard lately"
    clock.advance(LAPSED_S)
    with pytest.raises(NotReady):
        await ledger.left_now_microusd(ORG)
    assert await ledger.left_now_microusd(ORG) == 900
    await ledger.close()
    assert await sums(table) == (100, 0)


async def test_who_asks_what_is_left_to_an_end_user_who_never_came_leaves_no_row(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)

    assert ledger.left_microusd(ANN) == 100
    asked = table.exchanges
    for _ in range(12):  # After ten in which nothing was asked of it, it is forgotten.
        await ledger.flush()

    assert table.exchanges == asked
    assert all(account != ANN[1] for account, _ in ledger._held.by_key)
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


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_what_is_settled_after_a_write_off_that_was_not_heard_of_counts_nowhere(
    table: LossyTable, clock: StoppedClock, is_wanted: bool
) -> None:
    """Also by who never had anything booked, and asks for more meanwhile."""
    await table.set_limit(Limit(ORG[0], 1000))
    ledger, other = await started(table, clock), await started(table, clock, "other")
    held = await ledger.reserve(ORG, 200)
    clock.advance(WRITTEN_OFF_S)
    await spend(other, 50)
    await other.close()
    assert await sums(table) == (250, 0), "what it held counts as spent"

    table.losses = 1
    with pytest.raises(NotReady):
        await (ledger.reserve(ORG, 300) if is_wanted else ledger.flush())
    ledger.settle(held, 150)
    await ledger.flush()
    await ledger.close()
    assert await sums(table) == (250, 0)


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


@pytest.mark.parametrize("accounts", [ORG, ANN])
async def test_what_was_leased_before_a_limit_was_set_anew_is_not_spent_once_that_is_heard(
    table: LossyTable, clock: StoppedClock, accounts: tuple[str, ...]
) -> None:
    """Also where nothing of it is to be reported: what it cost would count nowhere."""
    account = EACH if accounts == ANN else accounts[-1]
    await table.set_limit(Limit(account, 1000))
    ledger = ledger_on(table, clock, slice_microusd=400)
    await ledger.start()
    await spend(ledger, 100, accounts)
    await ledger.flush()
    await table.remove_limit(*BudgetKey(account, "total"))
    clock.advance(0.1)
    await table.set_limit(Limit(account, 1000))
    other = await started(table, clock, "other")
    await spend(other, 50, accounts)
    await other.close()
    await ledger.refresh()

    await spend(ledger, 10, accounts)
    await ledger.close()
    assert await sums(table, accounts[-1]) == (60, 0)


async def test_what_lies_idle_under_a_lowered_limit_goes_back_when_it_is_heard_of(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = LeasedLedger(table, clock, "w1", slice_microusd=400, flush_every_s=3600.0)
    await ledger.start()
    held = await ledger.reserve(ORG, 100)
    assert (await sums(table))[1] > 100
    await table.set_limit(Limit(ORG[0], 500))
    await ledger.refresh()

    assert await sums(table) == (0, 100)
    ledger.release(held)
    await ledger.close()


async def test_an_overrun_is_reported_at_once_and_a_close_waits_for_the_reporter(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    ledger.settle(await ledger.reserve(ORG, 10), 1200)
    async with asyncio.timeout(20.0):
        while await sums(table) != (1200, 0):
            await asyncio.sleep(0.005)
    await ledger.close()

    assert ledger._flusher is not None
    assert ledger._flusher.done()


async def test_what_is_remembered_of_callers_and_of_too_many_end_users_has_bounds(
    database: Database, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_slices, "_PATHS_MAX", 3)
    table = LeaseTable(database, clock, end_users_max=1)
    await table.set_limit(Limit(EACH, 1000, "day"))
    ledger = await started(table, clock)
    others, paths = set(), set()
    for number in range(8):
        await spend(ledger, 10, (ORG[0], f"user:acme/{number}"))
        others.add(len(ledger._held.others))
        paths.add(len(ledger._held.paths))
    for number in range(8):
        await spend(ledger, 10, (ORG[0], f"key:{number}"))
        paths.add(len(ledger._held.paths))
    assert max(others) == max(paths) == 3
    await ledger.close()

    assert await sums(table, "user:acme/0") == (10, 0)
    assert await sums(table, "user:acme/others") == (70, 0)


async def test_a_new_day_that_one_key_began_is_the_days_of_all_who_share_its_budget(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000, "day"))
    ledger = await started(table, clock)
    for key in ("key:a", "key:b"):
        await spend(ledger, 100, (ORG[0], key))
    clock.advance(DAY_S)
    await spend(ledger, 300, (ORG[0], "key:a"))

    assert ledger.left_microusd((ORG[0], "key:b")) == 700
    await ledger.close()


async def test_the_reporter_forgets_end_users_of_yesterday_and_who_were_too_many_then(
    database: Database, clock: StoppedClock
) -> None:
    table = LeaseTable(database, clock, end_users_max=1)
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=0.005, patience_s=0.0)
    await ledger.start()

    async def accounts() -> set[str]:
        return {each.limit.account for each in await table.budgets(None)} - {EACH}

    for name in ("ann", "bob"):
        await spend(ledger, 100, (ORG[0], f"user:acme/{name}"))
    assert await accounts() == {"user:acme/ann", "user:acme/others"}
    async with asyncio.timeout(20.0):
        while any(account != EACH for account, _ in ledger._held.by_key):
            await asyncio.sleep(0.005)
        clock.advance(DAY_S)
        while await accounts():
            await asyncio.sleep(0.005)
    await spend(ledger, 100, (ORG[0], "user:acme/bob"))
    assert await accounts() == {"user:acme/bob"}
    await ledger.close()


@pytest.mark.parametrize("held", [40, 1])
async def test_what_is_under_way_at_a_close_is_spent_when_its_worker_begins_again(
    table: LossyTable, clock: StoppedClock, held: int
) -> None:
    """Its lease stays until then; without one, what it holds would be nobody's for ever."""
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    await ledger.reserve(ORG, held)
    await ledger.close()
    assert await sums(table) == (0, held)
    again = await started(table, clock)
    assert await sums(table) == (held, 0)
    await again.close()


async def test_a_close_gives_back_what_comes_for_a_caller_who_left(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0)
    await ledger.refresh()
    asking = asyncio.create_task(ledger.reserve(ORG, 400))
    await asyncio.sleep(0)
    asking.cancel()
    await ledger.close()
    with suppress(asyncio.CancelledError):
        await asking
    if ledger._round is not None:
        await ledger._round

    assert await sums(table) == (0, 0)


async def test_a_slice_that_others_wrote_off_is_not_used_by_whose_clock_was_set_back(
    database: Database, clock: StoppedClock
) -> None:
    table = LeaseTable(database, clock)
    await table.set_limit(Limit(ORG[0], 1000))
    behind = StoppedClock()
    ledger = await started(LeaseTable(database, behind), behind)
    other = await started(table, clock, "other")
    ledger.release(await ledger.reserve(ORG, 600))
    behind.jump(-HOUR_S)
    for each in (behind, clock):
        each.advance(WRITTEN_OFF_S)
    await spend(other, 400)

    with pytest.raises(BudgetExhausted):
        await ledger.reserve(ORG, 1)
    await other.close()
    await ledger.close()
    assert await sums(table) == (1000, 0)


@pytest.mark.parametrize("later_s", [1.0, 2.0])
async def test_what_is_free_in_the_slice_of_yesterday_is_not_spent_today(
    table: LossyTable, clock: StoppedClock, later_s: float
) -> None:
    """Not even in the first moment of it."""
    await table.set_limit(Limit(ORG[0], 1000, "day"))
    clock.advance(16 * HOUR_S - 1.0)
    ledger = LeasedLedger(table, clock, "w1", slice_microusd=100, flush_every_s=3600.0)
    await ledger.start()
    await spend(ledger, 100)
    assert (await sums(table))[1] > 150
    clock.advance(later_s)
    await spend(ledger, 50)
    await ledger.close()

    assert await sums(table) == (50, 0)


@pytest.mark.parametrize("is_idle", [False, True])
async def test_a_lease_with_money_in_it_is_renewed_before_others_write_it_off(
    table: LossyTable, clock: StoppedClock, *, is_idle: bool
) -> None:
    """A long request is no news for minutes, and others' claims settle what has run out."""
    await table.set_limit(Limit(ORG[0], 1000))
    ledger, other = await started(table, clock), await started(table, clock, "other")
    held = await ledger.reserve(ORG, 600)
    if is_idle:
        ledger.release(held)
    for _ in range(5):
        clock.advance(40.0)
        await ledger.flush()
        await spend(other, 1)
    if not is_idle:
        ledger.settle(held, 100)
    await ledger.close()
    await other.close()

    assert await sums(table) == (5 if is_idle else 105, 0)


@pytest.mark.parametrize(("limit", "idle"), [(1000, 980), (1, 1)])
async def test_what_lies_idle_goes_back_at_once_where_little_is_left(
    table: LossyTable, clock: StoppedClock, limit: int, idle: int
) -> None:
    await table.set_limit(Limit(ORG[0], limit))
    ledger, other = await started(table, clock), await started(table, clock, "other")
    ledger.release(await ledger.reserve(ORG, idle))
    await ledger.flush()

    await spend(other, limit)
    await ledger.close()
    await other.close()


async def test_a_request_waits_for_money_that_lies_elsewhere_also_where_it_is_just_enough(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    other = await started(table, clock, "other")
    other.release(await other.reserve(ORG, 1000))
    ledger = LeasedLedger(table, clock, "w1", slice_microusd=0, flush_every_s=0.08, patience_s=60.0)
    await ledger.refresh()
    asking = asyncio.create_task(ledger.reserve(ORG, 1000))
    while not ledger._held.by_key[BudgetKey(ORG[0], "total")].elsewhere:
        await asyncio.sleep(0)
    await other.flush()

    assert (await asking).amount_microusd == 1000
    await other.close()
    await ledger.close()


async def test_an_end_user_with_a_request_on_its_way_is_not_forgotten(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100, "day"))
    ledger = await started(table, clock)
    held = await ledger.reserve(ANN, 60)
    for _ in range(12):
        await ledger.flush()
    ledger.settle(held, 50)
    await ledger.close()

    assert await sums(table, "user:acme/ann") == (50, 0)
