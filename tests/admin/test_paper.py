"""Pages on paper, as evidence: readable whatever the theme, whole, with days and a zone."""

import re

import pytest

from tests.admin import seeding
from tests.admin.chromium import window
from tests.admin.compliance.archive import PASSWORD, person
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio

UTC = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"')
RULES = "/api/organisations/acme/compliance/obligations"
A4_PX = 718
"""Its width between usual margins, in pixels of style sheets."""

TORN = """() => {
  const torn = [];
  for (const cell of document.querySelectorAll("table.rows td")) {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const whole = cell.matches(".number") ? /\\S.*\\S/g : /[a-z]{1,7}(?![a-z])/gi;
    for (let text = texts.nextNode(); text; text = texts.nextNode())
      for (const found of text.data.matchAll(whole)) {
        const range = document.createRange();
        range.setStart(text, found.index);
        range.setEnd(text, found.index + found[0].length);
        const lines = [...range.getClientRects()].map((each) => Math.round(each.top));
        if (new Set(lines).size > 1) torn.push(found[0]);
      }
  }
  return torn;
}"""
"""Figures and short words of a list that stand on two lines."""
WIDE = """() => Math.max(...[...document.querySelectorAll('td')].map(
  (each) => each.getBoundingClientRect().right))"""
"""How far to the right a list goes."""


PAGES = """() => {
  const main = document.querySelector("main"), broken = [];
  main.style.cssText = "display: block; columns: 718px; column-gap: 0; column-fill: auto";
  const column = (each) => Math.floor(each.getClientRects()[0].left / 700);
  for (let height = 600; height < 1000; height += 20) {
    main.style.height = `${height}px`;
    for (const row of main.querySelectorAll("table.rows tbody tr"))
      if (row.getClientRects().length > 1) broken.push(`${height}: ${row.innerText}`);
    for (const title of main.querySelectorAll(".panel > header")) {
      const first = title.parentElement.querySelector("tbody tr");
      if (first && column(first) !== column(title)) broken.push(`${height}: ${title.innerText}`);
    }
  }
  return broken;
}"""
"""Rows that stand on two pages, and titles on another page than what begins below them: columns of
many heights are broken as pages are."""


@pytest.fixture
async def read(listener: Listener, browser: Browser) -> Browser:
    """Somebody who likes it dark and lives in India, with a list to print."""
    key = await seeding.issue(listener, "the payroll assistant of the people team")
    await listener.record(*seeding.requests(listener, key, 5, findings={"EMAIL": 1, "PERSON": 2}))
    await browser.sign_in()
    return browser


async def test_the_checklist_of_obligations_fits_the_paper(listener: Listener) -> None:
    await seeding.issue(listener, "an assistant")
    async with person(listener, "cora") as cora:
        regimes = '["ai-act", "cert-in", "dpdp", "gdpr", "rbi", "soc2"]'
        order = f'{{"regimes": {regimes}, "reason": "a contract", "seen": 0}}'
        answer, said = await cora.send("POST", RULES, body=order)
        assert answer.status < 300, said
    async with window(listener, width=A4_PX) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.page.emulate_media(media="print")
        await seen.open("/o/acme/compliance/obligations")
        table = await seen.page.locator("table.thirds >> nth=0").bounding_box()
        assert table is not None
        assert table["x"] + table["width"] <= A4_PX
        assert await seen.page.evaluate(PAGES) == []
        # A sticky head would cover the rows below it where a page begins.
        head = "getComputedStyle(document.querySelector('table.rows th')).position"
        assert await seen.page.evaluate(head) == "static"


async def test_the_checklist_of_obligations_fits_a_telephone(listener: Listener) -> None:
    await seeding.issue(listener, "an assistant")
    async with person(listener, "cora") as cora:
        order = '{"regimes": ["gdpr", "ai-act"], "reason": "a contract", "seen": 0}'
        answer, said = await cora.send("POST", RULES, body=order)
        assert answer.status < 300, said
    async with window(listener, width=390) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance/obligations")
        wide = "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)"
        assert {*await seen.page.evaluate(wide)} == {0}
        said = await seen.page.locator("#gdpr").aria_snapshot()
        assert 'columnheader "Current state"' in said
        assert re.search(r"cell ['\"]Current state: ", said)
        assert await seen.faults() == []
        assert await seen.violations() == []


async def test_a_page_on_paper_is_dark_on_white_and_says_when_and_by_whom_it_was_read(
    listener: Listener, read: Browser
) -> None:
    async with window(listener, width=A4_PX) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open("/viewing")
        await seen.page.select_option("#field-theme", "dark")
        await seen.page.select_option("#field-zone", "Asia/Kolkata")
        await seen.page.click("button:has-text('Save')")
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
            assert await seen.page.evaluate(WIDE) <= A4_PX, path
            assert await seen.page.evaluate(TORN) == [], path
            await seen.page.emulate_media(media="screen")


async def test_a_state_is_no_torn_word_on_paper(listener: Listener) -> None:
    """Nine columns leave it less than "waiting" is long; the list of reveals is a report, too."""
    await seeding.issue(listener, "an assistant")
    async with person(listener, "cora") as cora, window(listener, width=A4_PX) as seen:
        form = {"reason": "a complaint of a customer", "ticket": "T-9", "minutes": "30"}
        answer, _ = await cora.send("POST", "/o/acme/compliance/reveals", form)
        assert answer.status == 303
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance/reveals")
        await seen.page.emulate_media(media="print")
        assert await seen.page.locator(".chip:has-text('waiting')").is_visible()
        assert await seen.page.evaluate(TORN) == []
        assert await seen.page.evaluate(WIDE) <= A4_PX


async def test_no_field_is_printed_that_nobody_filled_in(listener: Listener) -> None:
    await seeding.issue(listener, "an assistant")
    async with person(listener, "cora"), window(listener, width=A4_PX) as seen:
        await seen.sign_in("cora", PASSWORD)
        await seen.open("/o/acme/compliance/holds")
        assert await seen.page.is_visible("text=Set a hold")
        await seen.page.emulate_media(media="print")
        assert not await seen.page.is_visible("text=Set a hold")
        await seen.page.emulate_media(media="screen")
        await seen.open("/o/acme/compliance/incidents/new")
        await seen.page.fill("#field-title", "A key was public")
        await seen.page.press("#field-title", "Tab")
        await seen.page.emulate_media(media="print")
        assert await seen.page.is_visible("#field-title")
        assert not await seen.page.is_visible("#field-ticket")


async def test_providers_fit_the_paper(listener: Listener) -> None:
    """Also where sheets are narrower: what wraps on a screen wraps as narrow as any cell."""
    await seeding.issue(listener, "an assistant")
    async with listener.database() as database:
        await seeding.models(listener, database)
    await seeding.person(listener, "petra", "platform_admin")
    async with window(listener, width=A4_PX) as seen:
        await seen.sign_in("petra", seeding.PASSWORD)
        await seen.page.emulate_media(media="print")
        for width in (A4_PX, 660):
            await seen.page.set_viewport_size({"width": width, "height": 900})
            await seen.open("/models")
            assert await seen.page.evaluate("document.documentElement.scrollWidth") <= width
