"""Overview, cost, traffic and the exported log say the same of the same time, to the unit."""

import csv
import io
import re
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from html import unescape
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from anyio import to_thread

from gateway.types import AuditRecord, Usage
from tests.admin.listener import Browser, Listener
from tests.admin.seeding import HOUR_US, PASSWORD, issue, person, requests
from tests.cli.operator import Operator


pytestmark = pytest.mark.anyio
FAILED = {"target": "", "provider": "", "jurisdiction": "", "usage": None, "cost_microusd": 0}
"""Of what no model answered."""
STATUSES = ("ok", "refused", "failed", "incomplete", "cancelled")


def seeded(listener: Listener, key_id: str) -> list[AuditRecord]:
    """Of three days, every way in which a request ends: also before and while a model answers."""
    found = requests(listener, key_id, 60, over_us=71 * HOUR_US)
    endings: tuple[dict[str, Any], ...] = (
        FAILED | {"status": "failed", "http_status": 503, "error": "upstream_refused"},
        FAILED | {"status": "cancelled", "http_status": 499, "error": "client_gone"},
        FAILED | {"status": "refused", "http_status": 404, "error": "model_not_found"},
        {"status": "incomplete", "http_status": 200, "usage": Usage(70, 8), "cost_microusd": 13},
        {"status": "cancelled", "http_status": 499, "usage": Usage(70, 3), "cost_microusd": 7},
        # A model answered, and a rule let nobody read it.
        {"status": "refused", "http_status": 403, "usage": Usage(70, 9), "cost_microusd": 21},
    )
    for number, ending in enumerate(endings):
        some = requests(
            listener,
            key_id,
            5 + number,
            over_us=(20 + number) * HOUR_US,
            **{"target": "claude", "provider": "managed", "jurisdiction": "us"} | ending,
        )
        found += [
            msgspec.structs.replace(each, request_id=f"{each.request_id}_{number}") for each in some
        ]
    return found


async def read(browser: Browser, path: str, **query: str) -> Any:
    answer, text = await browser.send("GET", f"{path}?{urlencode(query)}")
    assert answer.status == 200, text[-500:]
    return msgspec.json.decode(text)


async def traffic(browser: Browser, q: str) -> list[dict[str, Any]]:
    """All rows that a filter finds, page by page."""
    rows: list[dict[str, Any]] = []
    before = ""
    while True:
        query = {"q": q} | ({"before": before} if before else {})
        page = await read(browser, "/api/organisations/acme/traffic", **query)
        rows += page["rows"]
        before = page["before"]
        if not before:
            return rows


def facet(page: str, title: str) -> dict[str, int]:
    """What a facet counts, by value."""
    part = page[page.index(f"<h2>{title}</h2>") :]
    pairs = re.findall(
        r'<span class="cut">([^<]+)</span><[^>]*>(\d+)', part[: part.index("</div>")]
    )
    return {value: int(count) for value, count in pairs}


async def exported(operator: Operator, since_us: int) -> list[dict[str, Any]]:
    """The outcomes of acme since then, as `gatewright audit export` writes them."""
    command = ("audit", "export", "--organisation", "acme", "--config", operator.config_file)
    ended = await to_thread.run_sync(partial(operator.starts, *command))
    assert ended.status == 0, ended.errors
    lines = [msgspec.json.decode(line) for line in ended.output.splitlines()]
    records = [line.get("record", line) for line in lines]
    return [r for r in records if r["stage"] == "outcome" and r["utc_us"] >= since_us]


def route(record: dict[str, Any]) -> str:
    """Where a record of the exported log went."""
    if record["status"] == "refused":
        return "refused"
    place = record["jurisdiction"]
    return "in_house" if place == "in-house" else "managed" if place else "unanswered"


