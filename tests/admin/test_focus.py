"""Where the focus is, and what becomes of what was typed, when a page or a piece of it comes."""

import asyncio

import pytest

from gateway.oversight.access import Grant
from gateway.store.checkups import CLAIM_WITHIN_US
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.sessions import IDLE_S
from tests.admin import seeding
from tests.admin.chromium import Window, come_true, window
from tests.admin.listener import Listener
from tests.admin.policies.people import PASSWORD, WRITER, signed_in, staff
from tests.admin.policies.test_writing import HOME, TEXT, saved


pytestmark = pytest.mark.anyio
LIVE = "/o/acme/traffic?live=1"
HERE = "document.activeElement.getAttribute('href')"
READ_AGAIN = """() => { window.readings = 0;
  document.addEventListener('htmx:finally:swap', () => { window.readings += 1; }); }"""
TOLD = """() => { window.told = 0;
  const count = (all) => { window.told += all.filter((each) => each.addedNodes.length).length; };
  new MutationObserver(count).observe(document.getElementById('beside'), { childList: true }); }"""


async def read_again(seen: Window, times: int = 1) -> None:
    """Wait until what the page reads by itself was answered so often more."""
    await seen.page.evaluate(READ_AGAIN)
    await come_true(seen.page, f"window.readings >= {times}")


async def test_a_list_that_is_read_again_leaves_the_focus_where_it_was(listener: Listener) -> None:
    await seeding.person(listener, "root", "platform_admin")
    key = await seeding.issue(listener, "assistant")
    await listener.record(*seeding.requests(listener, key, 3))
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open(LIVE)
        await seen.page.keyboard.press("j")
        await seen.page.keyboard.press("j")
        stood = await seen.page.evaluate(HERE)
        await listener.record(*seeding.requests(listener, f"{key}x", 1))
        await read_again(seen, 2)

        assert await seen.page.locator("#rows tbody tr").count() == 4
        assert stood.startswith("/o/acme/traffic/")
        assert await seen.page.evaluate(HERE) == stood
        assert seen.problems == []


async def test_a_session_that_ended_is_told_once_and_the_list_goes_on_after_another(
    listener: Listener,
) -> None:
    await seeding.person(listener, "root", "platform_admin")
    key = await seeding.issue(listener, "assistant")
    await listener.record(*seeding.requests(listener, key, 3))
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open(LIVE)
        await seen.page.evaluate(TOLD)
        listener.clock.advance(IDLE_S + 1)
        await seen.page.wait_for_selector("#beside [role=alert]")
        await read_again(seen, 2)
        assert await seen.page.evaluate("window.told") == 1
        assert await seen.page.locator("#rows tbody tr").count() == 3, "what was shown stays"
        assert await seen.page.locator("#name, h1").all_inner_texts() == ["Traffic"]
        async with seen.page.context.expect_page() as opened:
            await seen.page.click("#beside a")
        other = await opened.value
        await other.fill("#name", "root")
        await other.fill("#password", seeding.PASSWORD)
        await other.click("button:has-text('Sign in')")
        await other.wait_for_selector("h1")
        await come_true(seen.page, "document.getElementById('beside').childElementCount === 0")


async def test_what_opens_over_a_page_leads_back_to_it(listener: Listener) -> None:
    """From nowhere too: a focus in what is closed would take the next letter for typed."""
    await seeding.person(listener, "root", "platform_admin")
    key = await seeding.issue(listener, "assistant")
    where = "document.activeElement.closest('dialog') ? 'dialog' : document.activeElement.id"
    async with window(listener) as seen:
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open("/o/acme/keys")
        for ends in (["Escape"], ["Escape", "Escape"]):
            await seen.page.keyboard.press("Control+k")
            if len(ends) == 2:
                await seen.page.keyboard.type("nothing of that name")
            for each in ends:
                await seen.page.keyboard.press(each)
            assert await seen.page.evaluate(where) == "page"
        await seen.page.keyboard.press("?")
        assert await seen.page.locator("#keys a").count() == 0, "they lead nowhere"
        await seen.page.keyboard.press("Enter")
        assert not await seen.page.is_visible("#keys")
        assert await seen.page.evaluate(where) == "page"
        await seen.page.keyboard.press("j")
        assert await seen.page.evaluate(HERE) == f"/o/acme/keys/{key}"
        await seen.page.keyboard.press("Control+k")
        await seen.page.keyboard.press("Escape")
        assert await seen.page.evaluate(HERE) == f"/o/acme/keys/{key}"
        assert seen.problems == []


async def test_a_form_that_was_refused_has_the_focus_at_what_is_wrong(listener: Listener) -> None:
    await seeding.person(listener, "root", "platform_admin")
    await seeding.person(listener, "ann", "app_owner")
    await seeding.issue(listener, "assistant")
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("ann", seeding.PASSWORD)
        await seen.open("/o/acme/keys/new")
        await page.fill("#field-name", "payroll")
        await page.fill("#field-workspace", "people")
        await page.fill("#field-project", "payroll")
        await page.fill("#field-labels", "no,\N{RIGHT-TO-LEFT OVERRIDE}")
        await page.press("#field-labels", "Enter")
        await page.wait_for_selector("[aria-invalid=true]")
        assert await page.evaluate("document.activeElement.name") == "labels"
        await page.context.clear_cookies()
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open("/models/prices")
        await page.click("button:has-text('Compare')")
        await page.wait_for_selector("main [role=alert]")
        focused = await page.evaluate("document.activeElement.textContent")
        assert focused == await page.inner_text("main [role=alert]")


