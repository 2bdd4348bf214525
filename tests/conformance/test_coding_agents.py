"""What coding agents send and rely on, each shape as one of them was seen to send it."""

import json
from typing import Any

import pytest

from gateway.dialects.openai_responses.errors import error_event, response_error
from gateway.errors import ContextTooLong, FeatureUnsupported, GatewrightError, UpstreamRefused
from gateway.ports import Dialect
from gateway.types import ChatRequest
from tests.conformance.test_rules_of_responses import RESPONSES, responses
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    OPENAI,
    chat,
    messages,
    target,
    to_anthropic,
    to_openai,
)


CALLED = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "tool_use", "id": "t", "name": "look", "input": {}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]},
]
SAID = [{"role": "user", "content": "Sum up."}, {"role": "assistant", "content": "So far: x."}]
"""A history that was made shorter, with the assistant's word last."""
FULL = UpstreamRefused(
    "prompt is too long: 210000 tokens > 200000 maximum",
    upstream_status=400,
    upstream_code="context_length_exceeded",
)


def asked_for(limits: dict[str, Any], cap: int = 1000) -> dict[str, Any]:
    """The limits of a chat as a model is sent them that refuses `max_tokens`."""
    request = chat(stream=True, stream_options={"include_usage": True}, **limits)
    upstream = OPENAI.encode_request(request, target("max_completion_tokens", model="m"), cap)
    assert upstream.dropped == ()
    body = json.loads(upstream.body)
    assert body["messages"] == request.tree["messages"]
    return {name: value for name, value in body.items() if name.startswith("max_")}


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        ({"max_tokens": 500}, 500),
        ({"max_tokens": 64_000}, 1000),
        ({"max_tokens": 500, "max_completion_tokens": None}, 500),
        ({"max_completion_tokens": 500}, 500),
    ],
)
def test_rule_62_a_model_that_refuses_the_older_name_of_the_limit_gets_the_newer(
    limits: dict[str, Any], sent: int
) -> None:
    assert asked_for(limits) == {"max_completion_tokens": sent}


def thought(limit: int, budget: int, cap: int) -> tuple[dict[str, Any], tuple[str, ...]]:
    """A message with a budget for thinking, as it leaves for Claude."""
    thinking = {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
    request = messages(max_tokens=limit, thinking=thinking, messages=CALLED)
    upstream = ANTHROPIC.encode_request(request, target("thinking"), cap)
    body = json.loads(upstream.body)
    assert body["messages"] == CALLED
    return body, upstream.dropped


def test_rule_62_a_budget_for_thinking_follows_a_limit_that_policy_lowers() -> None:
    body, dropped = thought(32_000, 31_999, cap=16_384)
    assert body["max_tokens"] == 16_384
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 8192, "display": "summarized"}
    assert dropped == ()


@pytest.mark.parametrize(
    ("limit", "budget", "cap"), [(32_000, 4096, 16_384), (8000, 4096, 8000), (8000, 20_000, 4096)]
)
def test_rule_62_a_budget_that_fits_stays_and_so_does_one_above_the_callers_own_limit(
    limit: int, budget: int, cap: int
) -> None:
    # The last is of a feature (thinking between calls) that counts a budget over several turns.
    body, dropped = thought(limit, budget, cap)
    assert body["thinking"]["budget_tokens"] == budget
    assert dropped == ()


def test_rule_62_no_thinking_is_asked_for_where_the_least_of_it_does_not_fit() -> None:
    body, dropped = thought(8000, 4000, cap=2000)
    assert "thinking" not in body
    assert dropped == ("thinking",)


@pytest.mark.parametrize("error", [ContextTooLong("It fits no permitted target."), FULL])
def test_rule_58_a_stream_of_responses_says_by_its_code_that_the_context_is_full(
    error: GatewrightError,
) -> None:
    event = json.loads(error_event(error, 0).partition(b"data: ")[2])
    for told in (event, response_error(error)):
        assert told["code"] == "context_length_exceeded"
        assert str(told["message"]).endswith(error.message)


def test_what_is_refused_for_another_reason_is_told_as_it_is() -> None:
    error = UpstreamRefused("No.", upstream_status=400, upstream_code="invalid_value")
    _, raw = OPENAI.encode_error(error, "req_1")
    assert json.loads(raw)["error"]["message"] == "No."
    assert response_error(error) == {"code": "invalid_prompt", "message": "No."}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (chat(messages=SAID), "messages.last_turn"),
        (responses(input=SAID), "input.last_turn"),
    ],
)
def test_rule_27_a_turn_of_the_assistants_that_is_last_is_followed_by_another_one(
    request_: ChatRequest, told: str
) -> None:
    body, dropped = to_anthropic(request_)
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][2]["content"] == [{"type": "text", "text": "Continue."}]
    assert dropped == {told}


def test_rule_27_other_vendors_take_such_a_turn_as_it_is() -> None:
    body, dropped = to_openai(responses(input=SAID))
    assert (body["messages"], dropped) == (SAID, set())
    upstream = RESPONSES.encode_request(chat(messages=SAID), target(), 1000)
    assert [item["role"] for item in json.loads(upstream.body)["input"]] == ["user", "assistant"]
    assert upstream.dropped == ()


@pytest.mark.parametrize("dialect", [OPENAI, RESPONSES])
def test_rule_27_a_prefill_is_refused_where_it_would_become_a_turn(dialect: Dialect) -> None:
    with pytest.raises(FeatureUnsupported, match="rule 27"):
        dialect.encode_request(messages(messages=SAID), target(), 1000)


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "Fact"}])
def test_rule_27_what_stands_before_a_call_that_has_to_be_made_is_a_turn_and_no_prefill(
    choice: dict[str, str],
) -> None:
    """LangGraph asks for the agent's answer as a structure so, after the words of that answer."""
    tools = [{"name": "Fact", "input_schema": {"type": "object", "properties": {}}}]
    asked = messages(messages=SAID, tools=tools, tool_choice=choice)
    body, dropped = to_openai(asked)
    assert (body["messages"], dropped) == (SAID, set())
    upstream = RESPONSES.encode_request(asked, target(), 1000)
    assert [item["role"] for item in json.loads(upstream.body)["input"]] == ["user", "assistant"]
    with pytest.raises(FeatureUnsupported, match="rule 27"):
        to_openai(messages(messages=SAID, tools=tools, tool_choice={"type": "auto"}))
