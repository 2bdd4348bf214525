"""A running admin listener per test, and a browser before it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.admin.listener import Browser, Listener, browsing


@pytest.fixture
async def listener(tmp_path: Path, sqlite_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, sqlite_url) as running:
        yield running


@pytest.fixture
async def browser(listener: Listener) -> AsyncIterator[Browser]:
    async with browsing(listener) as opened:
        yield opened
