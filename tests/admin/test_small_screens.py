"""On a phone the page itself begins on the first screen, below what leads to other pages."""

import pytest

from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.seeding import PASSWORD, issue, person


pytestmark = pytest.mark.anyio

LINES = (
    """(links) => new Set(links.map((each) => Math.round(each.getBoundingClientRect().top))).size"""
)


@pytest.mark.parametrize("scripts", [True, False])
async def test_the_rail_of_a_phone_takes_three_lines_and_shows_where_one_is(
    listener: Listener, *, scripts: bool
) -> None:
    await issue(listener, "an assistant")
    await person(listener, "cora", "compliance")
    async with window(listener, width=390, scripts=scripts) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance/packs")
        page = seen.page
        assert await page.locator(".rail a.room").evaluate_all(LINES) == 2
        assert await page.locator(".rail ul ul a").evaluate_all(LINES) == 1
        current = await page.locator(".rail [aria-current=page]").bounding_box()
        heading = await page.locator("h1").bounding_box()
        assert current is not None
        assert heading is not None
        assert await page.inner_text(".rail [aria-current=page]") == "Evidence packs"
        assert 0 <= current["x"] <= current["x"] + current["width"] <= 390
        assert heading["y"] < 300
        assert await seen.faults() == []
