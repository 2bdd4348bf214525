"""One running gateway per module, as in `tests/faults`, and the vendors' clients before it."""

from collections.abc import AsyncIterator

import anthropic
import openai
import pytest

from tests.faults.conftest import (
    caller,
    gateway,
    own_upstreams,
    shared_gateway,
    shared_key,
    shared_upstreams,
    upstreams,
)
from tests.running_gateway import RunningGateway


__all__ = [
    "caller",
    "gateway",
    "own_upstreams",
    "shared_gateway",
    "shared_key",
    "shared_upstreams",
    "upstreams",
]


@pytest.fixture
async def gpt(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=shared_key, max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(
    gateway: RunningGateway, shared_key: str
) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(
        base_url=gateway.url, api_key=shared_key, max_retries=0
    ) as client:
        yield client
