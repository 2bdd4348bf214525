"""The database goes away while pages are open and forms are half filled in, and comes back."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from playwright.async_api import expect
from sqlalchemy.engine import make_url

from tests.admin.chromium import window
from tests.admin.listener import Listener, browsing
from tests.admin.seeding import PASSWORD, person
from tests.admin.test_access_of_pages import PUBLIC
from tests.cable import Cable


pytestmark = [pytest.mark.anyio, pytest.mark.postgres]
AT = "/o/acme/keys/new"


@pytest.fixture
async def cable(
    database_maker: Callable[[str], tuple[str, Callable[[], None]]],
) -> AsyncIterator[tuple[Cable, str]]:
    """A cable to a database of PostgreSQL, and the address of that by way of it."""
    text, end = database_maker("postgresql")
    url = make_url(text)
    host = str(url.query.get("host") or url.host)
    port = int(str(url.query.get("port") or url.port or 5432))
    async with Cable(host, port) as made:
        through = url.set(host="127.0.0.1", port=made.port, query={})
        yield made, through.render_as_string(hide_password=False)
    end()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no scripts"])
async def test_a_form_that_met_no_database_is_sent_again_by_one_press(
    tmp_path: Path, cable: tuple[Cable, str], *, scripts: bool
) -> None:
    line, url = cable
    async with Listener(tmp_path, url) as listener:
        await listener.issue_key("the first")
        await person(listener, "ann", "platform_admin")
        async with window(listener, scripts=scripts) as seen:
            page = seen.page
            await seen.sign_in("ann", PASSWORD)
            await seen.open(AT)
            await page.fill("#field-name", 'payroll <"assistant">')
            await page.fill("#field-workspace", "people")
            await page.fill("#field-project", "payroll")
            line.cut()
            await page.click("main button[type=submit] >> nth=-1")
            await expect(page.locator("[role=alert]")).to_contain_text("may or may not")
            look = page.locator("a:has-text('Check whether it was done')")
            assert await look.get_attribute("href") == AT
            # Still away: what was typed is kept once more.
            async with page.expect_navigation():
                await page.click("button:has-text('Send it again')")
            await expect(page.locator("[role=alert]")).to_contain_text("may or may not")
            line.mend()
            await page.click("button:has-text('Send it again')")
            assert (await page.inner_text("#the-key")).startswith("gw_live_")
            await seen.open("/o/acme/keys")
            await expect(page.locator("main table.rows")).to_contain_text('payroll <"assistant">')


async def test_what_met_no_database_on_its_way_in_is_kept_without_any_secret(
    tmp_path: Path, cable: tuple[Cable, str]
) -> None:
    line, url = cable
    async with Listener(tmp_path, url) as listener, browsing(listener) as browser:
        await listener.issue_key("the first")
        await person(listener, "ann", "platform_admin")
        line.cut()
        form = {"name": "ann", "password": PASSWORD}
        answer, plain = await browser.send("POST", "/sign-in", form)
        carried = {"carried-path": AT, "carried.name": "waits", **form}
        again, page = await browser.send("POST", "/sign-in", carried)

    assert (answer.status, again.status) == (503, 503)
    assert {"/sign-in", "/setup", "/invitation"} <= PUBLIC
    assert PASSWORD not in plain + page
    assert "Go back" in plain
    assert f'action="{AT}"' in page
    assert 'name="name" value="waits"' in page