async def test_the_editor_keeps_what_is_typed_over_the_end_of_a_session(
    listener: Listener,
) -> None:
    await staff(listener)
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit?as=code")
        await page.click(".editor .cm-content")
        await page.keyboard.press("Control+a")
        await page.keyboard.insert_text(TEXT)
        await page.wait_for_selector("#found:has-text('Ready to submit')")
        listener.clock.advance(IDLE_S + 1)
        await page.keyboard.insert_text("\n# more\n")
        await page.wait_for_selector("#found:has-text('Not checked: your session has ended')")
        assert "Ready" not in await page.inner_text("#found")
        await page.select_option("select[name='fact.data_class']", "S4")
        await page.wait_for_selector("#beside [role=alert]")
        assert await page.inner_text("#tried") == "", "no page for signing in is painted there"
        await page.click("text=Save the draft")
        await page.fill("#name", WRITER)
        await page.fill("#password", PASSWORD)
        await page.click("button:has-text('Sign in')")
        await page.click("button:has-text('Send it now')")
        await page.wait_for_selector("text=Saved as revision 1")
        assert await page.input_value("#text") == f"{TEXT}\n# more\n"


async def test_leaving_what_was_typed_and_not_saved_asks_first(listener: Listener) -> None:
    await staff(listener)
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT)
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit?as=code")
        await page.click(".editor .cm-content")
        await page.keyboard.press("Control+End")
        await page.keyboard.type("# more")
        for way in ("text=Review and submit", "nav.tabs >> text=Cards"):
            seen.stays = True
            await page.click(way, no_wait_after=True)
            while not seen.asked:
                await asyncio.sleep(0.02)
            assert (seen.asked, await page.inner_text("h1")) == (["beforeunload"], "Edit"), way
            seen.asked.clear()
        await page.click("text=Save the draft")
        await page.wait_for_selector("text=Saved as revision 2")
        await page.click("text=Review and submit")
        await page.wait_for_selector("#field-reason")
        assert seen.asked == [], "what is saved is left without a question"


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/o/acme/compliance/incidents/new", "title"),
        ("/o/acme/compliance/reveals/new", "reason"),
        (f"{HOME}/edit/rule?section=constraints", "name"),
    ],
)
async def test_a_long_form_asks_before_it_is_left_once_something_stands_in_it(
    listener: Listener, path: str, field: str
) -> None:
    await seeding.issue(listener, "assistant")
    await seeding.person(listener, "cora", "compliance")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).grant("cora", Grant("policy_editor", "*"))
    async with window(listener) as seen:
        await seen.sign_in("cora", seeding.PASSWORD)
        await seen.open(path)
        await seen.page.click("header a >> nth=0")
        await seen.page.wait_for_url(lambda url: path not in url)
        assert seen.asked == [], "nothing was typed"
        await seen.open(path)
        await seen.page.click(f"main [name={field}]")
        await seen.page.keyboard.type("an hour's work")
        seen.stays = True
        await seen.page.click("header a >> nth=0", no_wait_after=True)
        while not seen.asked:
            await asyncio.sleep(0.02)
        assert await seen.page.input_value(f"main [name={field}]") == "an hour's work"


async def test_the_editor_is_used_by_keys_alone_and_says_what_it_suggests(
    listener: Listener,
) -> None:
    await staff(listener)
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit?as=code")
        await page.focus(".editor .cm-content")
        await page.keyboard.press("Control+End")
        await page.keyboard.type("\nver")
        await page.wait_for_selector(".editor li[aria-selected=true]")
        assert await page.evaluate(SUGGESTED) == await page.inner_text(".editor li:first-child")
        await page.keyboard.press("Escape")
        assert await page.evaluate(SUGGESTED) is None
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Save the draft"
        await page.keyboard.press("Shift+Tab")
        assert await page.evaluate("document.activeElement.className") == "editor"
        assert seen.problems == []


async def test_a_rule_is_moved_again_from_where_it_went(listener: Listener) -> None:
    await staff(listener)
    more = "".join(f'[[constraints]]\nname = "{each}"\nno_cache = true\n' for each in "xyz")
    async with signed_in(listener, WRITER) as wanda:
        await saved(wanda, TEXT + more)
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit")
        for place in (1, 2, 3):
            await page.focus("[aria-label='↓ Move stay-home down']")
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"**#constraints-{place}")
            assert await page.evaluate("document.activeElement.id") == f"constraints-{place}"
            await page.keyboard.press("Tab")
            assert await page.evaluate("document.activeElement.textContent") == "stay-home"
        assert await page.locator("li.card-rule strong").all_inner_texts() == [
            *("x", "y", "z", "stay-home", "cheap")
        ]
        assert seen.problems == []


SUGGESTED = """() => {
  const root = document.querySelector('.editor').shadowRoot;
  const text = root.querySelector('.cm-content');
  return root.getElementById(text.getAttribute('aria-activedescendant') ?? '')?.innerText ?? null;
}"""


async def test_a_state_that_is_read_again_stays_the_region_that_a_screen_reader_listens_to(
    listener: Listener,
) -> None:
    await seeding.person(listener, "root", "platform_admin")
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in("root", seeding.PASSWORD)
        await seen.open("/models/providers/engine")
        await page.click("button:has-text('Test the connection')")
        await page.wait_for_selector("#progress:has-text('Waiting for a worker')")
        await page.evaluate("document.getElementById('progress').isTheSame = true")
        listener.clock.advance(CLAIM_WITHIN_US / 1_000_000 + 1)
        await page.wait_for_selector("#progress:has-text('No worker picked this up')")
        assert await page.evaluate("document.getElementById('progress').isTheSame") is True
        assert await page.get_attribute("#progress", "role") == "status"
        assert await page.get_attribute("#progress", "hx-trigger") is None
        assert seen.problems == []
