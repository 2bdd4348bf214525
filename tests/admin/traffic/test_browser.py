"""The room of traffic in a real browser: themes, widths, by keyboard, without scripts."""

import pytest

from tests.admin.chromium import window
from tests.admin.listener import Listener
from tests.admin.traffic.test_list import HOSTILE, LIST
from tests.admin.traffic.world import NOW_US, Asked, World


pytestmark = pytest.mark.anyio


async def _world(listener: Listener) -> list[str]:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    made = World(listener)
    await made.open()
    return await made.write(
        *(Asked(n, ago_s=5000 - 200 * n) for n in range(20)),
        Asked(50, data_class="S3", findings={"CREDIT_CARD": 1}, content=b"x"),
        Asked(51, model_requested=HOSTILE, outcome={"error": HOSTILE}),
    )


async def test_the_room_stands_at_every_width_without_a_fault(listener: Listener) -> None:
    ids = await _world(listener)
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        for path in (LIST, f"{LIST}?q=cost:>x", f"{LIST}?q=nothing&live=1", f"{LIST}/{ids[20]}"):
            async for theme, width in seen.views():
                await seen.open(path)
                assert await seen.violations() == [], (path, theme, width)
                wide = await seen.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (path, theme, width)
        assert seen.problems == []


CUT = """() => [...document.querySelectorAll("main .scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth).map((box) => box.ariaLabel)"""


async def test_facets_leave_room_for_the_list_on_a_telephone_and_for_each_other(
    listener: Listener,
) -> None:
    await _world(listener)
    async with window(listener, width=390) as seen:
        await seen.sign_in_with_token(listener.token)
        for path in (LIST, "/o/acme/audit"):
            await seen.open(path)
            high = await seen.page.evaluate("document.querySelector('.facets').offsetHeight")
            assert high < 40, path
            await seen.page.click(".facets summary")
            assert await seen.page.is_visible(".facets h2 >> nth=0")
            assert await seen.faults() == [], path
            pushed = await seen.page.evaluate(
                "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)"
                "(document.querySelector('.facets'))"
            )
            assert pushed <= 0, f"{path}: what was behind the edge was found by pushing only"
            over = await seen.page.evaluate(
                "[...document.querySelectorAll('.facet')]"
                ".filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
            )
            assert over == [], path


@pytest.mark.parametrize("scripts", [True, False])
async def test_facets_stand_beside_the_list_where_there_is_room(
    listener: Listener, *, scripts: bool
) -> None:
    await _world(listener)
    async with window(listener, scripts=scripts) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        assert await seen.page.is_visible(".facets h2 >> nth=0")
        assert not await seen.page.is_visible(".facets summary")
        await seen.page.locator(".facets a >> nth=0").focus()
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_url("**q=*")


async def test_a_chart_has_its_place_before_it_is_drawn_and_none_without_scripts(
    listener: Listener,
) -> None:
    await _world(listener)
    high = "document.querySelector('.plot').offsetHeight"
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        await seen.page.wait_for_selector(".plot canvas")
        drawn = await seen.page.evaluate(high)
        await seen.page.route("**/built/chart.js*", lambda route: route.abort())
        await seen.open(LIST)
        assert await seen.page.evaluate(high) == drawn > 180
    async with window(listener, scripts=False) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        assert not await seen.page.is_visible(".plot")


async def test_no_column_is_cut_on_a_screen_of_1280_points(listener: Listener) -> None:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    made = World(listener)
    await made.open()
    found = {"CREDIT_CARD": 1, "EMAIL": 2}
    refused = {"error": "inspection_incomplete", "http_status": 503}
    await made.write(
        *(Asked(n, data_class="S3", findings=found, ago_s=n) for n in range(9)),
        Asked(9, data_class="S3", findings=found, status="incomplete", outcome=refused),
    )
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        for path in (LIST, "/o/acme/audit", "/", "/o/acme/policies", "/models"):
            await seen.open(path)
            await seen.page.wait_for_timeout(200)
            assert await seen.page.evaluate(CUT) == [], path


async def test_the_list_is_walked_by_keyboard(listener: Listener) -> None:
    ids = await _world(listener)
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        await seen.page.keyboard.press("/")
        await seen.page.keyboard.type("pii:CREDIT_CARD")
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_url("**q=pii*")
        await seen.page.keyboard.press("j")
        await seen.page.keyboard.press("Enter")
        await seen.page.wait_for_selector("#peek h2")
        drawer = await seen.page.inner_text("#peek")
        assert ids[20] in drawer
        assert "812 · 240" in drawer, "small screens have tokens in the drawer alone"
        assert await seen.violations() == []
        assert await seen.page.evaluate(FOCUSED) == "Close", "the drawer is at the end of the page"
        await seen.page.keyboard.press("Escape")
        assert await seen.page.inner_html("#peek") == ""
        opened = await seen.page.evaluate("document.activeElement.getAttribute('href')")
        assert opened == f"{LIST}/{ids[20]}", "back where one was"
        await seen.open(LIST)
        assert await seen.page.evaluate(UNDER_THE_BAR) is False
        assert seen.problems == []


