"""What a model takes, by the catalogue's table, as official clients see it through a gateway."""

import asyncio
from typing import Any

import anthropic
import msgspec
import openai
import pytest

from gateway.money.catalogue import PARAMETERS, shipped_catalogue
from tests.conformance.contract import ROOT, parameter_table
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

SETTINGS = """
[inspection]
deadline_s = 5.0
"""
QUESTION: Any = [{"role": "user", "content": "How old is the bridge?"}]
TUNED: dict[str, Any] = {"temperature": 0.2, "top_p": 0.9, "presence_penalty": 0.5, "seed": 7}
PROBABLE = {
    "content": [{"token": "Hi", "logprob": -0.1, "bytes": [72, 105], "top_logprobs": []}],
    "refusal": None,
}


async def test_what_a_model_does_not_take_is_left_out_and_told_in_its_own_dialect(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    reply = await gpt.chat.completions.with_raw_response.create(
        model=GPT_TARGET, messages=QUESTION, **TUNED
    )

    sent = upstreams.openai.calls[0].json
    assert sent.keys() & TUNED.keys() == {"seed"}, "what nobody said is passed on"
    lost = ["temperature", "top_p", "presence_penalty"]
    assert reply.headers["x-gatewright-dropped"] == ", ".join(lost)
    records = await gateway.records(reply.headers["x-request-id"])
    assert list(records[-1].dropped) == lost


async def test_claude_is_not_told_what_its_newest_models_refuse(
    gpt: openai.AsyncOpenAI, claude: anthropic.AsyncAnthropic, upstreams: Upstreams
) -> None:
    """400 `tool_choice: type "tool" and "any" are not supported for this model.` of Opus 5.5."""
    schema: Any = {"type": "object", "properties": {"name": {"type": "string"}}}
    function: Any = {"name": "age_of", "parameters": schema}
    chats = await gpt.chat.completions.with_raw_response.create(
        model=CLAUDE_TARGET,
        messages=QUESTION,
        tools=[{"type": "function", "function": function}],
        tool_choice="required",
    )
    own = await claude.messages.with_raw_response.create(
        model=CLAUDE_TARGET,
        messages=QUESTION,
        max_tokens=4000,
        tools=[{"name": "age_of", "input_schema": schema}],
        tool_choice={"type": "tool", "name": "age_of"},
        thinking={"type": "disabled"},
    )

    first, second = (call.json for call in upstreams.anthropic.calls)
    assert first["tool_choice"] == second["tool_choice"] == {"type": "auto"}
    assert ("thinking" in second, second["output_config"]) == (False, {"effort": "low"})
    assert chats.headers["x-gatewright-dropped"] == "tool_choice"
    assert own.headers["x-gatewright-dropped"] == "tool_choice, thinking"


async def test_a_tool_that_has_to_be_called_goes_first_to_who_can_be_made_to(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    tool: Any = {"type": "function", "function": {"name": "age_of", "parameters": {}}}
    asked: dict[str, Any] = {"model": "auto:quality", "messages": QUESTION, "tools": [tool]}
    free = await gpt.chat.completions.with_raw_response.create(**asked)
    bound = await gpt.chat.completions.with_raw_response.create(**asked, tool_choice="required")

    assert free.headers["x-gatewright-target"] == CLAUDE_TARGET
    assert bound.headers["x-gatewright-target"] != CLAUDE_TARGET
    assert "x-gatewright-dropped" not in bound.headers


async def test_a_strict_key_hears_so_before_anything_is_reserved_or_sent(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(DEMO, translation="strict")
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(model=GPT_TARGET, messages=QUESTION, **TUNED)

    assert caught.value.param == "temperature"
    assert upstreams.openai.calls == []
    (record,) = await gateway.records(caught.value.response.headers["x-request-id"])
    assert (record.stage, record.reserved_microusd) == ("outcome", 0)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"logprobs": True, "top_logprobs": 2}, "logprobs"),
        ({"logprobs": True, "reasoning_effort": "none"}, "logprobs"),
    ],
)
async def test_probabilities_of_a_model_that_tells_none_are_refused_with_the_reason(
    gpt: openai.AsyncOpenAI,
    gateway: RunningGateway,
    upstreams: Upstreams,
    fields: dict[str, Any],
    place: str,
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"rule 24") as caught:
        await gpt.chat.completions.create(model=GPT_TARGET, messages=QUESTION, **fields)

    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", place)
    assert upstreams.openai.calls == []
    (record,) = await gateway.records(caught.value.response.headers["x-request-id"])
    assert (record.stage, record.reserved_microusd) == ("outcome", 0)


