"""The overview in a real browser: in both themes and three widths, never wider than the window."""

import pytest

from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.seeding import HOUR_US, PASSWORD, issue, limit, person, requests


pytestmark = pytest.mark.anyio


async def test_the_overview_stands_in_a_browser_without_a_fault(listener: Listener) -> None:
    key_id = await issue(listener, "busy", expires_us=listener.clock.utc_us() + HOUR_US)
    await limit(listener, "org:acme", 0, "month")
    await listener.record(*requests(listener, key_id, 80, over_us=60 * HOUR_US))
    await person(listener, "root", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("root", PASSWORD)
        async for view in seen.views():
            await seen.open("/")
            await seen.page.wait_for_selector(".plot canvas")
            assert await seen.violations() == [], view
            wide = await seen.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= view[1]
        assert seen.problems == []