async def leads_to_what_it_counts(
    browser: Browser, day: list[dict[str, Any]], since_us: int
) -> None:
    """The page's figures, and the same requests in traffic."""
    _, page = await browser.send("GET", "/")
    links = [unescape(each) for each in re.findall(r'class="value"><a href="([^"]+)">', page)]
    assert len(links) == 2
    for link, expected in zip(links, (day, [r for r in day if r["findings"]]), strict=True):
        answer, listed = await browser.send("GET", link)
        assert answer.status == 200
        outcomes = Counter(each["status"] for each in expected)
        assert facet(listed, "Outcome") == dict(outcomes), link
        assert f"Counted over all {len(expected)} that" in listed
    since = f'since:"{datetime.fromtimestamp(since_us / 1e6, UTC):%Y-%m-%dT%H:%MZ}"'
    rows = await traffic(browser, since)
    assert sum(row["cost_microusd"] for row in rows) == sum(each["cost_microusd"] for each in day)
    words = {"in-house": "in_house", "": "unanswered"}
    assert Counter(words.get(row["route"], row["route"]) for row in rows) == Counter(
        map(route, day)
    )
    assert {each["status"] for each in day} == set(STATUSES)


async def costs_the_same(browser: Browser, log: list[dict[str, Any]]) -> None:
    """The cost of the same three days, by every route, as a page and as a file."""
    days = [f"{datetime.fromtimestamp(e['utc_us'] / 1e6, UTC):%Y-%m-%d}" for e in log]
    span = {"by": "route", "since": min(days), "until": max(days)}
    costs = await read(browser, "/api/organisations/acme/costs/summary", **span)
    _, text = await browser.send("GET", f"/o/acme/costs/export.csv?{urlencode(span)}")
    lines = list(csv.DictReader(io.StringIO(text)))
    for place in {each["jurisdiction"] for each in log}:
        mine = [each for each in log if each["jurisdiction"] == place]
        (group,) = (each for each in costs["groups"] if each["value"] == place)
        cost = sum(each["cost_microusd"] for each in mine)
        assert (group["requests"], group["cost_microusd"]) == (len(mine), cost)
    assert costs["total"]["cost_microusd"] == sum(e["cost_microusd"] for e in log)
    assert sum(int(line["cost_microusd"]) for line in lines) == costs["total"]["cost_microusd"]
    assert sum(int(line["requests"]) for line in lines) == len(log)
    # What no model answered is not called refused: some of it failed.
    _, page = await browser.send("GET", f"/o/acme/costs?{urlencode(span)}")
    ended = Counter(each["status"] for each in log if not each["jurisdiction"])
    failed = ended["failed"] + ended["incomplete"]
    others = ended.total() - ended["refused"] - failed
    assert costs["unanswered"] == {
        "refused": ended["refused"],
        "failed": failed,
        "others": others,
    }
    assert ended["refused"]
    assert failed
    told = f"none: {ended['refused']} refused, {failed} failed"
    assert (f"{told}, {others} other" if others else told) in page


async def test_overview_cost_traffic_and_the_exported_log_say_the_same(
    listener: Listener,
    browser: Browser,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    listener.clock.advance(HOUR_US / 2e6)
    await listener.record(*seeded(listener, await issue(listener, "busy")))
    await person(listener, "carl", "compliance", "acme")
    await browser.sign_in_as("carl", PASSWORD)
    overview = await read(browser, "/api/overview")
    since_us = overview["since_us"]
    operator = Operator(listener.folder, monkeypatch, capsys)

    # The 72 hours of the chart, hour by hour, and the day of the figures above it.
    log = await exported(operator, overview["hours"][0]["start_us"])
    hours = Counter((each["utc_us"] // HOUR_US * HOUR_US, route(each)) for each in log)
    shown = {
        (hour["start_us"], name): hour[name]
        for hour in overview["hours"]
        for name in ("in_house", "managed", "refused", "unanswered")
        if hour[name]
    }
    assert shown == dict(hours)
    day = [each for each in log if each["utc_us"] >= since_us]
    routes = Counter(map(route, day))
    assert min(routes[name] for name in ("in_house", "managed", "refused", "unanswered")) > 0
    assert overview["requests"]["value"] == len(day) < len(log)
    assert overview["cost"]["value"] == sum(each["cost_microusd"] for each in day)
    assert overview["found"]["value"] == sum(bool(each["findings"]) for each in day)
    assert overview["refused"] == routes["refused"]
    answered = routes["in_house"] + routes["managed"]
    assert overview["sovereign"]["value"] == pytest.approx(routes["in_house"] / answered)

    await leads_to_what_it_counts(browser, day, since_us)
    await costs_the_same(browser, log)
