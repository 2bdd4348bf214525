"""Custom tools and the older functions of chats, at targets that have other words for them."""

import json
from collections.abc import Iterable
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, RequestInvalid
from gateway.types import ChatRequest, Completion, DialectName, ToolCall, Usage
from tests.conformance.test_rules_of_responses import datas, response, to_responses
from tests.gateway.dialects.samples import (
    OPENAI,
    charged,
    chat,
    decoded,
    messages,
    sse,
    to_anthropic,
)
from tests.gateway.veiling.test_output_scan import VALUES, output_scan
from tests.running_gateway import CLAUDE_TARGET, DEMO, GPT_TARGET, RunningGateway, Upstreams
from tests.upstream_messages import anthropic_message
from tests.upstream_responses import openai_response
from tests.upstreams import Answer


TEXT = 'a "quoted"\nline \U0001f600'
LARK = {"syntax": "lark", "definition": "start: /.+/"}
PATCH: dict[str, Any] = {
    "type": "custom",
    "custom": {
        "name": "patch",
        "description": "Change a file.",
        "format": {"type": "grammar", "grammar": LARK},
    },
}
NOTE: dict[str, Any] = {"type": "custom", "custom": {"name": "note"}}
CLOCK: dict[str, Any] = {"type": "function", "function": {"name": "clock"}}
PATCHED = {"id": "call_a", "type": "custom", "custom": {"name": "patch", "input": TEXT}}
TOLD = {"id": "call_b", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
TALK: list[dict[str, Any]] = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [PATCHED, TOLD]},
    {"role": "tool", "tool_call_id": "call_a", "content": "done"},
    {"role": "tool", "tool_call_id": "call_b", "content": "noon"},
]
CARD = VALUES["CREDIT_CARD"]
OLDER: list[dict[str, Any]] = [{"name": "clock", "description": "Time.", "parameters": {}}]
CUSTOM_ITEM = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "call_a",
    "name": "patch",
    "input": TEXT,
}
CALL_ITEM = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_b",
    "name": "clock",
    "arguments": '{"zone":1}',
}


def test_rule_65_a_chats_custom_tools_calls_and_results_are_those_of_responses() -> None:
    choice = {"type": "custom", "custom": {"name": "patch"}}
    body, dropped = to_responses(
        chat(messages=TALK, tools=[PATCH, NOTE, CLOCK], tool_choice=choice)
    )

    assert body["tools"][:2] == [
        {
            "type": "custom",
            "name": "patch",
            "description": "Change a file.",
            "format": {"type": "grammar", **LARK},
        },
        {"type": "custom", "name": "note", "format": {"type": "text"}},
    ]
    assert body["tool_choice"] == {"type": "custom", "name": "patch"}
    assert body["input"][1:] == [
        {"type": "custom_tool_call", "call_id": "call_a", "name": "patch", "input": TEXT},
        {"type": "function_call", "call_id": "call_b", "name": "clock", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "call_a", "output": "done"},
        {"type": "function_call_output", "call_id": "call_b", "output": "noon"},
    ]
    assert dropped == set()


def test_rule_65_a_chats_custom_tools_are_functions_of_one_text_in_messages() -> None:
    choice = {"type": "custom", "custom": {"name": "patch"}}
    body, dropped = to_anthropic(chat(messages=TALK, tools=[PATCH, CLOCK], tool_choice=choice))

    patch = body["tools"][0]
    assert (patch["name"], patch["input_schema"]["required"]) == ("patch", ["input"])
    about = patch["input_schema"]["properties"]["input"]["description"]
    assert about.endswith("lark grammar:\nstart: /.+/")
    assert body["tool_choice"]["name"] == "patch"
    assert body["messages"][1]["content"][0]["input"] == {"input": TEXT}
    assert dropped == {"tools.custom.format"}, "nobody there keeps to a grammar"


