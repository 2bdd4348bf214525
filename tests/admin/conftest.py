"""A running admin listener per test, and a browser before it.

On SQLite; a test that is marked `ON_BOTH` (tests/admin/listener.py) runs on PostgreSQL too.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.admin.listener import Browser, Listener, browsing


@pytest.fixture
def listener_url(
    request: pytest.FixtureRequest,
    database_maker: Callable[[str], tuple[str, Callable[[], None]]],
) -> Iterator[str]:
    url, end = database_maker(getattr(request, "param", "sqlite"))
    yield url
    end()


@pytest.fixture
async def listener(tmp_path: Path, listener_url: str) -> AsyncIterator[Listener]:
    async with Listener(tmp_path, listener_url) as running:
        yield running


@pytest.fixture
async def browser(listener: Listener) -> AsyncIterator[Browser]:
    async with browsing(listener) as opened:
        yield opened
