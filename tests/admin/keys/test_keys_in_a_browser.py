"""The room of keys in a real browser: readable in both themes and three widths, and by keyboard."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Route

from gateway.oversight.access import Grant
from gateway.store.identity.people import PeopleStore
from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.seeding import DAY_US, HOSTILE, PASSWORD, issue, limit, person, requests


pytestmark = pytest.mark.anyio


async def test_the_room_of_keys_stands_in_a_browser_without_a_fault(listener: Listener) -> None:
    key_id = await issue(listener, HOSTILE[0], expires_us=listener.clock.utc_us() + 9 * DAY_US)
    await issue(listener, HOSTILE[1])
    await limit(listener, f"key:{key_id}", 50_000_000, "month")
    await listener.record(*requests(listener, key_id, 12))
    await person(listener, "root", "platform_admin")
    async with window(
        listener,
    ) as seen:
        await seen.sign_in("root", PASSWORD)
        async for view in seen.views():
            for path in ("", "/new", f"/{key_id}", f"/{key_id}/rotate", f"/{key_id}/revoke"):
                assert await seen.open(f"/o/acme/keys{path}") == 200
                assert await seen.violations() == [], (path, view)
            await seen.open("/o/acme/keys")
            await seen.page.click(f"table a[href$='{key_id}']")
            await seen.page.wait_for_selector("#peek .verdict")
            assert await seen.violations() == [], view
        assert seen.problems == []


async def test_a_key_is_issued_and_revoked_without_scripts(listener: Listener) -> None:
    await person(listener, "ann", "app_owner")
    await issue(listener, "an assistant")
    async with window(listener, scripts=False) as seen:
        page = seen.page
        await seen.sign_in("ann", PASSWORD)
        await seen.open("/o/acme/keys")
        await page.click("text=Issue a key")
        await page.wait_for_selector("#field-name:focus")
        await page.keyboard.type("payroll assistant")
        for name in ("people", "payroll"):
            await page.keyboard.press("Tab")
            await page.keyboard.type(name)
        await page.keyboard.press("Enter")
        assert (await page.inner_text("#the-key")).startswith("gw_live_")
        assert await page.inner_text("#the-key") in await page.inner_text("#the-curl")
        await page.click("text=I stored it")
        assert "payroll assistant" in await page.inner_text("h1")
        await page.click("text=Revoke")
        assert "No requests in the last hour" in await page.inner_text(".consequence")
        await page.click("button.danger")
        assert "Revoked" in await page.inner_text(".verdict")
        assert seen.problems == []


async def test_a_key_that_is_issued_by_an_impatient_press_is_shown_all_the_same(
    listener: Listener,
) -> None:
    await issue(listener, "another")
    sent: list[str] = []

    async def held(route: Route) -> None:
        sent.append(route.request.method)
        await asyncio.sleep(0.5)
        await route.continue_()

    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open("/o/acme/keys/new")
        for name, said in (("name", "mine"), ("workspace", "people"), ("project", "payroll")):
            await seen.page.fill(f"#field-{name}", said)
        await seen.page.route("**/keys/new", held)
        box = await seen.page.locator("text=Issue the key").bounding_box()
        assert box is not None
        for _ in range(2):
            await seen.page.mouse.click(box["x"] + 9, box["y"] + 9)
            await asyncio.sleep(0.1)
        await seen.page.wait_for_selector("#the-key, .notice.bad")
        assert (await seen.page.inner_text("#the-key")).startswith("gw_live_")
        assert sent == ["POST"]
        # That it was copied is read out, which another word on a button is not.
        assert await seen.page.inner_text("span[role=status]") == ""
        await seen.page.click("[data-copies=the-key]")
        await seen.page.wait_for_selector("span[role=status]:has-text('Copied')")


async def test_a_secret_is_copied_where_the_browser_has_no_clipboard_for_pages(
    listener: Listener,
) -> None:
    """Over plain http from another machine `navigator.clipboard` is missing: nothing happened."""
    await issue(listener, "another")
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open("/o/acme/keys/new")
        for name, said in (("name", "mine"), ("workspace", "people"), ("project", "payroll")):
            await seen.page.fill(f"#field-{name}", said)
        await seen.page.click("text=Issue the key")
        await seen.page.wait_for_selector("#the-key")
        await seen.page.evaluate(
            "Object.defineProperty(navigator, 'clipboard', {value: undefined})"
        )
        for shown in ("the-key", "the-curl"):
            await seen.page.click(f"[data-copies={shown}]")
            await seen.page.wait_for_selector(f"[data-copies={shown}]:has-text('Copied')")
            whole = "".join((await seen.page.inner_text(f"#{shown}")).split())
            await seen.page.keyboard.press("Control+k")
            await seen.page.keyboard.press("Control+v")
            pasted = "".join((await seen.page.input_value("#finder input")).split())
            assert len(pasted) > 30
            assert whole.startswith(pasted)
            await seen.page.evaluate("document.getElementById('finder').close()")
        # Where that is forbidden, too, it is selected at least.
        await seen.page.evaluate("document.execCommand = () => false")
        await seen.page.click("[data-copies=the-key]")
        await seen.page.wait_for_selector("span[role=status]:has-text('Press Ctrl C')")
        selected = await seen.page.evaluate("getSelection().toString()")
        assert selected == await seen.page.inner_text("#the-key")
        assert seen.problems == []


async def test_an_expired_key_says_what_callers_are_told_and_leads_to_another_like_it(
    listener: Listener,
) -> None:
    models, labels = frozenset({"house", "claude"}), ("night", "internal")
    more: dict[str, Any] = {
        "models": models,
        "labels": labels,
        "translation": "strict",
        "project": "payroll",
    }
    over_us = listener.clock.utc_us() + DAY_US
    key_id = await issue(listener, "payroll & more", expires_us=over_us, **more)
    await limit(listener, f"key:{key_id}", 12_500_000, "day")
    await person(listener, "ann", "app_owner")
    await person(listener, "root", "platform_admin")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).grant("root", Grant("app_owner", "*"))
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("root", PASSWORD)
        await seen.open(f"/o/acme/keys/{key_id}")
        assert await page.locator("text=Issue another like it").count() == 0, "it is live"
        listener.clock.advance(2 * DAY_US // 1_000_000)
        await seen.sign_in("root", PASSWORD)
        await seen.open("/o/acme/keys?q=state:expired")
        await page.click("text=payroll & more")
        await page.wait_for_selector("#peek .verdict:has-text('Expired 1 day ago')")
        await page.click("#peek >> text=Open")
        assert "401 invalid_api_key" in await page.inner_text("main")
        assert await page.locator(".deeds >> text=Rotate").count() == 0
        await page.click("text=Issue another like it")
        assert await page.input_value("#field-name") == "payroll & more"
        assert await page.input_value("#field-budget_microusd") == "12.500000"
        await page.click("button:has-text('Issue the key')")
        await page.click("text=I stored it")
        facts = await page.inner_text("[aria-label=Facts]")
        for each in ("research / payroll", "claude, house", "night, internal", "are refused"):
            assert each in facts, each
        assert "$12.50 today" in await page.inner_text("main")
        assert await page.locator("text=Issue another like it").count() == 0
        assert seen.problems == []


async def test_no_form_for_another_key_widens_one_that_may_use_no_model(
    listener: Listener,
) -> None:
    none = await issue(listener, "nothing", models=frozenset())
    await listener.revoke_key(none)
    await person(listener, "ann", "app_owner")
    async with window(listener) as seen:
        await seen.sign_in("ann", PASSWORD)
        await seen.open(f"/o/acme/keys/{none}")
        assert "revoked" in await seen.page.inner_text("main")
        assert await seen.page.locator("text=Issue another like it").count() == 0
