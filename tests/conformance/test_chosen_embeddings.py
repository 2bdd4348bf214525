"""Embeddings of no model in particular: chosen only where the vectors can be but of one kind."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import openai
import pytest

from tests.faults.envelopes import untouched
from tests.identifiers import aadhaar
from tests.running_gateway import RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

MANAGED = """
[targets.managed]
provider = "openai"
model = "text-embedding-3-small"
"""
LARGE = """
[targets.large]
provider = "openai"
model = "text-embedding-3-large"
"""
HOUSE = """
[targets.house]
provider = "engine"
model = "bge-m3"
catalogue = "in-house-embeddings"
"""
SAME_AT_HOME = HOUSE.replace("bge-m3", "text-embedding-3-small")
VECTORS = {
    "object": "list",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}],
    "model": "m",
    "usage": {"prompt_tokens": 3, "total_tokens": 3},
}
Start = Callable[[str], AbstractAsyncContextManager[RunningGateway]]


@pytest.fixture
def start(tmp_path: Path, sqlite_url: str, upstreams: Upstreams) -> Start:
    """A gateway with these targets beside those of every other one, whose upstreams embed."""
    names = ("fake-model", "bge-m3", "text-embedding-3-small")
    upstreams.engine.models = tuple({"id": name} for name in names)
    for upstream in (upstreams.openai, upstreams.engine):
        upstream.answer(Answer(body=msgspec.json.encode(VECTORS)))
    return lambda targets: RunningGateway(tmp_path, sqlite_url, upstreams, more=targets)


@asynccontextmanager
async def client_of(gateway: RunningGateway, **scope: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    key = await gateway.issue_key(**scope)
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        yield client


async def served_by(client: openai.AsyncOpenAI, model: str, text: str = "Good morning") -> str:
    raw = await client.embeddings.with_raw_response.create(model=model, input=text)
    assert raw.parse().data[0].embedding == [0.5, -0.25]
    return str(raw.headers["x-gatewright-target"])


async def explained(gateway: RunningGateway, client: openai.AsyncOpenAI, request_id: str) -> Any:
    """The decision again, from what was recorded; it is there soon after the request."""
    url = f"{gateway.url}/v1/decisions/{request_id}"
    headers = {"authorization": f"Bearer {client.api_key}"}
    async with aiohttp.ClientSession() as http:
        while True:
            async with http.get(url, headers=headers) as reply:
                if reply.status == 200:
                    return msgspec.json.decode(await reply.read())
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("model", ["auto", "auto:cheap"])
async def test_without_a_target_that_embeds_it_is_said_who_has_to_do_what(
    start: Start, upstreams: Upstreams, model: str
) -> None:
    """It was a 503, which clients try again, without a word of what is missing."""
    async with start("") as gateway, client_of(gateway) as client:
        with pytest.raises(openai.BadRequestError, match="administrator has to add") as caught:
            await client.embeddings.create(model=model, input="Good morning")

    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "model")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert untouched(upstreams)


async def test_the_one_kind_of_vectors_there_is_is_chosen_where_policy_permits_it(
    start: Start, upstreams: Upstreams
) -> None:
    async with start(MANAGED) as gateway, client_of(gateway) as client:
        assert await served_by(client, "auto") == "managed"
        assert await served_by(client, "auto:quality") == "managed"
        upstreams.openai.forget()
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await client.embeddings.create(model="auto", input=f"It is {aadhaar(3)}.")
        assert caught.value.code == "no_permitted_target"
        assert "no permitted target makes vectors." in caught.value.message
        assert untouched(upstreams)
        async with client_of(gateway, models=["house-model"]) as narrow:
            with pytest.raises(openai.PermissionDeniedError, match="scope"):
                await narrow.embeddings.create(model="auto", input="Good morning")


async def test_between_kinds_of_vectors_nothing_is_chosen_and_the_names_are_told(
    start: Start, upstreams: Upstreams
) -> None:
    async with start(MANAGED + LARGE + HOUSE) as gateway, client_of(gateway) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.embeddings.create(model="auto", input="Good morning")
        assert (caught.value.code, caught.value.param) == ("invalid_request", "model")
        told = "Set `model` to one of `managed`, `large`, `house`, the same for all texts"
        assert told in caught.value.message
        assert untouched(upstreams)

        assert await served_by(client, "large") == "large"
        async with client_of(gateway, models=["house"]) as narrow:
            assert await served_by(narrow, "auto") == "house"
            with pytest.raises(openai.PermissionDeniedError):
                await narrow.embeddings.create(model="managed", input="Good morning")


async def test_sovereign_texts_get_no_vectors_of_another_model_in_their_place(
    start: Start, upstreams: Upstreams
) -> None:
    """An answer may come from a substitute; a vector of another model would spoil an index."""
    text = f"It is {aadhaar(3)}."
    async with start(MANAGED + HOUSE) as gateway, client_of(gateway) as client:
        with pytest.raises(openai.PermissionDeniedError) as caught:
            await client.embeddings.create(model="managed", input=text)
        assert "no permitted target makes vectors of this model" in caught.value.message
        assert untouched(upstreams)
        request_id = caught.value.response.headers["x-request-id"]
        told = await explained(gateway, client, request_id)
        assert caught.value.message.endswith(told["sentence"])

        assert await served_by(client, "house", text) == "house"
        assert not upstreams.openai.calls


async def test_the_same_model_at_home_makes_the_vectors_that_may_not_be_made_elsewhere(
    start: Start, upstreams: Upstreams
) -> None:
    text = f"It is {aadhaar(3)}."
    async with start(MANAGED + LARGE + SAME_AT_HOME) as gateway, client_of(gateway) as client:
        assert await served_by(client, "managed") == "managed"
        upstreams.openai.forget()
        raw = await client.embeddings.with_raw_response.create(model="managed", input=text)
        assert raw.headers["x-gatewright-target"] == "house"
        assert not upstreams.openai.calls
        told = await explained(gateway, client, raw.headers["x-request-id"])
        assert told["sentence"].startswith("Sent to the in-house engine instead of managed")
        async with client_of(gateway, models=["managed", "house"]) as narrow:
            assert await served_by(narrow, "auto", text) == "house"
