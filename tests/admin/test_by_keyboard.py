"""People's main tasks with no hand on the mouse: where the focus goes, and what is said there."""

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from admin.compliance import desk
from gateway.oversight.access import Grant
from gateway.store.evidence import packing
from gateway.store.identity.people import PeopleStore
from tests.admin import seeding
from tests.admin.chromium import Window, come_true, window
from tests.admin.compliance.archive import converse, person
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio
HERE = "document.activeElement.getAttribute('href') ?? document.activeElement.id"
COVERED = """(() => {
  const { left, top, height } = document.activeElement.getBoundingClientRect();
  const there = document.elementFromPoint(left + 2, top + height / 2);
  const here = document.activeElement;
  return there !== null && !here.contains(there) && !there.contains(here);
})()"""
"""Whether something else is seen where the focus is."""


async def _pressed(seen: Window, *keys: str) -> str:
    """Where the focus is after these keys: a link's address, or an id."""
    for key in keys:
        await seen.page.keyboard.press(key)
    found: str = await seen.page.evaluate(HERE)
    return found


async def _traffic(listener: Listener, seen: Window, count: int = 3) -> None:
    await seeding.person(listener, "root", "platform_admin")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).grant("root", Grant("compliance", "*"))
    key = await seeding.issue(listener, "assistant")
    await listener.record(*seeding.requests(listener, key, count))
    await seen.sign_in("root", seeding.PASSWORD)
    await seen.open("/o/acme/traffic")


async def test_past_the_drawer_tab_goes_on_from_its_row_and_nothing_has_the_focus_below_it(
    listener: Listener,
) -> None:
    """It went to what the drawer covered, from the top of the page on."""
    async with window(listener) as seen:
        await _traffic(listener, seen)
        rows = await seen.page.locator("#rows tbody a").evaluate_all(
            "(all) => all.map((a) => a.getAttribute('href'))"
        )
        for keys, there in ((("Tab", "Tab"), rows[1]), (("Shift+Tab",), rows[0])):
            await seen.page.locator(f"#rows a[href='{rows[0]}']").focus()
            await seen.page.keyboard.press("Enter")
            await seen.page.wait_for_selector("#peek [data-closes-peek]:focus")
            assert await _pressed(seen, *keys) == there
            assert await seen.page.locator("#peek > *").count() == 0
            assert await seen.page.evaluate(COVERED) is False
        assert seen.problems == []


async def test_a_menu_is_closed_from_a_field_in_it(listener: Listener) -> None:
    """Escape did nothing there, and whoever wanted out had to walk through all of it."""
    async with window(listener) as seen:
        await _traffic(listener, seen)
        await seen.page.locator("summary:has-text('Views')").focus()
        assert await _pressed(seen, "Enter", "Tab") == "field-name"
        await seen.page.keyboard.press("Escape")
        assert await seen.page.locator("details.menu[open]").count() == 0
        assert await seen.page.evaluate("document.activeElement.textContent") == "Views"


async def test_the_finder_is_closed_by_one_key_whatever_was_typed(listener: Listener) -> None:
    async with window(listener) as seen:
        await _traffic(listener, seen)
        await seen.page.keyboard.press("Control+k")
        await seen.page.keyboard.type("nothing is called so")
        await seen.page.keyboard.press("Escape")
        assert await seen.page.locator("dialog[open]").count() == 0


async def test_a_filter_that_cannot_be_read_is_corrected_where_it_was_typed(
    listener: Listener,
) -> None:
    async with window(listener) as seen:
        await _traffic(listener, seen)
        await seen.page.keyboard.press("/")
        await seen.page.keyboard.type("cost:dear")
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_selector("#filter-wrong")
        assert await seen.page.evaluate("document.activeElement.name") == "q"
        await seen.page.keyboard.press("Control+a")
        await seen.page.keyboard.type("class:S1,S2,S3,S4")
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_url("**class*")
        assert await seen.page.locator("#filter-wrong").count() == 0


