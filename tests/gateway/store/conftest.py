"""A clock that stands still, and SQLite's turns; the database comes from `tests.databases`."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.clock import StoppedClock
from gateway.store.sqlite_driver import OneTurnConnection


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what was asked of the driver's thread."""
    asked: list[str] = []
    execute: Callable[..., Any] = OneTurnConnection._execute

    async def noted(self: OneTurnConnection, what: Any, *given: Any, **named: Any) -> Any:
        asked.append(what.__name__)
        return await execute(self, what, *given, **named)

    monkeypatch.setattr(OneTurnConnection, "_execute", noted)
    return asked