FOCUSED = "document.activeElement.textContent"
UNDER_THE_BAR = """() => {
  const link = [...document.querySelectorAll("#rows tbody a")][9];
  scrollTo(0, link.getBoundingClientRect().top + scrollY - 20);
  link.focus();
  const { left, top, height } = link.getBoundingClientRect();
  return document.elementFromPoint(left + 2, top + height / 2).closest(".bar") !== null;
}"""
"""Whether a link that gets the focus stays behind what stands above every page."""


async def test_a_row_can_be_opened_beside_the_list_once_the_page_has_loaded(
    listener: Listener,
) -> None:
    await _world(listener)
    async with window(listener) as seen:
        await seen.page.add_init_script(
            "addEventListener('load', () => { window.atLoad = document"
            ".querySelector('#rows tbody a')?.hasAttribute('data-htmx-powered'); })"
        )
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        assert await seen.page.evaluate("window.atLoad") is True


async def test_the_room_is_read_without_scripts(listener: Listener) -> None:
    ids = await _world(listener)
    async with window(listener, scripts=False) as seen:
        await seen.open("/sign-in")
        await seen.page.click("summary")
        await seen.page.fill("#token", listener.token)
        await seen.page.click("text=Sign in with the token >> nth=-1")
        await seen.open(LIST)
        await seen.page.fill('input[type="search"][name="q"]', "class:S3")
        await seen.page.click("button:has-text('Filter')")
        await seen.page.click("table.rows tbody a")
        assert ids[20] in await seen.page.inner_text("h1")


PAINTED = """(name) => {
  const canvas = document.querySelector(".plot canvas");
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  const { width, height } = canvas;
  const all = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const found = [];
  for (let at = 0; at < all.length; at += 4)
    if (all[at] === red && all[at + 1] === green && all[at + 2] === blue && all[at + 3] === 255)
      found.push(((at / 4) % width) / width);
  return found;
}"""
"""Where on the chart something is painted in a colour: its distance from the left, 0 to 1."""


async def test_what_was_not_answered_hides_nothing_on_the_chart(listener: Listener) -> None:
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    made = World(listener)
    await made.open()
    await made.write(Asked(1), Asked(2), Asked(3, status="failed"), Asked(4, status="failed"))
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        await seen.page.wait_for_selector(".plot canvas")
        answered = await seen.page.evaluate(PAINTED, "--accent")
        others = await seen.page.evaluate(PAINTED, "--refused")
    assert len(answered) == len(others) > 100, "two of each, in one second"
    # The one second there is takes the whole width, and both stand in its middle.
    assert 0.3 < min(answered) < max(answered) <= min(others) < max(others) < 0.7


async def test_a_bar_is_as_high_as_what_it_counts(listener: Listener) -> None:
    """Of four and two the axis began shortly below two, and twice as much looked ten times it."""
    listener.clock.advance((NOW_US - listener.clock.utc_us()) / 1e6 + 60)
    made = World(listener)
    await made.open()
    await made.write(
        *(Asked(number, status="ok" if number < 4 else "failed") for number in range(6))
    )
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        await seen.open(LIST)
        await seen.page.wait_for_selector(".plot canvas")
        answered = await seen.page.evaluate(PAINTED, "--accent")
        others = await seen.page.evaluate(PAINTED, "--refused")
    assert 1.8 < len(answered) / len(others) < 2.2


async def test_a_menu_of_the_page_opens_on_the_screen(listener: Listener) -> None:
    await _world(listener)
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        for width in (1280, 600, 390, 320):
            await seen.page.set_viewport_size({"width": width, "height": 900})
            for name in ("Views", "Export"):
                await seen.open(LIST)
                await seen.page.click(f".deeds summary:has-text('{name}')")
                box = await seen.page.locator(".deeds .menu[open] > div").bounding_box()
                assert box is not None
                assert box["x"] >= 0, (name, width)
                assert box["x"] + box["width"] <= width, (name, width)
                wide = await seen.page.evaluate("document.documentElement.scrollWidth")
                assert wide <= width, (name, width)