def test_rule_12_among_the_tools_that_are_allowed_may_be_custom_ones() -> None:
    listed = [{"type": "custom", "custom": {"name": "note"}}]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": listed}}
    body, dropped = to_responses(chat(tools=[PATCH, NOTE, CLOCK], tool_choice=choice))

    assert [tool["name"] for tool in body["tools"]] == ["note"]
    assert (body["tool_choice"], dropped) == ("required", set())


@pytest.mark.parametrize(("mode", "meant"), [("required", "any"), ("auto", "auto")])
def test_rule_12_allowed_tools_are_a_responses_own_words_at_the_vendor(
    mode: str, meant: str
) -> None:
    """The others are shown all the same: a cached prefix with all tools in it stays good."""
    listed = [
        {"type": "custom", "custom": {"name": "note"}},
        {"type": "function", "function": {"name": "clock"}},
    ]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}
    asked = chat(tools=[PATCH, NOTE, CLOCK], tool_choice=choice)
    body, dropped = to_responses(asked, "max_completion_tokens")

    assert [tool["name"] for tool in body["tools"]] == ["patch", "note", "clock"]
    assert body["tool_choice"] == {
        "type": "allowed_tools",
        "mode": mode,
        "tools": [{"type": "custom", "name": "note"}, {"type": "function", "name": "clock"}],
    }
    assert dropped == set()
    elsewhere, _ = to_anthropic(asked)
    assert [tool["name"] for tool in elsewhere["tools"]] == ["note", "clock"]
    assert elsewhere["tool_choice"] == {"type": meant}
    nobody = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
    body, _ = to_responses(chat(tools=[CLOCK], tool_choice=nobody), "max_completion_tokens")
    assert not body.keys() & {"tools", "tool_choice"}


def test_rule_65_a_custom_tool_and_a_function_of_one_name_are_told_apart_and_found_again() -> None:
    same = {"type": "custom", "custom": {"name": "clock"}}
    request = chat(tools=[CLOCK, same])
    body, _ = to_responses(request)
    function, custom = (tool["name"] for tool in body["tools"])
    assert function == "clock" != custom

    calls = (
        ToolCall("call_a", function, "{}"),
        ToolCall("call_b", custom, json.dumps({"input": TEXT})),
    )
    told = whole(request, *calls)["tool_calls"]
    assert [call["type"] for call in told] == ["function", "custom"]
    assert told[1]["custom"] == {"name": "clock", "input": TEXT}


def whole(request: ChatRequest, *calls: ToolCall) -> dict[str, Any]:
    answer = Completion(b"", "x", "m", "", calls, "tool_use", None, Usage(1, 1))
    raw = OPENAI.encode_reply(answer, "anthropic_messages", request)
    ChatCompletion.model_validate_json(raw)
    choice = json.loads(raw)["choices"][0]
    assert choice["finish_reason"] in {"tool_calls", "function_call"}
    return dict(choice["message"])


def chunks(stream: bytes) -> list[dict[str, Any]]:
    head, mark, _ = stream.rpartition(b"data: [DONE]")
    assert mark
    return datas(head)


