"""Unusually expensive hours on the pages: with the figures that judged them, and their traffic."""

import html
import re
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from gateway.types import AuditRecord
from gateway.worker.dear_hours import HourWatch
from tests.admin.costs.test_unusual import DOLLAR, ROOM, bill, see
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.seeding import DAY_US, HOUR_US, PASSWORD, issue, person


pytestmark = pytest.mark.anyio


def hourly(listener: Listener, key: str, days_ago: int, dollars: int) -> AuditRecord:
    return bill(listener, key, days_ago, dollars, request_id=f"req_{key}_{days_ago}_{dollars}")


async def watched(listener: Listener) -> None:
    """A worker looks at the hours."""
    async with listener.database() as database:
        await HourWatch(database, listener.clock, 5 * DOLLAR).tend()


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


@ON_BOTH
async def test_a_dear_hour_stands_on_the_page_of_cost_and_under_needs_you_with_its_figures(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    key = await issue(listener, "wild <b>")
    await listener.record(*(hourly(listener, key, ago, 10) for ago in range(1, 22)))
    await watched(listener)
    assert "Unusually expensive hours" not in await see(browser, ROOM)
    now = hourly(listener, key, 0, 44)
    earlier = bill(listener, key, 0, 1, request_id="req_earlier", utc_us=now.utc_us - 3 * HOUR_US)
    await listener.record(now, earlier)
    await watched(listener)

    page = await see(browser, ROOM)
    section = page[page.index('id="hours"') :]
    said = text_of(section[: section.index("</section>")])
    assert re.search(
        r"key wild <b> 4.4 times the usual cost of this hour "
        r"\$44\.00 \$10\.00 \$0\.00 \$20\.00 \d+ days",
        said,
    ), said
    (way, same) = re.findall(
        r'href="(/o/acme/traffic\?q=[^"]+)"', section[: section.index("</section>")]
    )
    assert way == same
    assert f"key:{key}" in parse_qs(urlsplit(html.unescape(way)).query)["q"][0]
    traffic = await see(browser, html.unescape(way))
    assert now.request_id in traffic
    assert "req_earlier" not in traffic
    home = text_of(await see(browser, "/"))
    assert "acme, key wild <b>: $44.00 in the hour from" in home
    assert "usually $10.00, flagged above $20.00" in home

    body = await see(browser, "/api/organisations/acme/costs/summary")
    (hour,) = msgspec.json.decode(body)["unusual_hours"]
    assert (hour["kind"], hour["value"], hour["cost_microusd"]) == ("key", key, 44 * DOLLAR)
    assert hour["hour_us"] == now.utc_us // HOUR_US * HOUR_US


async def test_other_organisations_hours_and_those_of_other_days_are_not_shown(
    listener: Listener, browser: Browser
) -> None:
    await issue(listener, "theirs", organisation="umbrella")
    key = await issue(listener, "wild")
    await listener.record(*(hourly(listener, key, ago, 10) for ago in range(1, 22)))
    await listener.record(hourly(listener, key, 0, 44))
    await watched(listener)
    await person(listener, "una", "viewer", "umbrella")
    await browser.sign_in_as("una", PASSWORD)
    assert "expensive hour" not in await see(browser, "/")
    assert "Unusually expensive hours" not in await see(browser, "/o/umbrella/costs")

    listener.clock.advance(2 * DAY_US / 1e6)
    await person(listener, "root", "platform_admin")
    await browser.sign_in_as("root", PASSWORD)
    assert "expensive hour" not in await see(browser, "/"), "it is not of the last day any more"
    late = "2099-01-01"
    assert "Unusually expensive hours" not in await see(
        browser, f"{ROOM}?since={late}&until={late}"
    )
