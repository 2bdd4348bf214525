"""The way out, and an upstream that records what reaches it."""

from collections.abc import AsyncIterator

import pytest

from gateway.providers.egress.client import Egress
from tests.upstreams import RecordingUpstream


@pytest.fixture
async def egress() -> AsyncIterator[Egress]:
    running = Egress()
    yield running
    await running.close()


@pytest.fixture
async def upstream() -> AsyncIterator[RecordingUpstream]:
    async with RecordingUpstream() as running:
        yield running
