"""Whoever is asked what money was says the same: log, reports, budgets, pages, counters.

Over random histories. Where they differ, "What says the same" in docs/operations/costs.md says
why, and here it is counted to the micro-dollar: a crash takes what lay idle in a slice from budgets
alone, and what no worker ended is in no worker's counters.
"""

import csv
import io
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import msgspec
import pytest

from admin.costs.reader import GROUPS
from gateway.identity import Peppers
from gateway.money.costs import Days, chargeback, dearest, savings
from gateway.oversight.homes import BY_LABEL
from gateway.price import Price
from gateway.secrets.credentials import pepper
from gateway.store.engine import Database
from gateway.store.identity.keys import KeyStore
from gateway.store.money.dimensions import DIMENSIONS
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.traffic.rollup import Rollup
from gateway.types import AuditRecord, Target
from tests.admin.costs.ledgered_house import ZONES, House, Idle
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import PASSWORD, person


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]
END_OF_A_MONTH = datetime(2027, 1, 30, 20, tzinfo=UTC)
CLOCKS_GO_BACK = datetime(2027, 11, 6, 20, tzinfo=UTC)  # On the seventh in New York.
EVER = (date(2026, 1, 1), date(2028, 12, 31))
COUNTED = ("requests", "input_tokens", "output_tokens", "cost_microusd")
Row = dict[str, Any]


def target(name: str, provider: str, place: str, tier: str, prices: tuple[int, int]) -> Target:
    price = Price(*prices, 100_000, 1_250_000, 2_000_000, 50, "a list", "2027-01-01")
    capabilities = frozenset({"embeddings"} if name == "vectors" else {"streaming"})
    is_ours = place == "in-house"
    return Target(
        *(name, provider, name, place, is_ours, tier, price, 100_000, 10_000, capabilities)  # type: ignore[arg-type]
    )


def targets(dearer: int = 1) -> dict[str, Target]:
    """At the prices of one file or another."""
    million = 1_000_000 * dearer
    return {
        each.name: each
        for each in (
            target("house", "engine", "in-house", "cheap", (0, 0)),
            target("claude", "managed", "us", "frontier", (3 * million, 15 * million)),
            target("vectors", "managed", "us", "cheap", (20_000, 0)),
        )
    }


@asynccontextmanager
async def housed(listener: Listener, starts: datetime) -> AsyncIterator[tuple[House, Database]]:
    listener.clock.advance(starts.timestamp() - listener.clock.utc_us() / 1e6)
    async with listener.database() as database:
        keys = KeyStore(database, Peppers({1: pepper(listener.settings)}), listener.clock)
        house = House(database, listener.clock, keys, targets())
        await house.found()
        yield house, database


def said(record: AuditRecord, name: str, zone: str, labels: dict[str, str]) -> str:
    """What a record says of a dimension, by hand."""
    at = datetime.fromtimestamp(record.utc_us / 1e6, UTC).astimezone(ZoneInfo(zone))
    is_ours, is_refused = record.jurisdiction == "in-house", record.status == "refused"
    tier = record.usage.service_tier if record.usage else ""
    route = "refused" if is_refused else "in-house" if is_ours else "managed"
    return {
        "app": f"{record.workspace}/{record.project}",
        "key": record.key_id,
        "label": labels[record.key_id],
        "end_user": record.subject,
        "model": record.model_requested,
        "route": route if record.target or is_refused else "",
        "policy": record.policy_digest,
        "finding": " ".join(sorted(record.findings)),
        "tier": tier if tier != "default" else "",
        "cache": record.detail.get("cache", ""),
        "batch": record.detail.get("batch", ""),
        "hour": at.replace(minute=0, second=0, microsecond=0).isoformat(timespec="minutes"),
        "day": str(at.date()),
        "month": str(at.date())[:7],
    }.get(name) or str(getattr(record, name, ""))


