"""The planner in the browser: the worked example at once, any config, faults beside their field."""

import msgspec
import pytest

from gateway.oversight.planner import Plan
from tests.admin.chromium import window
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio
AT = "/models/planner"
HOSTILE = '<script>alert(1)</script>"'


async def test_the_page_and_the_api_reckon_the_worked_example(browser: Browser) -> None:
    await browser.sign_in()
    _, page = await browser.send("GET", AT)
    answer, text = await browser.send("POST", "/api/planner", body="{}")
    found = msgspec.json.decode(text, type=Plan)

    assert answer.status == 200
    assert (found.racks, found.racks_for_memory, found.sessions) == (16, 2, 6000)
    assert "16 racks of 72 GPUs: speed decides" in page
    assert "524,288 B" in page


async def test_a_field_that_is_wrong_says_so_and_nothing_typed_is_lost(browser: Browser) -> None:
    await browser.sign_in()
    for form, said in (
        ({"config": HOSTILE}, "This is no JSON."),
        ({"users": HOSTILE}, "This is no number."),
        ({"users": "nan"}, "This is no number."),
        ({"gpu_gb": "1e300"}, "This is no number."),
        ({"peak_factor": "2,5"}, "This is no number."),
        ({"hours_a_day": "0"}, "hours_a_day is from"),
        ({"precision": "fp1"}, "There is no such precision."),
    ):
        answer, page = await browser.send("POST", AT, form | {"input_tokens": "12345"})
        assert (answer.status, said in page, "12345" in page) == (400, True, True), form
        assert "<script>alert" not in page
    wrong, _ = await browser.send("POST", "/api/planner", body='{"model": {"layers": -1}}')
    assert wrong.status == 400


async def test_it_stands_in_a_browser_without_scripts_running_it(listener: Listener) -> None:
    async with window(listener) as seen:
        await seen.sign_in_with_token(listener.token)
        async for view in seen.views():
            await seen.open(AT)
            await seen.page.fill("[name=users]", "1000")
            await seen.page.click("button:has-text('Reckon')")
            assert await seen.page.input_value("[name=users]") == "1000"
            assert await seen.violations() == [], view
        assert seen.problems == []
