"""Items of kept responses that a request only names, as clients do that count on `store`.

Vercel's `ai` package sends back what a model said or thought as `item_reference`, and nothing else.
"""

import hashlib
from base64 import b64encode
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import openai
import pytest

from gateway.continuing.threads import REFERENCES_MAX
from gateway.projects import Project
from tests.running_gateway import (
    CLAUDE_TARGET,
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
"""
TARGETS = [GPT_TARGET, CLAUDE_TARGET, ENGINE_TARGET]
PROJECT = Project("acme", "research", "assistant")
SEALED = "gAAAA-sealed-by-its-vendor"
NEXT = {"role": "user", "content": "Which number?"}


@pytest.fixture
async def client(gateway: RunningGateway, shared_key: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=shared_key, max_retries=0
    ) as client:
        yield client


def named(*ids: str) -> list[Any]:
    return [*({"type": "item_reference", "id": each} for each in ids), NEXT]


def gives(upstreams: Upstreams, *items: dict[str, Any]) -> None:
    body = {"object": "response", "id": "resp_u", "model": "m", "status": "completed"}
    upstreams.openai.answer_once(Answer(body=msgspec.json.encode(body | {"output": items})))


def message(name: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": name, "role": "assistant", "content": [part]}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("first", TARGETS)
@pytest.mark.parametrize("second", TARGETS)
async def test_an_item_that_is_only_named_stands_in_its_place_at_any_target(
    client: openai.AsyncOpenAI, upstreams: Upstreams, first: str, second: str, is_streamed: bool
) -> None:
    made: Any
    if is_streamed:
        async with client.responses.stream(model=first, input="My number is 4711.") as stream:
            made = await stream.get_final_response()
    else:
        made = await client.responses.create(model=first, input="My number is 4711.")
    name = made.output[0].id
    asked: Any = {"role": "user", "content": "My number is 4711."}

    answer = await client.responses.with_raw_response.create(
        model=second, input=[asked, *named(name)]
    )

    assert answer.headers["x-gatewright-target"] == second
    calls = [call for each in (upstreams.engine, *upstreams.managed) for call in each.calls]
    text = max((call.body for call in calls), key=len).decode()
    assert text.index("4711") < text.index("Hello from the upstream") < text.index("Which number?")
    assert "item_reference" not in text
    assert text.count("4711") == 1


async def test_reasoning_that_is_only_named_goes_back_sealed_to_who_sealed_it(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    thought: Any = {"type": "reasoning", "id": "rs_7", "summary": [], "encrypted_content": SEALED}
    call: Any = {
        "type": "function_call",
        "id": "fc_7",
        "call_id": "c",
        "name": "f",
        "arguments": "{}",
    }
    gives(upstreams, thought, call)
    await client.responses.create(model=GPT_TARGET, input="x")
    result: Any = {"type": "function_call_output", "call_id": "c", "output": "120"}

    await client.responses.create(model=GPT_TARGET, input=[*named("rs_7")[:1], call, result])

    sent: Any = upstreams.openai.calls[1].json
    assert sent["input"] == [thought, call, result]
    assert sent["store"] is False


async def test_signed_thinking_that_is_only_named_goes_back_to_its_model(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    noise = b"".join(hashlib.sha512(b"%d" % at).digest() for at in range(9))
    signed = {"type": "thinking", "thinking": "Hm.", "signature": b64encode(noise).decode()}
    said = {"type": "text", "text": "It is old."}
    whole = reply_of(Answer(), CLAUDE_TARGET, "anthropic_messages") | {"content": [signed, said]}
    upstreams.anthropic.answer(Answer(body=msgspec.json.encode(whole)))
    made: Any = await client.responses.create(model=CLAUDE_TARGET, input="How old is the bridge?")
    names = [item.id for item in made.output]

    await client.responses.create(model=CLAUDE_TARGET, input=named(*names))

    messages: Any = upstreams.anthropic.calls[1].json["messages"]
    assert messages[0]["content"] == [signed, said]


@pytest.mark.parametrize("name", ["msg_unknown", "", "rs_" + "7" * 200])
async def test_an_item_that_nobody_kept_is_refused_with_its_place(
    client: openai.AsyncOpenAI, upstreams: Upstreams, name: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model=GPT_TARGET, input=named(name))

    assert (caught.value.param, caught.value.code) == ("input[0]", "unsupported_parameter")
    assert not upstreams.openai.calls


async def test_a_name_that_two_items_have_means_neither(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    for text in ("one", "two"):
        gives(upstreams, message("msg_twice", text), message(f"msg_{text}", text))
        await client.responses.create(model=GPT_TARGET, input="x")

    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model=GPT_TARGET, input=named("msg_twice"))
    await client.responses.create(model=GPT_TARGET, input=named("msg_two"))

    sent: Any = upstreams.openai.calls[2].json
    assert sent["input"][0]["content"][0]["text"] == "two"


async def test_an_item_that_was_given_twice_is_the_same(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    for _ in range(3):
        gives(upstreams, message("msg_same", "one"))
        await client.responses.create(model=GPT_TARGET, input="x")

    await client.responses.create(model=GPT_TARGET, input=named("msg_same"))

    assert upstreams.openai.calls[3].body.count(b'"one"') == 1


async def test_an_item_of_a_forgotten_or_unkept_response_is_refused(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    gives(upstreams, message("msg_gone", "one"))
    gone = await client.responses.create(model=GPT_TARGET, input="x")
    await client.responses.delete(gone.id)
    gives(upstreams, message("msg_unkept", "one"))
    await client.responses.create(model=GPT_TARGET, input="x", store=False)
    upstreams.openai.forget()

    for name in ("msg_gone", "msg_unkept"):
        with pytest.raises(openai.BadRequestError):
            await client.responses.create(model=GPT_TARGET, input=named(name))
    assert not upstreams.openai.calls


async def test_a_named_item_makes_a_request_as_sensitive_as_its_answer_was(
    gateway: RunningGateway, client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    made = await client.responses.create(model=ENGINE_TARGET, input="Harmless.")
    store = gateway.plane._threads._store
    kept = await gateway.does(store.find(PROJECT, made.id, 0))
    assert kept is not None
    said = msgspec.json.encode({"output": [message("msg_s4", "It is told.")]})
    raised = msgspec.structs.replace(kept, answer_id="resp_s4", data_class="S4", response=said)
    await gateway.does(store.keep(raised, ["msg_s4"]))

    more = await client.responses.with_raw_response.create(
        model=CLAUDE_TARGET, input=named("msg_s4")
    )

    assert more.headers["x-gatewright-target"] == ENGINE_TARGET
    assert not upstreams.anthropic.calls


async def test_a_named_item_is_counted_as_what_it_is(
    client: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    gives(upstreams, message("msg_long", "word " * 2000))
    await client.responses.create(model=GPT_TARGET, input="x")

    counted = await client.responses.input_tokens.count(
        model=ENGINE_TARGET, input=named("msg_long")
    )

    assert counted.input_tokens > 1000


async def test_there_is_an_end_to_what_one_request_may_name(client: openai.AsyncOpenAI) -> None:
    names = [f"msg_{each}" for each in range(REFERENCES_MAX + 1)]

    with pytest.raises(openai.BadRequestError, match=str(REFERENCES_MAX)):
        await client.responses.create(model=GPT_TARGET, input=named(*names))
