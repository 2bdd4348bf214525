"""When a worker talks to the database: no more often than it must, and no later than it must."""

import asyncio
import gc
from collections.abc import Sequence

import pytest

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted, NotReady
from gateway.money.budgets import Limit, WindowKind
from gateway.store.engine import Database
from gateway.store.money.slices import Claim, Grant, LeaseHolder
from tests.gateway.store.money.ledgers import ORG, LossyTable, ledger_on, spend, started, sums


pytestmark = pytest.mark.anyio
KEY = "key:abc"
EACH = "user:acme/*"
ANN, BOB = ("user:acme/ann",), ("user:acme/bob",)


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LossyTable:
    return LossyTable(database, clock)


async def turns(count: int = 20) -> None:
    """Let everybody else go on so often."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("limit", [1000, 1_000_000])
async def test_a_worker_that_nobody_asks_leaves_the_database_in_peace(
    table: LossyTable, clock: StoppedClock, limit: int
) -> None:
    """It holds nothing by then, whether much is left or nothing at all, and is limited still."""
    await table.set_limit(Limit(ORG[0], limit))
    ledger = await started(table, clock)
    await spend(ledger, 1000)
    for _ in range(11):
        await ledger.flush()
    asked = table.exchanges
    for _ in range(30):
        clock.advance(20.0)
        await ledger.flush()
    assert table.exchanges == asked
    with pytest.raises(BudgetExhausted):
        await ledger.reserve(ORG, limit - 999)
    await ledger.close()
    assert await sums(table) == (1000, 0)


async def test_what_was_set_aside_waits_for_the_next_report_and_only_an_overrun_does_not(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    first, second = await ledger.reserve(ORG, 10), await ledger.reserve(ORG, 10)
    asked = table.exchanges
    ledger.settle(first, 10)
    await turns()
    assert table.exchanges == asked
    ledger.settle(second, 1200)
    await turns()
    assert table.exchanges == asked + 1
    await ledger.close()


async def test_of_a_limit_that_went_away_nobody_hears_less_of_the_others(
    table: LossyTable, clock: StoppedClock
) -> None:
    for account, limit in ((KEY, 500), (ORG[0], 1000)):
        await table.set_limit(Limit(account, limit))
    ledger = await started(table, clock)
    await spend(ledger, 100, (KEY, *ORG))
    await table.remove_limit(KEY)
    await ledger.flush()
    asked = table.exchanges
    await ledger.flush()
    assert table.exchanges == asked, "what was answered needs not be asked again"
    assert ledger.left_microusd((KEY, *ORG)) == 900
    await ledger.close()
    assert await sums(table) == (100, 0)


@pytest.mark.parametrize("accounts", [ORG, ANN])
async def test_what_comes_for_a_request_is_not_given_back_before_it_takes_it(
    table: LossyTable, clock: StoppedClock, accounts: tuple[str, ...]
) -> None:
    """Nor is an end user forgotten for whom it comes; down to the last micro-dollar."""
    for account in (ORG[0], EACH):
        await table.set_limit(Limit(account, 2))
    ledger = await started(table, clock)
    await spend(ledger, 1, accounts)
    for _ in range(10):  # In the next round it is quiet for long enough.
        await ledger.flush()
    asked = table.exchanges
    asking = asyncio.create_task(ledger.reserve(accounts, 1))
    while not ledger._exchanging.locked():
        await asyncio.sleep(0)
    await ledger.flush()
    assert ledger.settle(await asking, 1).cost_microusd == 1
    assert table.exchanges == asked + 1
    await ledger.close()
    assert await sums(table, accounts[0]) == (2, 0)


async def test_a_request_whose_money_another_took_asks_again_where_there_is_just_enough(
    table: LossyTable, clock: StoppedClock
) -> None:
    """It came for the one who waits, and another found it there before."""
    await table.set_limit(Limit(ORG[0], 110))
    ledger = await started(table, clock)
    waiting = asyncio.create_task(ledger.reserve(ORG, 60))
    while not ledger._exchanging.locked():
        await asyncio.sleep(0)
    while ledger._exchanging.locked():
        await asyncio.sleep(0)
    asked = table.exchanges
    await ledger.reserve(ORG, 50)
    assert table.exchanges == asked, "it was there"
    assert (await waiting).amount_microusd == 60
    await ledger.close()


async def test_what_became_short_while_others_were_asked_for_is_asked_for_before_a_refusal(
    table: LossyTable, clock: StoppedClock
) -> None:
    """By what was heard last there was none of it, and another worker gave some back since."""
    for account in (KEY, ORG[0]):
        await table.set_limit(Limit(account, 1000))
    ledger, other = await started(table, clock), await started(table, clock, "w2")
    held = await other.reserve(ORG, 500)
    ledger.release(await ledger.reserve(ORG, 500))
    other.release(held)
    await other.close()
    asking = asyncio.create_task(ledger.reserve((KEY, *ORG), 400))
    while not ledger._exchanging.locked():
        await asyncio.sleep(0)
    await ledger.reserve(ORG, 300)
    assert (await asking).amount_microusd == 400
    await ledger.close()


async def test_a_change_takes_nothing_back_of_limits_that_stay_as_they_are(
    table: LossyTable, clock: StoppedClock
) -> None:
    """Keys and policies change too, and each change is one of all workers at once."""
    await table.set_limit(Limit(ORG[0], 1_000_000))
    ledger = ledger_on(table, clock, slice_microusd=5000)
    await ledger.start()
    await spend(ledger, 1000)
    await table.set_limit(Limit(KEY, 1000))
    asked = table.exchanges
    await ledger.refresh()
    assert table.exchanges == asked
    await ledger.close()


async def test_what_is_left_of_a_lowered_limit_is_known_also_where_the_report_of_it_is_lost(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    await spend(ledger, 100)
    await table.set_limit(Limit(ORG[0], 500))
    table.losses = 1
    with pytest.raises(NotReady):
        await ledger.refresh()
    assert ledger.left_microusd(ORG) == 400
    await ledger.close()


@pytest.mark.parametrize(("amount", "delay_s"), [(601, 0.0), (600, 1.0)])
async def test_nobody_waits_for_more_than_there_is_nor_for_longer_than_they_may(
    table: LossyTable,
    clock: StoppedClock,
    monkeypatch: pytest.MonkeyPatch,
    amount: int,
    delay_s: float,
) -> None:
    """A slow database's time is of what a request has to wait."""
    await table.set_limit(Limit(ORG[0], 600))
    holder, asker = await started(table, clock), ledger_on(table, clock, "w2", pauses=5)
    await asker.refresh()
    await holder.reserve(ORG, 100)
    exchange = table.exchange

    async def slow(holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        clock.advance(delay_s)
        return await exchange(holder, claims)

    monkeypatch.setattr(table, "exchange", slow)
    asked = table.exchanges
    with pytest.raises(BudgetExhausted):
        await asker.reserve(ORG, amount)
    assert table.exchanges == asked + 1
    await asker.close()
    await holder.close()


@pytest.mark.parametrize(
    "jumps_s", [(50.0, 50.0, 50.0), (1800.0, 7200.0), (-1800.0, 1800.0), (1800.0, -1800.0)]
)
async def test_what_others_hold_is_not_written_off_where_all_clocks_were_set(
    table: LossyTable, clock: StoppedClock, jumps_s: tuple[float, ...]
) -> None:
    """By less than a lease or by more, forward, or back and right again."""
    await table.set_limit(Limit(ORG[0], 1000))
    ledger, other = await started(table, clock), await started(table, clock, "w2")
    held = await ledger.reserve(ORG, 600)
    for jump_s in jumps_s:
        clock.jump(jump_s)
        await spend(other, 1)
        await ledger.flush()
        clock.advance(10.0)
        await spend(other, 1)
        await ledger.flush()
    ledger.settle(held, 100)
    for each in (ledger, other):
        await each.close()
    assert await sums(table) == (100 + 2 * len(jumps_s), 0)


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_worker_that_started_while_the_clock_was_set_back_keeps_its_slice(
    database: Database, clock: StoppedClock, *, is_busy: bool
) -> None:
    """Once it is set right; whether the older one, with a table of its own, spent meanwhile."""
    table = LossyTable(database, clock)
    await table.set_limit(Limit(ORG[0], 1000))
    older = await started(table, clock)
    clock.jump(-3600.0)
    await older.flush()
    young = await started(LossyTable(database, clock), clock, "w2")
    held = await young.reserve(ORG, 600)
    clock.advance(5.0)
    if is_busy:
        await spend(older, 1)
    await older.flush()
    clock.jump(3600.0)
    await spend(older, 1)
    young.settle(held, 100)
    await young.flush()
    for each in (older, young):
        await each.close()
    assert await sums(table) == (101 + is_busy, 0)


async def test_the_slice_of_such_a_worker_that_died_is_written_off_a_lease_later(
    database: Database, clock: StoppedClock
) -> None:
    table = LossyTable(database, clock)
    await table.set_limit(Limit(ORG[0], 1000))
    older = await started(table, clock)
    clock.jump(-3600.0)
    await older.flush()
    await (await started(LossyTable(database, clock), clock, "w2")).reserve(ORG, 600)
    clock.jump(3600.0)
    for _ in range(10):
        await spend(older, 1)
        clock.advance(10.0)
        await older.flush()
    await spend(older, 1)
    assert (await sums(table))[0] >= 600
    await older.close()


@pytest.mark.parametrize("window", ["total", "day"])
async def test_what_is_left_counts_what_lies_in_a_slice_that_is_over(
    table: LossyTable, clock: StoppedClock, window: WindowKind
) -> None:
    await table.set_limit(Limit(ORG[0], 1000, window))
    ledger = ledger_on(table, clock, slice_microusd=100)
    await ledger.start()
    await spend(ledger, 100)
    assert (await sums(table))[1] > 150
    clock.advance(61.0)
    assert ledger.left_microusd(ORG) == 900
    await ledger.close()


@pytest.mark.parametrize(("accounts", "is_new"), [(ORG, True), (ORG, False), (ANN, False)])
async def test_what_others_spent_is_heard_by_who_only_asks_what_is_left(
    table: LossyTable, clock: StoppedClock, accounts: tuple[str, ...], *, is_new: bool
) -> None:
    for account in (ORG[0], EACH):
        await table.set_limit(Limit(account, 1000))
    ledger, other = await started(table, clock), await started(table, clock, "w2")
    if not is_new:
        await spend(ledger, 100, accounts)
        await ledger.flush()
    await spend(other, 300, accounts)
    await other.close()
    clock.advance(61.0)
    before = ledger.left_microusd(accounts)
    assert before == (1000 if is_new else 900), "as last heard"
    await ledger.flush()
    assert ledger.left_microusd(accounts) == before - 300
    await ledger.close()


async def test_the_report_in_which_an_end_user_is_forgotten_is_one_of_the_others(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100))
    ledger = await started(table, clock)
    ledger.left_microusd(ANN)
    for _ in range(9):
        await ledger.flush()
    ledger.settle(await ledger.reserve(BOB, 60), 50)
    await ledger.flush()
    assert [account for account, _ in ledger._held.by_key] == [*BOB]
    assert (await sums(table, BOB[0]))[0] == 50
    await ledger.close()


