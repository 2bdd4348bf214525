"""A clock that stands still; the database comes from `tests.databases`."""

import pytest

from gateway.clock import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()
