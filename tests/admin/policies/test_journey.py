"""The administrator's day: draft, impact, a second person, a canary, and its automatic rollback.

A real browser before a real admin listener, beside a real data plane whose upstream fails: the
worker's own guard takes the canary back, and the page says so.
"""

import asyncio
import socket

import aiohttp
import pytest

from gateway.clock import SystemClock
from tests.admin.chromium import Window, window
from tests.admin.listener import Listener
from tests.admin.policies.people import APPROVER, PASSWORD, WRITER, add_person
from tests.admin.policies.test_writing import HOME
from tests.running_gateway import CLAUDE_TARGET, ENGINE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
ASKED = 12
"""Requests before anything is changed; the draft would move all of them."""


class Office(Listener):
    """The admin listener of a running gateway: its configuration, its database, the real clock."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.folder = gateway.folder
        self.clock = SystemClock()  # type: ignore[assignment]
        self.config_file = gateway.config_file
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))


async def ask(http: aiohttp.ClientSession, gateway: RunningGateway, key: str) -> str:
    """Which target answered; empty where none did."""
    body = {"model": "auto", "messages": [{"role": "user", "content": "Hello"}]}
    url = f"{gateway.url}/v1/chat/completions"
    async with http.post(url, json=body, headers={"x-api-key": key}) as reply:
        await reply.read()
        return reply.headers.get("x-gatewright-target", "") if reply.status == 200 else ""


async def until_said(seen: Window, path: str, text: str) -> str:
    """Look at a page until it says something."""
    async with asyncio.timeout(30):
        while True:
            await seen.open(path)
            said = await seen.page.inner_text("main")
            if text in said:
                return said
            await asyncio.sleep(0.2)


async def drafted(seen: Window) -> None:
    """Wanda writes a rule, sees what it would have done, and submits it."""
    page = seen.page
    await seen.sign_in(WRITER, PASSWORD)
    await seen.open(f"{HOME}/edit/rule?section=constraints")
    await page.fill("#field-name", "everything-to-claude")
    await page.fill("input[name='allow_only.targets']", CLAUDE_TARGET)
    await page.click("text=Save to the draft")
    await until_said(seen, f"{HOME}/submit", f"{ASKED} of {ASKED} (100%)")
    said = await page.inner_text("main")
    assert f"{ASKED} no longer; 0 newly blocked" in said
    await page.fill("#field-reason", "T-12: better answers")
    await page.click("text=Submit for approval")
    assert "another person must approve it" in await page.inner_text("main")


async def test_a_draft_that_does_harm_is_taken_back_by_itself(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    async with aiohttp.ClientSession() as http, Office(gateway) as office:
        await add_person(office, WRITER, "policy_editor")
        await add_person(office, APPROVER, "approver")
        served = [await ask(http, gateway, key) for _ in range(ASKED)]
        assert served == [ENGINE_TARGET] * ASKED
        async with window(office) as seen:
            await drafted(seen)
        async with window(office) as seen:
            page = seen.page
            await seen.sign_in(APPROVER, PASSWORD)
            await page.click("text=1 to approve")
            assert f"{ASKED} of {ASKED}" in await page.inner_text("main")
            await page.keyboard.press("a")
            await page.keyboard.type("looks right")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("text=Nothing to approve")
            await seen.open(f"{HOME}/versions/1")
            await page.check("input[value=canary]")
            await page.fill("#field-percent", "100")
            await page.fill("#field-reason", "try it")
            await page.click("#rollout button")
            assert "decides for 100% of the keys" in await page.inner_text("main")
            upstreams.anthropic.answer(Answer(status=500))
            async with asyncio.timeout(60):
                while await ask(http, gateway, key) == ENGINE_TARGET:
                    await asyncio.sleep(0.05)  # Until the worker obeys the canary.
                while await ask(http, gateway, key) != ENGINE_TARGET:
                    pass  # They fail, until the guard has seen enough and takes it back.
            said = await until_said(seen, f"{HOME}/versions/1", "withdrawn")
            assert "It did harm as a canary and was withdrawn" in said
            assert "% of " in said
            assert "withdrawn by guard" in said
            assert seen.problems == []
