"""The room of cost in a real browser: themes, widths, and a change by keyboard."""

import pytest

from tests.admin.chromium import come_true, window
from tests.admin.listener import Listener
from tests.admin.seeding import DAY_US, PASSWORD, issue, limit, person, requests


pytestmark = pytest.mark.anyio


async def test_the_room_of_cost_stands_in_a_browser_without_a_fault(listener: Listener) -> None:
    key_id = await issue(listener, "payroll assistant")
    await limit(listener, "org:acme", 90_000_000, "month")
    await listener.record(*requests(listener, key_id, 60, over_us=20 * DAY_US))
    await person(listener, "root", "platform_admin")
    async with window(listener) as seen:
        await seen.sign_in("root", PASSWORD)
        change = "/limits/change?account=org:acme&window=month&limit_microusd=5"
        async for view in seen.views():
            for path in ("", "?by=route", "/limits", change, "/limits/rate?account=org:acme"):
                assert await seen.open(f"/o/acme/costs{path}") == 200
                assert await seen.violations() == [], (path, view)
            await seen.open("/o/acme/costs")
            await seen.page.wait_for_selector(".plot canvas")
        assert seen.problems == []


async def test_an_axis_of_tiny_amounts_says_them(listener: Listener) -> None:
    """A thousandth of a cent is no nought: local models and caches cost so little."""
    key_id = await issue(listener, "payroll assistant")
    tiny = requests(listener, key_id, 12, over_us=DAY_US, status="ok", cost_microusd=1)
    await listener.record(*tiny)
    await person(listener, "root", "platform_admin")
    async with window(listener) as seen:
        await seen.page.add_init_script(_SAID)
        await seen.sign_in("root", PASSWORD)
        await seen.open("/o/acme/costs")
        await seen.page.wait_for_selector(".plot canvas")
        await come_true(seen.page, "said.some((word) => word.startsWith('$'))")
        said = await seen.page.evaluate("said.filter((word) => word.startsWith('$'))")

    amounts = {float(word.removeprefix("$")) for word in said}
    assert len(amounts) > 2, said
    assert len(amounts) == len(set(said)), "each step has words of its own"
    assert max(amounts) < 0.001


async def test_a_chart_has_the_days_of_its_page_wherever_the_browser_is(
    listener: Listener,
) -> None:
    """In New York each day of UTC began five hours late."""
    key_id = await issue(listener, "payroll assistant")
    await listener.record(*requests(listener, key_id, 12, over_us=9 * DAY_US))
    await person(listener, "root", "platform_admin")
    drawn = []
    for zone in ("UTC", "America/New_York"):
        async with window(listener, zone=zone) as seen:
            await seen.page.add_init_script(_SAID)
            await seen.sign_in("root", PASSWORD)
            await seen.open("/o/acme/costs")
            await seen.page.wait_for_selector(".plot canvas")
            await come_true(seen.page, "said.some((word) => word.startsWith('Jan '))")
            drawn.append(await seen.page.evaluate("[...new Set(places)].sort()"))

    assert any(each.startswith("Jan 1 at ") for each in drawn[0]), drawn[0]
    assert any(each.startswith("2027 at ") for each in drawn[0]), "once, below its first day"
    assert not any("/" in each for each in drawn[0]), "1/2 is a day in January or in February"
    assert drawn[0] == drawn[1]


_SAID = """window.said = [];
window.places = [];
const drawn = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  window.said.push(text);
  window.places.push(`${text} at ${more.map(Math.round)}`);
  return drawn.call(this, text, ...more);
};"""
"""What is written on any canvas, by its words, and where."""


async def test_a_limit_is_changed_without_scripts_and_by_keyboard(listener: Listener) -> None:
    await issue(listener, "an assistant")
    await person(listener, "root", "platform_admin")
    async with window(listener, scripts=False) as seen:
        page = seen.page
        await seen.sign_in("root", PASSWORD)
        await seen.open("/o/acme/costs/limits/change?account=org:acme&window=month")
        await page.focus("#field-limit_microusd")
        await page.keyboard.type("120")
        await page.keyboard.press("Enter")
        await page.wait_for_selector(".consequence")
        await page.focus("form[method=post] button:has-text('Set')")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/o/acme/costs/limits?open=*")
        assert "$120.00" in await page.inner_text("table")
        assert seen.problems == []
