"""Days and months begin where the organisation lives, also when the clocks or the zone change."""

from datetime import UTC, datetime
from itertools import chain
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted, RequestInvalid
from gateway.identity import Peppers
from gateway.money.budgets import Limit, WindowKind, checked_zone, window_end_us, window_start_us
from gateway.store.engine import Database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget, roll


US = 1_000_000
HOUR_S = 3600.0
ZONES = (
    *("UTC", "Asia/Kolkata", "America/New_York", "Europe/London", "Australia/Lord_Howe"),
    *("America/Sao_Paulo", "Asia/Beirut", "Pacific/Apia", "Pacific/Kiritimati", "Asia/Kathmandu"),
)


def us(text: str, zone: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()) * US


@pytest.mark.parametrize(
    ("zone", "now", "start", "hours"),
    [
        ("Asia/Kolkata", "2027-03-05T00:00:01", "2027-03-05T00:00:00", 24),
        ("Europe/London", "2027-03-28T12:00:00", "2027-03-28T00:00:00", 23),
        ("Europe/London", "2027-10-31T23:59:59", "2027-10-31T00:00:00", 25),
        # Clocks that go forward at midnight: the day begins at one.
        ("Asia/Beirut", "2027-03-28T12:00:00", "2027-03-28T01:00:00", 23),
    ],
)
def test_a_day_is_as_long_as_it_is_there(zone: str, now: str, start: str, hours: int) -> None:
    began = window_start_us("day", us(now, zone), zone)

    assert began == us(start, zone)
    assert window_end_us("day", began, zone) - began == hours * 3600 * US


@pytest.mark.parametrize("fold", [0, 1])
def test_a_midnight_that_comes_twice_begins_one_day(fold: int) -> None:
    """In Havana clocks go back from one to midnight: the second gives no second limit."""
    zone, first = "America/Havana", us("2027-11-07T00:00:00", "America/Havana")
    twice = datetime(2027, 11, 7, 0, 30, tzinfo=ZoneInfo(zone), fold=fold)
    moment_us = int(twice.timestamp()) * US
    assert moment_us - first == (1 + 2 * fold) * 1800 * US
    assert window_start_us("day", moment_us, zone) == window_end_us("day", first - 1, zone) == first
    assert window_end_us("day", moment_us, zone) - first == 25 * 3600 * US


@given(
    st.integers(0, 4_000_000_000),
    st.sampled_from(["total", "day", "month"]),
    st.sampled_from(ZONES),
)
def test_windows_of_every_zone_meet_without_a_gap(now_s: int, kind: WindowKind, zone: str) -> None:
    now_us = now_s * US
    start = window_start_us(kind, now_us, zone)
    end = window_end_us(kind, now_us, zone)

    assert start <= now_us < end
    assert window_start_us(kind, end - 1, zone) == start
    if kind != "total":
        assert window_start_us(kind, end, zone) == end


@given(st.integers(0, 3_000_000_000), st.sampled_from(ZONES), st.sampled_from(ZONES))
def test_a_change_of_zone_never_ends_a_running_window_early(
    now_s: int, before: str, after: str
) -> None:
    now_us = now_s * US
    running = roll(Budget(Limit("org:acme", 10, "day", before), 0, 5, 0), now_us)
    spent = Budget(running.limit, running.window_start_us, 5, 0)
    moved = Budget(Limit("org:acme", 10, "day", after), running.window_start_us, 5, 0, now_us)
    midnight = window_end_us("day", now_us, after)

    assert roll(spent, now_us) == spent
    assert roll(moved, now_us) == moved
    assert roll(moved, midnight - 1) == moved
    assert roll(moved, midnight).spent_microusd == 0


def test_a_zone_that_does_not_exist_is_refused() -> None:
    for name in ("Mars/Olympus", "", "../etc/passwd", "a\x00b"):
        with pytest.raises(RequestInvalid):
            checked_zone(name)
    assert checked_zone("Asia/Kolkata") == "Asia/Kolkata"


@pytest.mark.anyio
async def test_every_account_of_an_organisation_follows_its_zone(database: Database) -> None:
    clock = StoppedClock(us("2027-01-15T20:00:00", "UTC"))  # 01:30 of the next day in India
    peppers = Peppers({1: b"p" * 32})
    keys = KeyStore(database, peppers, clock)
    others = [
        await keys.issue(NewKey(Place(name, "r", "b"), "k", "a test")) for name in ("aaa", "zzz")
    ]
    key = await keys.issue(NewKey(Place("acme", "research", "bot"), "k", "a test"))
    table = LeaseTable(database, clock)
    own = ("org:acme", "ws:acme/research", "proj:acme/research/bot", f"key:{key.key_id}")
    await table.set_limit(Limit(own[0], 100, "day"))
    strangers = ("org:acme2", *(f"key:{each.key_id}" for each in others))
    for account in strangers:
        await table.set_limit(Limit(account, 100, "day"))
    await table.set_time_zone("acme", "Asia/Kolkata")
    for account in (*own[1:], "user:acme/*"):
        await table.set_limit(Limit(account, 100, "day"))

    zones = {row.limit.account: row.limit.time_zone for row in await table.budgets(None)}
    ours = dict.fromkeys((*own, "user:acme/*"), "Asia/Kolkata")
    assert zones == ours | dict.fromkeys(strangers, "UTC")
    before = await table.budgets(None)
    clock.advance(60.0)
    await table.set_time_zone("acme", "Asia/Kolkata")
    assert await table.budgets(None) == before, "the same zone again is no change of it"
    with pytest.raises(RequestInvalid):
        await table.set_time_zone("nobody", "Asia/Kolkata")


