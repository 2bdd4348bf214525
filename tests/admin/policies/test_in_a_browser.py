"""The room in a real browser: every screen in themes and widths, by keys, without scripts."""

import pytest

from tests.admin.chromium import BUILT, window
from tests.admin.listener import Listener
from tests.admin.policies.people import (
    APPROVER,
    PASSWORD,
    WRITER,
    add_person,
    signed_in,
    staff,
)
from tests.admin.policies.test_rolling_out import STRICT, stepped, submitted
from tests.admin.policies.test_writing import HOME, TEXT, saved
from tests.admin.policies.traffic import EXAMPLES, record_traffic


pytestmark = pytest.mark.anyio
CUT_OFF = """() => [...document.querySelectorAll('#tried .scroll')]
  .filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.ariaLabel)"""
EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\N{RIGHT-TO-LEFT OVERRIDE}"
SCREENS = (
    "/o/acme/policies",
    HOME,
    f"{HOME}/history?a=1&b=2&at=2026-01-01T00:00",
    f"{HOME}/versions/1",
    f"{HOME}/versions/2",
    f"{HOME}/edit",
    f"{HOME}/edit?as=code",
    f"{HOME}/edit/rule?section=constraints&place=0",
    f"{HOME}/submit",
    "/o/acme/policies/simulator?a=1&b=draft&fact.data_class=S2",
    "/o/acme/approvals",
)


async def furnished(listener: Listener) -> None:
    """A live version, one in review, a draft, traffic, and hostile text wherever people write."""
    await staff(listener)
    await add_person(listener, "boss", "policy_editor", "approver")
    await record_traffic(listener, EXAMPLES * 3)
    hostile = STRICT + f"# {EVIL}\n"
    async with signed_in(listener, WRITER) as wanda, signed_in(listener, APPROVER) as anton:
        path = await submitted(wanda, hostile, EVIL)
        await stepped(anton, path, "approve", reason=EVIL)
        await stepped(anton, path, "publish", reason=EVIL + "x" * 10_000)
        denial = f"deny = {EVIL.replace(chr(34), '')!r}"
        await submitted(wanda, hostile.replace('deny = "cannot be"', denial), EVIL)
        await saved(wanda, TEXT + f"# {EVIL}\n")


async def test_every_screen_stands_in_both_themes_and_three_widths(listener: Listener) -> None:
    await furnished(listener)
    async with window(listener) as seen:
        await seen.sign_in("boss", PASSWORD)
        async for view in seen.views():
            for path in SCREENS:
                assert await seen.open(path) == 200, path
                assert await seen.violations() == [], (path, view)
                assert seen.problems == [], (path, view)


async def test_of_what_is_checked_while_somebody_types_the_verdict_alone_is_read_out(
    listener: Listener,
) -> None:
    """The whole list was a live region, and put in anew at each pause in typing."""
    await staff(listener)
    if not BUILT.with_name("editor.js").exists():
        pytest.skip("the pages' scripts were not built: make scripts")
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit?as=code")
        await page.evaluate("window.verdict = document.querySelector('#found [aria-live=polite]')")
        await page.click(".editor .cm-content")
        for text, verdict in (("nonsense\n", "Not ready yet."), (TEXT, "Ready to submit")):
            await page.keyboard.press("Control+a")
            await page.keyboard.insert_text(text)
            await page.wait_for_selector(f"#found [aria-live=polite]:has-text('{verdict}')")
            assert await page.locator("#found .marks").count() == 1
            assert await page.locator("[aria-live] .marks").count() == 0
            # As the page draws them itself: an icon and the word.
            assert await page.locator("#found [aria-live] > .chip > svg").count() == 1
            marks = await page.locator("#found .marks > li").count()
            assert await page.locator("#found .marks > li > .chip > svg").count() == marks
            # What is put in anew is read out anew, though it says the same.
            assert await page.evaluate("verdict === document.querySelector('#found [aria-live]')")
        assert seen.problems == []