async def test_what_a_form_would_do_has_the_focus_once_it_is_answered(listener: Listener) -> None:
    """It stood below the form, and the focus at the top of the page, thirty controls before it."""
    async with window(listener) as seen:
        await _traffic(listener, seen)
        day = f"{datetime.fromtimestamp(listener.clock.utc_us() / 1e6, UTC):%Y-%m-%d}"
        limit = "/o/acme/costs/limits/change?account=org:acme&window=month"
        for path, field, said, press in (
            (
                limit,
                "limit_microusd",
                "25",
                "Set $25.00 each month",
            ),
            (
                f"/o/acme/compliance/packs/new?since={day}&until={day}",
                "recipient",
                "An auditor",
                "Create the pack",
            ),
            ("/people", "person", "", ""),
        ):
            await seen.open(path)
            await seen.page.locator(f"main form[method=get] [name={field}]").focus()
            await seen.page.keyboard.type(said)
            if not said:
                await seen.page.locator("main form[method=get] button").focus()
            await seen.page.keyboard.press("Enter")
            await seen.page.wait_for_selector("#answer")
            assert await seen.page.evaluate(HERE) == "answer", path
            if press:
                await seen.page.keyboard.press("Tab")
                assert await seen.page.evaluate("document.activeElement.textContent") == press
        await seen.open(f"{limit}&limit_microusd=25")
        await seen.page.locator("button:has-text('Set $25.00')").focus()
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_selector(".undo[role=status]")
        assert await seen.page.evaluate(HERE) == "org:acme", "where it was set"
        assert seen.problems == []


async def test_a_secret_that_is_shown_once_is_copied_by_the_next_key(listener: Listener) -> None:
    async with window(listener) as seen:
        await _traffic(listener, seen)
        key = await seeding.issue(listener, "another")
        await seen.open(f"/o/acme/keys/{key}/rotate")
        await seen.page.locator("main form button").focus()
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_selector("#the-key")
        assert await seen.page.evaluate("document.activeElement.ariaLabel") == "Copy the key"
        assert await seen.violations() == []


async def test_what_would_be_erased_has_the_focus_before_a_case_is_opened(
    listener: Listener,
) -> None:
    async with window(listener) as seen:
        await _traffic(listener, seen)
        await seen.open("/o/acme/compliance/erasures")
        await seen.page.locator("[name=user]").focus()
        await seen.page.keyboard.type("ann")
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_selector(".consequence")
        assert (
            await seen.page.evaluate("document.activeElement.ariaLabel") == "What would be erased"
        )
        assert await seen.faults() == []
        assert await seen.violations() == []


async def test_what_becomes_of_a_pack_is_said_while_its_page_looks_again(
    listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever does not see the page heard nothing of it."""
    make, may_end = packing.make_pack, threading.Event()

    async def make_later(*given: Any, **more: Any) -> tuple[int, int]:
        await asyncio.to_thread(may_end.wait)
        return await make(*given, **more)

    monkeypatch.setattr(desk, "make_pack", make_later)
    await converse(listener, ["ann"])
    day = f"{datetime.fromtimestamp(listener.clock.utc_us() / 1e6, UTC):%Y-%m-%d}"
    async with person(listener, "cora") as cora, window(listener) as seen:
        try:
            form = {"since": day, "until": day, "log": "requests", "recipient": "An auditor"}
            answer, _ = await cora.send("POST", "/o/acme/compliance/packs", form)
            await seen.sign_in("cora", seeding.PASSWORD)
            await seen.open(answer.headers["location"])
            await seen.page.evaluate("window.region = document.querySelector('[role=status]')")
            await come_true(seen.page, "region.textContent === 'The pack is being written.'")
        finally:
            may_end.set()
        await come_true(seen.page, "region.textContent === 'The pack is ready.'")
        assert await seen.page.evaluate("region.isConnected") is True
