"""The compliance officer's day in a real browser: every screen, both themes, three widths."""

import asyncio
import re
from pathlib import Path

import pytest

from gateway.audit.proving import offline
from tests.admin.chromium import Window, window
from tests.admin.compliance.archive import PASSWORD, SAID, converse, log_keys, person
from tests.admin.listener import Listener


pytestmark = pytest.mark.anyio
HOSTILE = "<script>alert(1)</script>\"'>\u202e" + "x" * 300
AT = "/o/acme/compliance"
SCREENS = ("", "/reveals", "/reveals/new", "/holds", "/retention", "/erasures", "/packs/new")


async def test_every_screen_stands_with_hostile_words_in_it(listener: Listener) -> None:
    await converse(listener, ["ann"])
    paths = [f"{AT}{screen}" for screen in SCREENS]
    async with person(listener, "cora") as cora:
        form = {"request_id": "", "reason": HOSTILE, "ticket": HOSTILE, "minutes": "5"}
        paths.append((await cora.send("POST", f"{AT}/reveals", form))[0].headers["location"])
        await cora.send("POST", f"{AT}/holds", {"user": HOSTILE, "reason": HOSTILE})
        form = {"scope": "user", "user": "ann", "law": "gdpr", "ticket": HOSTILE, "deed": "open"}
        paths.append((await cora.send("POST", f"{AT}/erasures", form))[0].headers["location"])
        form = {"since": "2001-01-01", "until": "2001-01-01", "recipient": HOSTILE[:200]}
        paths.append((await cora.send("POST", f"{AT}/packs", form))[0].headers["location"])
    async with window(listener) as seen:
        await seen.sign_in("cora", PASSWORD)
        async for view in seen.views():
            for path in [*paths, f"{AT}/packs"]:
                assert await seen.open(path) == 200, path
                assert await seen.violations() == [], (path, view)
                wide = await seen.page.evaluate("document.documentElement.scrollWidth - innerWidth")
                assert wide <= 0, (path, view, wide)
        assert seen.problems == []


async def test_she_reveals_with_four_eyes_and_exports_a_pack_that_a_stranger_accepts(
    listener: Listener, tmp_path: Path
) -> None:
    (wanted,) = await converse(listener, ["ann"])
    async with person(listener, "cora"), person(listener, "dan"):
        pass
    async with window(listener) as cora, window(listener, scripts=False) as dan:
        await cora.sign_in("cora", PASSWORD)
        await dan.sign_in("dan", PASSWORD)
        await cora.open(f"{AT}/reveals/new?request={wanted}")
        await cora.page.fill("[name=reason]", "A complaint about an answer")
        await cora.page.fill("[name=ticket]", "T-12")
        await cora.page.click("button:has-text('Send the request')")
        await cora.page.wait_for_url(re.compile(r"/reveals/[0-9a-f]+$"))
        one = cora.page.url.removeprefix(listener.url)
        await dan.open(one)
        await dan.page.click("text=Approve 30 minutes")
        assert "cora may read for another" in await dan.page.inner_text("main")
        await cora.open(one)
        await cora.page.click("text=Show the content")
        await cora.page.wait_for_selector("#content:focus")
        assert await cora.page.inner_text("main pre") == f"{SAID}ann"
        await dan.open(one)
        await dan.page.click("text=End it now")
        await cora.page.click("text=Read again")
        assert await cora.page.locator("main pre").count() == 0
        file = await _pack(cora, tmp_path)
        assert cora.problems == []
    assert offline.check_pack(file, log_keys(listener))["records"] == 2


async def _pack(seen: Window, folder: Path) -> Path:
    await seen.open(f"{AT}/packs/new")
    await seen.page.fill("[name=since]", "2020-01-01")
    await seen.page.fill("[name=until]", "2099-01-01")
    await seen.page.fill("[name=recipient]", "The authority")
    await seen.page.click("text=Preview")
    assert "2 records, number 1 to 2" in await seen.page.inner_text("main")
    await seen.page.click("button:has-text('Create the pack')")
    async with seen.page.expect_download() as waiting:
        await seen.page.click("text=Download the pack")
    download, file = await waiting.value, folder / "pack.zip"
    await asyncio.wait_for(download.save_as(file), 30)
    return file
