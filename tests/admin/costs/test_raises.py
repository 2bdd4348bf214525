"""An owner asks for a larger limit, somebody who sets limits agrees, and both stand in the log."""

import html
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import DAY_US, SECOND_US
from gateway.oversight.access import Grant
from gateway.oversight.deeds import Deeds
from gateway.store.identity.people import PeopleStore
from gateway.store.money.leases import LeaseTable
from gateway.store.money.raises import BudgetRaises
from gateway.store.money.recorded_raises import RecordedRaises
from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
LIMITS = "/o/acme/costs/limits"
INBOX = "/o/acme/approvals"
API = "/api/organisations/acme/budget_raises"
TEAM = "ws:acme/research"
HAD = 100_000_000
ASK: dict[str, str] = {
    "account": TEAM,
    "window": "month",
    "limit_microusd": "250",
    "reason": "the quarter's reports",
    "was": str(HAD),
}


@pytest.fixture
async def owner(listener: Listener, browser: Browser) -> Browser:
    """Petra, who owns a team."""
    await seeding.person(listener, "petra", "app_owner", "acme")
    await seeding.issue(listener, "first")
    await seeding.limit(listener, TEAM, HAD, "month")
    await browser.sign_in_as("petra", seeding.PASSWORD)
    return browser


@pytest.fixture
async def second(listener: Listener, owner: Browser) -> AsyncIterator[Browser]:
    """Paul, who sets limits."""
    assert owner.session_id
    await seeding.person(listener, "paul", "platform_admin", "acme")
    async with browsing(listener) as browser:
        await browser.sign_in_as("paul", seeding.PASSWORD)
        yield browser


async def send(browser: Browser, path: str, form: dict[str, str]) -> tuple[int, str]:
    answer, page = await browser.send("POST", path, form)
    return answer.status, page


async def ask(browser: Browser, **more: str) -> tuple[int, str]:
    return await send(browser, f"{LIMITS}/ask", ASK | more)


async def read(browser: Browser, path: str) -> str:
    """The text of a page."""
    page = (await browser.send("GET", path))[1]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page)))


async def newest(browser: Browser) -> dict[str, Any]:
    found: list[dict[str, Any]] = msgspec.json.decode((await browser.send("GET", API))[1])
    return found[0]


async def decide(
    browser: Browser, action: str = "approve", said: str = "as planned"
) -> tuple[int, str]:
    form = {"id": (await newest(browser))["id"], "action": action, "reason": said}
    return await send(browser, f"{INBOX}/budgets", form)


async def limit_of(listener: Listener) -> int:
    async with listener.database() as database:
        every = await LeaseTable(database, listener.clock).budgets_of([TEAM])
    return every[0].limit.limit_microusd


