"""Responses over HTTP with the official client: kept, continued, forgotten, and nobody else's."""

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest

from gateway.clock import SystemClock
from gateway.identity import Peppers
from gateway.money.budgets import end_user_subject
from gateway.projects import Project
from gateway.secrets.credentials import master_key, pepper
from gateway.store.engine import open_database
from gateway.store.erasure.kept_content import KeptContent
from gateway.store.identity.keys import Place
from tests.faults.envelopes import Caller
from tests.running_gateway import (
    CLAUDE_TARGET,
    DEMO,
    ENGINE_TARGET,
    GPT_TARGET,
    RunningGateway,
    Upstreams,
)
from tests.upstreams import Answer, reply_of


pytestmark = pytest.mark.anyio

SETTINGS = """
[inspection]
deadline_s = 5.0
[responses]
project_bytes_max = 100000
"""
TARGETS = [GPT_TARGET, CLAUDE_TARGET, ENGINE_TARGET]
OTHERS = [Place("acme", "research", "other"), Place("rival", "research", "assistant")]
IBAN = "DE89 3704 0044 0532 0130 00"


@pytest.fixture
async def client(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        yield client


def sent(upstreams: Upstreams) -> list[dict[str, Any]]:
    calls = [call for each in (upstreams.engine, *upstreams.managed) for call in each.calls]
    return [msgspec.json.decode(call.body) for call in calls]


@pytest.mark.parametrize("target", TARGETS)
async def test_a_plain_response_is_kept_read_and_forgotten(
    client: openai.AsyncOpenAI, upstreams: Upstreams, target: str
) -> None:
    made = await client.responses.create(model=target, input="Good morning")
    assert made.output_text == "Hello from the upstream."
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens) == (11, 7)
    assert len(made.id) == len("resp_") + 48

    read = await client.responses.retrieve(made.id)
    assert read.output_text == made.output_text
    asked = await client.responses.input_items.list(made.id)
    assert [item.to_dict() for item in asked.data] == [
        {
            "id": f"item_{made.id.removeprefix('resp_')}_0",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "Good morning"}],
        }
    ]
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        await client.responses.retrieve(made.id)
    assert caught.value.code == "response_not_found"
    assert b"resp_" not in b"".join(call.body for call in upstreams.openai.calls)


@pytest.mark.parametrize("field", ["user", "safety_identifier"])
@pytest.mark.parametrize("target", TARGETS)
async def test_one_is_found_for_an_erasure_by_whichever_field_names_its_end_user(
    gateway: RunningGateway, client: openai.AsyncOpenAI, target: str, field: str
) -> None:
    name = f"{field} of {target}"
    named: dict[str, Any] = {field: name}
    made = await client.responses.create(model=target, input="Good morning", **named)
    async with client.responses.stream(model=target, input="Good morning", **named) as stream:
        told = await stream.get_final_response()
    assert made.to_dict()[field] == told.to_dict()[field] == name
    settings = gateway.settings
    database = open_database(settings.database_url)
    kept = KeptContent(settings, database, master_key(settings), SystemClock())
    subject = end_user_subject("acme", name, Peppers({1: pepper(settings)}).keyed)
    found = await kept.find("acme", subject)
    await database.close()
    assert {answer_id for _, answer_id in found.answers} == {made.id, told.id}


async def test_what_was_sent_bare_is_listed_in_parts(client: openai.AsyncOpenAI) -> None:
    turns: list[Any] = [
        {"role": "user", "content": "Good morning"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "input_text", "text": "And you?"}]},
    ]
    made = await client.responses.create(model=ENGINE_TARGET, input=turns)
    asked = await client.responses.input_items.list(made.id)
    parts: list[Any] = [item.to_dict()["content"] for item in asked.data]
    assert [(part["type"], part["text"]) for (part,) in parts] == [
        ("input_text", "Good morning"),
        ("output_text", "Hello."),
        ("input_text", "And you?"),
    ]


