"""What the best peer gets wrong, row by row, as it was measured against LiteLLM 1.106.2."""

import json
from typing import Any

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, UpstreamRefused
from tests.conformance.test_rules_of_conversion import (
    CALL,
    RESULT,
    USER,
    chat_reply,
    message_reply,
    tool,
)
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    OPENAI,
    chat,
    messages,
    target,
    to_anthropic,
    to_openai,
)


RESPONSES = DIALECTS["openai_responses"]
M_TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
USE = {"type": "tool_use", "id": "t", "name": "f", "input": {}}


def to_responses(request: Any) -> tuple[dict[str, Any], set[str]]:
    upstream = RESPONSES.encode_request(request, target("thinking"), 1000)
    return json.loads(upstream.body), set(upstream.dropped)


def test_peers_send_a_temperature_that_claude_refuses() -> None:
    body, dropped = to_anthropic(chat(temperature=1.7))
    assert body["temperature"] == 1.0
    assert dropped == {"temperature"}


def test_peers_send_a_thinking_budget_above_the_limit() -> None:
    upstream = ANTHROPIC.encode_request(chat(reasoning_effort="high"), target("thinking"), 1000)
    assert b'"thinking"' not in upstream.body
    assert upstream.dropped == ("reasoning_effort",)


def test_peers_drop_json_object() -> None:
    body, dropped = to_anthropic(chat(response_format={"type": "json_object"}))
    assert "JSON" in body["system"][-1]["text"]
    assert dropped == {"response_format"}


def test_peers_drop_a_tools_strictness() -> None:
    body, dropped = to_anthropic(chat(tools=[tool("f", strict=True)]))
    assert body["tools"][0]["strict"] is True
    assert dropped == set()


def test_peers_remove_a_refusal_from_the_history() -> None:
    body, _ = to_anthropic(chat(messages=[USER, {"role": "assistant", "refusal": "No."}, USER]))
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    assert body["messages"][1]["content"] == [{"type": "text", "text": "No."}]


def test_peers_ask_for_the_models_whole_output_where_no_limit_was_named() -> None:
    # The cap is what routing made of the settings' default: see rule 21 on the wire.
    assert json.loads(ANTHROPIC.encode_request(chat(), target(), 1000).body)["max_tokens"] == 1000


@pytest.mark.parametrize("reason", ["pause_turn", "model_context_window_exceeded"])
def test_peers_call_an_unfinished_answer_finished(reason: str) -> None:
    completion = ANTHROPIC.decode_reply(message_reply(stop_reason=reason))
    answer = json.loads(OPENAI.encode_reply(completion, "anthropic_messages", chat()))
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(("status", "openai"), [(529, 503), (413, 413)])
def test_peers_change_the_meaning_of_an_upstreams_status(status: int, openai: int) -> None:
    error = ANTHROPIC.decode_error(status, b"{}", None)
    assert isinstance(error, UpstreamRefused)
    assert OPENAI.encode_error(error, "r")[0] == openai
    assert ANTHROPIC.encode_error(error, "r")[0] == status


def test_peers_drop_stop_sequences_and_top_k_on_the_way_to_responses() -> None:
    with pytest.raises(FeatureUnsupported, match=r"rule 23"):
        to_responses(messages(stop_sequences=["END"]))
    assert to_responses(messages(top_k=40))[1] == {"top_k"}


def test_peers_drop_the_wish_for_one_call_at_a_time() -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    for convert in (to_responses, to_openai):
        body, dropped = convert(messages(tools=[M_TOOL], tool_choice=choice))
        assert body["parallel_tool_calls"] is False
        assert dropped == set()


def test_peers_drop_that_a_tool_failed() -> None:
    failed = {"type": "tool_result", "tool_use_id": "t", "content": "down", "is_error": True}
    turns = [USER, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [failed]}]
    chat_body, _ = to_openai(messages(tools=[M_TOOL], messages=turns))
    assert chat_body["messages"][-1]["content"] == "[tool_error]\ndown"
    items, _ = to_responses(messages(tools=[M_TOOL], messages=turns))
    assert items["input"][-1]["output"] == "[tool_error]\ndown"


def test_peers_put_text_behind_the_calls_it_introduced() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "I look."}, USE]}
    done = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
    body, dropped = to_responses(messages(tools=[M_TOOL], messages=[USER, said, done]))
    kinds = [item["type"] for item in body["input"]]
    assert kinds == ["message", "message", "function_call", "function_call_output"]
    assert dropped == {"messages.thinking"}


def test_peers_give_a_message_a_name_of_another_vendors() -> None:
    whole = {"id": "resp_1", "object": "response", "status": "completed", "output": []}
    completion = RESPONSES.decode_reply(json.dumps(whole).encode())
    answer = json.loads(ANTHROPIC.encode_reply(completion, "openai_responses", messages()))
    assert answer["id"].startswith("msg_")


def test_peers_lose_the_whole_answer_where_arguments_were_cut_off() -> None:
    cut = {"role": "assistant", "content": None, "tool_calls": [
        {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": '{"a": "b'}}
    ]}  # fmt: skip
    completion = OPENAI.decode_reply(chat_reply(cut))
    answer = json.loads(ANTHROPIC.encode_reply(completion, "openai_chat", messages()))
    assert answer["content"][-1]["input"] == {"_raw_arguments": '{"a": "b'}


def test_what_the_best_peer_does_right_is_right_here_too() -> None:
    for fields in ({"n": 2}, {"logprobs": True}):
        with pytest.raises(FeatureUnsupported, match=r"rule 24"):
            to_anthropic(chat(**fields))
    body, _ = to_anthropic(chat(tools=[tool("f")], parallel_tool_calls=False))
    assert body["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    empty = CALL | {"function": {"name": "f", "arguments": ""}}
    turns = [USER, {"role": "assistant", "content": None, "tool_calls": [empty]}, RESULT]
    assert to_anthropic(chat(messages=turns))[0]["messages"][1]["content"][0]["input"] == {}