async def test_what_an_owner_asks_for_holds_once_who_sets_limits_agrees(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    assert "Request more for research" in await read(owner, LIMITS)
    said = await read(owner, f"{LIMITS}/ask?account={TEAM}")
    assert "Another person decides: paul may approve it." in said
    last = "2027-02-28"
    assert (await ask(owner, until=last))[0] == 303
    assert await limit_of(listener) == HAD, "asking changes nothing"
    said = await read(owner, LIMITS)
    assert "waiting team research : $250.00 each month instead of $100.00, up to" in said
    assert "up to and including Feb 28, 2027" in said
    assert "Withdraw it" in said

    said = await read(second, INBOX)
    assert "A larger limit for team research requested by petra" in said
    assert "$250.00 would be left instead of $100.00" in said
    assert "After Feb 28, 2027 it goes back to $100.00" in said
    assert "1 to approve" in said
    assert "petra requests a limit of $250.00 for team research of acme" in await read(second, "/")
    assert (await decide(second))[0] == 303
    assert await limit_of(listener) == 250_000_000
    assert "1 to approve" not in await read(second, INBOX)

    said = await read(owner, LIMITS)
    assert "approved team research" in said
    assert "as planned" in said
    said = await read(owner, "/")
    assert "Your request for $250.00 for team research of acme, decided by paul" in said
    asked, raised = (await deeds(listener))[-2:]
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.grant("petra", Grant("viewer", "umbrella"))
        await people.revoke("petra", Grant("app_owner", "acme"))
    async with browsing(listener) as later:
        await later.sign_in_as("petra", seeding.PASSWORD)
        assert "Your request" not in await read(later, "/"), "of what is no more hers to see"
    assert (asked.action, asked.actor) == ("budget.raise_asked", "petra")
    assert (raised.action, raised.actor) == ("budget.raised", "paul")
    before, after = (msgspec.json.decode(raised.detail[name]) for name in ("before", "after"))
    assert (before["limit_microusd"], after["limit_microusd"]) == (HAD, 250_000_000)
    assert (after["asked_by"], after["reason"]) == ("petra", ASK["reason"])
    assert after["comment"] == "as planned"


async def test_nobody_decides_what_they_asked_for_and_nobody_without_the_role_anything(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    assert (await ask(second))[0] == 303
    status, page = await decide(second)
    assert (status, "You requested this, so another person must decide." in page) == (403, True)
    assert (await decide(owner))[0] == 403
    async with browsing(listener) as other:
        for name, role in (("vera", "viewer"), ("anton", "approver"), ("cora", "compliance")):
            await seeding.person(listener, name, role, "acme")  # type: ignore[arg-type]
            await other.sign_in_as(name, seeding.PASSWORD)
            assert (await ask(other))[0] == 403, role
            assert (await decide(other))[0] == 403, role
            assert "Request more" not in await read(other, LIMITS), role
    async with browsing(listener) as token:
        await token.sign_in()
        assert (await ask(token))[0] == 403
        assert (await decide(token))[0] == 403
    assert await limit_of(listener) == HAD


async def test_what_is_wrong_is_said_at_its_field_and_what_was_typed_is_kept(
    listener: Listener, owner: Browser
) -> None:
    for more, told in (
        ({"limit_microusd": "100"}, "this is no more than now"),
        ({"limit_microusd": ""}, "enter an amount"),
        ({"until": "2020-01-01"}, "this day is over"),
        ({"until": "2999-01-01"}, "within 366 days"),
        ({"reason": " "}, "give a reason"),
        ({"was": "5"}, "Somebody else changed it meanwhile"),
    ):
        status, page = await ask(owner, **more)
        assert status in (400, 409), more
        assert told in page, more
        assert f'value="{more.get("limit_microusd", "250")}"' in page
    missing = await owner.send("GET", f"{LIMITS}/ask?account=user:acme/*")
    assert missing[0].status == 404
    assert (await owner.send("GET", f"{LIMITS}/ask?account=ws:umbrella/x"))[0].status == 404
    assert "has no limit each day to raise" in await read(
        owner, f"{LIMITS}/ask?account={TEAM}&window=day"
    )
    assert (await owner.send("GET", API))[1] == "[]"


async def test_it_is_taken_back_by_who_asked_and_declined_with_a_word(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    await ask(owner)
    found = await newest(owner)
    path = f"{LIMITS}/asked/{found['id']}/withdraw"
    assert (await send(second, path, {}))[0] == 403
    assert (await send(owner, path, {}))[0] == 303
    assert (await newest(owner))["state"] == "withdrawn"
    listener.clock.advance(1)
    await ask(owner)
    assert (await decide(second, "reject", "not this quarter"))[0] == 303
    said = await read(owner, LIMITS)
    assert "declined team research" in said
    assert "not this quarter" in said
    assert (await deeds(listener))[-1].action == "budget.raise_declined"


async def test_its_time_over_the_limit_is_what_it_was_and_the_log_says_so(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    await ask(owner, until="2027-02-28")
    await decide(second)
    assert await limit_of(listener) == 250_000_000
    listener.clock.advance(60 * DAY_US / SECOND_US)
    log = MemoryAuditLog()
    await log.start()
    async with listener.database() as database:
        ends = RecordedRaises(BudgetRaises(database, listener.clock), Deeds(log, listener.clock))
        await ends.tend()
        assert await limit_of(listener) == HAD
        await ends.tend()
    (ended,) = log.records
    assert (ended.action, ended.actor) == ("budget.raise_ended", "schedule")
    assert msgspec.json.decode(ended.detail["after"])["limit_microusd"] == HAD
    async with browsing(listener) as later:
        await later.sign_in_as("petra", seeding.PASSWORD)
        said = await read(later, f"{LIMITS}/ask?account={TEAM}")
    assert "paul approved it; it has expired, and the limit is $100.00 again." in said


async def test_by_keyboard_and_over_the_api(
    listener: Listener, owner: Browser, second: Browser
) -> None:
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("petra", seeding.PASSWORD)
        async for view in seen.views():
            for path in (LIMITS, f"{LIMITS}/ask?account={TEAM}"):
                assert await seen.open(path) == 200
                assert await seen.violations() == [], (path, view)
        await seen.open(f"{LIMITS}/ask?account={TEAM}")
        date = page.get_by_label("Last day")
        await page.get_by_role("textbox", name="New limit in US dollars").focus()
        await page.keyboard.press("Tab")
        assert await date.evaluate("(each) => getComputedStyle(each).outlineStyle") == "solid"
        await seen.open(LIMITS)
        await page.get_by_role("link", name="Request more for research").focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("textbox", name="New limit in US dollars").focus()
        await page.keyboard.type("300")
        await page.get_by_role("textbox", name="Why").focus()
        await page.keyboard.type("more reports")
        await page.keyboard.press("Enter")
        await page.get_by_role("status").get_by_text("Done and recorded.").wait_for()
        # Whoever works with keys stands at what they asked for, and not at the top.
        assert await page.evaluate("document.activeElement.id") == "asked"
        for path in (LIMITS, f"{LIMITS}/ask?account={TEAM}"):
            assert await seen.open(path) == 200
            assert await seen.violations() == [], path
        assert seen.problems == []
    path = f"{API}/{(await newest(second))['id']}/approve"
    answer, text = await second.send("POST", path, body='{"comment": "as planned"}')
    assert (answer.status, msgspec.json.decode(text)["state"]) == (200, "approved")
    assert await limit_of(listener) == 300_000_000
