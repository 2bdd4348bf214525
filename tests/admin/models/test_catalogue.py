"""What is configured stands on the page of models, with its price and without its credential."""

import re

import pytest

from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio


async def test_providers_and_targets_stand_with_route_price_and_date(browser: Browser) -> None:
    await browser.sign_in()
    answer, page = await browser.send("GET", "/models")
    assert answer.status == 200

    rows = re.findall(r"<tr>.*?</tr>", page, re.DOTALL)
    managed = next(row for row in rows if ">managed</a>" in row and "openai" in row)
    assert "missing" in managed
    house = next(row for row in rows if row.startswith("<tr><td>house"))
    assert "in-house" in house
    claude = next(row for row in rows if row.startswith("<tr><td>claude"))
    assert re.search(r"\$\d", claude)
    assert re.search(r"20\d\d-\d\d-\d\d", claude)


async def test_the_same_stands_in_the_json_api(listener: Listener, browser: Browser) -> None:
    await browser.sign_in()
    _, found = await browser.send("GET", "/api/models")
    assert '"problem":""' in found
    assert listener.settings.targets["claude"].model in found


async def test_no_credential_is_ever_on_the_page(
    listener: Listener, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "planted-" + "credential"
    monkeypatch.setenv("GATEWRIGHT_TEST_ABSENT_KEY", secret)
    await browser.sign_in()
    for path in ("/models", "/api/models"):
        _, page = await browser.send("GET", path)
        assert secret not in page
    assert "present" in (await browser.send("GET", "/models"))[1]
