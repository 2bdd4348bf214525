"""Custom tools of responses at OpenAI's own chat completions, which have them by that name."""

import json
from typing import Any

from openai.types.chat import CompletionCreateParams
from openai.types.responses import Response
from pydantic import TypeAdapter

from gateway.dialects.registry import DIALECTS
from gateway.types import ChatRequest
from tests.conformance.test_rules_of_responses import RESPONSES, USER, datas, responses
from tests.conformance.test_tools_of_responses import (
    AGENTS,
    EVENT,
    GRAMMAR,
    PATCH,
    PATCHED,
    SPAWN,
    names_of,
    output,
)
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    CHAT_USAGE,
    OPENAI,
    charged,
    chunk,
    decoded,
    messages,
    to_openai,
)


VENDOR = "max_completion_tokens"
CALLED = {"name": "agents__patch", "input": PATCHED["input"]}
CALL = {"id": "call_b", "type": "custom", "custom": CALLED}
PLAIN = {"id": "call_c", "type": "function", "function": {"name": "spawn", "arguments": "{}"}}


def test_rule_65_a_response_s_custom_tools_calls_and_results_are_those_of_chats() -> None:
    turns = [USER, PATCHED, output(PATCHED), USER]
    choice = {"type": "custom", "name": "patch", "namespace": "agents"}
    asked = responses(tools=[SPAWN, AGENTS], tool_choice=choice, input=turns)
    body, dropped = to_openai(asked, VENDOR)

    TypeAdapter(CompletionCreateParams).validate_python(body)
    patch = next(each for each in body["tools"] if each["type"] == "custom")
    grammar = {key: GRAMMAR[key] for key in ("syntax", "definition")}
    assert patch["custom"] == {
        "name": "agents__patch",
        "description": PATCH["description"],
        "format": {"type": "grammar", "grammar": grammar},
    }
    assert body["tool_choice"] == {"type": "custom", "custom": {"name": "agents__patch"}}
    assert body["messages"][1]["tool_calls"] == [CALL]
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_b", "content": "ok"}
    assert dropped == set(), "the grammar is kept to, where it was only described before"


def test_rule_65_servers_that_know_functions_only_get_functions_of_one_text() -> None:
    choice = {"type": "custom", "name": "patch", "namespace": "agents"}
    body, dropped = to_openai(responses(tools=[AGENTS], tool_choice=choice))
    assert {each["type"] for each in body["tools"]} == {"function"}
    assert body["tool_choice"] == {"type": "function", "function": {"name": "agents__patch"}}
    assert dropped == {"tools.format"}


def test_rule_12_among_allowed_tools_of_a_response_are_custom_ones() -> None:
    listed = [{"type": "custom", "name": "patch", "namespace": "agents"}]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": listed}
    body, _ = to_openai(responses(tools=[SPAWN, AGENTS], tool_choice=choice), VENDOR)
    assert names_of(body) == ["spawn", "agents__spawn", "agents__patch"]
    assert body["tool_choice"]["allowed_tools"]["tools"] == [
        {"type": "custom", "custom": {"name": "agents__patch"}}
    ]


def completion(*calls: dict[str, Any]) -> bytes:
    message = {"role": "assistant", "content": None, "tool_calls": list(calls)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"id": "c", "model": "m", "choices": [choice], "usage": CHAT_USAGE}).encode()


def test_rule_65_a_whole_chat_tells_a_response_of_custom_calls() -> None:
    answer = OPENAI.decode_reply(completion(CALL, PLAIN))
    request = responses(tools=[SPAWN, AGENTS])
    told = json.loads(RESPONSES.encode_reply(answer, "openai_chat", request))
    Response.model_validate(told)
    kept = [{key: item.get(key) for key in PATCHED} for item in told["output"][:1]]
    assert kept == [PATCHED]
    assert told["output"][1]["type"] == "function_call"


def stream(*inputs: str) -> bytes:
    """A chat that calls the custom tool, and a function beside it."""
    first = CALL | {"custom": CALLED | {"input": ""}, "index": 0}
    pieces = [chunk({"role": "assistant", "tool_calls": [first]})]
    pieces += [chunk({"tool_calls": [{"index": 0, "custom": {"input": text}}]}) for text in inputs]
    pieces += [
        chunk({"tool_calls": [PLAIN | {"index": 1}]}),
        chunk({}, "tool_calls", usage=CHAT_USAGE),
        b"data: [DONE]\n\n",
    ]
    return b"".join(pieces)


def told_events(request: ChatRequest, raw: bytes) -> list[dict[str, Any]]:
    events = decoded("openai_chat", raw)
    encoder = RESPONSES.stream_encoder(request, "openai_chat")
    return datas(encoder.encode(events) + encoder.finish("", charged(events)))


def test_rule_65_a_stream_of_chunks_tells_a_response_of_custom_calls_as_they_come() -> None:
    text = PATCHED["input"]
    request = responses(tools=[SPAWN, AGENTS], stream=True)
    events = told_events(request, stream(text[:3], text[3:]))
    for event in events:
        EVENT.validate_python(event)

    said = [each for each in events if each["type"] == "response.custom_tool_call_input.delta"]
    assert [each["delta"] for each in said] == [text[:3], text[3:]]
    (done,) = (each for each in events if each["type"] == "response.custom_tool_call_input.done")
    assert done["input"] == text
    patched, spawned = events[-1]["response"]["output"]
    assert {key: patched.get(key) for key in PATCHED} == PATCHED
    assert (spawned["type"], spawned["name"]) == ("function_call", "spawn")
    assert [each["sequence_number"] for each in events] == list(range(len(events)))


def test_rule_65_a_text_that_looks_like_arguments_stays_what_it_is() -> None:
    text = '{"input": "not this alone"}'
    events = told_events(responses(tools=[AGENTS], stream=True), stream(text))
    assert events[-1]["response"]["output"][0]["input"] == text
    raw = completion(CALL | {"custom": CALLED | {"input": text}})
    request = responses(tools=[AGENTS])
    told = json.loads(RESPONSES.encode_reply(OPENAI.decode_reply(raw), "openai_chat", request))
    assert told["output"][0]["input"] == text


def test_rule_65_who_brought_no_custom_tool_is_told_of_no_such_call() -> None:
    answer = OPENAI.decode_reply(completion(CALL))
    plain = json.loads(RESPONSES.encode_reply(answer, "openai_chat", responses()))
    assert plain["output"] == []
    assert b"patch" not in ANTHROPIC.encode_reply(answer, "openai_chat", messages())
    events = told_events(responses(stream=True), stream("x"))
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["function_call"]
    encoder = DIALECTS["anthropic_messages"].stream_encoder(messages(stream=True), "openai_chat")
    assert b"patch" not in encoder.encode(decoded("openai_chat", stream("x")))
