"""Work that something comes between: a session that ends, a role that goes, a page left open."""

import re
from html import unescape

import pytest
from hypothesis import given as whatever
from hypothesis import strategies as st
from sqlalchemy import delete

from admin.interrupted import parts_of
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
        mark = kept.pop("csrf")
        assert {name: unescape(value) for name, value in kept.items()} == form
        assert f'action="{path}"' in page
        answer, _ = await ann.send("POST", path, form | {"csrf": mark}, x_gatewright_csrf="")
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


PRICES = '[models.house]\r\nnote = "ünïcode & <b>"\r\n'


def of_prices(
    name: str = "", content: bytes = b"", text: str = "", csrf: str = ""
) -> tuple[str, str]:
    """The form of the page of prices as a browser sends it: a body and its type."""
    mark = "gatewrightformboundary"
    parts = [
        ('name="file"; filename="' + name + '"', "application/toml", content.decode()),
        ('name="text"', "", text),
        ('name="csrf"', "", csrf),
    ]
    body = ""
    for said, kind, value in parts:
        of_kind = f"Content-Type: {kind}\r\n" if kind else ""
        body += f"--{mark}\r\nContent-Disposition: form-data; {said}\r\n{of_kind}\r\n{value}\r\n"
    return f"{body}--{mark}--\r\n", f"multipart/form-data; boundary={mark}"


async def test_a_form_with_a_file_brings_the_mark_of_its_session_as_a_part(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann", "platform_admin")
    await browser.sign_in_as("ann", PASSWORD)
    _, page = await browser.send("GET", "/models/prices")
    (mark,) = set(re.findall(r'name="csrf" value="([^"]+)"', page))
    for given, said in ((mark, "mine.toml"), ("0" * 64, "of an earlier session"), ("", "earlier")):
        body, kind = of_prices("mine.toml", PRICES.encode(), csrf=given)
        answer, page = await browser.send(
            "POST", "/models/prices", None, body, content_type=kind, x_gatewright_csrf=""
        )
        assert said in page
        assert (answer.status == 403) == (given != mark)
        assert re.findall(r'name="csrf" value="([^"]+)"', page)[:1] == [mark]


@pytest.mark.parametrize("pasted", [True, False])
async def test_a_file_that_was_picked_or_pasted_comes_back_after_the_session_ended(
    listener: Listener, browser: Browser, pasted: bool
) -> None:
    await person(listener, "ann", "platform_admin")
    given = of_prices(text=PRICES) if pasted else of_prices("mine.toml", PRICES.encode())
    answer, page = await browser.send(
        "POST", "/models/prices", body=given[0], content_type=given[1]
    )
    assert (answer.status, "Your session has ended" in page) == (401, True)
    hidden = re.findall(r'type="hidden" name="(carried[^"]+)" value="([^"]*)"', page)
    kept = {name: unescape(value) for name, value in hidden}
    proof = {"name": "ann", "password": PASSWORD}
    answer, page = await browser.send("POST", "/sign-in", kept | proof)
    assert (answer.status, "Send it now" in page) == (200, True)
    hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page)
    (action,) = re.findall(r'action="(/models/prices)"', page)
    form = {name: unescape(value) for name, value in hidden}
    answer, page = await browser.send("POST", action, form, x_gatewright_csrf="")
    # What is wrong with it is said of the whole of it, under its own name.
    assert ("the file" if pasted else "mine.toml") in page
    assert "nothing in it" not in page
    assert PRICES.strip() in unescape(page).replace("\n", "\r\n").replace("\r\r", "\r")


async def test_a_file_that_cannot_be_kept_is_named_with_what_to_do(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann", "platform_admin")
    body, kind = of_prices("prices.toml", b"#" * 1_600_000, text="typed beside it")
    sent_from = {"referer": f"{listener.url}/models/prices?with=shipped"}
    answer, page = await browser.send(
        "POST", "/models/prices", None, body, content_type=kind, **sent_from
    )
    assert (answer.status, "<strong>prices.toml</strong> did not come along" in page) == (
        401,
        True,
    )
    hidden = re.findall(r'type="hidden" name="(carried[^"]+)" value="([^"]*)"', page)
    kept = {name: unescape(value) for name, value in hidden}
    proof = {"name": "ann", "password": PASSWORD}
    answer, page = await browser.send("POST", "/sign-in", kept | proof)
    assert (answer.status, "did not come along" in page) == (200, True)
    assert ("Send it now" in page, "typed beside it" in page) == (False, True)
    assert 'href="/models/prices"' in page
    await end_sessions(listener)
    for broken in (body[:99], body.replace("form-data", "else"), "x"):
        answer, _ = await browser.send("POST", "/models/prices", body=broken, content_type=kind)
        assert answer.status == 303, "there is nothing in it to keep: it is a sign-in as ever"


NAMES = st.text(st.characters(exclude_characters="%", exclude_categories=["Cs"]), max_size=9)
CONTENTS = st.binary().filter(lambda content: b"--mark" not in content)


@whatever(st.lists(st.tuples(NAMES, st.none() | NAMES, CONTENTS)))
def test_parts_of_a_form_are_read_as_a_browser_writes_them(
    sent: list[tuple[str, str | None, bytes]],
) -> None:
    body = b""
    for name, file, content in sent:
        said = f'Content-Disposition: form-data; name="{escaped(name)}"'
        said += f'; filename="{escaped(file)}"' if file is not None else ""
        body += f"--mark\r\n{said}\r\n\r\n".encode() + content + b"\r\n"
    body += b"--mark--\r\n"
    assert parts_of(body, "mark") == [each for each in sent if each[1] != ""]
    assert parts_of(body[:-6], "mark") == parts_of(body, "") == []


def escaped(name: str) -> str:
    return name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
