"""Conversations with OpenAI's own client: made, read, changed, and answered with by any model."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest
from anyio import to_thread

from gateway.projects import Project
from gateway.store.identity.keys import Place
from tests.conformance.test_kept_responses import IBAN, OTHERS, SETTINGS, TARGETS, sent
from tests.running_gateway import (
    CLAUDE_TARGET,
    DEMO,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

__all__ = ["SETTINGS"]
SAID = "Hello from the upstream."
PROJECT = Project("acme", "research", "assistant")
FACT: Any = {"type": "message", "role": "user", "content": "The bridge was built of stone."}


@pytest.fixture
async def client(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        yield client


async def texts(client: openai.AsyncOpenAI, conversation_id: str) -> list[str]:
    """What stands in a conversation, oldest first."""
    listed = await client.conversations.items.list(conversation_id, order="asc", limit=100)
    items = [item.to_dict() async for item in listed]
    return ["".join(part.get("text", "") for part in item.get("content", [])) for item in items]  # type: ignore[attr-defined]


async def test_one_is_made_described_read_and_deleted(client: openai.AsyncOpenAI) -> None:
    made = await client.conversations.create(items=[FACT], metadata={"topic": "numbers"})
    assert made.object == "conversation"
    assert len(made.id) == len("conv_") + 48
    assert made.metadata == {"topic": "numbers"}

    changed = await client.conversations.update(made.id, metadata={"topic": "letters"})
    assert changed.metadata == {"topic": "letters"}
    read = await client.conversations.retrieve(made.id)
    assert read.to_dict() == changed.to_dict()
    assert read.created_at == made.created_at
    assert await texts(client, made.id) == ["The bridge was built of stone."]

    gone = await client.conversations.delete(made.id)
    assert gone.to_dict() == {
        "id": made.id,
        "object": "conversation.deleted",
        "deleted": True,
    }
    with pytest.raises(openai.NotFoundError) as caught:
        await client.conversations.retrieve(made.id)
    assert caught.value.code == "conversation_not_found"
    assert caught.value.body["message"] == f"Conversation with id '{made.id}' not found."  # type: ignore[index]


async def test_items_are_added_listed_read_and_deleted(client: openai.AsyncOpenAI) -> None:
    made = await client.conversations.create()
    call: Any = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    output: Any = {"type": "function_call_output", "call_id": "c1", "output": "7"}
    added = await client.conversations.items.create(made.id, items=[FACT, call, output])
    names = [item.id or "" for item in added.data]
    assert [name.split("_")[0] for name in names] == ["msg", "fc", "item"]
    assert (added.first_id, added.last_id, added.has_more) == (names[0], names[-1], False)
    assert added.data[0].to_dict() == {
        "id": names[0],
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "The bridge was built of stone."}],
    }

    newest = await client.conversations.items.list(made.id, limit=2)
    assert ([item.id for item in newest.data], newest.has_more) == ([names[2], names[1]], True)
    rest = await client.conversations.items.list(made.id, limit=2, after=names[1])
    assert ([item.id for item in rest.data], rest.has_more) == ([names[0]], False)
    every = client.conversations.items.list(made.id, limit=1, order="asc")
    assert [item.id async for item in every] == names

    read = await client.conversations.items.retrieve(names[1], conversation_id=made.id)
    assert read.to_dict() == {**call, "id": names[1], "status": "completed"}
    left = await client.conversations.items.delete(names[1], conversation_id=made.id)
    assert left.id == made.id
    every = client.conversations.items.list(made.id, order="asc")
    assert [item.id async for item in every] == [names[0], names[2]]
    with pytest.raises(openai.NotFoundError) as caught:
        await client.conversations.items.retrieve(names[1], conversation_id=made.id)
    assert caught.value.code == "item_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.conversations.items.list(made.id, after=names[1])
    assert refused.value.param == "after"


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
async def test_any_model_goes_on_with_what_another_said(
    client: openai.AsyncOpenAI, upstreams: Upstreams, first: str, second: str
) -> None:
    talk = await client.conversations.create(items=[FACT])
    made = await client.responses.create(model=first, input="Good morning", conversation=talk.id)
    assert made.conversation is not None
    assert made.conversation.id == talk.id
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.forget()
    more = await client.responses.create(
        model=second, input="What was built?", conversation={"id": talk.id}
    )

    (body,) = sent(upstreams)
    text = msgspec.json.encode(body).decode()
    order = [text.index(part) for part in ("bridge", "Good morning", SAID, "What was built?")]
    assert order == sorted(order)
    assert "conv_" not in text
    assert "conversation" not in body
    assert body.get("store", False) is False
    assert more.conversation is not None
    assert await texts(client, talk.id) == [
        *("The bridge was built of stone.", "Good morning", SAID, "What was built?", SAID),
    ]
    ids = [item.id async for item in client.conversations.items.list(talk.id, order="asc")]
    assert ids[2] == made.output[0].id
    assert len({*ids}) == len(ids)
    assert (await client.responses.retrieve(made.id)).conversation is not None


@pytest.mark.parametrize("target", TARGETS)
async def test_a_stream_is_added_before_its_end_is_seen(
    client: openai.AsyncOpenAI, target: str
) -> None:
    talk = await client.conversations.create()
    stream = await client.responses.create(
        model=target, input="Good morning", conversation=talk.id, stream=True
    )
    said = [event.response.conversation async for event in stream if hasattr(event, "response")]
    assert {each.id for each in said if each is not None} == {talk.id}
    assert None not in said
    assert await texts(client, talk.id) == ["Good morning", SAID]


async def test_a_broken_stream_adds_nothing_and_frees_the_conversation(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    talk = await client.conversations.create(items=[FACT])
    upstreams.openai.answer(Answer(fault="cut"))
    stream = await client.responses.create(
        model=GPT_TARGET, input="Good morning", conversation=talk.id, stream=True
    )
    assert [event.type async for event in stream][-1] == "error"
    assert await texts(client, talk.id) == ["The bridge was built of stone."]
    await client.responses.create(model=ENGINE_TARGET, input="Again", conversation=talk.id)
    assert await texts(client, talk.id) == ["The bridge was built of stone.", "Again", SAID]


async def test_a_refused_request_adds_nothing_and_frees_the_conversation(
    client: openai.AsyncOpenAI,
) -> None:
    talk = await client.conversations.create(items=[FACT])
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.create(model="nobody", input="Good", conversation=talk.id)
    assert caught.value.code == "model_not_found"
    await client.responses.create(model=ENGINE_TARGET, input="Again", conversation=talk.id)
    assert await texts(client, talk.id) == ["The bridge was built of stone.", "Again", SAID]


async def test_a_second_turn_waits_until_the_first_is_over_and_sees_it(
    gateway: RunningGateway, shared_key: str, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    talk = await client.conversations.create()
    go = asyncio.Event()
    upstreams.openai.answer(Answer(hold=go))
    first = asyncio.create_task(
        client.responses.create(model=GPT_TARGET, input="First", conversation=talk.id)
    )
    while not upstreams.openai.calls:
        assert not first.done(), first.result()
        await asyncio.sleep(0.01)

    for busy in (
        client.responses.create(model=ENGINE_TARGET, input="Second", conversation=talk.id),
        client.conversations.items.create(talk.id, items=[FACT]),
    ):
        with pytest.raises(openai.ConflictError) as caught:
            await busy
        assert caught.value.code == "conversation_locked"
        assert caught.value.response.headers["retry-after"] == "1"
    assert not upstreams.engine.calls
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=9
    ) as patient:
        second = asyncio.create_task(
            patient.responses.create(model=ENGINE_TARGET, input="Second", conversation=talk.id)
        )
        await asyncio.sleep(0)
        go.set()
        await asyncio.gather(first, second)
    assert await texts(client, talk.id) == ["First", SAID, "Second", SAID]
    assert b"First" in upstreams.engine.calls[0].body


async def test_what_is_deleted_meanwhile_stays_deleted(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    talk = await client.conversations.create(items=[FACT])
    go = asyncio.Event()
    upstreams.openai.answer(Answer(hold=go))
    turn = asyncio.create_task(
        client.responses.create(model=GPT_TARGET, input="First", conversation=talk.id)
    )
    while not upstreams.openai.calls:
        assert not turn.done(), turn.result()
        await asyncio.sleep(0.01)
    await client.conversations.delete(talk.id)
    go.set()
    made = await turn
    assert made.output_text == SAID
    for gone in (client.responses.retrieve(made.id), client.conversations.retrieve(talk.id)):
        with pytest.raises(openai.NotFoundError):
            await gone


async def test_what_is_not_to_be_stored_is_asked_and_not_added(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    talk = await client.conversations.create(items=[FACT])
    made = await client.responses.create(
        model=GPT_TARGET, input="Which?", conversation=talk.id, store=False
    )
    assert made.conversation is None
    assert b"bridge" in upstreams.openai.calls[0].body
    assert await texts(client, talk.id) == ["The bridge was built of stone."]


async def test_one_of_two_ways_to_go_on_is_enough(client: openai.AsyncOpenAI) -> None:
    talk = await client.conversations.create()
    made = await client.responses.create(model=ENGINE_TARGET, input="One", conversation=talk.id)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(
            model=ENGINE_TARGET, input="x", conversation=talk.id, previous_response_id=made.id
        )
    assert caught.value.param == "conversation"
    more = await client.responses.create(
        model=ENGINE_TARGET, input="Two", previous_response_id=made.id
    )
    assert more.conversation is None
    assert await texts(client, talk.id) == ["One", SAID]


@pytest.mark.parametrize("place", OTHERS)
async def test_nobody_elses_key_can_use_it(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams, place: Place
) -> None:
    talk = await client.conversations.create(items=[FACT])
    (name,) = [item.id or "" async for item in client.conversations.items.list(talk.id)]
    upstreams.openai.forget()
    key = await gateway.issue_key(place)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as other:
        items, told = other.conversations.items, set()
        for call in (
            other.conversations.retrieve(talk.id),
            other.conversations.delete(talk.id),
            other.conversations.update(talk.id, metadata={}),
            items.create(talk.id, items=[FACT]),
            items.retrieve(name, conversation_id=talk.id),
            items.delete(name, conversation_id=talk.id),
            other.responses.create(model=GPT_TARGET, input="x", conversation=talk.id),
            other.responses.input_tokens.count(model=GPT_TARGET, conversation=talk.id),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                await call
            told.add((caught.value.code, caught.value.body["message"]))  # type: ignore[index]
    assert told == {("conversation_not_found", f"Conversation with id '{talk.id}' not found.")}
    assert not upstreams.openai.calls
    key = await gateway.issue_key(DEMO)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as colleague:
        assert await texts(colleague, talk.id) == ["The bridge was built of stone."]


async def test_a_conversation_is_no_response_and_a_response_no_conversation(
    client: openai.AsyncOpenAI,
) -> None:
    talk = await client.conversations.create(items=[FACT])
    made = await client.responses.create(model=ENGINE_TARGET, input="One", conversation=talk.id)
    for call in (
        client.responses.retrieve(talk.id),
        client.responses.delete(talk.id),
        client.conversations.retrieve(made.id),
        client.conversations.delete(made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model=ENGINE_TARGET, input="x", previous_response_id=talk.id)
    assert await texts(client, talk.id) == [FACT["content"], "One", SAID]


async def test_a_count_looks_at_it_and_takes_it_from_nobody(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    talk = await client.conversations.create(items=[FACT])
    counted = await client.responses.input_tokens.count(
        model=GPT_TARGET, input="What was built?", conversation=talk.id
    )
    assert counted.input_tokens > 0
    assert b"bridge" in upstreams.openai.calls[0].body
    assert b"conv_" not in upstreams.openai.calls[0].body
    assert await texts(client, talk.id) == ["The bridge was built of stone."]


async def test_it_stays_as_sensitive_as_it_ever_was(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    """Even where nothing of what made it sensitive can be seen any more."""
    secret: Any = {"role": "user", "content": f"Pay to {IBAN} please."}
    talk = await client.conversations.create(items=[secret])
    (name,) = [item.id or "" async for item in client.conversations.items.list(talk.id)]
    await client.conversations.items.delete(name, conversation_id=talk.id)
    assert await texts(client, talk.id) == []
    more = await client.responses.with_raw_response.create(
        model=CLAUDE_TARGET, input="Thanks.", conversation=talk.id
    )

    assert more.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not upstreams.anthropic.calls
    assert not upstreams.openai.calls
    outcome = (await gateway.records(more.headers["x-request-id"]))[-1]
    assert outcome.data_class >= "S2"
    kept = await gateway.does(gateway.plane._threads.conversations._store.find(PROJECT, talk.id, 0))
    assert kept is not None
    assert kept.data_class == outcome.data_class


async def test_what_is_wrong_with_items_is_named_by_its_place(client: openai.AsyncOpenAI) -> None:
    talk = await client.conversations.create()
    wrong: list[tuple[Any, str]] = [
        ([{"type": "function_call", "name": "f"}], "items[0].call_id"),
        ([FACT, {"role": "nobody", "content": "x"}], "items[1].role"),
        ([FACT] * 21, "items"),
        ([{"type": "item_reference", "id": "msg_1"}], "items"),
    ]
    for items, place in wrong:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.conversations.items.create(talk.id, items=items)
        assert caught.value.param == place
    for more in ({"metadata": {str(n): "x" for n in range(17)}}, {"model": "x"}):
        with pytest.raises(openai.BadRequestError):
            await client.conversations.create(extra_body=more)
    assert await texts(client, talk.id) == []


async def test_what_is_told_only_to_who_asks_is_left_out(client: openai.AsyncOpenAI) -> None:
    likely: Any = {"type": "output_text", "text": "Stone.", "annotations": [], "logprobs": []}
    items: list[Any] = [
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [likely]},
        {"type": "reasoning", "id": "rs_1", "summary": []},
    ]
    talk = await client.conversations.create(items=items)
    bare = await client.conversations.items.list(talk.id, order="asc")
    assert [item.id for item in bare.data] == ["msg_1", "rs_1"]
    assert "logprobs" not in str(bare.to_dict())
    whole = await client.conversations.items.list(
        talk.id, include=["message.output_text.logprobs"], order="asc"
    )
    assert whole.data[0].to_dict()["content"] == [likely]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.conversations.items.list(talk.id, include=["everything"])  # type: ignore[list-item]
    assert caught.value.param == "include"


async def test_the_synchronous_client_does_the_same(
    gateway: RunningGateway, shared_key: str
) -> None:
    def converse() -> list[object]:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=shared_key) as client:
            talk = client.conversations.create(items=[FACT])
            with client.responses.stream(
                model=CLAUDE_TARGET, input="What was built?", conversation=talk.id
            ) as stream:
                final = stream.get_final_response()
            assert final.conversation is not None
            listed = client.conversations.items.list(talk.id, order="asc")
            roles = [item.to_dict()["role"] for item in listed]
            client.conversations.delete(talk.id)
            return roles

    assert await to_thread.run_sync(converse) == ["user", "user", "assistant"]
