"""The admin listener finds a full disk by itself, and says so to who asks whether it is ready."""

import asyncio
from pathlib import Path

import pytest

from admin import services
from tests.admin.listener import Browser, Listener, browsing
from tests.full_disk import room_for


pytestmark = pytest.mark.anyio


async def _said(browser: Browser, status: int) -> str:
    while True:
        ready, said = await browser.send("GET", "/health/ready")
        if ready.status == status:
            return said
        await asyncio.sleep(0.05)


async def test_a_database_without_room_is_reported_as_not_ready_until_there_is_some(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "ADD_EVERY_S", 0.05)
    async with Listener(tmp_path, sqlite_url) as listener, browsing(listener) as browser:
        assert "ready" in await _said(browser, 200)
        with room_for(4096):
            assert "The database takes no writes: its disk fails." in await _said(browser, 503)
        await _said(browser, 200)
