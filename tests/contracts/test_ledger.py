"""What every ledger promises: in memory, and leased from a database of either kind."""

import math
from collections.abc import AsyncIterator
from typing import Protocol

import pytest

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted
from gateway.money.budgets import (
    Limit,
    MemoryLedger,
    ReservationEndedError,
    WindowKind,
    window_end_us,
)
from gateway.ports import Ledger
from gateway.store.engine import open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable


pytestmark = pytest.mark.anyio
BEFORE_MIDNIGHT_S = 16 * 3600.0 - 1.0  # The stopped clock shows eight in the morning.
PATH = ("org:acme", "ws:acme/research", "proj:acme/research/bot", "key:abc")


class MakeLedger(Protocol):
    async def __call__(self, *limits: Limit) -> Ledger: ...


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
async def make_ledger(
    request: pytest.FixtureRequest, clock: StoppedClock
) -> AsyncIterator[MakeLedger]:
    if request.param == "memory":

        async def make_in_memory(*limits: Limit) -> Ledger:
            return MemoryLedger(limits, clock, reservation_lease_s=60.0)

        yield make_in_memory
        return
    url, drop = request.getfixturevalue("database_maker")(request.param)
    database = open_database(url)
    table = LeaseTable(database, clock)
    made: list[LeasedLedger] = []

    async def make_leased(*limits: Limit) -> Ledger:
        for limit in limits:
            await table.set_limit(limit)
        ledger = LeasedLedger(
            table, clock, "w1", reservation_lease_s=60.0, flush_every_s=0.01, patience_s=0.1
        )
        await ledger.start()
        made.append(ledger)
        return ledger

    yield make_leased
    for ledger in made:
        await ledger.close()
    await database.close()
    drop()


async def is_refused(ledger: Ledger, amount: int, accounts: tuple[str, ...] = PATH) -> bool:
    try:
        ledger.release(await ledger.reserve(accounts, amount))
    except BudgetExhausted:
        return True
    return False


async def test_without_a_limit_everything_is_admitted(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:other", 1))
    reservation = await ledger.reserve(PATH, 10**15)
    assert ledger.left_microusd(PATH) is None
    settled = ledger.settle(reservation, 10**15)
    assert (settled.reserved_microusd, settled.cost_microusd) == (10**15, 10**15)


async def test_what_is_left_is_known_before_anything_is_reserved(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 1000), Limit("key:abc", 70, "day"))
    assert ledger.left_microusd(PATH) == 70
    assert ledger.left_microusd(("org:acme",)) == 1000
    assert await ledger.left_now_microusd(PATH) == 70


async def test_the_last_micro_dollar_can_be_used_and_not_one_more(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 1000))
    first = await ledger.reserve(PATH, 999)
    assert await is_refused(ledger, 2)
    second = await ledger.reserve(PATH, 1)
    assert ledger.left_microusd(PATH) == 0
    assert await is_refused(ledger, 1)
    ledger.settle(first, 999)
    ledger.settle(second, 1)
    assert await is_refused(ledger, 1)


async def test_money_is_taken_on_every_level_or_on_none(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 1000), Limit("key:abc", 10))
    with pytest.raises(BudgetExhausted, match="The budget of this key has not enough left"):
        await ledger.reserve(PATH, 11)
    assert ledger.left_microusd(("org:acme",)) == 1000
    await ledger.reserve(PATH, 10)
    assert ledger.left_microusd(("org:acme",)) == 990
    assert ledger.left_microusd(PATH) == 0


@pytest.mark.parametrize(
    ("window", "until"), [("total", ""), ("day", " today"), ("month", " this month")]
)
async def test_a_refusal_names_the_level_and_the_window_and_no_amounts(
    make_ledger: MakeLedger, window: WindowKind, until: str
) -> None:
    ledger = await make_ledger(Limit("ws:acme/research", 5, window))
    with pytest.raises(BudgetExhausted) as caught:
        await ledger.reserve(PATH, 6)
    said = "The budget of this workspace has not enough left for this request"
    said = f"{said}{until}; a smaller one may fit. A platform administrator can raise it."
    assert (caught.value.message, caught.value.retry_after_s) == (said, None), "it never fits"


