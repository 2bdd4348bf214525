"""What the table of cost stands by, and that a phone shows it without scrolling to the side."""

import html
import re
from typing import Any

import msgspec
import pytest

from tests.admin.chromium import window
from tests.admin.costs.test_dear_hours import hourly, watched
from tests.admin.costs.test_unusual import ROOM, bill, see
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import PASSWORD, issue, person


pytestmark = pytest.mark.anyio
COSTS = {"steady": (9, 9, 1), "grown": (8, 1, 1), "shrunk": (6, 30, 1), "busy": (2, 0, 5)}
"""Dollars in these days and in those before, and in how many requests."""
_HEAD = re.compile(r'<th class="number"( aria-sort="descending")?><a href="([^"]+)"[^>]*>(\w+)')


async def spent(listener: Listener) -> dict[str, str]:
    """Names of keys by their ids; the day is that of a listener's clock."""
    names: dict[str, str] = {}
    for name, (now, before, requests) in COSTS.items():
        key = await issue(listener, name)
        names[key] = name
        each = [bill(listener, key, 1, now, request_id=f"req_{name}_0")]
        each += [
            bill(listener, key, 1, 0, request_id=f"req_{name}_{number}")
            for number in range(1, requests)
        ]
        if before:
            each.append(bill(listener, key, 11, before, request_id=f"req_{name}_before"))
        await listener.record(*each)
    await person(listener, "root", "platform_admin")
    return names


async def order(browser: Browser, names: dict[str, str], query: str) -> list[str]:
    path = f"/api/organisations/acme/costs/summary?by=key&{query}"
    found: dict[str, Any] = msgspec.json.decode(await see(browser, path))
    return [names[each["value"]] for each in found["groups"]]


def heads(page: str) -> dict[str, tuple[bool, str]]:
    """Of each head that sorts: whether the table stands by it, and where it leads."""
    return {word: (bool(by), html.unescape(href)) for by, href, word in _HEAD.findall(page)}


@ON_BOTH
async def test_groups_stand_by_cost_by_growth_or_by_requests_and_days_in_order(
    listener: Listener, browser: Browser
) -> None:
    names = await spent(listener)
    await browser.sign_in_as("root", PASSWORD)
    today = msgspec.json.decode(await see(browser, "/api/organisations/acme/costs/summary"))
    until = today["question"]["until"]
    since = f"{until[:8]}{int(until[8:]) - 9:02}"
    days = f"since={since}&until={until}"
    dearest = ["steady", "grown", "shrunk", "busy"]
    assert await order(browser, names, days) == dearest
    assert await order(browser, names, f"{days}&sort=cost") == dearest
    grown = await order(browser, names, f"{days}&sort=growth")
    assert grown == ["grown", "busy", "steady", "shrunk"]
    assert (await order(browser, names, f"{days}&sort=requests"))[0] == "busy"
    answer, _ = await browser.send("GET", f"{ROOM}?{days}&sort=names")
    assert answer.status == 400

    page = await see(browser, f"{ROOM}?by=key&{days}")
    by_growth = heads(page)["Change"][1]
    assert f"by=key&{days}&sort=growth" in by_growth
    page = await see(browser, by_growth)
    assert [word for word, (is_it, _) in heads(page).items() if is_it] == ["Change"]
    shown = re.findall(rf'href="/o/acme/keys/({"|".join(names)})"', page[page.index("By key") :])
    assert [names[key] for key in shown] == grown
    assert f"?by=model&amp;{days}&amp;sort=growth".replace("&amp;", "&") in html.unescape(page)
    assert '<input type="hidden" name="sort" value="growth">' in page
    page = await see(browser, f"{ROOM}?by=day&{days}&sort=growth")
    assert set(heads(page)) == {"Cost", "Requests"}, "a day is compared with none"


@ON_BOTH
async def test_pages_of_a_long_table_go_on_in_its_order(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admin.costs.reader.GROUPS_SHOWN", 1)
    names = await spent(listener)
    await browser.sign_in_as("root", PASSWORD)
    seen, path = [], f"{ROOM}?by=key&sort=growth"
    while path:
        page = await see(browser, path)
        table = page[page.index('aria-label="Cost by key"') :]
        seen += re.findall(rf'href="/o/acme/keys/({"|".join(names)})"', table)
        onward = re.search(r'<a class="button quiet" href="([^"]+)" rel="next"', page)
        path = html.unescape(onward[1]) if onward else ""

    assert [names[key] for key in seen] == ["shrunk", "steady", "grown", "busy"]


WIDE = """() => [...document.querySelectorAll('main .scroll')]
  .filter((each) => each.offsetParent && each.scrollWidth > each.clientWidth)
  .map((each) => `${each.ariaLabel}: ${each.scrollWidth} of ${each.clientWidth}`)"""


async def test_tables_of_cost_fit_a_phone(listener: Listener) -> None:
    await spent(listener)
    wild = await issue(listener, "a night job with quite a long name")
    weeks = [7 * week for week in range(1, 9)]
    await listener.record(*(bill(listener, wild, ago, 1_000) for ago in weeks))
    await listener.record(*(hourly(listener, wild, ago, 1_010) for ago in range(1, 22)))
    await listener.record(hourly(listener, wild, 0, 44_000))
    await watched(listener)
    async with window(listener, width=390) as seen:
        await seen.sign_in("root", PASSWORD)
        for by in ("key", "model", "route", "day"):
            await seen.open(f"{ROOM}?by={by}")
            assert await seen.page.evaluate(WIDE) == [], by
            assert await seen.faults() == [], by
        assert await seen.page.locator("#hours tbody tr").count() > 0
        assert await seen.page.locator("#unusual tbody tr").count() > 0