@pytest.mark.anyio
async def test_a_zone_is_that_of_all_limits_that_are_there_and_that_come_and_of_nobody_elses(
    database: Database,
) -> None:
    """Also where another organisation's name is like it, in letters that a pattern knows."""
    clock = StoppedClock(us("2027-01-15T12:00:00", "UTC"))
    keys = KeyStore(database, Peppers({1: b"p" * 32}), clock)
    names = ("a_me", "acme", "a_m", "a_me2")
    issued = [await keys.issue(NewKey(Place(name, "r", "b"), "k", "a test")) for name in names]
    accounts = {
        name: [f"org:{name}", f"ws:{name}/r", f"proj:{name}/r/b", f"key:{key.key_id}"]
        for name, key in zip(names, issued, strict=True)
    }
    for name in names:
        accounts[name] += [f"user:{name}/*", f"user:{name}/ann"]
    table = LeaseTable(database, clock)

    async def limit_all(window: WindowKind) -> None:
        for account in chain(*accounts.values()):
            await table.set_limit(Limit(account, 100, window))

    await limit_all("day")
    await table.set_time_zone("a_me", "Asia/Kolkata")
    await limit_all("month")

    moved = {row.limit.key for row in await table.budgets(None) if row.limit.time_zone != "UTC"}
    assert moved == {(each, window) for each in accounts["a_me"] for window in ("day", "month")}


@pytest.mark.anyio
async def test_an_organisation_that_moves_gets_no_second_day(database: Database) -> None:
    clock = StoppedClock(us("2027-01-15T20:00:00", "UTC"))  # In India the next day has begun.
    keys = KeyStore(database, Peppers({1: b"p" * 32}), clock)
    await keys.issue(NewKey(Place("acme", "research", "bot"), "k", "a test"))
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("org:acme", 100, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()
    ledger.settle(await ledger.reserve(("org:acme",), 70), 70)
    await ledger.close()
    await table.set_time_zone("acme", "Asia/Kolkata")
    moved = LeasedLedger(table, clock, "w2", flush_every_s=3600.0, patience_s=0.0)
    await moved.start()
    with pytest.raises(BudgetExhausted):
        await moved.reserve(("org:acme",), 31)
    moved.release(await moved.reserve(("org:acme",), 30))
    await moved.close()
    clock.advance(HOUR_S)
    (budget,) = await table.budgets()
    assert (budget.limit.time_zone, budget.spent_microusd) == ("Asia/Kolkata", 70)
    clock._utc_us = us("2027-01-17T00:00:00", "Asia/Kolkata")
    (budget,) = await table.budgets()
    assert budget.spent_microusd == 0


@pytest.mark.anyio
async def test_clocks_that_jump_give_no_window_twice(database: Database) -> None:
    clock = StoppedClock(us("2027-01-15T12:00:00", "UTC"))
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("org:acme", 100, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()

    async def spends(amount: int) -> bool:
        try:
            ledger.settle(await ledger.reserve(("org:acme",), amount), amount)
        except BudgetExhausted:
            return False
        return True

    assert await spends(60)
    clock._utc_us += 24 * 3600 * US  # forward a day: the window is another one
    assert await spends(100)
    clock._utc_us -= 24 * 3600 * US  # and back: the later window stays
    assert not await spends(1)
    clock._utc_us -= 72 * 3600 * US
    assert not await spends(1)
    clock._utc_us += 97 * 3600 * US
    assert not await spends(1)
    clock._utc_us += 24 * 3600 * US
    assert await spends(100)
    await ledger.close()


@pytest.mark.anyio
async def test_a_clock_set_back_does_not_keep_a_slice_alive(database: Database) -> None:
    """Others write the lease off by their clocks; its holder must ask again by its own timer."""
    clock = StoppedClock(us("2027-01-15T12:00:00", "UTC"))
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("org:acme", 10**9))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()
    ledger.settle(await ledger.reserve(("org:acme",), 10), 10)
    exchanges: list[object] = []
    ask = table.exchange

    async def counted(*arguments: object) -> object:
        exchanges.append(arguments)
        return await ask(*arguments)  # type: ignore[arg-type]

    table.exchange = counted  # type: ignore[method-assign,assignment]
    clock._utc_us -= 3600 * US
    ledger.settle(await ledger.reserve(("org:acme",), 10), 10)
    assert not exchanges
    clock._monotonic_s += 61.0
    ledger.settle(await ledger.reserve(("org:acme",), 10), 10)

    assert len(exchanges) == 1
    await ledger.close()


def test_the_moment_of_a_window_is_utc_whatever_the_zone() -> None:
    start = window_start_us("month", us("2027-05-01T02:00:00", "Asia/Kolkata"), "Asia/Kolkata")

    assert datetime.fromtimestamp(start // US, UTC).isoformat() == "2027-04-30T18:30:00+00:00"
