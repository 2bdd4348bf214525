"""`gatewright costs …`: groups, savings with their method, chargeback, forecast, reconciliation."""

import asyncio
import csv
import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.money.costs import list_price
from gateway.secrets.credentials import master_key
from gateway.types import AuditRecord, Usage
from gateway.worker.pricing import configured_targets
from tests.cli.operator import Ended, Operator
from tests.gateway.audit.samples import LIMITS


DAY_US = 86_400_000_000
TOKENS = (1_000_000, 100_000)
LAST_DAYS = ("--since", (datetime.now(UTC) - timedelta(days=9)).strftime("%Y-%m-%d"))
CHEAP, DEAR = "claude-haiku-5-5", "claude-opus-5-5"


async def _record(operator: Operator, records: list[AuditRecord]) -> None:
    settings = load_settings(operator.config_file)
    directory = settings.path(settings.audit.directory)
    log = SegmentedAuditLog(
        directory, "w0", keys=master_key(settings), clock=SystemClock(), limits=LIMITS
    )
    await log.start()
    for each in records:
        await log.append(each)
    await log.close()


def outcome(days_ago: int = 0, **changes: Any) -> AuditRecord:
    fields: dict[str, Any] = {
        "stage": "outcome",
        "request_id": "req_1",
        "organisation": "acme",
        "utc_us": SystemClock().utc_us() - days_ago * DAY_US,
        "workspace": "research",
        "project": "bot",
        "target": CHEAP,
        "status": "ok",
        "http_status": 200,
        "usage": Usage(*TOKENS),
        "cost_microusd": 2_000_000,
    }
    return AuditRecord(**(fields | changes))


@pytest.fixture
def spending(operator: Operator) -> Operator:
    """Five requests of two projects and two organisations within the last week."""
    records = [
        outcome(),
        outcome(1, target=DEAR, cost_microusd=7_000_000),
        outcome(2, project="=HYPERLINK(1)"),
        outcome(3, organisation="globex", cost_microusd=1_000_000),
        outcome(3, status="failed", http_status=502, usage=None, cost_microusd=0),
        outcome(40, cost_microusd=10**9),
    ]
    asyncio.run(_record(operator, records))
    assert operator.config("audit", "export").status == 0  # It brings the projection up to date.
    return operator


def _lines(ended: Ended) -> list[dict[str, Any]]:
    assert ended.status == 0, ended.errors
    return [json.loads(line) for line in ended.output.splitlines()]


def test_a_report_groups_by_any_dimensions_dearest_first(spending: Operator) -> None:
    rows = _lines(spending.config("costs", "report", *LAST_DAYS))
    by_both = _lines(
        spending.config("costs", "report", *LAST_DAYS, "--by", "project", "--by", "target")
    )
    own = _lines(spending.config("costs", "report", *LAST_DAYS, "--organisation", "globex"))

    assert [(each["organisation"], each["requests"], each["cost_microusd"]) for each in rows] == [
        *(("acme", 4, 11_000_000), ("globex", 1, 1_000_000))
    ]
    assert rows[0]["cost"] == "11.00 USD"
    assert rows[0]["input_tokens"] == 3 * TOKENS[0]
    assert by_both[0] == by_both[0] | {"project": "bot", "target": DEAR, "cost_microusd": 7_000_000}
    assert [each["cost_microusd"] for each in own] == [1_000_000]
    assert spending.config("costs", "report", "--by", "shoe_size").status == 2


def test_a_report_is_of_what_each_filter_leaves(spending: Operator) -> None:
    def cost(*only: str) -> int:
        asked = [word for each in only for word in ("--only", each)]
        rows = _lines(spending.config("costs", "report", *LAST_DAYS, "--by", "project", *asked))
        return sum(each["cost_microusd"] for each in rows)

    assert cost(f"target={CHEAP}", "organisation=acme") == 4_000_000
    assert cost(f"target={CHEAP}", f"target={DEAR}") == 12_000_000
    assert cost("status=failed") == 0
    refused = spending.config("costs", "export", "--only", "shoe_size=1")
    assert refused.status == 2
    assert "filter by" in refused.errors


def test_a_report_names_its_days_and_their_time_zone(spending: Operator) -> None:
    first, *_ = _lines(spending.config("costs", "report", *LAST_DAYS))

    assert (first["since"], first["time_zone"]) == (LAST_DAYS[1], "UTC")


def test_days_of_a_report_end_where_it_says(spending: Operator) -> None:
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    rows = _lines(spending.config("costs", "report", "--since", today, "--until", today))

    assert sum(each["cost_microusd"] for each in rows) == 2_000_000


@pytest.mark.parametrize("command", ["report", "export", "savings"])
def test_a_report_may_end_on_the_last_day_there_is(spending: Operator, command: str) -> None:
    assert spending.config("costs", command, "--until", "9999-12-31").status == 0