async def test_a_refusal_says_when_there_is_room_again_on_every_level(
    make_ledger: MakeLedger, clock: StoppedClock
) -> None:
    """Not before the last of the budgets that are used up begins anew; SDKs are not to wait."""
    clock.advance(BEFORE_MIDNIGHT_S + 0.5)
    limits = (Limit("org:acme", 10, "day"), Limit("key:abc", 10, "month"))
    ledger = await make_ledger(*limits)
    rest = await ledger.reserve(("org:acme",), 8)
    with pytest.raises(BudgetExhausted) as today:
        await ledger.reserve(PATH, 6)
    ledger.release(rest)
    await ledger.reserve(PATH, 8)
    with pytest.raises(BudgetExhausted) as this_month:
        await ledger.reserve(PATH, 6)
    end_us = window_end_us("month", clock.utc_us())

    assert today.value.retry_after_s == 1.0
    assert "this request today; " in today.value.message
    assert " There is more from 2027-01-16 on (UTC)." in today.value.message
    assert this_month.value.retry_after_s == math.ceil((end_us - clock.utc_us()) / 1e6)
    assert " There is more from 2027-02-01 on (UTC)." in this_month.value.message
    assert not today.value.retryable
    assert not this_month.value.retryable


async def test_a_refusal_says_whether_it_is_spent_or_only_held(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 100), Limit("key:abc", 1_000))
    first = await ledger.reserve(PATH, 60)
    for amount_microusd, is_held in ((41, True), (100, True), (101, False)):
        with pytest.raises(BudgetExhausted) as caught:
            await ledger.reserve(PATH, amount_microusd)
        assert caught.value.is_held is is_held
    ledger.settle(first, 60)
    await ledger.reserve(PATH, 10)
    for amount_microusd, is_held in ((40, True), (41, False)):
        with pytest.raises(BudgetExhausted) as caught:
            await ledger.reserve(PATH, amount_microusd)
        assert caught.value.is_held is is_held


