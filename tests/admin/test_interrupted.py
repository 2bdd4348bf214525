"""Work that something comes between: a session that ends, a role that goes, a page left open."""

import re
from html import unescape

import pytest
from sqlalchemy import delete

from gateway.oversight.access import Grant
from gateway.store.identity.people import PeopleStore
from gateway.store.schema.tables import admin_sessions
from tests.admin.chromium import come_true, window
from tests.admin.listener import Browser, Listener
from tests.admin.policies.people import add_person, signed_in
from tests.admin.seeding import PASSWORD, issue, person


pytestmark = pytest.mark.anyio
TYPED = "what took twenty minutes: <b>a & b</b>"


async def end_sessions(listener: Listener) -> None:
    async with listener.database() as database, database.writing() as connection:
        await connection.execute(delete(admin_sessions))


async def test_a_script_is_told_of_an_end_beside_the_page_and_gets_no_page(
    listener: Listener, browser: Browser
) -> None:
    key_id = await issue(listener, "assistant")
    path = f"/o/acme/keys/{key_id}"
    await browser.sign_in()
    for status, at in ((404, f"{path}x"), (401, path)):
        if status == 401:
            await browser.send("POST", "/sign-out", {})
        answer, text = await browser.send("GET", at, hx_request="true", hx_target="aside#peek")
        told = answer.headers.get("hx-retarget"), answer.headers.get("hx-reswap")
        assert (answer.status, told) == (status, ("#beside", "innerHTML"))
        assert ("<html" in text, "password" in text) == (False, False)
        assert ("Your session has ended" in text) == (status == 401)


async def test_a_row_that_is_opened_after_the_end_leaves_the_list_as_it_is(
    listener: Listener,
) -> None:
    key_id = await issue(listener, "assistant")
    await person(listener, "root", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("root", PASSWORD)
        await seen.open("/o/acme/keys")
        await end_sessions(listener)
        await seen.page.click(f"table a[href$='{key_id}']")
        await come_true(seen.page, "document.querySelector('#beside').innerText !== ''")
        assert "Your session has ended" in await seen.page.inner_text("#beside")
        assert await seen.page.inner_text("#peek") == ""
        assert await seen.violations() == []
        async with seen.page.context.expect_page() as opened:
            await seen.page.click("#beside a")
        other = await opened.value
        await other.fill("#name", "root")
        await other.fill("#password", PASSWORD)
        await other.click("button:has-text('Sign in')")
        await other.wait_for_url(f"{listener.url}/")
        await seen.page.click(f"table a[href$='{key_id}']")
        await seen.page.wait_for_selector("#peek .verdict")
        assert await seen.page.inner_text("#beside") == ""
        assert seen.problems == []


async def test_a_form_of_an_earlier_session_is_kept_and_sent_by_one_more_press(
    listener: Listener, browser: Browser
) -> None:
    """As of who signed in again in another tab."""
    await add_person(listener, "ann", "platform_admin", where="*")
    await issue(listener, "assistant")
    path, form = "/o/acme/new-team", {"name": "payroll", "title": TYPED}
    async with signed_in(listener, "ann") as ann:
        answer, page = await ann.send("POST", path, form, x_gatewright_csrf="0" * 64)
        assert (answer.status, "signed in as ann now" in page) == (403, True)
        assert "another site" not in page
        kept = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page))
        assert {name: unescape(value) for name, value in kept.items()} == form
        (mark,) = re.findall(rf'action="{path}\?csrf=([^"]+)"', page)
        answer, _ = await ann.send("POST", f"{path}?csrf={mark}", form, x_gatewright_csrf="")
        assert answer.status == 303
        strange = {"origin": "https://elsewhere.example", "x_gatewright_csrf": "0" * 64}
        answer, page = await ann.send("POST", path, form, **strange)
        assert (answer.status, TYPED in unescape(page), mark in page) == (403, False, False)
        answer, page = await ann.send(
            "POST", "/api/organisations/acme/teams", body="{}", x_gatewright_csrf="0" * 64
        )
        assert (answer.status, '"code":"permission_denied"' in page) == (403, True)
        assert "earlier session" in page


async def test_what_was_typed_is_shown_to_who_may_not_send_it_any_more(
    listener: Listener,
) -> None:
    await add_person(listener, "ann", "app_owner")
    await issue(listener, "assistant")
    path, form = "/o/acme/new-team", {"name": "payroll", "title": TYPED, "owner": ""}
    async with signed_in(listener, "ann") as ann:
        for role, status in (("viewer", 403), (None, 404)):
            async with listener.database() as database:
                people = PeopleStore(database, listener.clock)
                if role:
                    await people.grant("ann", Grant("viewer", "acme"))
                    await people.revoke("ann", Grant("app_owner", "acme"))
                else:
                    await people.revoke("ann", Grant("viewer", "acme"))
            answer, page = await ann.send("POST", path, form)
            assert answer.status == status
            assert TYPED not in page
            assert TYPED in unescape(page)
            api = path.replace("/o/acme/new-team", "/api/organisations/acme/teams")
            answer, page = await ann.send("POST", api, body="{}")
            assert (answer.status, answer.content_type) == (status, "application/json")
