"""Windows of tests: those of one browser have nothing in common, and a browser may be gone."""

import pytest

from tests.admin.chromium import window
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio


async def test_windows_of_one_browser_keep_nothing_of_each_other(listener: Listener) -> None:
    async with window(listener) as signed_in, window(listener) as beside:
        await signed_in.sign_in_with_token(listener.token)
        await beside.open("/")
        titles = [await each.page.title() for each in (signed_in, beside)]
        browsers = {each.page.context.browser for each in (signed_in, beside)}

    assert titles == ["Overview · Gatewright", "Sign in · Gatewright"]
    assert len(browsers) == 1


async def test_a_browser_that_is_gone_is_started_anew(listener: Listener) -> None:
    async with window(listener) as seen:
        assert seen.page.context.browser is not None
        await seen.page.context.browser.close()

    async with window(listener) as seen:
        assert await seen.open("/sign-in") == 200
