"""A project has so much room, and so many batches, however much arrives at once."""

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from gateway.store.identity.keys import Place
from tests.running_gateway import RunningGateway


pytestmark = pytest.mark.anyio

SETTINGS = """
[limits]
file_bytes_max = 3000000
project_bytes_max = 5000000
[batches]
open_max = 3
"""
BROAD = b"x" * 1_000_000


@pytest.fixture
async def client(gateway: RunningGateway) -> AsyncIterator[openai.AsyncOpenAI]:
    key = await gateway.issue_key(Place("acme", "room", "p"))
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        yield client


async def test_batches_that_are_made_at_once_find_no_more_room_than_one_after_the_other(
    client: openai.AsyncOpenAI,
) -> None:
    file = await client.files.create(file=BROAD, purpose="batch")

    async def make() -> str:
        try:
            await client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
        except openai.APIStatusError as error:
            return str(error.status_code)
        return "made"

    made = await asyncio.gather(*(make() for _ in range(20)))
    assert made.count("made") <= 3, made


async def test_files_that_arrive_at_once_find_no_more_room_than_one_after_the_other(
    gateway: RunningGateway,
) -> None:
    key = await gateway.issue_key(Place("acme", "room", "files"))
    url = f"{gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0) as client:

        async def send() -> None:
            await client.files.create(file=b"x" * 2_400_000, purpose="batch")

        found = await asyncio.gather(*(send() for _ in range(6)), return_exceptions=True)
        refused = [each for each in found if isinstance(each, openai.APIStatusError)]
        assert [each.status_code for each in refused] == [413] * 4
        assert len([file.id async for file in client.files.list()]) == 2
