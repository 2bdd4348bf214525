"""Every page, figure, filter and file calls the same requests in-house, whatever labels say.

An engine with a label of its own, a pool, an engine and a vendor that share a label, and a server
that somebody labelled `in-house` although it is none of ours.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest

from gateway.oversight.homes import homes_of
from gateway.store.traffic.spans import TrafficSpans
from gateway.types import AuditRecord, Usage
from tests.admin.listener import Browser, Listener
from tests.admin.seeding import HOUR_US, PASSWORD, issue, person


pytestmark = pytest.mark.anyio
PROVIDERS = """
[providers.frankfurt]
kind = "engine"
base_url = "http://127.0.0.1:2"
jurisdiction = "de"
[providers.vendor]
kind = "openai_compatible"
base_url = "https://vendor.example"
jurisdiction = "de"
[providers.lab]
kind = "engine"
base_url = "http://127.0.0.1:3"
jurisdiction = "lab"
[providers.labs]
kind = "pool"
members = ["lab"]
jurisdiction = "lab"
[providers.nearby]
kind = "openai_compatible"
base_url = "https://nearby.example"
jurisdiction = "in-house"
"""
LABELS = {
    "engine": "in-house",
    "frankfurt": "de",
    "labs": "lab",
    "vendor": "de",
    "nearby": "in-house",
    "managed": "us",
}
COUNTS = {"engine": 1, "frankfurt": 2, "labs": 3, "vendor": 4, "nearby": 5, "managed": 6}
HOME = COUNTS["engine"] + COUNTS["frankfurt"] + COUNTS["labs"]
MANAGED = COUNTS["vendor"] + COUNTS["nearby"] + COUNTS["managed"]
ROUTES = {"in-house": HOME, "managed": MANAGED}
FACET = re.compile(r'<span class="cut">([^<]+)</span><[^>]*>(\d+)')


@pytest.fixture
async def listener(tmp_path: Path, listener_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, listener_url, PROVIDERS) as running:
        running.clock.advance(HOUR_US / 2e6)
        await running.record(*outcomes(running, await issue(running, "busy")))
        await person(running, "carl", "compliance", "acme")
        yield running


def outcomes(listener: Listener, key_id: str) -> list[AuditRecord]:
    """All of this hour, each with personal data in it."""
    now_us = listener.clock.utc_us()
    return [
        AuditRecord(
            "outcome",
            f"req_{provider}_{number}",
            "acme",
            now_us - number * 1_000_000,
            workspace="research",
            project="assistant",
            key_id=key_id,
            model_requested="auto",
            target=f"at-{provider}",
            provider=provider,
            jurisdiction=LABELS[provider],
            findings={"IN_PAN": 1},
            status="ok",
            http_status=200,
            usage=Usage(10, 10),
            cost_microusd=100,
        )
        for provider, count in COUNTS.items()
        for number in range(count)
    ]


async def read(browser: Browser, path: str, **query: str) -> Any:
    answer, text = await browser.send("GET", f"{path}?{urlencode(query)}")
    assert answer.status == 200, text[-500:]
    return msgspec.json.decode(text)


async def test_traffic_lists_filters_and_files_agree(listener: Listener, browser: Browser) -> None:
    await browser.sign_in_as("carl", PASSWORD)
    path = "/api/organisations/acme/traffic"
    rows = (await read(browser, path, q=""))["rows"]
    assert Counter(row["route"] for row in rows) == ROUTES
    for route, count in ROUTES.items():
        found = (await read(browser, path, q=f"route:{route} -pii:NONE"))["rows"]
        assert (len(found), {row["route"] for row in found}) == (count, {route})
        others = (await read(browser, path, q=f"-route:{route}"))["rows"]
        assert len(others) == HOME + MANAGED - count
    for query in ("", "since:2h"):
        _, page = await browser.send("GET", f"/o/acme/traffic?{urlencode({'q': query})}")
        part = page[page.index("<h2>Route</h2>") :]
        counted = FACET.findall(part[: part.index("</div>")])
        assert {value: int(count) for value, count in counted} == ROUTES
    asked = urlencode({"q": "route:managed", "form": "csv"})
    _, text = await browser.send("GET", f"/o/acme/traffic/export?{asked}")
    assert Counter(r["route"] for r in csv.DictReader(io.StringIO(text))) == {"managed": MANAGED}


@pytest.mark.parametrize("provider", LABELS)
async def test_a_requests_story_says_the_same(
    listener: Listener, browser: Browser, provider: str
) -> None:
    await browser.sign_in_as("carl", PASSWORD)
    told = await read(browser, f"/api/organisations/acme/traffic/req_{provider}_0")
    home = provider in ("engine", "frankfurt", "labs")
    assert told["route"] == ("in-house" if home else "managed")


async def test_overview_and_costs_agree(listener: Listener, browser: Browser) -> None:
    await browser.sign_in_as("carl", PASSWORD)
    overview = await read(browser, "/api/overview")
    hours = overview["hours"]
    assert sum(hour["in_house"] for hour in hours) == HOME
    assert sum(hour["managed"] for hour in hours) == MANAGED
    assert overview["sovereign"]["value"] == pytest.approx(HOME / (HOME + MANAGED))
    costs = await read(browser, "/api/organisations/acme/costs/summary", by="route")
    assert _added(costs["groups"], "label") == ROUTES
    _, text = await browser.send("GET", "/o/acme/costs/export.csv?by=route")
    assert _added(csv.DictReader(io.StringIO(text)), "name") == ROUTES
    _, page = await browser.send("GET", "/o/acme/costs?by=route")
    assert page.count('class="chip managed"') == page.count('class="chip in-house"') == 3
    report = await read(browser, "/api/organisations/acme/costs", by="route")
    assert _added(report["rows"], "route") == ROUTES
    only = await read(browser, "/api/organisations/acme/costs", by="provider", only="route=managed")
    assert {row["provider"] for row in only["rows"]} == {"vendor", "nearby", "managed"}


async def test_a_policys_outcomes_and_a_checklist_agree(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in_as("carl", PASSWORD)
    await read(browser, "/api/overview")  # Adds up what was recorded.
    now_us = listener.clock.utc_us()
    async with listener.database() as database:
        spans = TrafficSpans(database, homes_of(listener.settings.providers))
        found = await spans.span("acme", (), now_us - HOUR_US, now_us + HOUR_US)
    assert (found.in_house, found.reached) == (HOME, HOME + MANAGED)
    at = "/api/organisations/acme/compliance/obligations"
    order = {"regimes": ["gdpr"], "reason": "as the board decided", "seen": 0}
    answer, _ = await browser.send("POST", at, body=msgspec.json.encode(order).decode())
    assert answer.status == 201
    _, page = await browser.send("GET", "/o/acme/compliance/obligations")
    assert "content may go to (jurisdiction): de, in-house, us." in page


def _added(rows: Any, name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in rows:
        found[row[name]] += int(row["requests"])
    return found
