"""Fixtures of the entire suite: the event loop's kind, real databases, a running gateway.

A folder whose tests share one gateway, or need another one, has a `conftest.py` of its own.
"""

import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from hypothesis import HealthCheck, settings

from tests.running_gateway import RunningGateway, Upstreams


pytest_plugins = ["tests.databases", "tests.trust_store", "tests.watched"]

# They start programs that `make agents` fetches, and need a network of their own.
collect_ignore = ["agents"]

# How long drawing takes shows how busy the machine is, not whether the property holds. The examples
# are the same in every run, so that a run says something about the change that it was made for;
# `make faults` looks for new ones, and for twice as many if a test sets no number of its own.
NEW_EXAMPLES = bool(os.environ.get("GATEWRIGHT_TEST_NEW_EXAMPLES"))
settings.register_profile(
    "unhurried",
    deadline=None,
    derandomize=not NEW_EXAMPLES,
    max_examples=100 if NEW_EXAMPLES else 50,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("unhurried")


def pytest_collection_finish() -> None:
    """Make the cycle collector run seldom, and never over imported modules.

    Otherwise it took a fifth of the time of a test which starts an admin listener. It runs more
    often than in a worker (`tune_interpreter`): a listener that is gone is a large cycle.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Tests marked `anyio` run on plain asyncio."""
    return "asyncio"


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as running:
        yield running


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    """A gateway for this test alone, with recording upstreams behind it."""
    async with RunningGateway(tmp_path, sqlite_url, upstreams) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
