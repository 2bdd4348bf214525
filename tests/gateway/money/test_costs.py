"""Costs laid out for people: groups, forecast, currencies; and budgets that are alerted of."""

from datetime import date, timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from gateway.audit.projecting.projector import Projector
from gateway.audit.reckoning import OpenIntent, closing
from gateway.clock import StoppedClock
from gateway.configuration.sections import CurrencySettings
from gateway.errors import RequestInvalid
from gateway.money.alerting import CLAIM_US
from gateway.money.budgets import Limit, window_end_us
from gateway.money.costs import (
    CostRow,
    exhausted_on,
    expected,
    forecast,
    shown,
    total_of,
)
from gateway.oversight.homes import BY_LABEL
from gateway.price import Price
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.money.alerts import KEPT_US, AlertTable
from gateway.store.money.dimensions import DIMENSIONS
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.schema.tables import budgets, organisations
from gateway.types import AuditRecord, Target, Usage
from tests.gateway.audit.samples import running


DAY_US = 86_400_000_000
START_US = 1_800_057_600_000_000  # 2027-01-16T00:00:00Z
EVER = Period(0, 1 << 62)


def price(output: int) -> Price:
    return Price(3_000_000, output, 300_000, 3_750_000, 6_000_000, 50, "a list", "2027-01-01")


def target(name: str, tier: str, output: int) -> Target:
    return Target(
        *(name, "p", name, "us", False, tier, price(output), 1000, 1000, frozenset())  # type: ignore[arg-type]
    )