async def test_what_was_sent_is_listed_by_pages_where_one_is_asked_for(
    client: openai.AsyncOpenAI,
) -> None:
    turns: list[Any] = [{"role": "user", "content": str(number)} for number in range(5)]
    made = await client.responses.create(model=ENGINE_TARGET, input=turns)
    listing = client.responses.input_items.list

    async def heard(**page: Any) -> list[str]:
        items: list[Any] = [item async for item in listing(made.id, **page)]
        return [item.content[0].text for item in items]

    for limit in (2, 5):
        assert await heard(limit=limit) == ["4", "3", "2", "1", "0"]
        assert await heard(limit=limit, order="asc") == ["0", "1", "2", "3", "4"]
    page = await listing(made.id, limit=2, order="asc")
    assert page.has_more
    ids: list[Any] = [item.id for item in page.data]
    assert await heard(after=ids[1], order="asc") == ["2", "3", "4"]
    assert await heard(after=ids[1]) == ["0"]
    for page_of, parameter in (({"limit": 101}, "limit"), ({"after": "item_x"}, "after")):
        with pytest.raises(openai.BadRequestError) as caught:
            await heard(**page_of)
        assert caught.value.param == parameter


@pytest.mark.parametrize("target", TARGETS)
async def test_a_streamed_response_is_kept_before_its_end_is_seen(
    client: openai.AsyncOpenAI, target: str
) -> None:
    async with client.responses.stream(model=target, input="Good morning") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()

    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Hello from the upstream."
    assert (await client.responses.retrieve(final.id)).output_text == final.output_text


@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
async def test_rule_54_a_thread_continues_at_any_target_with_its_whole_history(
    client: openai.AsyncOpenAI, upstreams: Upstreams, first: str, second: str
) -> None:
    made = await client.responses.create(model=first, input="My number is 4711.")
    for upstream in (upstreams.engine, *upstreams.managed):
        upstream.forget()
    more = await client.responses.create(
        model=second, input="Which number?", previous_response_id=made.id
    )

    (body,) = sent(upstreams)
    text = msgspec.json.encode(body).decode()
    assert text.index("4711") < text.index("Hello from the upstream") < text.index("Which number?")
    assert made.id not in text
    assert "previous_response_id" not in body
    assert body.get("store", False) is False
    assert more.previous_response_id == made.id


