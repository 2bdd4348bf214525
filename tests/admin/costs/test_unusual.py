"""Unusually expensive days: found per group, in words, with their traffic and enough history."""

import html
import re
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from gateway.types import AuditRecord, Usage
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import DAY_US, HOUR_US, PASSWORD, issue, person


pytestmark = pytest.mark.anyio
ROOM = "/o/acme/costs"
DOLLAR = 1_000_000


def bill(
    listener: Listener, key_id: str, days_ago: int, dollars: int, **changes: object
) -> AuditRecord:
    """One answered request so many days ago."""
    fields: dict[str, object] = {
        "stage": "outcome",
        "request_id": f"req_{key_id}_{days_ago}_{changes.get('target', '')}",
        "organisation": "acme",
        "utc_us": listener.clock.utc_us() - days_ago * DAY_US,
        "workspace": "research",
        "project": "assistant",
        "key_id": key_id,
        "target": "claude",
        "provider": "managed",
        "jurisdiction": "us",
        "status": "ok",
        "http_status": 200,
        "usage": Usage(100, 100),
        "cost_microusd": dollars * DOLLAR,
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
async def admin(listener: Listener, browser: Browser) -> Browser:
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    return browser


async def see(browser: Browser, path: str) -> str:
    answer, page = await browser.send("GET", path)
    assert answer.status == 200, (path, answer.status, page[-800:])
    return page


async def unusual(browser: Browser, organisation: str = "acme") -> list[dict[str, object]]:
    room = f"/api/organisations/{organisation}/costs/summary"
    page = await see(browser, f"{room}?since=2026-11-20&until=2027-01-20")
    found: list[dict[str, object]] = msgspec.json.decode(page)["unusual"]
    return found


@ON_BOTH
async def test_a_dear_day_is_found_of_all_groups_it_was_dear_for_and_of_no_other(
    listener: Listener, admin: Browser
) -> None:
    steady, wild = await issue(listener, "steady"), await issue(listener, "wild", project="lab")
    weeks = [7 * week for week in range(1, 9)]
    await listener.record(
        *(bill(listener, steady, ago, 40) for ago in (0, *weeks)),
        *(bill(listener, wild, ago, 10, target="house", project="lab") for ago in weeks),
        bill(listener, wild, 0, 90, target="house", project="lab"),
    )
    found = await unusual(admin)

    assert {(each["kind"], each["label"]): each["times"] for each in found} == {
        ("organisation", "acme"): 2.6,
        ("team", "research"): 2.6,
        ("model", "house"): 9.0,
        ("key", "wild"): 9.0,
    }
    page = await see(admin, ROOM)
    weekday = str(found[0]["words"]).rsplit(" ", 2)[1]
    assert f"9.0 times what a {weekday} costs" in page
    assert 'data-mark="4"' in page, "the day has its mark on the chart"
    # The narrowest group that explains it waits for somebody.
    assert f"acme, key wild: 9.0 times what a {weekday} costs" in await see(admin, "/")


async def test_its_traffic_is_that_of_the_group_on_that_day_in_the_organisations_zone(
    listener: Listener, admin: Browser
) -> None:
    key = await issue(listener, "wild")
    weeks = [7 * week for week in range(1, 9)]
    hour_before = listener.clock.utc_us() - HOUR_US
    await listener.record(
        *(bill(listener, key, ago, 10) for ago in weeks),
        bill(listener, key, 0, 50),
        bill(listener, key, 0, 50, request_id="req_second", utc_us=hour_before),
        bill(listener, key, 1, 10, request_id="req_day_before"),
    )
    page = await see(admin, ROOM)
    ways = [html.unescape(way) for way in re.findall(r'href="(/o/acme/traffic\?q=[^"]+)"', page)]
    (of_key,) = {way for way in ways if f"key:{key}" in parse_qs(urlsplit(way).query)["q"][0]}
    traffic = await see(admin, of_key)
    assert "req_second" in traffic
    assert "req_day_before" not in traffic


async def test_with_three_weeks_of_history_or_under_the_floor_nothing_is_said(
    listener: Listener, admin: Browser
) -> None:
    young, small = await issue(listener, "young"), await issue(listener, "small", project="x")
    theirs = await issue(listener, "theirs", organisation="umbrella")
    of_theirs = {"organisation": "umbrella"}
    await listener.record(
        *(bill(listener, young, 7 * week, 10) for week in (1, 2, 3)),
        bill(listener, young, 0, 500),
        *(bill(listener, theirs, 7 * week, 1, **of_theirs) for week in range(1, 9)),
        bill(listener, theirs, 0, 5, **of_theirs),
        bill(listener, small, 0, 0),
    )
    assert await unusual(admin) == []
    assert await unusual(admin, "umbrella") == []
    assert "Unusually expensive days" not in await see(admin, ROOM)
    assert "times what a" not in await see(admin, "/")
