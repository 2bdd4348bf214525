"""The room of keys in a real browser: readable in both themes and three widths, and by keyboard."""

import asyncio
import re

import pytest
from playwright.async_api import Route

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
        assert "No request in the last hour" in await page.inner_text(".consequence")
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
        await seen.page.route(re.compile(r"/keys/new\?csrf="), held)
        box = await seen.page.locator("text=Issue the key").bounding_box()
        assert box is not None
        for _ in range(2):
            await seen.page.mouse.click(box["x"] + 9, box["y"] + 9)
            await asyncio.sleep(0.1)
        await seen.page.wait_for_selector("#the-key, .notice.bad")
        assert (await seen.page.inner_text("#the-key")).startswith("gw_live_")
        assert sent == ["POST"]
