"""The system's Chromium, driven by Playwright, before a running admin listener.

It reports what a reader would never see: errors of scripts, what the content security policy
stopped, and dialogs that somebody's text opened.
"""

import asyncio
import os
import shutil
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from playwright.async_api import Browser, Dialog, Page, Playwright, async_playwright

from tests.admin.listener import Listener


ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "admin" / "assets" / "node_modules" / "axe-core" / "axe.min.js"
BUILT = ROOT / "admin" / "static" / "built" / "shell.js"
QUIET = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
)


_FAULTS = """() => {
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const found = wide > 0 ? [`scrolls sideways by ${wide} px`] : [];
  const ids = [...document.querySelectorAll('[id]')].map((each) => each.id);
  const twice = ids.filter((id, at) => ids.indexOf(id) < at);
  for (const id of new Set(twice)) found.push(`id twice: ${id}`);
  let last = 0;
  for (const each of document.querySelectorAll('h1, h2, h3, h4')) {
    if (each.offsetParent === null) continue;
    const level = Number(each.tagName[1]);
    if (level > last + 1) found.push(`h${level} after h${last}: ${each.textContent.slice(0, 40)}`);
    last = level;
  }
  for (const each of document.querySelectorAll('a, button, summary, select, input, textarea')) {
    const { width, height } = each.getBoundingClientRect();
    if (!width || !height || getComputedStyle(each).display === 'inline') continue;
    if (['checkbox', 'radio'].includes(each.type) || each.classList.contains('skip')) continue;
    if (Math.min(width, height) < 23.9)
      found.push(`small: ${each.outerHTML.slice(0, 100)} ${width | 0} x ${height | 0}`);
  }
  return found;
}"""
"""Links in a sentence may be as high as its line; whatever else is pressed has 24 by 24 pixels."""
VIEWS = (("light", 1280), ("dark", 820), ("light", 320))
"""What a room's own test looks at: one of them in the short run, drawn by the test's name and then
in turn; all of them with GATEWRIGHT_TEST_EVERY_VIEW, as in `make faults`. All tests together have
all of them, and the checks are the same in each.
"""


def require_chromium() -> str:
    """Chromium's path; the test is skipped where there is none and none has to be."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None and os.environ.get("GATEWRIGHT_TEST_SERVERS") == "present":
        pytest.fail("chromium is to be present")
    if found is None:
        pytest.skip("no chromium here")
    return found


async def come_true(page: Page, expression: str) -> None:
    """Wait for it; `wait_for_function` asks a second time by what the pages' policy forbids."""
    while not await page.evaluate(expression):
        await asyncio.sleep(0.02)


def require_scripts() -> None:
    """The test is skipped where the pages' scripts could not be fetched and bundled."""
    if not BUILT.exists() or not AXE.exists():
        pytest.skip("the pages' scripts were not built: make scripts")


class Window:
    """One window of a browser; `problems` is what went wrong behind the page."""

    def __init__(self, page: Page, base_url: str) -> None:
        self.page = page
        self.base_url = base_url
        self.problems: list[str] = []
        self.asked: list[str] = []
        """Whether to leave a page in which something was typed, each time that it was asked."""
        self.stays = False
        """What is answered to that."""
        self._views_asked = 0
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", self._answer)

    async def _answer(self, dialog: Dialog) -> None:
        if dialog.type != "beforeunload":
            self.problems.append(f"dialog: {dialog.message}")
        else:
            self.asked.append(dialog.type)
        if self.stays or dialog.type != "beforeunload":
            await dialog.dismiss()
        else:
            await dialog.accept()

    def _said(self, message: Any) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.problems.append(f"console: {message.text}")

    async def open(self, path: str) -> int:
        """Go to a path of the listener; the answer's status."""
        answer = await self.page.goto(f"{self.base_url}{path}")
        assert answer is not None
        return answer.status

    async def sign_in_with_token(self, token: str) -> None:
        await self.open("/sign-in")
        await self.page.click("summary")
        await self.page.fill("#token", token)
        await self.page.click("text=Sign in with the token >> nth=-1")
        await self.page.wait_for_url(f"{self.base_url}/")

    async def sign_in(self, name: str, password: str) -> None:
        await self.open("/sign-in")
        await self.sign_in_here(name, password)

    async def sign_in_here(self, name: str, password: str) -> None:
        """On the page that asks for it, which may hold a form that waits."""
        await self.page.fill("#name", name)
        await self.page.fill("#password", password)
        await self.page.click("button:has-text('Sign in')")
        await self.page.wait_for_load_state()

    async def views(self) -> AsyncIterator[tuple[str, int]]:
        """Both themes and three widths, or the next of them; what is opened next is seen so.

        What is opened after all of them is seen in the last one of `VIEWS`.
        """
        for theme, width in self._next_views():
            await self._seen_as(theme, width)
            yield theme, width
        await self._seen_as(*VIEWS[-1])

    def _next_views(self) -> Sequence[tuple[str, int]]:
        if os.environ.get("GATEWRIGHT_TEST_EVERY_VIEW"):
            return VIEWS
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        self._views_asked += 1
        return (VIEWS[(zlib.crc32(test.encode()) + self._views_asked) % len(VIEWS)],)

    async def _seen_as(self, theme: str, width: int) -> None:
        await self.page.set_viewport_size({"width": width, "height": 900})
        await self.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")

    async def faults(self) -> list[str]:
        """What is wrong with the page as it is laid out, of which axe says nothing."""
        found: list[str] = await self.page.evaluate(_FAULTS)
        return found

    async def violations(self) -> list[str]:
        """What axe finds serious or critical on the page as it stands."""
        # Its half a megabyte is read once for a page, however many views of it are looked at.
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(AXE.read_text("utf-8"))
        found = await self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        return [
            f"{each['id']}: {node['html'][:160]}"
            for each in found["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


class Browsers:
    """Windows of the same event loop share a browser: starting one costs more than most pages do.

    It is started with the first window, and anew where it is gone.
    """

    def __init__(self) -> None:
        self._ends = AsyncExitStack()
        self._driver: Playwright | None = None
        self._browser: Browser | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ends.aclose()

    async def browser(self) -> Browser:
        path = require_chromium()
        if self._driver is None:
            self._driver = await self._ends.enter_async_context(async_playwright())
        if self._browser is None or not self._browser.is_connected():
            chromium = self._driver.chromium
            self._browser = await chromium.launch(executable_path=path, args=list(QUIET))
            self._ends.push_async_callback(self._browser.close)
        return self._browser


_shared: list[Browsers] = []


@asynccontextmanager
async def sharing() -> AsyncIterator[None]:
    """All windows that are opened meanwhile are of one browser."""
    async with Browsers() as browsers:
        _shared.append(browsers)
        try:
            yield
        finally:
            _shared.remove(browsers)


@asynccontextmanager
async def window(
    listener: Listener,
    *,
    theme: str = "light",
    width: int = 1280,
    scripts: bool = True,
    zone: str = "UTC",
) -> AsyncIterator[Window]:
    """A window with no cookie and nothing kept of another; `zone` is its machine's."""
    require_chromium()
    if scripts:
        require_scripts()
    async with AsyncExitStack() as ends:
        browsers = _shared[-1] if _shared else await ends.enter_async_context(Browsers())
        context = await (await browsers.browser()).new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if theme == "dark" else "light",
            java_script_enabled=scripts,
            timezone_id=zone,
        )
        ends.push_async_callback(context.close)
        yield Window(await context.new_page(), listener.url)
