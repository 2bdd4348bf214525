"""The app owner makes a key, runs what she pastes and finds her request; so does who sets up.

In a real browser, before a real data plane that shares its database with the admin listener.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gateway.clock import StoppedClock, SystemClock
from gateway.store.identity.setup_links import SetupLinks
from tests.admin.chromium import Window, come_true, window
from tests.admin.listener import Listener
from tests.admin.seeding import PASSWORD, person
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
WORDS = "That it was written down."


@pytest.fixture
async def listener(
    tmp_path: Path, sqlite_url: str, gateway: RunningGateway, upstreams: Upstreams
) -> AsyncIterator[Listener]:
    """Beside the gateway: the same folder, secrets and database."""
    upstreams.engine.answer(Answer(text=WORDS))
    for upstream in upstreams.managed:
        upstream.answer(Answer(text=WORDS))
    made = Listener(tmp_path, sqlite_url, data_plane_url=gateway.url)
    made.clock = StoppedClock(SystemClock().utc_us())
    async with made as running:
        yield running


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    while not await is_so():
        await asyncio.sleep(0.05)


async def knows(gateway: RunningGateway, key: str) -> None:
    key_id = key.split("_")[2]
    while key_id not in gateway.plane.snapshots.current().keys.records:
        await asyncio.sleep(0.01)


async def run(program: str, *arguments: str, text: str = "") -> str:
    """What a program prints; the text is its input."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(text.encode())
    assert process.returncode == 0, err.decode()
    return out.decode()


async def finds_her_request(seen: Window, key_id: str) -> None:
    """In the list of requests of her key, and from there its whole story."""

    async def is_listed() -> bool:
        await seen.open(f"/o/acme/traffic?q=key:{key_id}")
        return await seen.page.locator("table.rows tbody a").count() > 0

    await until(is_listed)
    await seen.page.locator("table.rows tbody a").first.click()


async def test_the_app_owner_makes_a_key_runs_the_snippet_and_finds_her_request(
    gateway: RunningGateway, listener: Listener
) -> None:
    await gateway.issue_key()
    await person(listener, "olga", "app_owner", "acme")
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("olga", PASSWORD)
        await seen.open("/o/acme/keys/new")
        await page.fill("#field-name", "payroll assistant")
        await page.fill("#field-workspace", "people")
        await page.fill("#field-project", "payroll")
        await page.click("button:has-text('Issue the key')")
        key = await page.inner_text("#the-key")
        curl = await page.inner_text("#the-curl")
        snippet = await page.inner_text("#the-python")
        await knows(gateway, key)

        assert WORDS in await run("/bin/sh", "-c", curl)
        assert WORDS in await run(sys.executable, "-", text=snippet)

        await page.click("text=I stored it")
        key_id = key.split("_")[2]
        await finds_her_request(seen, key_id)
        assert seen.problems == []
        assert key not in await page.content()


async def test_a_newcomer_comes_from_the_link_to_the_page_of_a_streamed_request(
    gateway: RunningGateway, listener: Listener
) -> None:
    async with listener.database() as database:
        code = await SetupLinks(database, listener.clock).make()
    async with window(listener) as seen:
        page = seen.page
        await seen.open(f"/setup#{code}")
        await come_true(page, "document.getElementById('field-code').value !== ''")
        await page.fill("#field-name", "ada")
        await page.fill("#field-password", PASSWORD)
        await page.click("button:has-text('Start')")
        for name, value in (
            ("organisation", "acme"),
            ("workspace", "research"),
            ("project", "assistant"),
        ):
            await page.fill(f"#field-{name}", value)
        await page.click("button:has-text('Create it')")
        await page.click("button:has-text('Issue a key')")
        await knows(gateway, await page.inner_text("#the-key"))
        assert await seen.violations() == []
        await page.press("#run-here", "Enter")
        await page.wait_for_selector("#explained:not([hidden])")
        await page.wait_for_selector("#run-here:not([aria-disabled])")
        assert await page.evaluate("document.activeElement.id") == "run-here"
        assert WORDS in await page.inner_text("#the-answer")
        href = await page.get_attribute("#explained a", "href")
        assert href is not None
        assert href.startswith("/o/acme/traffic/req_")

        async def is_there() -> bool:
            return await seen.open(href) == 200

        await until(is_there)
        await seen.open("/first-run")
        assert "5 of 5" in await page.inner_text("main")
        assert [each for each in seen.problems if "404" not in each] == []


async def test_without_scripts_the_whole_answer_stands_on_the_page(
    gateway: RunningGateway, listener: Listener
) -> None:
    await gateway.issue_key()
    await person(listener, "root", "platform_admin")
    async with window(listener, scripts=False) as seen:
        page = seen.page
        await seen.sign_in("root", PASSWORD)
        await seen.open("/first-run")
        await page.click("button:has-text('Issue another key')")
        await knows(gateway, await page.inner_text("#the-key"))
        await page.click("#run-here")
        assert WORDS in await page.inner_text("#the-answer")
        assert "/o/acme/traffic/req_" in str(await page.get_attribute("#explained a", "href"))
        assert seen.problems == []