def streamed(
    request: ChatRequest, source: DialectName, stream: bytes
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The pieces of calls that a caller gets, and the choice that ends the answer."""
    events = decoded(source, stream)
    encoder = OPENAI.stream_encoder(request, source)
    told = chunks(encoder.encode(events) + encoder.finish("", charged(events)))
    choices = [each["choices"][0] for each in told if each["choices"]]
    pieces = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    for piece in pieces:
        # The vendor's own type of a piece knows functions only, and keeps what else there is.
        assert ChoiceDeltaToolCall.model_validate(piece | {"type": "function"}).index >= 0
    return pieces, choices[-1]


def put_together(pieces: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls as clients make them of their pieces."""
    calls: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        call = calls.setdefault(piece["index"], {"id": "", "type": ""})
        call |= {name: piece[name] for name in ("id", "type") if name in piece}
        for kind in ("custom", "function"):
            for name, text in piece.get(kind, {}).items():
                held = call.setdefault(kind, {})
                held[name] = held.get(name, "") + text
    return [calls[index] for index in sorted(calls)]


def of_responses(*items: dict[str, Any], in_pieces: bool = True) -> bytes:
    """A stream of a response that makes these calls."""
    shell = response(status="in_progress", usage=None)
    steps: list[dict[str, Any]] = [{"type": "response.created", "response": shell}]
    for place, item in enumerate(items):
        kind = "input" if "input" in item else "arguments"
        name = "custom_tool_call_input" if kind == "input" else "function_call_arguments"
        text, where = item[kind], {"output_index": place}
        added = {**item, kind: ""}
        steps.append({"type": "response.output_item.added", **where, "item": added})
        if in_pieces:
            for piece in (text[:4], text[4:]):
                told = {**where, "item_id": item["id"], "delta": piece}
                steps.append({"type": f"response.{name}.delta", **told})
            steps.append({"type": f"response.{name}.done", **where, kind: text})
        steps.append({"type": "response.output_item.done", **where, "item": item})
    steps.append({"type": "response.completed", "response": response(*items)})
    return b"".join(
        sse(step["type"], **{k: v for k, v in step.items() if k != "type"}) for step in steps
    )


@pytest.mark.parametrize("in_pieces", [True, False])
def test_rule_65_a_stream_of_a_response_tells_a_chat_of_custom_calls(*, in_pieces: bool) -> None:
    request = chat(tools=[PATCH, CLOCK], stream=True)
    stream = of_responses(
        CALL_ITEM | {"call_id": "call_0"}, CUSTOM_ITEM, CALL_ITEM, in_pieces=in_pieces
    )
    pieces, last = streamed(request, "openai_responses", stream)

    function = {"name": "clock", "arguments": '{"zone":1}'}
    assert put_together(pieces) == [
        {"id": "call_0", "type": "function", "function": function},
        PATCHED,
        {"id": "call_b", "type": "function", "function": function},
    ]
    assert last["finish_reason"] == "tool_calls"
    said = [piece["custom"]["input"] for piece in pieces if "custom" in piece]
    assert said == (["", TEXT[:4], TEXT[4:]] if in_pieces else ["", TEXT]), "as it comes"


def test_rule_65_a_response_that_only_its_last_event_tells_is_told_to_a_chat() -> None:
    ended = sse("response.completed", response=response(CUSTOM_ITEM))
    pieces, last = streamed(chat(tools=[PATCH], stream=True), "openai_responses", ended)
    assert put_together(pieces) == [PATCHED]
    assert last["finish_reason"] == "tool_calls"


def test_rule_65_a_whole_response_tells_a_chat_of_custom_calls() -> None:
    raw = json.dumps(response(CUSTOM_ITEM, CALL_ITEM)).encode()
    answer = DIALECTS["openai_responses"].decode_reply(raw)
    told = OPENAI.encode_reply(answer, "openai_responses", chat(tools=[PATCH, CLOCK]))
    assert json.loads(told)["choices"][0]["message"]["tool_calls"][0] == PATCHED


def test_rule_65_who_brought_no_such_tool_is_told_of_no_such_call() -> None:
    raw = json.dumps(response(CUSTOM_ITEM)).encode()
    answer = DIALECTS["openai_responses"].decode_reply(raw)
    for dialect, request in (("openai_chat", chat()), ("anthropic_messages", messages())):
        told = DIALECTS[dialect].encode_reply(answer, "openai_responses", request)  # type: ignore[index]
        assert b"patch" not in told
    pieces, last = streamed(chat(stream=True), "openai_responses", of_responses(CUSTOM_ITEM))
    assert (pieces, last["finish_reason"]) == ([], "stop")


@pytest.mark.parametrize("in_pieces", [True, False])
def test_what_a_custom_call_says_is_masked_on_its_way_to_a_chat(*, in_pieces: bool) -> None:
    item = CUSTOM_ITEM | {"input": f"pay {CARD} now"}
    stream = of_responses(item, CALL_ITEM, in_pieces=in_pieces)
    lift, decoder = output_scan().lifted(), DIALECTS["openai_responses"].stream_decoder()
    reads = [stream[at : at + 50] for at in range(0, len(stream), 50)]
    events = [event for read in reads for event in lift.events(decoder.feed(read))]
    encoder = OPENAI.stream_encoder(chat(tools=[PATCH, CLOCK], stream=True), "openai_responses")
    told = chunks(encoder.encode(events) + encoder.finish("", charged(events)))
    pieces = [each["choices"][0]["delta"].get("tool_calls", ()) for each in told if each["choices"]]
    (patch, clock) = put_together(call for calls in pieces for call in calls)
    assert patch["custom"]["input"] == "pay [REDACTED:CREDIT_CARD] now"
    assert clock["function"]["arguments"] == '{"zone":1}'


def of_messages(*calls: tuple[str, str]) -> bytes:
    """A stream of a message that makes these calls."""
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "c", "content": []}
    usage = {"input_tokens": 5, "output_tokens": 1}
    pieces = [sse("message_start", message=start | {"usage": usage})]
    for index, (name, arguments) in enumerate(calls):
        block = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
        pieces.append(sse("content_block_start", index=index, content_block=block))
        for piece in (arguments[:9], arguments[9:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            pieces.append(sse("content_block_delta", index=index, delta=delta))
        pieces.append(sse("content_block_stop", index=index))
    stop = {"stop_reason": "tool_use", "stop_sequence": None}
    pieces += (sse("message_delta", delta=stop, usage={"output_tokens": 9}), sse("message_stop"))
    return b"".join(pieces)


@given(st.text(st.characters(codec="utf-8")))
def test_rule_65_a_stream_of_a_message_tells_a_chat_the_text_that_was_meant(text: str) -> None:
    request = chat(tools=[CLOCK, PATCH], stream=True)
    arguments = json.dumps({"input": text})
    stream = of_messages(("clock", ""), ("patch", arguments), ("patch", ""))
    pieces, last = streamed(request, "anthropic_messages", stream)

    clock, patch, empty = put_together(pieces)
    assert clock["function"] == {"name": "clock", "arguments": "{}"}
    assert patch["custom"] == {"name": "patch", "input": text}
    assert empty["custom"] == {"name": "patch", "input": ""}
    assert last["finish_reason"] == "tool_calls"


def test_rule_65_a_text_is_told_where_nobody_says_why_the_answer_ended() -> None:
    whole_stream = of_messages(("patch", json.dumps({"input": TEXT})))
    head, _, tail = whole_stream.partition(b"event: message_delta")
    stream = head + tail[tail.index(b"event: message_stop") :]
    pieces, _ = streamed(chat(tools=[PATCH], stream=True), "anthropic_messages", stream)
    assert [call["custom"]["input"] for call in put_together(pieces)] == [TEXT]


@pytest.mark.parametrize("asked", ["auto", "none", {"name": "clock"}])
def test_rule_5_older_functions_are_tools_called_one_at_a_time(asked: Any) -> None:
    request = chat(functions=OLDER, function_call=asked)
    body, dropped = to_responses(request)
    (tool,) = body["tools"]
    assert (tool["type"], tool["name"], tool["description"]) == ("function", "clock", "Time.")
    named = {"type": "function", "name": "clock"}
    assert body["tool_choice"] == (named if isinstance(asked, dict) else asked)
    assert (body["parallel_tool_calls"], dropped) == (False, set())

    body, dropped = to_anthropic(request)
    assert [tool["name"] for tool in body["tools"]] == ["clock"]
    kinds = {"auto": "auto", "none": "none"}
    kind = "tool" if isinstance(asked, dict) else kinds[asked]
    assert body["tool_choice"]["type"] == kind
    assert body["tool_choice"].get("disable_parallel_tool_use", True)
    assert dropped == set()


def test_rule_5_a_function_call_that_nobody_knows_is_invalid_and_both_kinds_are_refused() -> None:
    with pytest.raises(RequestInvalid) as wrong:
        to_responses(chat(functions=OLDER, function_call="clock"))
    assert wrong.value.parameter == "function_call"
    with pytest.raises(FeatureUnsupported) as both:
        to_responses(chat(functions=OLDER, tools=[CLOCK]))
    assert both.value.parameter == "functions"


def test_rule_5_a_call_comes_back_in_the_older_words() -> None:
    long = "clock." + "x" * 70
    request = chat(functions=[{"name": long}])
    there = to_anthropic(request)[0]["tools"][0]["name"]
    told = whole(request, ToolCall("call_a", there, '{"zone":1}'))
    assert told["function_call"] == {"name": long, "arguments": '{"zone":1}'}
    assert "tool_calls" not in told

    streaming = chat(functions=OLDER, stream=True)
    for arguments in ('{"zone":1}', ""):
        stream = of_messages(("clock", arguments), ("clock", '{"a":2}'))
        events = decoded("anthropic_messages", stream)
        encoder = OPENAI.stream_encoder(streaming, "anthropic_messages")
        out = chunks(encoder.encode(events) + encoder.finish("", charged(events)))
        choices = [ChatCompletionChunk.model_validate(each).choices[0] for each in out]
        called = [each.delta.function_call for each in choices if each.delta.function_call]
        assert called[0].name == "clock"
        assert "".join(each.arguments or "" for each in called) == (arguments or "{}")
        assert choices[-1].finish_reason == "function_call"


@pytest.mark.anyio
@pytest.mark.parametrize("target", [GPT_TARGET, CLAUDE_TARGET])
@pytest.mark.parametrize("stream", [False, True])
async def test_rule_65_the_official_client_calls_a_custom_tool_and_gives_its_result(
    gateway: RunningGateway, upstreams: Upstreams, target: str, *, stream: bool
) -> None:
    key = await gateway.issue_key(DEMO, translation="lenient")
    arguments = json.dumps({"input": TEXT})
    shown = Answer(text="x")
    use = {"type": "tool_use", "id": "toolu_0", "name": "patch", "input": {"input": TEXT}}
    first = {
        (GPT_TARGET, False): Answer(
            body=json.dumps(openai_response(shown, "m") | {"output": [CUSTOM_ITEM]}).encode()
        ),
        (GPT_TARGET, True): Answer(events=(of_responses(CUSTOM_ITEM),)),
        (CLAUDE_TARGET, False): Answer(
            body=json.dumps(
                anthropic_message(shown, "m") | {"content": [use], "stop_reason": "tool_use"}
            ).encode()
        ),
        (CLAUDE_TARGET, True): Answer(events=(of_messages(("patch", arguments)),)),
    }
    upstream = upstreams.openai if target == GPT_TARGET else upstreams.anthropic
    upstream.answer(Answer(text="Well done."))
    upstream.answer_once(first[target, stream])
    talk: list[Any] = [{"role": "user", "content": "Mend it."}]
    asked: dict[str, Any] = {"model": target, "tools": [PATCH]}
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        if stream:
            begun = await client.chat.completions.create(messages=talk, stream=True, **asked)
            pieces = [
                call.model_dump(exclude_unset=True)
                async for each in begun
                if each.choices
                for call in each.choices[0].delta.tool_calls or ()
            ]
            (call,) = put_together(pieces)
        else:
            answer = await client.chat.completions.create(messages=talk, **asked)
            assert answer.choices[0].finish_reason == "tool_calls"
            told = (answer.choices[0].message.tool_calls or [])[0]
            assert told.type == "custom"
            call = told.model_dump(exclude_unset=True)
        assert call["custom"] == {"name": "patch", "input": TEXT}
        talk += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": "done"},
        ]
        said = await client.chat.completions.create(messages=talk, **asked)
    assert said.choices[0].message.content == "Well done."
    sent = upstream.calls[-1].json
    if target == GPT_TARGET:
        assert sent["input"][1] == {  # type: ignore[index]
            "type": "custom_tool_call",
            "call_id": "call_a",
            "name": "patch",
            "input": TEXT,
        }
