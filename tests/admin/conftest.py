"""A running admin listener per test, and a browser before it.

On SQLite; a test that is marked `ON_BOTH` (tests/admin/listener.py) runs on PostgreSQL too.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from gateway.secrets import passwords
from gateway.store import engine
from tests.admin.chromium import sharing
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.provider_of_a_test import Liar


_QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
_NOBODY = _QUICK.hash("nobody has this password")


@pytest.fixture(autouse=True)
def _quick_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Argon2id with the least it allows; tests/gateway/secrets proves what people really get."""
    monkeypatch.setattr(passwords, "_HASHER", _QUICK)
    monkeypatch.setattr(passwords, "_NOBODY", _NOBODY)


@pytest.fixture(autouse=True)
def _patient_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener's own rounds may hold its only writer for seconds where disk and processors are
    busy, and then a caller is told to come back: `tests/gateway/store/test_engine.py` proves it.
    """
    monkeypatch.setattr(engine, "_WAIT_S", 10.0)


@pytest.fixture(scope="package", autouse=True)
async def _one_chromium(anyio_backend: str) -> AsyncIterator[None]:
    """All these tests run on one event loop, and their windows are of one browser: a start takes a
    second.
    """
    async with sharing():
        yield


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


@pytest.fixture
def liar() -> Iterator[Liar]:
    liar = Liar()
    yield liar
    liar.stop()
