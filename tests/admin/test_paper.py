"""Pages on paper, as evidence: readable whatever the theme, whole, with days and a zone."""

import re

import pytest

from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio

UTC = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"')
A4_PX = 718
"""Its width between usual margins, in pixels of style sheets."""


@pytest.fixture
async def read(listener: Listener, browser: Browser) -> Browser:
    """Somebody who likes it dark and lives in India, with a list to print."""
    key = await seeding.issue(listener, "the payroll assistant of the people team")
    await listener.record(*seeding.requests(listener, key, 5, findings={"EMAIL": 1, "PERSON": 2}))
    await browser.sign_in()
    return browser


async def test_a_page_on_paper_is_dark_on_white_and_says_when_and_by_whom_it_was_read(
    listener: Listener, read: Browser
) -> None:
    async with window(listener, width=A4_PX) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open("/viewing")
        await seen.page.select_option("#field-theme", "dark")
        await seen.page.select_option("#field-zone", "Asia/Kolkata")
        await seen.page.click("text=Keep")
        for path in ("/o/acme/audit", "/o/acme/traffic"):
            await seen.open(path)
            assert "Times are in Asia/Kolkata." in await seen.page.inner_text(".page-foot")
            await seen.page.emulate_media(media="print")
            ink = await seen.page.evaluate("getComputedStyle(document.body).color")
            assert sum(map(int, re.findall(r"\d+", ink))) < 200, ink
            times = await seen.page.evaluate(
                "[...document.querySelectorAll('table.rows tbody time')]"
                ".map(e => getComputedStyle(e, '::after').content)"
            )
            assert len(times) == 5
            assert all(UTC.fullmatch(each) for each in times), times
            assert "read by" in await seen.page.inner_text(".page-foot")
            assert not await seen.page.is_visible("nav.facets")
            assert not await seen.page.is_visible("button:has-text('Filter')")
            wide = await seen.page.evaluate(
                "Math.max(...[...document.querySelectorAll('td')].map("
                "e => e.getBoundingClientRect().right))"
            )
            assert wide <= A4_PX, path
            await seen.page.emulate_media(media="screen")
