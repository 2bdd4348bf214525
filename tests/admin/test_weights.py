"""How much script and style each page loads, as it travels."""

import re

import pytest

from tests.admin import seeding
from tests.admin.chromium import require_scripts
from tests.admin.crawl import follow_links, patterns_of
from tests.admin.listener import Browser, Listener


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]
LIMIT_BYTES = 120_000
_LOADED = re.compile(r'<(?:script[^>]* src|link[^>]* href)="(/static/[^"]+\.(?:js|css))"')


async def weight(browser: Browser, listener: Listener, path: str) -> int:
    """Bytes of one file as a browser fetches it."""
    headers = {"accept-encoding": "gzip"}
    async with browser.session.get(f"{listener.url}{path}", headers=headers) as answer:
        assert answer.status == 200, path
        assert answer.headers["content-encoding"] == "gzip"
        return int(answer.headers["content-length"])


async def test_no_page_loads_more_script_and_style_than_120_kb(
    listener: Listener, browser: Browser
) -> None:
    require_scripts()
    assert listener.application is not None
    await seeding.person(listener, "root", "platform_admin")
    key = await seeding.issue(listener, "the assistant")
    await listener.record(*seeding.requests(listener, key, 5))
    await browser.sign_in_as("root", seeding.PASSWORD)
    starts = ["/", "/o/acme/policies/organisation/edit"]
    addresses = await follow_links(browser, patterns_of(listener.application), starts)
    weights: dict[str, int] = {}
    known: dict[str, int] = {}
    for address in addresses.values():
        _, page = await browser.send("GET", address)
        loaded = set(_LOADED.findall(page))
        for path in loaded - set(known):
            known[path] = await weight(browser, listener, path)
        weights[address] = sum(known[path] for path in loaded)
    assert len(weights) > 15
    assert any("built/editor.js" in path for path in known)
    assert {name: size for name, size in weights.items() if size > LIMIT_BYTES} == {}


async def test_a_file_is_the_same_with_and_without_compression(
    listener: Listener, browser: Browser
) -> None:
    _, page = await browser.send("GET", "/sign-in")
    path = _LOADED.findall(page)[0]
    bodies = []
    for accepted, said in (("gzip", "gzip"), ("identity", None)):
        headers = {"accept-encoding": accepted}
        async with browser.session.get(f"{listener.url}{path}", headers=headers) as answer:
            assert answer.headers.get("content-encoding") == said
            assert answer.headers["vary"] == "accept-encoding"
            bodies.append(await answer.read())
    assert bodies[0] == bodies[1]
