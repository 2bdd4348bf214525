"""Google's seals of calls: a caller of any dialect brings them back to whoever made them."""

import base64
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.conformance.told_answers import data_of
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

GEMINI = "gemini-3"
MORE = """
[prices]
file = "{folder}/prices.toml"
[providers.google]
kind = "openai_compatible"
base_url = "{url}/v1"
jurisdiction = "us"
[targets.gemini-3]
provider = "google"
model = "gemini-3"
"""
PRICES = """
[models.gemini-3]
vendor = "google"
tier = "frontier"
input_microusd_per_mtok = 100
output_microusd_per_mtok = 200
cache_read_microusd_per_mtok = 0
cache_write_microusd_per_mtok = 0
cache_write_1h_microusd_per_mtok = 0
batch_percent = 100
context_window_tokens = 100000
output_tokens_max = 1000
capabilities = ["streaming", "tools"]
source = "a test"
as_of = "2026-11-01"
"""
SEAL = base64.b64encode(random.Random(5).randbytes(300)).decode()
SEALED = {"google": {"thought_signature": SEAL}}
TOOL: dict[str, Any] = {"name": "weather", "description": "d"}
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
ASKED = "What is the weather in Bonn and in Trier?"
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gemini-3"}
CALLS: list[dict[str, Any]] = [
    {
        "id": f"function-call:{number}",
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": city})},
    }
    for number, city in enumerate(("Bonn", "Trier"))
]
CALLS[0]["extra_content"] = SEALED
"""As Gemini tells calls that it makes at once: the first is sealed, and no other."""
USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}


def called(*, stream: bool) -> Answer:
    message = {"role": "assistant", "content": None, "tool_calls": CALLS}
    if not stream:
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        whole = HEAD | {"object": "chat.completion", "choices": [choice], "usage": USAGE}
        return Answer(body=json.dumps(whole).encode())
    numbered = [call | {"index": at} for at, call in enumerate(CALLS)]
    pieces = [{"role": "assistant", "tool_calls": [call]} for call in numbered]
    chunks = [HEAD | {"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    ended = {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    chunks.append(HEAD | {"choices": [ended], "usage": USAGE})
    return Answer(events=(*map(data_of, chunks), b"data: [DONE]\n\n"))


@pytest.fixture
async def gateway(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    (tmp_path / "prices.toml").write_text(PRICES)
    more = MORE.format(folder=tmp_path, url=upstreams.openai.url)
    async with RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as running:
        yield running


@pytest.fixture
async def key(gateway: RunningGateway) -> str:
    return await gateway.issue_key()


async def through_messages(gateway: RunningGateway, key: str, model: str, *, stream: bool) -> None:
    """A turn that calls, told back to a model as its client has it."""
    asked: Any = {
        "max_tokens": 500,
        "tools": [TOOL | {"input_schema": SCHEMA}],
        "messages": [{"role": "user", "content": ASKED}],
    }
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key, max_retries=0) as client:
        if stream:
            async with client.messages.stream(model=GEMINI, **asked) as events:
                answer = await events.get_final_message()
        else:
            answer = await client.messages.create(model=GEMINI, **asked)
        uses = [block.id for block in answer.content if block.type == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": each, "content": "rain"} for each in uses]
        asked["messages"] += [
            {"role": "assistant", "content": [block.to_dict() for block in answer.content]},
            {"role": "user", "content": results},
        ]
        await client.messages.create(model=model, **asked)


async def through_responses(gateway: RunningGateway, key: str, model: str, *, stream: bool) -> None:
    asked: Any = {
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "tools": [TOOL | {"type": "function", "parameters": SCHEMA, "strict": False}],
    }
    history: list[Any] = [{"role": "user", "content": ASKED}]
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        if stream:
            async with client.responses.stream(model=GEMINI, input=history, **asked) as events:
                answer: Any = await events.get_final_response()
        else:
            answer = await client.responses.create(model=GEMINI, input=history, **asked)
        calls = [item.call_id for item in answer.output if item.type == "function_call"]
        history += [item.to_dict() for item in answer.output]
        history += [
            {"type": "function_call_output", "call_id": each, "output": "rain"} for each in calls
        ]
        await client.responses.create(model=model, input=history, **asked)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("through", [through_messages, through_responses])
async def test_rule_30_a_seal_of_a_call_comes_back_with_its_call(
    gateway: RunningGateway, upstreams: Upstreams, key: str, through: Any, *, stream: bool
) -> None:
    upstreams.openai.answer_once(called(stream=stream))

    await through(gateway, key, GEMINI, stream=stream)

    told: Any = upstreams.openai.calls[-1].json["messages"]
    said = next(message for message in told if message["role"] == "assistant")
    assert [call.get("extra_content") for call in said["tool_calls"]] == [SEALED, None]
    assert json.dumps(told).count(SEAL) == 1
    assert [message["role"] for message in told] == ["user", "assistant", "tool", "tool"]


@pytest.mark.parametrize("through", [through_messages, through_responses])
async def test_rule_31_a_seal_of_a_call_is_nothing_to_another_vendor(
    gateway: RunningGateway, upstreams: Upstreams, key: str, through: Any
) -> None:
    upstreams.openai.answer_once(called(stream=True))

    await through(gateway, key, CLAUDE_TARGET, stream=True)

    (call,) = upstreams.anthropic.calls
    assert b"gw_call_seal" not in call.body
    assert SEAL.encode() not in call.body