def by_hand(
    records: Iterable[AuditRecord], names: Sequence[str], zone: str, labels: dict[str, str]
) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Requests, tokens and micro-dollars of each group, of the records one by one."""
    found: dict[tuple[str, ...], tuple[int, ...]] = {}
    for record in records:
        group = tuple(said(record, name, zone, labels) for name in names)
        tokens = record.usage.input_tokens if record.usage else 0
        answered = record.usage.output_tokens if record.usage else 0
        numbers = (1, tokens, answered, record.cost_microusd)
        known = found.get(group, (0, 0, 0, 0))
        found[group] = tuple(one + more for one, more in zip(known, numbers, strict=True))
    return found


def grouped(rows: Iterable[Row], names: Sequence[str]) -> dict[tuple[str, ...], tuple[int, ...]]:
    return {
        tuple(str(row[name]) for name in names): tuple(int(row[each]) for each in COUNTED)
        for row in rows
    }


async def ask(browser: Browser, path: str) -> Any:
    answer, text = await browser.send("GET", path)
    assert answer.status == 200, (path, text[-500:])
    return msgspec.json.decode(text)


async def reports_are_right(
    house: House, database: Database, browser: Browser, draw: random.Random, zones: dict[str, str]
) -> None:
    """Over the command line's reader, its chargeback, the JSON API, the page's file and summary."""
    labels = {each.key_id: "" for each in house.askers}
    for number, each in enumerate(house.askers):
        labels[each.key_id] = f"cost:{number // 3 % 2}" if number >= 3 else ""
    reader = SpendingReader(database, BY_LABEL)
    days = {"since": str(EVER[0]), "until": str(EVER[1])}
    pairs = [list(draw.sample(DIMENSIONS, 2)) for _ in range(8)]
    for organisation, zone in zones.items():
        own = [each for each in house.outcomes if each.organisation == organisation]
        for names in [[], *([name] for name in DIMENSIONS), *pairs]:
            expected = by_hand(own, names, zone, labels)
            rows = await reader.totals(Period(0, 1 << 62, organisation), names)
            text = chargeback(rows, names, "USD", {}, Days(*EVER, zone))
            lines = list(csv.DictReader(io.StringIO(text)))
            assert grouped(lines, names) == {
                tuple(f"'{value}" if value.startswith("=") else value for value in group): numbers
                for group, numbers in expected.items()
            }
            whole = sum(int(each["cost_microusd"]) for each in lines)
            assert sum(Decimal(each["amount"]) for each in lines) == round(
                Decimal(whole) / 10**6, 2
            )
            read = [{**dict(zip(names, r.group, strict=True)), **_numbers(r)} for r in rows]
            assert grouped(read, names) == expected, names
            if names:
                path = f"/api/organisations/{organisation}/costs"
                query = urlencode([*days.items(), *(("by", name) for name in names)])
                report = await ask(browser, f"{path}?{query}")
                assert (report["time_zone"], grouped(report["rows"], names)) == (zone, expected)
    everything = await reader.totals(Period(0, 1 << 62), ["organisation"])
    assert grouped(
        [{"organisation": r.group[0], **_numbers(r)} for r in everything], ["organisation"]
    ) == by_hand(house.outcomes, ["organisation"], "UTC", labels)


def _numbers(row: Any) -> Row:
    return {each: getattr(row, each) for each in COUNTED}


async def pages_are_right(house: House, browser: Browser, zones: dict[str, str]) -> None:
    """Each tab of the page of cost, and its file."""
    columns = {"team": "workspace", "model": "target", "route": "jurisdiction"}
    for organisation, zone in zones.items():
        own = [each for each in house.outcomes if each.organisation == organisation]
        today = datetime.fromtimestamp(house.clock.utc_us() / 1e6, ZoneInfo(zone)).date()
        query = f"since={today - timedelta(days=390)}&until={today}"
        (expected,) = by_hand(own, [], zone, {}).values()
        for by in GROUPS:
            name = columns.get(by, by)
            groups = by_hand(own, [name], zone, {each.key_id: "" for each in house.askers})
            path = f"/api/organisations/{organisation}/costs/summary?by={by}&{query}"
            found = await ask(browser, path)
            assert {
                (each["value"],): tuple(each[number] for number in COUNTED)
                for each in found["groups"]
            } == {(group[0].strip("/"),): numbers for group, numbers in groups.items()}, by
            assert tuple(found["total"][each] for each in COUNTED) == expected
            _, text = await browser.send(
                "GET", f"/o/{organisation}/costs/export.csv?by={by}&{query}"
            )
            lines = list(csv.DictReader(io.StringIO(text)))
            assert sum(int(each["cost_microusd"]) for each in lines) == expected[-1]
            assert {each["time_zone"] for each in lines} == {zone}
        budgets = await ask(browser, f"/api/organisations/{organisation}/budgets")
        shown = {
            (b["limit"]["account"], b["limit"]["window"]): b["spent_microusd"] for b in budgets
        }
        stored = {each.limit.key: each.spent_microusd for each in await house.table.budgets()}
        assert shown == {key: stored[key] for key in shown}  # type: ignore[index]
        assert (f"org:{organisation}", "month") in shown


async def counters_are_right(house: House) -> None:
    """What workers counted is what they ended themselves, by target."""
    counted: Counter[str] = Counter()
    for metrics in house.metrics:
        for family in metrics.requests.collect():
            for sample in family.samples:
                if sample.name == "gatewright_cost_microusd_total":
                    counted[sample.labels["target"]] += round(sample.value)
    ended: Counter[str] = Counter()
    elsewhere = {each.request_id for each in house.written_elsewhere}
    for each in house.outcomes:
        if each.target and each.request_id not in elsewhere:
            ended[each.target] += each.cost_microusd
    assert counted == ended


async def budgets_are_right(house: House, database: Database, idle: Idle) -> None:
    """Of each account and window, by what was let through in it; `idle` is what crashes took."""
    begun = {each.request_id: each.utc_us for each in house.records if each.stage == "intent"}
    spent: dict[tuple[str, str], int] = {}
    for budget in await house.table.budgets(None):
        (account, window), start_us = budget.limit.key, budget.window_start_us
        owed = sum(
            each.cost_microusd
            for each in house.outcomes
            if account in _accounts_of(each) and begun.get(each.request_id, 0) >= start_us
        )
        assert budget.leased_microusd == 0
        assert budget.spent_microusd == owed + idle.get((account, window, start_us), 0), account
        spent[account, window] = budget.spent_microusd
    assert {account for asker in house.askers for account in asker.accounts} >= {
        account for account, _ in spent if not account.endswith("/*")
    }
    assert sum(spent.values()) > 0
    starts = {each.limit.key: each.window_start_us for each in await house.table.last_windows()}
    for each in await SpendingReader(database, BY_LABEL).differences():
        taken = idle.get((each.account, each.window, starts[each.account, each.window]), 0)  # type: ignore[index]
        assert each.ledger_microusd - each.audit_microusd == taken, each


def _accounts_of(record: AuditRecord) -> set[str]:
    path = (record.organisation, record.workspace, record.project)
    levels = {f"{level}:{'/'.join(path[:n])}" for n, level in ((1, "org"), (2, "ws"), (3, "proj"))}
    return levels | {f"key:{record.key_id}", f"user:{record.organisation}/{record.subject}"}


@pytest.mark.long
@ON_BOTH
@pytest.mark.parametrize("starts", [END_OF_A_MONTH, CLOCKS_GO_BACK], ids=["month", "clocks"])
async def test_everybody_says_the_same_of_a_history_without_a_crash(
    listener: Listener, browser: Browser, starts: datetime
) -> None:
    draw = random.Random(str(starts))
    async with housed(listener, starts) as (house, database):
        await house.live(draw, 12)
        await house.refuse(draw)
        await house.book_late(draw)
        await house.store()
        await Rollup(database, house.clock).catch_up()
        zones = ZONES | {"acme": "Pacific/Auckland"}
        await house.table.set_time_zone("acme", zones["acme"])
        house.reprice(targets(dearer=3))
        await house.live(draw, 12)
        await house.book_late(draw)
        await house.close()
        await house.store()
        await person(listener, "root", "platform_admin")
        await browser.sign_in_as("root", PASSWORD)
        await reports_are_right(house, database, browser, draw, zones)
        await pages_are_right(house, browser, zones)
        await counters_are_right(house)
        await budgets_are_right(house, database, {})


@ON_BOTH
async def test_a_crash_takes_from_budgets_what_lay_idle_and_nothing_else(
    listener: Listener, browser: Browser
) -> None:
    draw = random.Random(5)
    async with housed(listener, END_OF_A_MONTH) as (house, database):
        await house.live(draw, 10)
        await house.begin(draw, worker=0)
        idle = await house.crash()
        await house.live(draw, 3)
        await house.close()
        await house.store()
        assert sum(idle.values()) > 0
        assert house.written_elsewhere
        await person(listener, "root", "platform_admin")
        await browser.sign_in_as("root", PASSWORD)
        await pages_are_right(house, browser, ZONES)
        await counters_are_right(house)
        await budgets_are_right(house, database, idle)


@ON_BOTH
async def test_savings_and_a_forecast_are_what_the_records_add_up_to(
    listener: Listener, browser: Browser
) -> None:
    """Embeddings are compared with nothing; the forecast is written out once more here."""
    draw = random.Random(3)
    async with housed(listener, END_OF_A_MONTH) as (house, database):
        await house.live(draw, 15)
        await house.close()
        await house.store()
        own = [each for each in house.outcomes if each.organisation == "acme"]
        known = targets()
        rows = await SpendingReader(database, BY_LABEL).totals(
            Period(0, 1 << 62, "acme"), ["target"]
        )
        chats = [each for each in own if each.target != "vectors"]
        assert len(chats) < len(own)
        found = savings(rows, known.values(), dearest(known.values()))
        assert found.cost_microusd == sum(each.cost_microusd for each in chats)
        tokens = [sum(numbers) for numbers in zip(*map(_tokens, chats), strict=True)]
        assert found.baseline_microusd == -(-(3 * tokens[0] + 15 * tokens[1]) // 1)
        await person(listener, "root", "platform_admin")
        await browser.sign_in_as("root", PASSWORD)
        zone = ZoneInfo(ZONES["acme"])
        today = datetime.fromtimestamp(house.clock.utc_us() / 1e6, zone).date()
        spent: Counter[date] = Counter()
        for each in own:
            spent[datetime.fromtimestamp(each.utc_us / 1e6, zone).date()] += each.cost_microusd
        forecast = await ask(browser, "/api/organisations/acme/costs/forecast")
        summary = await ask(browser, "/api/organisations/acme/costs/summary")
        so_far = sum(cost for day, cost in spent.items() if day.month == today.month)
        for said_of in (forecast, summary["forecast"]):
            assert said_of["spent_microusd"] == so_far
            assert said_of["expected_microusd"] == so_far + _ahead(spent, today)


def _ahead(spent: Counter[date], today: date) -> int:
    """What today and the rest of its month are still to cost."""
    past = [today - timedelta(days=back) for back in range(1, 29)]
    first = min(day for day, cost in spent.items() if cost)
    known = [day for day in past if day >= first]
    last = (today.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    total, day = 0, today
    while day <= last:
        same = [spent[each] for each in known if each.weekday() == day.weekday()]
        same = same or [spent[each] for each in known]
        mean = sum(same) // len(same) if same else 0
        total += max(mean - spent[today], 0) if day == today else mean
        day += timedelta(days=1)
    return total


def _tokens(record: AuditRecord) -> tuple[int, int]:
    usage = record.usage
    return (usage.input_tokens, usage.output_tokens) if usage else (0, 0)
