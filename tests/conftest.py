"""Fixtures that the whole suite shares: the event loop's kind and real databases."""

import pytest
from hypothesis import HealthCheck, settings


pytest_plugins = ["tests.databases"]

# How long drawing takes says how busy the machine is, not whether the property holds.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked `anyio` run on plain asyncio."""
    return "asyncio"
