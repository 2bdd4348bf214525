"""What is shown once is shown to who presses twice, to nobody else, and for a minute at most."""

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Route

from admin.sign_in.shown_once import KEPT_S
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.seeding import PASSWORD, issue, person


pytestmark = pytest.mark.anyio

KEY = {"name": "payroll assistant", "workspace": "people", "project": "payroll"}
LIST = "/o/acme/keys"
SECRET = re.compile(r"gw_live_\w+|/invitation#[\w-]+")


async def form_on(browser: Browser, page: str, action: str) -> dict[str, str]:
    """The hidden fields of a form, as the page gives them."""
    answer, text = await browser.send("GET", page)
    assert answer.status == 200
    (form,) = re.findall(rf'<form [^>]*action="{action}".*?</form>', text, re.DOTALL)
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form))


async def sent(browser: Browser, path: str, form: dict[str, str]) -> tuple[int, set[str]]:
    """The status, and what it shows that is shown once."""
    answer, text = await browser.send("POST", path, form)
    return answer.status, set(SECRET.findall(text))


async def _forms(listener: Listener, browser: Browser) -> dict[str, dict[str, str]]:
    key = await issue(listener, "an assistant")
    await person(listener, "ann", "viewer")
    typed: dict[str, Any] = {
        f"{LIST}/new": KEY,
        f"{LIST}/{key}/rotate": {"overlap_s": "86400"},
        "/new-person": {"name": "bo"},
        "/person/ann/link": {},
        "/first-run/key": {},
    }
    pages = {"/person/ann/link": "/person/ann", "/first-run/key": "/first-run"}
    return {
        path: await form_on(browser, pages.get(path, path), path) | form
        for path, form in typed.items()
    }


async def test_a_form_that_is_sent_twice_shows_the_same_secret_twice(
    listener: Listener, browser: Browser
) -> None:
    await browser.sign_in()
    for path, form in (await _forms(listener, browser)).items():
        both = await asyncio.gather(*(sent(browser, path, form) for _ in range(2)))
        both.append(await sent(browser, path, form))
        statuses, shown = zip(*both, strict=True)
        assert statuses == (201, 201, 201), path
        assert len(set.union(*shown)) == 1, path


async def test_what_was_shown_is_gone_after_a_minute_and_nobody_elses(
    listener: Listener, browser: Browser
) -> None:
    await issue(listener, "an assistant")
    await browser.sign_in()
    form = await form_on(browser, f"{LIST}/new", f"{LIST}/new") | KEY
    assert (await sent(browser, f"{LIST}/new", form))[0] == 201
    async with browsing(listener) as other:
        await other.sign_in()
        assert await sent(other, f"{LIST}/new", form) == (400, set())
    listener.clock.advance(KEPT_S)
    assert await sent(browser, f"{LIST}/new", form) == (400, set())


async def test_a_form_that_was_refused_can_be_sent_again(
    listener: Listener, browser: Browser
) -> None:
    await issue(listener, "an assistant")
    await browser.sign_in()
    form = await form_on(browser, f"{LIST}/new", f"{LIST}/new") | KEY
    assert await sent(browser, f"{LIST}/new", form | {"expires_days": "soon"}) == (400, set())
    status, shown = await sent(browser, f"{LIST}/new", form)
    assert (status, len(shown)) == (201, 1)


async def test_a_double_press_without_scripts_shows_the_key(listener: Listener) -> None:
    await issue(listener, "another")
    await person(listener, "ann", "app_owner")
    statuses: list[int] = []

    async def lost(route: Route) -> None:
        # The first one's answer comes too late: the browser has sent the form again.
        if statuses:
            await route.continue_()
        else:
            statuses.append((await route.fetch()).status)

    async with window(listener, scripts=False) as seen:
        await seen.sign_in("ann", PASSWORD)
        await seen.open(f"{LIST}/new")
        for name, said in KEY.items():
            await seen.page.fill(f"#field-{name}", said)
        await seen.page.route("**/keys/new", lost)
        box = await seen.page.locator("text=Issue the key").bounding_box()
        assert box is not None
        await seen.page.mouse.click(box["x"] + 9, box["y"] + 9)
        while not statuses:
            await asyncio.sleep(0.01)
        await seen.page.mouse.click(box["x"] + 9, box["y"] + 9)
        await seen.page.wait_for_selector("#the-key, .notice.bad")
        assert statuses == [201]
        assert (await seen.page.inner_text("#the-key")).startswith("gw_live_")
