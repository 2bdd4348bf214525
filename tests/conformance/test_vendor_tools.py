"""Tools that only another vendor runs, or nobody can bill, at targets that leave them out."""

from collections.abc import Mapping
from typing import Any

import msgspec
import openai
import pytest

from gateway.types import Translation
from tests.faults.envelopes import untouched
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

SETTINGS = """
[targets.agents]
provider = "anthropic"
model = "claude-haiku-5-5"
vendor_tools = "leave_out"

[targets.own]
provider = "openai"
model = "gpt-6.2-sol"
vendor_tools = "leave_out"
"""
AGENTS = "agents"
OWN = "own"
SEARCH: Any = {"type": "web_search"}
PYTHON: Any = {"type": "code_interpreter", "container": {"type": "auto"}}
SPAWN: Any = {
    "type": "namespace",
    "name": "agents",
    "description": "Helpers.",
    "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}],
}


async def ask(gateway: RunningGateway, key: str, model: str, **fields: Any) -> Mapping[str, str]:
    """The headers of the answer."""
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        asked: dict[str, Any] = {
            "input": "Good morning",
            "max_output_tokens": 50,
            "tools": [SPAWN, SEARCH],
        }
        answer = await client.responses.with_raw_response.create(model=model, **(asked | fields))
        # To its end: the outcome of a stream is on record before that, and not before it begins.
        await answer.http_response.aread()
        return dict(answer.headers)


@pytest.mark.parametrize("translation", ["warn", "lenient"])
async def test_rule_19_what_was_left_out_is_told_and_recorded(
    gateway: RunningGateway, upstreams: Upstreams, translation: Translation
) -> None:
    key = await gateway.issue_key(DEMO, translation=translation)
    headers = await ask(gateway, key, AGENTS)

    told = headers.get("x-gatewright-dropped")
    assert told == ("tools.web_search" if translation == "warn" else None)
    records = await gateway.records(headers["x-request-id"])
    assert records[-1].dropped == ("tools.web_search",)
    (call,) = upstreams.anthropic.calls
    tools: Any = call.json["tools"]
    assert [tool["name"] for tool in tools] == ["agents__spawn"]


@pytest.mark.parametrize("stream", [False, True])
async def test_rule_19_who_takes_no_less_is_refused_and_so_is_everybody_by_default(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str, *, stream: bool
) -> None:
    strict = await gateway.issue_key(DEMO, translation="strict")
    cases = [(strict, AGENTS, "tools.web_search"), (shared_key, CLAUDE_TARGET, "tools[1].type")]
    for key, model, parameter in cases:
        with pytest.raises(openai.BadRequestError) as caught:
            await ask(gateway, key, model, stream=stream)
        assert (caught.value.code, caught.value.param) == ("unsupported_parameter", parameter)
        assert "web_search" in str(caught.value)
    assert untouched(upstreams)


async def test_rule_19_a_tool_that_the_caller_insists_on_is_refused(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    cases: list[tuple[Any, list[Any]]] = [(SEARCH, [SPAWN, SEARCH]), ("required", [SEARCH])]
    for choice, tools in cases:
        with pytest.raises(openai.BadRequestError):
            await ask(gateway, shared_key, AGENTS, tool_choice=choice, tools=tools)
    assert untouched(upstreams)


async def test_rule_19_where_policy_chooses_a_target_that_has_the_tools_comes_first(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(DEMO, models=(AGENTS, GPT_TARGET))
    assert (await ask(gateway, key, "auto", tools=[SPAWN]))["x-gatewright-target"] == AGENTS

    headers = await ask(gateway, key, "auto")
    assert headers["x-gatewright-target"] == GPT_TARGET
    assert "x-gatewright-dropped" not in headers
    assert upstreams.openai.calls[0].json["tools"] == [SPAWN, SEARCH]


async def test_rule_19_where_the_target_that_has_the_tools_fails_the_other_one_answers(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(DEMO, models=(AGENTS, GPT_TARGET))
    upstreams.openai.answer(Answer(status=500))
    headers = await ask(gateway, key, "auto")

    assert headers["x-gatewright-target"] == AGENTS
    assert headers["x-gatewright-dropped"] == "tools.web_search"
    assert len(upstreams.openai.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_rule_19_its_vendors_tools_without_a_price_are_left_out_told_and_recorded(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str, *, stream: bool
) -> None:
    headers = await ask(gateway, shared_key, OWN, tools=[SPAWN, PYTHON, SEARCH], stream=stream)

    assert headers["x-gatewright-dropped"] == "tools.code_interpreter"
    records = await gateway.records(headers["x-request-id"])
    assert records[-1].dropped == ("tools.code_interpreter",)
    (call,) = upstreams.openai.calls
    assert call.json["tools"] == [SPAWN, SEARCH]


async def test_rule_19_who_takes_no_less_than_its_vendors_tools_is_refused(
    gateway: RunningGateway, upstreams: Upstreams, shared_key: str
) -> None:
    strict = await gateway.issue_key(DEMO, translation="strict")
    cases: list[tuple[str, str, dict[str, Any]]] = [
        (strict, OWN, {}),
        (shared_key, OWN, {"tool_choice": {"type": "code_interpreter"}}),
        (shared_key, GPT_TARGET, {}),
    ]
    for key, model, fields in cases:
        with pytest.raises(openai.BadRequestError):
            await ask(gateway, key, model, tools=[SPAWN, PYTHON], **fields)
    assert untouched(upstreams)


async def test_rule_19_auto_comes_to_the_target_that_leaves_out_what_others_refuse(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(DEMO, models=(OWN, GPT_TARGET))
    headers = await ask(gateway, key, "auto", tools=[PYTHON])
    assert headers["x-gatewright-target"] == OWN
    (call,) = upstreams.openai.calls
    assert "tools" not in call.json


CALLS_SHELL: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"commands": ["ls"]}}
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 5, "output_tokens": 5},
}


async def test_rule_66_a_key_that_leaves_nothing_out_runs_a_shell_for_another_vendors_model(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key(DEMO, translation="strict")
    upstreams.anthropic.answer_once(Answer(body=msgspec.json.encode(CALLS_SHELL)))
    shell: Any = [{"type": "shell", "environment": {"type": "local"}}]
    said: Any = [{"role": "user", "content": "What is here?"}]
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        asking = client.responses
        asked = await asking.create(
            model=CLAUDE_TARGET, input=said, tools=shell, max_output_tokens=50
        )
        (call,) = asked.output
        assert call.type == "shell_call"
        assert call.action.commands == ["ls"]
        written = {"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
        gave: Any = {"type": "shell_call_output", "call_id": call.call_id, "output": [written]}
        told = await asking.create(
            model=CLAUDE_TARGET,
            input=[gave],
            previous_response_id=asked.id,
            tools=shell,
            max_output_tokens=50,
        )

    assert told.output_text == "Hello from the upstream."
    turns: Any = upstreams.anthropic.calls[1].json["messages"]
    (used,) = turns[1]["content"]
    assert (used["name"], used["input"]) == ("shell", {"commands": ["ls"]})
    assert "a.py" in str(turns[2]["content"])