def outcome(number: int, **changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "stage": "outcome",
        "request_id": f"req_{number}",
        "organisation": "acme",
        "utc_us": START_US + number * 3_600_000_000,
        "workspace": "research",
        "project": "bot",
        "key_id": "0" * 12,
        "target": "dear",
        "provider": "p",
        "jurisdiction": "us",
        "data_class": "S0",
        "status": "ok",
        "http_status": 200,
        "usage": Usage(100, 10),
        "cost_microusd": 1000,
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


async def record(database: Database, folder: Path, *records: AuditRecord) -> None:
    async with running(folder / "records") as log:
        for each in records:
            await log.append(each)
        await Projector(folder / "records", DatabaseAuditSink(database)).catch_up()


@pytest.mark.anyio
async def test_every_dimension_splits_the_same_total(database: Database, tmp_path: Path) -> None:
    records = [
        outcome(
            n,
            project=f"p{n % 3}",
            target=f"t{n % 2}",
            cost_microusd=n,
            policy_digest=("a1" if n % 2 else "b2") * 32,
        )
        for n in range(40)
    ]
    intent = outcome(1, stage="intent", cost_microusd=10**9)
    await record(database, tmp_path, *records, intent)
    reader = SpendingReader(database, BY_LABEL)

    for dimension in DIMENSIONS:
        rows = await reader.totals(EVER, [dimension])
        assert total_of(rows) == CostRow((), 40, 4000, 400, sum(range(40))), dimension
    rows = await reader.totals(EVER, ["project", "target"])
    assert len(rows) == 6
    assert rows == sorted(rows, key=lambda row: (-row.cost_microusd, row.group))
    assert await reader.totals(Period(0, START_US), ["project"]) == []
    assert {row.group[0] for row in await reader.totals(EVER, ["app"])} == {
        *("research/p0", "research/p1", "research/p2")
    }
    by_policy = {row.group[0]: row.requests for row in await reader.totals(EVER, ["policy"])}
    assert by_policy == {"a1" * 32: 20, "b2" * 32: 20}
    for wrong in (["nothing"], ["project", "project"], ["cost_microusd; DROP TABLE people"]):
        with pytest.raises(RequestInvalid):
            await reader.totals(EVER, wrong)


@pytest.mark.anyio
async def test_days_are_those_of_the_organisations_time_zone(
    database: Database, tmp_path: Path
) -> None:
    async with database.writing() as connection:
        await connection.execute(
            organisations.insert(),
            {"name": "acme", "title": "", "created_us": 0, "time_zone": "Asia/Kolkata"},
        )
    late = START_US + 18 * 3_600_000_000 + 29 * 60_000_000  # 23:59 in India
    await record(database, tmp_path, outcome(1, utc_us=late), outcome(2, utc_us=late + 60_000_000))
    reader = SpendingReader(database, BY_LABEL)
    own = Period(0, 1 << 62, "acme")

    assert [row.group for row in await reader.totals(own, ["day"])] == [
        *(("2027-01-16",), ("2027-01-17",))
    ]
    assert await reader.by_day(own) == {date(2027, 1, 16): 1000, date(2027, 1, 17): 1000}
    assert [row.group for row in await reader.totals(EVER, ["day", "organisation"])] == [
        ("2027-01-16", "acme")
    ]


@pytest.mark.anyio
async def test_a_ledger_that_says_something_else_than_its_outcomes_is_found(
    database: Database, tmp_path: Path
) -> None:
    clock = StoppedClock(START_US)
    table = LeaseTable(database, clock)
    for account in ("org:acme", "proj:acme/research/bot", f"key:{'0' * 12}", "ws:acme/other"):
        await table.set_limit(Limit(account, 10**9, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()
    path = ("org:acme", "ws:acme/research", "proj:acme/research/bot", f"key:{'0' * 12}")
    for _ in range(3):
        ledger.settle(await ledger.reserve(path, 5000), 1000)
    ledger.settle(await ledger.reserve(("ws:acme/other",), 5000), 7)
    await ledger.close()
    await record(database, tmp_path, *(outcome(n) for n in range(3)), outcome(4, utc_us=5))

    found = {
        each.account: (each.ledger_microusd, each.audit_microusd, each.leased_microusd)
        for each in await SpendingReader(database, BY_LABEL).differences()
    }
    assert found == {
        "org:acme": (3000, 3000, 0),
        "proj:acme/research/bot": (3000, 3000, 0),
        f"key:{'0' * 12}": (3000, 3000, 0),
        "ws:acme/other": (7, 0, 0),
    }


@pytest.mark.anyio
async def test_a_request_that_lasts_over_midnight_is_one_of_the_day_that_let_it_through(
    database: Database, tmp_path: Path
) -> None:
    """To the ledger it was one of the day before, and its outcome counted as today's."""
    clock = StoppedClock(START_US - 2_000_000)
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("org:acme", 10**9, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()
    yesterdays = await ledger.reserve(("org:acme",), 5000)
    clock.advance(3.0)
    todays = await ledger.reserve(("org:acme",), 5000)
    ledger.settle(yesterdays, 1000)
    ledger.settle(todays, 200)
    await ledger.close()
    long = {"utc_us": START_US + 5_000_000, "duration_us": 7_000_000}
    await record(
        *(database, tmp_path),
        outcome(1, stage="intent", utc_us=START_US - 1_000_000),
        outcome(1, **long),
        outcome(2, stage="intent", utc_us=START_US + 1_000_000),
        outcome(2, cost_microusd=200, **long),
    )

    (found,) = await SpendingReader(database, BY_LABEL).differences()
    assert (found.ledger_microusd, found.audit_microusd) == (200, 200)


@pytest.mark.anyio
async def test_what_a_crash_cut_off_is_of_the_day_that_let_it_through(
    database: Database, tmp_path: Path
) -> None:
    """Nobody knows how long it took: its outcome, of the next start, counted as that day's."""
    clock = StoppedClock(START_US + 3_600_000_000)
    await LeaseTable(database, clock).set_limit(Limit("org:acme", 10**9, "day"))
    begun = outcome(1, stage="intent", utc_us=START_US - 1_000_000, reserved_microusd=700)
    async with database.writing() as connection:
        await connection.execute(budgets.update().values(begun_us=0))
    await record(
        *(database, tmp_path), begun, closing(OpenIntent(begun, "00"), START_US + 5_000_000)
    )

    (found,) = await SpendingReader(database, BY_LABEL).differences()
    assert (found.ledger_microusd, found.audit_microusd) == (0, 0)


@pytest.mark.anyio
@pytest.mark.parametrize(("ledger", "is_explained"), [(200, True), (100, True), (99, False)])
async def test_what_was_let_through_before_a_limit_was_heard_of_explains_a_difference_and_no_more(
    database: Database, tmp_path: Path, ledger: int, *, is_explained: bool
) -> None:
    """A worker that did not know of it yet had no budget to book its cost on."""
    clock = StoppedClock(START_US)
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("org:acme", 10**9))
    async with database.writing() as connection:
        await connection.execute(budgets.update().values(spent_microusd=ledger))
    told: list[AuditRecord] = []
    for number, after_s in enumerate((59, 61)):
        at_us = START_US + after_s * 1_000_000
        told.append(outcome(number, stage="intent", utc_us=at_us))
        told.append(outcome(number, utc_us=at_us + 9, duration_us=9, cost_microusd=100))
    await record(database, tmp_path, *told)

    (found,) = await SpendingReader(database, BY_LABEL).differences()
    assert (found.audit_microusd, found.unheard_microusd) == (200, 100)
    assert found.is_explained == is_explained


@pytest.mark.anyio
@pytest.mark.parametrize(("days_before", "pieces"), [(0, 2), (1, 1)])
async def test_however_many_limits_there_are_and_since_when_outcomes_are_read_once(
    database: Database, tmp_path: Path, days_before: int, pieces: int
) -> None:
    """Each would else read what all of them spent."""
    clock = StoppedClock(START_US - days_before * DAY_US)
    table = LeaseTable(database, clock)
    keys, users = (tuple(f"{kind}{n}" for n in range(5)) for kind in ("key", "user"))
    await table.set_limit(Limit("org:acme", 10**9, "day"))
    await table.set_limit(Limit("user:acme/*", 10**9, "day"))
    for key in keys:
        clock.advance(0.001)
        await table.set_limit(Limit(f"key:{key}", 10**9, "day"))
    clock.advance(days_before * DAY_US / 1e6)
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()
    told = []
    for number, (key, user) in enumerate(zip(keys, users, strict=True)):
        accounts = ("org:acme", f"key:{key}", f"user:acme/{user}")
        ledger.settle(await ledger.reserve(accounts, 5000), 1000 + number)
        changed = {"utc_us": START_US + 100_000_000, "key_id": key, "subject": user}
        told.append(outcome(number, **changed, cost_microusd=1000 + number))
    await ledger.close()
    await record(database, tmp_path, *told)
    asked: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        asked.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    found = await SpendingReader(database, BY_LABEL).differences(end_users=True)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)

    assert {each.account: each.audit_microusd for each in found} == {
        "org:acme": 5010,
        **{f"key:{key}": 1000 + number for number, key in enumerate(keys)},
        **{f"user:acme/{user}": 1000 + number for number, user in enumerate(users)},
    }
    assert all(each.difference_microusd == each.unheard_microusd == 0 for each in found)
    # Of all but end users, of these, and of those of whom only their intents tell: each time for
    # the minute in which limits were set within the window, and for what came after it.
    assert sum("FROM audit_records" in each for each in asked) == 3 * pieces


@pytest.mark.anyio
async def test_what_single_end_users_spent_is_compared_where_that_is_asked(
    database: Database, tmp_path: Path
) -> None:
    """Since their limit was set, whenever they were first seen; of the sum of many nobody knows."""
    clock = StoppedClock(START_US)
    table = LeaseTable(database, clock, end_users_max=1)
    await table.set_limit(Limit("user:acme/*", 10**9))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()
    for number, user in enumerate(("ann", "bob")):
        clock.advance(90.0)
        ledger.settle(await ledger.reserve((f"user:acme/{user}",), 5000), 1000 + number)
    await ledger.close()
    at_us = START_US + 100_000_000
    costs = [(at_us, 700), (START_US - 1_000_000, 5), (at_us, 300)]
    told = [
        outcome(number, utc_us=us, subject="ann", cost_microusd=cost)
        for number, (us, cost) in enumerate(costs)
    ]
    await record(database, tmp_path, *told)

    assert await SpendingReader(database, BY_LABEL).differences() == []
    (found,) = await SpendingReader(database, BY_LABEL).differences(end_users=True)
    assert (found.account, found.ledger_microusd) == ("user:acme/ann", 1000)
    assert (found.audit_microusd, found.unheard_microusd) == (1000, 0)


ALL = (50, 80, 100)


@pytest.mark.anyio
async def test_an_alert_is_sent_once_by_whoever_claims_it_and_again_when_it_was_not_taken(
    database: Database,
) -> None:
    clock = StoppedClock(START_US)
    table, alerts = LeaseTable(database, clock), AlertTable(database, clock)
    await table.set_limit(Limit("org:acme", 1000, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()

    async def due() -> list[int]:
        await ledger.flush()
        return [each.percent for each in await alerts.claim(await table.budgets(), (50, 80, 100))]

    seen = []
    for amount in (499, 1, 300, 200):
        ledger.settle(await ledger.reserve(("org:acme",), amount), amount)
        seen.append(await due())
    for alert in await AlertTable(database, clock).claim(await table.budgets(), (50,)):
        pytest.fail(f"{alert} was claimed twice")
    clock.advance(CLAIM_US / 1e6)
    again = await alerts.claim(await table.budgets(), (50, 80))
    await alerts.sent(again[0])
    clock.advance(CLAIM_US / 1e6)
    last = [each.percent for each in await alerts.claim(await table.budgets(), (50, 80))]
    clock.advance(86_400.0)
    await ledger.reserve(("org:acme",), 1)

    assert seen == [[], [50], [80], [100]]
    assert [each.percent for each in again] == [50, 80]
    assert last == [80]
    assert await due() == [80, 100], "of the day before, which nobody took"
    await ledger.close()


@pytest.mark.anyio
async def test_a_share_that_a_higher_limit_made_less_is_alerted_of_when_it_is_reached_again(
    database: Database,
) -> None:
    """Who raises a total when it is used up would not hear of it a second time, for ever."""
    clock = StoppedClock(START_US)
    table, alerts = LeaseTable(database, clock), AlertTable(database, clock)
    for account in ("org:acme", "org:globex"):
        await table.set_limit(Limit(account, 1000))
    await table.set_limit(Limit("org:acme", 1000, "day"))
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()

    async def told_after(amount: int, account: str = "org:acme") -> list[tuple[str, str, int]]:
        ledger.settle(await ledger.reserve((account,), amount), amount)
        await ledger.flush()
        due = await alerts.claim(await table.budgets(), (50, 80, 100))
        for alert in due:
            await alerts.sent(alert)
        return [(each.account, each.window, each.percent) for each in due]

    total, day = ("org:acme", "total"), ("org:acme", "day")
    assert await told_after(1000, "org:globex") == [("org:globex", "total", n) for n in ALL]
    assert await told_after(1000) == [(*each, n) for each in (day, total) for n in ALL]
    await table.set_limit(Limit("org:acme", 2000))
    await table.set_limit(Limit("org:acme", 9000, "day"))
    await ledger.refresh()
    seen = [await told_after(amount) for amount in (0, 599, 1, 400)]
    await table.set_limit(Limit("org:acme", 2000))
    await table.set_limit(Limit("org:acme", 100))
    await ledger.refresh()

    assert seen == [[], [], [(*total, 80)], [(*total, 100)]]
    assert await told_after(0, "org:globex") == []
    await ledger.close()


@pytest.mark.anyio
async def test_a_higher_limit_rings_again_for_its_own_window_only_and_leaves_the_past_on_record(
    database: Database,
) -> None:
    """On the first of a month, a day begins in the moment in which the month does."""
    clock = StoppedClock(window_end_us("month", START_US) - DAY_US)
    table, alerts = LeaseTable(database, clock), AlertTable(database, clock)
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()

    async def told_after(amount: int) -> list[str]:
        await ledger.refresh()
        ledger.settle(await ledger.reserve(("org:acme",), amount), amount)
        await ledger.flush()
        due = await alerts.claim(await table.budgets(), (100,))
        for alert in due:
            await alerts.sent(alert)
        return [each.window for each in due]

    await table.set_limit(Limit("org:acme", 10, "day"))
    assert await told_after(10) == ["day"]
    clock.advance(DAY_US / 1e6)
    await table.set_limit(Limit("org:acme", 10, "month"))
    assert await told_after(10) == ["day", "month"]
    await table.set_limit(Limit("org:acme", 30, "day"))
    assert await told_after(0) == []
    await table.set_limit(Limit("org:acme", 40, "month"))
    assert await told_after(20) == ["day"]
    await table.set_limit(Limit("org:acme", 40, "day"))
    assert await told_after(10) == ["day", "month"]
    assert len(await alerts.newest(100)) == 3, "and yesterday's is still shown"
    await ledger.close()


@pytest.mark.anyio
async def test_old_alerts_are_forgotten_but_for_windows_that_still_run(database: Database) -> None:
    """A total never ends: its alerts would ring again. Of a limit that was removed none does."""
    clock = StoppedClock(START_US)
    table, alerts = LeaseTable(database, clock), AlertTable(database, clock)
    for limit in (Limit("org:acme", 100), Limit("org:acme", 100, "day"), Limit("org:gone", 100)):
        await table.set_limit(limit)
    ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
    await ledger.start()

    async def told() -> int:
        for account in ("org:acme", "org:gone"):
            ledger.settle(await ledger.reserve((account,), 1), 1)
        await ledger.flush()
        due = await alerts.claim(await table.budgets(), (1,))
        for alert in due:
            await alerts.sent(alert)
        return len(due)

    async def kept() -> list[tuple[str, str, int]]:
        found = await alerts.newest(100)
        return sorted((each.account, each.window, each.claimed_us) for each in found)

    first_us = clock.utc_us()
    assert await told() == 3
    await table.remove_limit("org:gone", "total")
    await ledger.refresh()
    clock.advance(KEPT_US / 1e6)
    await alerts.forget_old()
    assert len(await kept()) == 3
    clock.advance(1.0)
    await alerts.forget_old()
    # Its window runs on as long as nobody spends in a later one.
    assert await kept() == [("org:acme", "day", first_us), ("org:acme", "total", first_us)]
    assert await told() == 1
    await alerts.forget_old()
    (day, total) = await kept()
    assert (day[:2], total) == (("org:acme", "day"), ("org:acme", "total", first_us))
    assert day[2] == clock.utc_us()
    assert await told() == 0
    await ledger.close()


def test_a_month_costs_what_it_did_and_the_mean_of_each_weekday_for_what_is_left() -> None:
    today = date(2027, 1, 16)
    by_day = {today - timedelta(days=back): 1000 for back in range(1, 40)} | {today: 400}
    found = forecast(by_day, today)

    assert (found.spent_microusd, found.days_left) == (15_400, 15)
    assert found.expected_microusd == 31_000
    assert forecast({}, today).expected_microusd == 0
    assert "no day before today" in forecast({today: 5000}, today).method
    assert forecast({today - timedelta(days=1): 1}, today).method.endswith("in the day before")
    assert forecast({today: 5000}, date(2027, 1, 31)).days_left == 0


def test_on_a_months_first_day_nothing_is_spent_but_todays_and_all_of_it_is_to_come() -> None:
    """A day of 23 or 25 hours is a day."""
    today = date(2026, 11, 1)
    by_day = {today - timedelta(days=back): 1000 for back in range(1, 40)} | {today: 400}
    found = forecast(by_day, today)

    assert (found.spent_microusd, found.expected_microusd, found.days_left) == (400, 30_000, 29)
    assert forecast(by_day | {today: 5000}, today).expected_microusd == 5000 + 29_000


def test_a_weekday_costs_what_that_weekday_did_since_there_is_anything() -> None:
    today = date(2027, 1, 16)
    first = today - timedelta(days=9)
    by_day = {first - timedelta(days=7): 0, first: 3000, first + timedelta(days=7): 1000}
    found = expected(by_day, today, today + timedelta(days=12))

    alike = {day: cost for day, cost in found.items() if day.weekday() == first.weekday()}
    assert set(alike.values()) == {2000}
    assert sum(found.values()) == sum(alike.values())


def test_a_weekday_that_never_was_costs_the_mean_of_the_days_there_were() -> None:
    today = date(2027, 1, 16)
    by_day = {today - timedelta(days=back): back * 1000 for back in (1, 2, 3)} | {today: 500}

    assert list(expected(by_day, today, today + timedelta(days=1)).values()) == [1500, 2000]


def test_a_budget_is_used_up_on_the_day_that_takes_the_last_of_it() -> None:
    today = date(2027, 1, 16)
    by_day = {today - timedelta(days=back): 1000 for back in range(1, 29)} | {today: 400}
    week = today + timedelta(days=7)
    for left, days in ((0, 0), (600, 0), (601, 1), (1600, 1), (1601, 2), (7600, 7)):
        assert exhausted_on(by_day, today, left, week) == today + timedelta(days=days)

    assert exhausted_on(by_day, today, 7601, week) is None


def test_an_amount_in_another_currency_says_its_rates_date() -> None:
    currencies = {"INR": CurrencySettings("84.1", "2026-11-20")}

    assert shown(1_500_000, "USD", {}) == "1.50 USD"
    assert shown(1_500_000, "INR", currencies) == "126.15 INR (rate of 2026-11-20)"
    with pytest.raises(RequestInvalid):
        shown(1, "EUR", currencies)