async def test_settling_gives_back_what_was_not_spent(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    reservation = await ledger.reserve(PATH, 100)
    settled = ledger.settle(reservation, 30)
    assert settled.reservation_id == reservation.reservation_id
    assert ledger.left_microusd(PATH) == 70
    assert not await is_refused(ledger, 70)


async def test_releasing_gives_all_of_it_back(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    assert ledger.release(await ledger.reserve(PATH, 100)).cost_microusd == 0
    assert ledger.left_microusd(PATH) == 100


async def test_a_reservation_ends_once(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    settled, released = await ledger.reserve(PATH, 10), await ledger.reserve(PATH, 10)
    ledger.settle(settled, 10)
    ledger.release(released)
    for reservation in (settled, released):
        with pytest.raises(ReservationEndedError):
            ledger.settle(reservation, 10)
        with pytest.raises(ReservationEndedError):
            ledger.release(reservation)
    assert ledger.left_microusd(PATH) == 90


async def test_a_cost_above_the_reservation_is_booked_and_stops_what_follows(
    make_ledger: MakeLedger,
) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    ledger.settle(await ledger.reserve(PATH, 10), 130)
    assert ledger.left_microusd(PATH) == -30
    assert await is_refused(ledger, 1)
    assert not await is_refused(ledger, 0), "what costs nothing needs nothing"


async def test_an_overrun_within_the_limit_leaves_exactly_the_rest(
    make_ledger: MakeLedger,
) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    ledger.settle(await ledger.reserve(PATH, 10), 60)
    assert await is_refused(ledger, 41)
    assert not await is_refused(ledger, 40)


async def test_a_reservation_that_nobody_ends_expires_and_its_late_cost_is_still_booked(
    make_ledger: MakeLedger, clock: StoppedClock
) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    leaked = await ledger.reserve(PATH, 100)
    assert leaked.leased_until_us == clock.utc_us() + 60_000_000
    assert await is_refused(ledger, 1)
    clock.advance(60.0)
    if isinstance(ledger, LeasedLedger):
        await ledger.flush()
    again = await ledger.reserve(PATH, 100)
    ledger.settle(leaked, 40)
    ledger.settle(again, 60)
    assert await is_refused(ledger, 1)


@pytest.mark.parametrize("jump_s", [-7200.0, 60.0, 7200.0])
async def test_a_clock_that_is_set_forgets_no_reservation_of_a_request_on_its_way(
    make_ledger: MakeLedger, clock: StoppedClock, jump_s: float
) -> None:
    ledger = await make_ledger(Limit("org:acme", 100))
    held = await ledger.reserve(PATH, 60)
    clock.jump(jump_s)
    assert not await is_refused(ledger, 0)
    if isinstance(ledger, LeasedLedger):
        await ledger.flush()
    ledger.settle(held, 60)
    assert await is_refused(ledger, 41)
    assert not await is_refused(ledger, 40)


async def test_the_next_day_all_of_its_limit_is_left_before_anything_is_reserved(
    make_ledger: MakeLedger, clock: StoppedClock
) -> None:
    ledger = await make_ledger(Limit("org:acme", 100, "day"))
    clock.advance(BEFORE_MIDNIGHT_S)
    ledger.settle(await ledger.reserve(PATH, 70), 70)
    assert ledger.left_microusd(PATH) == 30
    clock.advance(1.0)
    assert ledger.left_microusd(PATH) == 100


async def test_a_day_ends_and_the_next_begins_with_its_whole_limit(
    make_ledger: MakeLedger, clock: StoppedClock
) -> None:
    ledger = await make_ledger(Limit("org:acme", 100, "day"), Limit("key:abc", 1000, "total"))
    clock.advance(BEFORE_MIDNIGHT_S)
    across = await ledger.reserve(PATH, 40)
    ledger.settle(await ledger.reserve(PATH, 60), 60)
    assert await is_refused(ledger, 1)
    clock.advance(1.0)  # Midnight is of the new day, to the micro-second.
    reservation = await ledger.reserve(PATH, 100)
    ledger.settle(across, 40)  # It was admitted yesterday and is charged there.
    assert await is_refused(ledger, 1)
    ledger.settle(reservation, 10)
    assert ledger.left_microusd(("org:acme",)) == 90


async def test_it_is_known_whose_end_users_are_limited(make_ledger: MakeLedger) -> None:
    """Of all others nobody needs to know who asked, and their accounts are not looked up."""
    ledger = await make_ledger(
        Limit("user:acme/*", 10, "day"), Limit("org:other", 10), Limit("user:acme2/*", 10)
    )
    limited = [ledger.limits_end_users(each) for each in ("acme", "acme2", "acm", "other")]
    assert limited == [True, True, False, False]
    assert not (await make_ledger()).limits_end_users("other")


async def test_nothing_can_be_reserved_from_a_limit_of_zero(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(Limit("org:acme", 0))
    assert await is_refused(ledger, 1)
    assert not await is_refused(ledger, 0)


async def test_a_day_a_month_and_a_total_of_one_account_hold_at_once(
    make_ledger: MakeLedger, clock: StoppedClock
) -> None:
    ledger = await make_ledger(
        Limit("org:acme", 100, "day"), Limit("org:acme", 150, "month"), Limit("org:acme", 170)
    )
    clock.advance(BEFORE_MIDNIGHT_S)
    ledger.settle(await ledger.reserve(PATH, 100), 100)
    assert await is_refused(ledger, 1)  # The day is used up.
    clock.advance(2.0)
    assert await is_refused(ledger, 51)
    ledger.settle(await ledger.reserve(PATH, 50), 50)
    assert ledger.left_microusd(PATH) == 0
    assert await is_refused(ledger, 1)  # The month is; the day has 50 left.
    clock.advance(40 * 86_400.0)
    assert await is_refused(ledger, 21)  # A new month and day: 20 are left in all.
    assert not await is_refused(ledger, 20)


async def test_a_reservation_is_given_back_to_every_window(make_ledger: MakeLedger) -> None:
    ledger = await make_ledger(
        Limit("org:acme", 100, "day"), Limit("org:acme", 60, "month"), Limit("org:acme", 80)
    )
    for _ in range(3):
        ledger.release(await ledger.reserve(PATH, 60))
    ledger.settle(await ledger.reserve(PATH, 60), 25)
    assert ledger.left_microusd(PATH) == 35


async def test_what_was_let_through_yesterday_is_set_aside_today_only_where_that_goes_on(
    make_ledger: MakeLedger, clock: StoppedClock
) -> None:
    """Of a day that has begun since it needs nothing, and so a full one refuses it nothing."""
    # Just before midnight: in a jump of hours a lease runs out, and what it holds counts as spent.
    clock.advance(BEFORE_MIDNIGHT_S)
    day, total = Limit("org:acme", 30, "day"), Limit("org:acme", 100)
    ledger = await make_ledger(day, total)
    admitted_us = clock.utc_us()
    ledger.settle(await ledger.reserve(PATH, 1), 1)
    clock.advance(1.0)
    full = await ledger.reserve(PATH, 30)
    again = await ledger.reserve(PATH, 60, admitted_us=admitted_us)
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(PATH, 10, admitted_us=admitted_us)
    ledger.release(full)
    assert not await is_refused(ledger, 30)
    ledger.settle(again, 60)
    assert await is_refused(ledger, 31)
    assert not await is_refused(ledger, 30)
