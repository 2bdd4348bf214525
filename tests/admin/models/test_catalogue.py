"""What is configured stands on the page of models, with its price and without its credential."""

import re
from pathlib import Path

import msgspec
import pytest

from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio
THINKER = """
[targets.thinker]
provider = "engine"
model = "thinker"
catalogue = "in-house"
tier = "frontier"
"""


def rows(page: str) -> list[str]:
    return re.findall(r"<tr\b.*?</tr>", page, re.DOTALL)


async def test_providers_and_targets_stand_with_route_price_and_date(browser: Browser) -> None:
    await browser.sign_in()
    answer, page = await browser.send("GET", "/models")
    assert answer.status == 200

    managed = next(row for row in rows(page) if ">managed</a>" in row and "openai" in row)
    assert "missing" in managed
    house = next(row for row in rows(page) if re.search(r"<td[^>]*>house", row))
    assert "in-house" in house
    claude = next(row for row in rows(page) if re.search(r"<td[^>]*>claude", row))
    assert re.search(r"\$\d", claude)
    assert re.search(r"[A-Z][a-z]{2} \d{1,2}, 20\d\d", claude)


async def test_a_target_stands_with_what_decides_about_requests(
    tmp_path: Path, sqlite_url: str
) -> None:
    async with Listener(tmp_path, sqlite_url, THINKER) as listener, browsing(listener) as browser:
        await browser.sign_in()
        _, page = await browser.send("GET", "/models")
        _, told = await browser.send("GET", "/api/models")
    cells = {
        row[0]: row
        for row in (re.findall(r"<td[^>]*>(.*?)</td>", each) for each in rows(page))
        if row
    }
    assert cells["thinker"][3].startswith("frontier <")
    assert cells["house"][3] == "cheap"
    # Longer inputs cost more, so they are not offered.
    claude = next(cell for name, cell in cells.items() if name.startswith("claude"))
    assert claude[4].startswith("272,000<br>")
    assert "of 1,050,000" in claude[4]
    tiers = {each["name"]: each["tier"] for each in msgspec.json.decode(told)["targets"]}
    assert tiers == {"house": "cheap", "claude": "mid", "thinker": "frontier"}


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