def test_savings_say_what_was_compared_with_what(spending: Operator) -> None:
    settings = load_settings(spending.config_file)
    targets = {target.name: target for target in configured_targets(settings)}
    (found,) = _lines(spending.config("costs", "savings", *LAST_DAYS))
    (named,) = _lines(spending.config("costs", "savings", *LAST_DAYS, "--baseline", DEAR))

    assert named["cost_microusd"] == 12_000_000
    used = (4 * TOKENS[0], 4 * TOKENS[1])
    assert named["baseline_microusd"] == list_price(targets[DEAR].price, *used)
    assert named["saved_microusd"] == named["baseline_microusd"] - 12_000_000
    assert f"the list price of {DEAR} (as of {targets[DEAR].price.as_of})" in named["method"]
    assert "less what was paid" in named["method"]
    assert found["baseline_microusd"] >= named["baseline_microusd"]
    assert "there is no target" in spending.config("costs", "savings", "--baseline", "x").errors


def test_a_chargeback_is_csv_that_no_spreadsheet_runs(spending: Operator) -> None:
    ended = spending.config("costs", "export", *LAST_DAYS, "--organisation", "acme")
    header, *lines = csv.reader(io.StringIO(ended.output))

    assert header[:4] == ["organisation", "workspace", "project", "requests"]
    assert [line[2] for line in lines] == ["bot", "'=HYPERLINK(1)"]
    assert sum(int(line[header.index("cost_microusd")]) for line in lines) == 11_000_000


def test_a_forecast_is_what_was_spent_and_what_the_days_left_will_cost(
    spending: Operator,
) -> None:
    (found,) = _lines(spending.config("costs", "forecast", "--organisation", "acme"))
    today = datetime.now(UTC).date()
    next_month = (today.replace(day=1) + timedelta(days=32)).replace(day=1)
    days = [today - timedelta(days=back) for back in (0, 1, 2)]
    spent = dict(zip(days, (2_000_000, 7_000_000, 2_000_000), strict=True))

    assert found["days_left"] == (next_month - today).days - 1
    assert found["spent_microusd"] == sum(
        cost for day, cost in spent.items() if day.month == today.month
    )
    assert found["expected_microusd"] >= found["spent_microusd"]
    assert "the mean of that weekday" in found["method"]


def test_another_currency_is_shown_with_the_date_of_its_rate(spending: Operator) -> None:
    with spending.config_file.open("a") as file:
        file.write('\n[currencies.INR]\nper_usd = "84.1"\nas_of = "2026-11-20"\n')
    rows = _lines(spending.config("costs", "report", *LAST_DAYS, "--currency", "INR"))

    assert rows[0]["cost"] == "925.10 INR (rate of 2026-11-20)"
    assert rows[0]["cost_microusd"] == 11_000_000
    assert "EUR" in spending.config("costs", "report", "--currency", "EUR").errors


def test_reconciliation_names_each_window_that_differs(spending: Operator) -> None:
    for window in ("day", "total"):
        spending.config("budgets", "set", "org:globex", "5000000", "--window", window)
    before = spending.config("costs", "reconcile")
    asyncio.run(_record(spending, [outcome(organisation="globex", cost_microusd=4)]))
    spending.config("audit", "export")
    at_once = spending.config("costs", "reconcile")
    later = SystemClock().utc_us() + 120_000_000
    asyncio.run(_record(spending, [outcome(utc_us=later, organisation="globex", cost_microusd=3)]))
    spending.config("audit", "export")
    ended = spending.config("costs", "reconcile")
    day, total = [json.loads(line) for line in ended.output.splitlines()]

    assert before.status == 0, "what was spent before a limit was set is not held against it"
    assert json.loads(at_once.output.splitlines()[0])["unheard_microusd"] == 4
    assert at_once.status == 0, "nor what was let through before anybody heard of it"
    assert day["unheard_microusd"] == 4
    assert (day["window"], day["difference_microusd"]) == ("day", -7)
    assert (total["window"], total["difference_microusd"]) == ("total", -7)
    assert ended.status == 1


@pytest.mark.parametrize("command", ["report", "export"])
def test_days_in_the_wrong_order_and_money_nobody_has_are_refused_before_there_is_any(
    operator: Operator, command: str
) -> None:
    days = ("--since", "2026-02-02", "--until", "2026-02-01")
    refused = operator.config("costs", command, *days)
    said = "gatewright: --since: 2026-02-02 is after 2026-02-01, the last day\n"
    assert (refused.status, refused.errors) == (2, said)
    refused = operator.config("costs", command, "--currency", "ZZZ")
    assert (refused.status, refused.output) == (2, "")
    assert refused.errors.startswith("gatewright: ZZZ: ")