async def test_rule_29_a_thread_comes_back_to_its_model_with_its_signed_thinking(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    noise = b"".join(hashlib.sha512(b"%d" % at).digest() for at in range(9))
    signed = {"type": "thinking", "thinking": "Hm.", "signature": b64encode(noise).decode()}
    said = {"type": "text", "text": "It is old."}
    whole = reply_of(Answer(), CLAUDE_TARGET, "anthropic_messages") | {"content": [signed, said]}
    upstreams.anthropic.answer(Answer(body=msgspec.json.encode(whole)))

    first = await client.responses.create(model=CLAUDE_TARGET, input="How old is the bridge?")
    second = await client.responses.with_raw_response.create(
        model=CLAUDE_TARGET, input="And the tower?", previous_response_id=first.id
    )
    third = await client.responses.with_raw_response.create(
        model=GPT_TARGET, input="And the well?", previous_response_id=first.id
    )

    assert second.headers["x-gatewright-target"] == CLAUDE_TARGET
    messages: Any = upstreams.anthropic.calls[1].json["messages"]
    assert messages[1]["content"] == [signed, said]
    assert third.headers["x-gatewright-dropped"] == "input.reasoning"
    assert b"gw_thinking_block" not in upstreams.openai.calls[0].body


async def test_a_kept_response_is_not_read_as_a_stream(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    kept = await client.responses.create(model=GPT_TARGET, input="How old is the bridge?")

    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.retrieve(kept.id, stream=True)

    assert caught.value.param == "stream"


@pytest.mark.parametrize("place", OTHERS)
async def test_rule_54_nobody_elses_key_can_read_continue_or_forget_it(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams, place: Place
) -> None:
    made = await client.responses.create(model=GPT_TARGET, input="Good morning")
    upstreams.openai.forget()
    key = await gateway.issue_key(place)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as other:
        for call in (other.responses.retrieve, other.responses.delete):
            with pytest.raises(openai.NotFoundError):
                await call(made.id)
        with pytest.raises(openai.BadRequestError) as caught:
            await other.responses.create(model=GPT_TARGET, input="x", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_found"
    assert not upstreams.openai.calls
    assert (await client.responses.retrieve(made.id)).id == made.id


async def test_rule_59_an_unknown_previous_response_is_refused(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model=GPT_TARGET, input="x", previous_response_id="resp_0000")

    assert caught.value.code == "previous_response_not_found"
    assert not upstreams.openai.calls


async def test_what_is_not_to_be_kept_is_not(client: openai.AsyncOpenAI) -> None:
    made = await client.responses.create(model=GPT_TARGET, input="x", store=False)

    assert made.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_a_thread_stays_as_sensitive_as_it_ever_was(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    made = await client.responses.create(model="auto", input=f"Pay to {IBAN} please.")
    more = await client.responses.with_raw_response.create(
        model=CLAUDE_TARGET, input="Thanks.", previous_response_id=made.id
    )

    assert more.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not upstreams.anthropic.calls
    assert not upstreams.openai.calls
    outcome = (await gateway.records(more.headers["x-request-id"]))[-1]
    assert outcome.data_class >= "S2"


async def test_a_kept_class_rises_and_never_falls(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    """Even where nothing of what made it sensitive can be seen any more."""
    made = await client.responses.create(model=ENGINE_TARGET, input="Harmless.")
    store = gateway.plane._threads._store
    kept = await gateway.does(store.find(Project("acme", "research", "assistant"), made.id, 0))
    assert kept is not None
    raised = msgspec.structs.replace(kept, answer_id="resp_raised", data_class="S4")
    await gateway.does(store.keep(raised))
    more = await client.responses.with_raw_response.create(
        model=CLAUDE_TARGET, input="Thanks.", previous_response_id="resp_raised"
    )

    assert more.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not upstreams.anthropic.calls
    next_id = more.parse().id
    again = await gateway.does(store.find(Project("acme", "research", "assistant"), next_id, 0))
    assert again is not None
    assert again.data_class == "S4"


async def test_what_is_kept_is_encrypted_and_bound_to_its_place(
    gateway: RunningGateway, client: openai.AsyncOpenAI
) -> None:
    made = await client.responses.create(model=ENGINE_TARGET, input="A rather peculiar sentence.")
    database = open_database(gateway.settings.database_url)
    async with database.reading() as connection:
        rows = (await connection.exec_driver_sql("select * from kept_answers")).all()
    await database.close()

    assert any(made.id in row for row in rows)
    sealed = [cell for row in rows for cell in row if isinstance(cell, bytes)]
    assert len(sealed) >= 2
    assert b"peculiar" not in b"".join(sealed)
    assert "peculiar" not in str(rows)


async def test_tools_work_through_responses_on_a_model_that_takes_them_only_there(
    client: openai.AsyncOpenAI, caller: Caller, upstreams: Upstreams
) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"type": "integer"}}}
    item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f"}
    body = {"object": "response", "id": "resp_u", "model": "m", "status": "completed"}
    upstreams.openai.answer(
        Answer(body=msgspec.json.encode(body | {"output": [item | {"arguments": '{"a":1}'}]}))
    )
    answer = await client.chat.completions.create(
        model=GPT_TARGET,
        messages=[{"role": "user", "content": "x"}],
        tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
    )

    (call,) = upstreams.openai.calls
    assert call.path == "/v1/responses"
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert [each.to_dict()["function"]["arguments"] for each in calls] == ['{"a":1}']  # type: ignore[index]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


async def test_keys_of_one_project_share_its_threads(
    gateway: RunningGateway, client: openai.AsyncOpenAI
) -> None:
    made = await client.responses.create(model=GPT_TARGET, input="Good morning")
    key = await gateway.issue_key(DEMO)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as colleague:
        assert (await colleague.responses.retrieve(made.id)).id == made.id


async def test_a_project_that_keeps_too_much_loses_its_oldest_answers_and_goes_on(
    gateway: RunningGateway, client: openai.AsyncOpenAI
) -> None:
    others = await client.responses.create(model=GPT_TARGET, input="Good morning")
    key = await gateway.issue_key(Place("acme", "research", "talkative"))
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as talkative:
        made = [
            (await talkative.responses.create(model=GPT_TARGET, input="word " * 6_000)).id
            for _ in range(4)
        ]
        async with asyncio.timeout(30):
            while await _is_kept(talkative, made[0]):
                await asyncio.sleep(0.02)
        assert [await _is_kept(talkative, each) for each in made] == [False, True, True, True]
        with pytest.raises(openai.BadRequestError) as caught:
            await talkative.responses.create(
                model=GPT_TARGET, input="And?", previous_response_id=made[0]
            )
        assert caught.value.code == "previous_response_not_found"
    assert await _is_kept(client, others.id)


async def _is_kept(client: openai.AsyncOpenAI, answer_id: str) -> bool:
    try:
        await client.responses.retrieve(answer_id)
    except openai.NotFoundError:
        return False
    return True
