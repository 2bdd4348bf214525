"""Fixtures that the whole suite shares: the event loop's kind and real databases."""

import pytest


pytest_plugins = ["tests.databases"]


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked `anyio` run on plain asyncio."""
    return "asyncio"