async def test_the_editor_completes_marks_and_saves_by_keys(listener: Listener) -> None:
    await staff(listener)
    await record_traffic(listener, EXAMPLES)
    if not BUILT.with_name("editor.js").exists():
        pytest.skip("the pages' scripts were not built: make scripts")
    async with window(listener) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit?as=code")
        await page.click(".editor .cm-content")
        await page.keyboard.press("Control+End")
        await page.keyboard.type('[[constraints]]\nname = "home"\nwhen = \'data_cl')
        await page.wait_for_selector(".editor li[aria-selected=true]")
        await page.keyboard.press("Enter")
        await page.keyboard.type(' >= "S7"\'\nallow_only = { in_house = true }\n')
        await page.wait_for_selector("#found button:has-text('line 12')")
        assert "S7" in await page.inner_text("#found")
        before = await page.input_value("#text")
        await page.keyboard.press("Control+z")
        assert before.startswith(await page.input_value("#text"))
        assert before != await page.input_value("#text")
        text = TEXT.replace("cheapest", "frontier")
        await page.click(".editor .cm-content")
        await page.keyboard.press("Control+a")
        await page.keyboard.insert_text(text)
        await page.wait_for_selector("#found:has-text('Ready to submit')")
        assert await page.locator("[aria-live] .marks").count() == 0
        assert "0 test cases passed" not in await page.inner_text("#found")
        # What is read out is a sentence that stood there before; neither a table nor a new one.
        await page.evaluate("window.stood = document.getElementById('decided')")
        await page.select_option("select[name='fact.data_class']", "S4")
        await page.wait_for_selector("#tried:has-text('stay-home')")
        assert await page.locator("#decided[aria-live=polite] .verdict").count() == 1
        assert await page.evaluate("window.stood === document.getElementById('decided')")
        assert await page.locator("#tried table").count() == 2
        assert await page.locator("[aria-live] table, [aria-live] details").count() == 0
        assert await page.evaluate(CUT_OFF) == [], "no column of the pane is out of sight"
        await page.click("text=Save the draft")
        await page.wait_for_selector("text=Saved as revision 1")
        assert await page.input_value("#text") == text
        assert seen.problems == []


async def test_what_is_looked_for_over_the_editor_is_found_in_the_finder(
    listener: Listener,
) -> None:
    await furnished(listener)
    async with window(listener) as seen:
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit")
        checks = await seen.page.inner_text("#found")
        await seen.page.keyboard.press("Control+k")
        await seen.page.keyboard.type("simul")
        await seen.page.wait_for_selector("#finder #ways li")
        assert await seen.page.inner_text("#found") == checks
        assert seen.problems == []


async def test_a_rule_is_written_submitted_and_approved_without_scripts(listener: Listener) -> None:
    await staff(listener)
    await record_traffic(listener, EXAMPLES)
    async with window(listener, scripts=False) as seen:
        page = seen.page
        await seen.sign_in(WRITER, PASSWORD)
        await seen.open(f"{HOME}/edit")
        await page.click("text=Add a constraint")
        await page.fill("#field-name", "stay-home")
        await page.select_option("select[name='row0.fact']", "data_class")
        await page.select_option("select[name='row0.operator']", ">=")
        await page.fill("input[name='row0.value']", "S2")
        await page.select_option("select[name='allow_only.in_house']", "true")
        await page.click("text=Save to the draft")
        assert "Saved as revision 1" in await page.inner_text("main")
        await page.click("text=Review and submit")
        assert "1 of 4" in await page.inner_text("#impact")
        await page.fill("#field-reason", "T-9")
        await page.click("text=Submit for approval")
        assert await page.inner_text("h1") == "Version 1"
        await page.click(".menu.right summary")
        await page.click("text=Sign out")
        await seen.sign_in(APPROVER, PASSWORD)
        await page.click("text=1 to approve")
        await page.fill("#reason-1", "agreed")
        await page.click("button:has-text('Approve')")
        assert "Nothing to approve" in await page.inner_text("main")


@pytest.mark.parametrize("scripts", [True, False])
async def test_keys_are_named_only_where_a_script_hears_them(
    listener: Listener, *, scripts: bool
) -> None:
    await staff(listener)
    async with window(listener, scripts=scripts) as seen:
        await seen.sign_in(APPROVER, PASSWORD)
        await seen.open("/o/acme/approvals")
        assert await seen.page.locator("kbd:has-text('d')").count() == 0
        async with signed_in(listener, WRITER) as wanda:
            await submitted(wanda, TEXT)
        await seen.open("/o/acme/approvals")
        assert await seen.page.locator("kbd:has-text('d') >> visible=true").count() == scripts
