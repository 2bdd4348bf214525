"""A project has so much room, and so many batches, however much arrives at once."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import anthropic
import openai
import pytest

from gateway.api.uploads import UPLOADS_MAX
from gateway.projects import Project
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.lines import LineStore
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

        found = await asyncio.gather(
            *(send() for _ in range(UPLOADS_MAX // 2)), return_exceptions=True
        )
        refused = [each for each in found if isinstance(each, openai.APIStatusError)]
        assert [each.status_code for each in refused] == [413] * (UPLOADS_MAX // 2 - 2)
        assert len([file.id async for file in client.files.list()]) == 2


async def test_message_batches_that_arrive_at_once_find_no_more_room_than_one_after_the_other(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each knows of the other, though no line of either can begin."""
    key = await gateway.issue_key(Place("acme", "room", "messages"))
    is_decided, arriving = asyncio.Event(), list[str]()
    receive = LineStore.receive

    async def waits(store: LineStore, batch_id: str, *given: Any) -> None:
        arriving.append(batch_id)
        if len(arriving) > 1:
            is_decided.set()
        await is_decided.wait()
        await receive(store, batch_id, *given)

    monkeypatch.setattr(LineStore, "receive", waits)
    asked = [_ask(f"q-{number}") for number in range(3)]
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as client:

        async def send() -> str:
            try:
                await client.messages.batches.create(requests=asked)
            except anthropic.APIStatusError as error:
                is_decided.set()
                return str(error.status_code)
            return "made"

        assert sorted(await asyncio.gather(send(), send())) == ["413", "made"]
        (made,) = [batch async for batch in client.messages.batches.list()]
        await client.messages.batches.cancel(made.id)


async def test_what_did_not_all_arrive_takes_no_room_whatever_broke_it_off(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = await gateway.issue_key(Place("acme", "room", "broken"))
    stores = list[BatchStore]()

    async def breaks(store: LineStore, *_: Any) -> None:
        raise ZeroDivisionError

    async def makes(store: BatchStore, *given: Any, **named: Any) -> Any:
        stores.append(store)
        return await make(store, *given, **named)

    make = BatchStore.make
    monkeypatch.setattr(LineStore, "receive", breaks)
    monkeypatch.setattr(BatchStore, "make", makes)
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as client:
        with pytest.raises(anthropic.InternalServerError):
            await client.messages.batches.create(requests=[_ask("a")])
    assert await stores[0].held(Project("acme", "room", "broken")) == (0, 0)


def _ask(custom_id: str) -> Any:
    messages = [{"role": "user", "content": "x" * 900_000}]
    params = {"model": "scripted/one", "max_tokens": 16, "messages": messages}
    return {"custom_id": custom_id, "params": params}