async def test_our_engine_gets_every_parameter_and_its_probabilities_come_back(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams
) -> None:
    message = {"role": "assistant", "content": "Hi", "refusal": None}
    choices = [
        {"index": index, "message": message, "finish_reason": "stop", "logprobs": PROBABLE}
        for index in range(2)
    ]
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    body = msgspec.json.encode(whole | {"choices": choices, "usage": usage})
    upstreams.engine.answer_once(Answer(body=body))
    asked = TUNED | {"logprobs": True, "n": 2, "logit_bias": {"50": 1}, "frequency_penalty": 0.1}

    reply = await gpt.chat.completions.with_raw_response.create(
        model=ENGINE_TARGET, messages=QUESTION, **asked
    )

    assert asked.items() <= upstreams.engine.calls[0].json.items()
    assert "x-gatewright-dropped" not in reply.headers
    said = reply.parse().choices
    assert [
        choice.logprobs is not None and len(choice.logprobs.content or ()) for choice in said
    ] == [1, 1]


async def test_requests_with_tools_stay_in_house_once_the_engine_says_that_its_model_calls_them(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, upstreams: Upstreams
) -> None:
    tools: Any = [{"type": "function", "function": {"name": "age_of", "parameters": {}}}]
    with pytest.raises(openai.BadRequestError, match=r"lacks tools"):
        await gpt.chat.completions.create(model="auto:in-house", messages=QUESTION, tools=tools)
    before = upstreams.engine.models
    upstreams.engine.models = ({"id": "fake-model", "capabilities": ["tools"]},)
    try:
        while (
            "tools"
            not in gateway.plane.snapshots.current().board.targets[ENGINE_TARGET].capabilities
        ):
            await asyncio.sleep(0.05)
        await gpt.chat.completions.create(model="auto:in-house", messages=QUESTION, tools=tools)
    finally:
        upstreams.engine.models = before

    (call,) = upstreams.engine.calls
    assert call.json["tools"] == tools
    assert not any(upstream.calls for upstream in upstreams.managed)


async def test_claude_gets_what_its_model_takes_from_either_client(
    gpt: openai.AsyncOpenAI, gateway: RunningGateway, shared_key: str, upstreams: Upstreams
) -> None:
    reply = await gpt.chat.completions.with_raw_response.create(
        model=CLAUDE_TARGET, messages=QUESTION, **TUNED
    )
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=shared_key) as claude:
        own = await claude.messages.with_raw_response.create(
            model=CLAUDE_TARGET,
            max_tokens=100,
            messages=QUESTION,
            extra_body={"temperature": 0.2, "a_field_of_tomorrow": 1},
        )

    crossed, same = (call.json for call in upstreams.anthropic.calls)
    assert crossed.keys() & TUNED.keys() == set()
    assert set(reply.headers["x-gatewright-dropped"].split(", ")) == TUNED.keys()
    assert ("temperature" in same, same["a_field_of_tomorrow"]) == (False, 1)
    assert own.headers["x-gatewright-dropped"] == "temperature"


async def test_the_list_of_models_says_what_each_takes(gpt: openai.AsyncOpenAI) -> None:
    listed = {model.id: model.model_extra or {} async for model in await gpt.models.list()}

    assert "parameters" not in listed["auto"]
    for name, catalogued in ((GPT_TARGET, GPT_TARGET), (ENGINE_TARGET, "in-house")):
        known = shipped_catalogue().models[catalogued].parameters
        assert listed[name]["parameters"] == {each: known[each] for each in PARAMETERS}


def test_the_table_of_parameters_in_the_documents_is_the_catalogues() -> None:
    text = ROOT.joinpath("docs", "translation.md").read_text(encoding="utf-8")

    assert parameter_table() in text, "print it with `python -m tests.conformance.contract`"


@pytest.mark.parametrize("asked", [16_385, 16_384, None])
@pytest.mark.parametrize("stream", [False, True])
async def test_who_may_have_fewer_tokens_than_were_asked_for_is_told_how_many(
    gpt: openai.AsyncOpenAI, upstreams: Upstreams, *, asked: int | None, stream: bool
) -> None:
    fields: dict[str, Any] = {} if asked is None else {"max_completion_tokens": asked}
    reply = await gpt.chat.completions.with_raw_response.create(
        model=GPT_TARGET, messages=QUESTION, stream=stream, **fields
    )
    answer = reply.parse()
    if isinstance(answer, openai.AsyncStream):
        async for _ in answer:
            pass

    assert upstreams.openai.calls[0].json["max_completion_tokens"] == 16_384
    told = reply.headers.get("x-gatewright-output-tokens-cap")
    assert told == ("16384" if asked == 16_385 else None)