async def test_money_that_a_lost_answer_leased_to_an_end_user_goes_back_however_late_it_is_heard(
    table: LossyTable, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then it has been quiet for long enough to be forgotten, as is who came in vain."""
    await table.set_limit(Limit(EACH, 100))
    ledger = await started(table, clock)
    table.losses = 1
    with pytest.raises(NotReady):
        await ledger.reserve(ANN, 60)
    assert await sums(table, ANN[0]) == (0, 60)

    async def away(*_: object) -> list[Grant]:
        raise NotReady("the database does not answer")

    monkeypatch.setattr(table, "exchange", away)
    with pytest.raises(NotReady):
        await ledger.reserve(BOB, 60)
    for _ in range(12):
        with pytest.raises(NotReady):
            await ledger.flush()
    monkeypatch.undo()
    await ledger.flush()
    assert await sums(table, ANN[0]) == (0, 0)
    await spend(ledger, 60, BOB)
    await ledger.close()
    assert await sums(table, BOB[0]) == (60, 0), "there was room for one of his own"


@pytest.mark.parametrize(("limit", "times"), [(Limit(EACH, 100, "day"), 3), (Limit(*ORG, 100), 0)])
async def test_rows_of_past_end_users_are_looked_for_every_ten_minutes_where_there_may_be_some(
    table: LossyTable,
    clock: StoppedClock,
    monkeypatch: pytest.MonkeyPatch,
    limit: Limit,
    times: int,
) -> None:
    await table.set_limit(limit)
    ledger = await started(table, clock)
    looked: list[float] = []

    async def look() -> int:
        looked.append(clock.monotonic_s())
        return 0

    monkeypatch.setattr(table, "forget_past_users", look)
    for _ in range(23):
        clock.advance(90.0)
        await ledger._forget_past()
    assert len(looked) == times
    await ledger.close()


@pytest.mark.parametrize("ends_with_it", [False, True])
@pytest.mark.either
async def test_a_caller_who_left_while_the_database_was_away_leaves_no_fault_in_the_log(
    table: LossyTable, clock: StoppedClock, caplog: pytest.LogCaptureFixture, *, ends_with_it: bool
) -> None:
    """Nor does a worker that ends while it asks."""
    await table.set_limit(Limit(ORG[0], 1000))
    ledger = await started(table, clock)
    table.losses = 1
    asking = asyncio.create_task(ledger.reserve(ORG, 10))
    await turns(1)
    asked = ledger._round
    assert asked is not None
    (asked if ends_with_it else asking).cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await asyncio.wait([asked])
    del asked
    gc.collect()
    await turns()
    assert table.losses == ends_with_it
    assert [each for each in caplog.records if each.name == "asyncio"] == []
    await ledger.close()
