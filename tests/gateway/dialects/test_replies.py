"""Whole answers: read strictly in shape, written as the official types want them."""

import json
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion

from gateway.dialects.registry import DIALECTS
from gateway.errors import UpstreamFailed, UpstreamMalformed
from gateway.types import Completion, Delta, ToolCall, Usage
from tests.gateway.dialects.samples import ANTHROPIC, CHAT_USAGE, OPENAI, chat, chunk, messages


def completion(message: dict[str, Any], finish: str | None = "stop", **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    body = {"id": "chatcmpl-77", "object": "chat.completion", "created": 1, "model": "gpt-x"}
    return json.dumps(body | {"choices": [choice], "usage": CHAT_USAGE} | fields).encode()


def message(*content: dict[str, Any], **fields: Any) -> bytes:
    body = {
        "id": "msg_42",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": content,
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "output_tokens": 12,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 5,
            "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
            "output_tokens_details": {"thinking_tokens": 4},
        },
    }
    return json.dumps(body | fields).encode()


def as_message(raw: bytes) -> Message:
    answer = ANTHROPIC.encode_reply(OPENAI.decode_reply(raw), "openai_chat", messages())
    return Message.model_validate_json(answer, strict=True)


def as_completion(raw: bytes) -> ChatCompletion:
    answer = OPENAI.encode_reply(ANTHROPIC.decode_reply(raw), "anthropic_messages", chat())
    return ChatCompletion.model_validate_json(answer, strict=True)


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(arguments: str | None, **fields: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": arguments}
    return {"id": "call_a", "type": "function", "function": function} | fields


def test_the_same_dialect_gets_the_upstreams_own_bytes() -> None:
    for dialect, raw in (
        (OPENAI, completion({"content": "Hi"}, x_unknown=[1.50])),
        (ANTHROPIC, message(text("Hi"), x_unknown=[1.50])),
    ):
        assert dialect.encode_reply(dialect.decode_reply(raw), dialect.name, chat()) is raw


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"{}", b"[]", b"null", b"<html>502</html>", b"\xff", b'{"choices":[]}'),
        b'{"error":{"message":"no"}}',
        b'{"choices":[{"message":null}]}',
        b'{"choices":[{"message":{"content":7}}]}',
        b'{"choices":[{"message":{"tool_calls":[{}]}}]}',
        b'{"type":"error","error":{"type":"overloaded_error"}}',
        b'{"type":"message"}',
        b'{"type":"message","content":[{}]}',
        b'{"type":"message","content":[{"type":"tool_use"}]}',
        b'{"type":"message","content":[{"type":"tool_use","id":"toolu_a"}]}',
        b'{"type":"message","content":[{"type":"tool_use","name":"f"}]}',
    ],
)
def test_something_else_than_an_answer_is_malformed(raw: bytes) -> None:
    for dialect in (OPENAI, ANTHROPIC):
        with pytest.raises(UpstreamMalformed):
            dialect.decode_reply(raw)


def test_a_chat_completion_becomes_a_message() -> None:
    answer = as_message(completion({"content": "Grüße", "reasoning_content": "Hm."}))
    assert answer.id == "msg_77"
    assert answer.model == "gpt-x"
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[1] == answer.content[1].model_copy(update={"text": "Grüße"})
    assert answer.stop_reason == "end_turn"
    assert answer.usage.input_tokens == 30
    assert answer.usage.cache_read_input_tokens == 20
    assert answer.usage.output_tokens == 7


@pytest.mark.parametrize(
    ("said", "output_tokens"),
    [
        ({"total_tokens": 399, "completion_tokens": 1}, 387),
        ({"total_tokens": 398, "completion_tokens": 386}, 386),
        ({"total_tokens": 398, "completion_tokens": 400}, 400),
        ({"total_tokens": "399", "completion_tokens": 1}, 1),
        ({"completion_tokens": 1}, 1),
    ],
    ids=["beside it", "within it", "of another sum", "no count", "without a total"],
)
def test_reasoning_that_is_counted_beside_what_was_said_is_paid_as_well(
    said: dict[str, Any], output_tokens: int
) -> None:
    """xAI's `completion_tokens` are words alone; a long thought before a short answer was free."""
    usage = {"prompt_tokens": 12, "completion_tokens_details": {"reasoning_tokens": 386}} | said
    whole = OPENAI.decode_reply(completion({"content": "4"}, usage=usage)).usage
    events = OPENAI.stream_decoder().feed(chunk(None, usage=usage))
    (streamed,) = [delta.usage for event in events for delta in event.deltas if delta.usage]

    assert whole == streamed
    assert (whole.input_tokens, whole.output_tokens, whole.estimated) == (12, output_tokens, False)
    assert whole.reasoning_tokens == 386


def test_a_message_becomes_a_chat_completion() -> None:
    use = {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Bonn"}}
    answer = as_completion(message(text("Grüße"), use, stop_reason="tool_use"))
    choice = answer.choices[0]
    assert answer.id == "chatcmpl-42"
    assert (choice.message.content, choice.finish_reason) == ("Grüße", "tool_calls")
    tool = (choice.message.tool_calls or [])[0]
    assert tool.id == "toolu_a"
    assert tool.type == "function"
    assert tool.function.arguments == '{"city":"Bonn"}'
    usage = answer.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (45, 12, 57)
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 30
    assert usage.prompt_tokens_details.cache_write_tokens == 5
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 4


@pytest.mark.parametrize(
    ("arguments", "given_input"),
    [
        (None, {}),
        ("", {}),
        ('{"city": "Bonn"}', {"city": "Bonn"}),
        ('{"city": "Bo', {"_raw_arguments": '{"city": "Bo'}),
    ],
)
def test_rule_16_unfinished_arguments_do_not_cost_the_answer(
    arguments: str | None, given_input: dict[str, Any]
) -> None:
    answer = as_message(completion({"content": None, "tool_calls": [call(arguments)]}, "stop"))
    block = answer.content[0]
    assert block.type == "tool_use"
    assert (block.id, block.name, block.input) == ("call_a", "weather", given_input)
    assert answer.stop_reason == "tool_use"


def test_a_call_of_a_custom_tool_is_its_callers_answer_and_is_estimated_by_what_it_says() -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "note", "input": "word " * 100}}
    raw = completion({"content": None, "tool_calls": [call]}, "tool_calls", usage=None)
    decoded = OPENAI.decode_reply(raw)
    assert (decoded.raw, decoded.stop_reason) == (raw, "tool_use")
    (told,) = decoded.tool_calls
    assert (told.tool_id, told.name, told.is_text) == ("call_1", "note", True)
    assert json.loads(told.arguments_json) == {"input": "word " * 100}
    assert decoded.usage.estimated
    assert decoded.usage.output_tokens >= 100


def test_a_call_of_an_unknown_kind_is_its_callers_and_no_flaw() -> None:
    call = {"id": "call_1", "type": "hologram", "hologram": {"shape": "cube"}}
    raw = completion({"content": "Look.", "tool_calls": [call]}, "tool_calls")
    decoded = OPENAI.decode_reply(raw)
    assert (decoded.raw, decoded.text, decoded.tool_calls) == (raw, "Look.", ())


def test_rule_32_what_was_thought_among_the_parts_of_an_answer_is_read() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}], "closed": True}
    said = [thought, {"type": "text", "text": "Hi"}, {"type": "reference", "reference_ids": [1]}]
    raw = completion({"content": said}, usage=None)
    read = OPENAI.decode_reply(raw)
    assert (read.text, [delta.text for delta in read.thinking]) == ("Hi", ["Hm."])
    alike = OPENAI.decode_reply(completion({"content": "Hi", "reasoning": "Hm."}, usage=None))
    assert read.usage == alike.usage


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource"])
def test_rule_60_an_answer_that_its_upstream_gave_up_is_none(reason: str) -> None:
    """As vLLM and SGLang end one when a replica is drained: with a good status."""
    with pytest.raises(UpstreamFailed):
        OPENAI.decode_reply(completion({"content": "The first half of"}, reason))
    choice = {"index": 0, "text": "The first half of", "finish_reason": reason}
    with pytest.raises(UpstreamFailed):
        DIALECTS["openai_completions"].decode_reply(json.dumps({"choices": [choice]}).encode())


def test_rule_18_a_call_without_an_id_gets_a_stable_one() -> None:
    raw = completion({"tool_calls": [call("{}", id=None), call("{}", id=None)]})
    first, second = (tool.tool_id for tool in OPENAI.decode_reply(raw).tool_calls)
    assert first != second
    assert OPENAI.decode_reply(raw).tool_calls[0].tool_id == first


def test_rule_18_calls_that_bear_one_id_are_told_apart() -> None:
    """OpenAI's client for responses fails at two, and to Messages their results are one."""
    raw = completion({"tool_calls": [call("{}", id=each) for each in ("a", "a", "b", "a")]})
    ids = [tool.tool_id for tool in OPENAI.decode_reply(raw).tool_calls]
    assert (ids[0], ids[2]) == ("a", "b")
    assert len(set(ids)) == 4
    assert [tool.tool_id for tool in OPENAI.decode_reply(raw).tool_calls] == ids


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "length"),
        ("something_new", "stop"),
    ],
)
def test_rule_35_stop_reasons_of_messages_become_finish_reasons(reason: str, finish: str) -> None:
    assert as_completion(message(text("x"), stop_reason=reason)).choices[0].finish_reason == finish


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("function_call", "tool_use"),
        ("content_filter", "refusal"),
        (None, "end_turn"),
    ],
)
def test_rule_36_finish_reasons_become_stop_reasons(finish: str | None, reason: str) -> None:
    assert as_message(completion({"content": "x"}, finish)).stop_reason == reason


def test_refusals_cross_as_refusals() -> None:
    answer = as_message(completion({"content": None, "refusal": "I won't."}))
    assert answer.stop_reason == "refusal"
    assert answer.stop_details is not None
    assert answer.stop_details.explanation == "I won't."
    assert answer.content[0].type == "text"
    details = {"type": "refusal", "category": "cyber", "explanation": "Not this."}
    refused = as_completion(message(text("Well"), stop_reason="refusal", stop_details=details))
    assert refused.choices[0].message.refusal == "Not this."
    assert refused.choices[0].message.content == "Well"
    bare = as_completion(message(stop_reason="refusal"))
    assert bare.choices[0].message.refusal


def test_rule_23_the_stop_sequence_that_matched_is_kept_where_there_is_a_word_for_it() -> None:
    raw = message(text("x"), stop_reason="stop_sequence", stop_sequence="END")
    assert ANTHROPIC.decode_reply(raw).stop_sequence == "END"


@pytest.mark.parametrize(
    ("said", "reason", "stop"),
    [
        ({"stop_reason": "END"}, "stop_sequence", "END"),
        ({"matched_stop": "END"}, "stop_sequence", "END"),
        ({"stop_reason": 128009}, "end_turn", None),
        ({"stop_reason": {"a": 1}, "matched_stop": None}, "end_turn", None),
        ({}, "end_turn", None),
    ],
)
def test_rule_23_what_in_house_engines_say_of_the_end_is_kept(
    said: dict[str, Any], reason: str, stop: str | None
) -> None:
    """vLLM and our engine in one word, SGLang in another; a token's number is no sequence."""
    choice = {"index": 0, "message": {"content": "x"}, "finish_reason": "stop"} | said
    answer = as_message(completion({}, choices=[choice]))
    assert (answer.stop_reason, answer.stop_sequence) == (reason, stop)


def test_rule_38_our_input_counts_cached_tokens_and_keeps_the_kinds_of_writes_apart() -> None:
    assert ANTHROPIC.decode_reply(message()).usage == Usage(
        input_tokens=45,
        output_tokens=12,
        cache_read_tokens=30,
        cache_write_tokens=3,
        cache_write_1h_tokens=2,
        reasoning_tokens=4,
    )
    assert OPENAI.decode_reply(completion({"content": "x"})).usage == Usage(
        input_tokens=50, output_tokens=7, cache_read_tokens=20, reasoning_tokens=3
    )


def test_rule_42_an_answer_without_usage_is_estimated_and_never_free() -> None:
    nothing: list[dict[str, Any] | None] = [None, {}]
    for usage in nothing:
        plain = OPENAI.decode_reply(completion({"content": "word " * 100}, usage=usage)).usage
        assert plain == Usage(output_tokens=104, estimated=True)
        other = ANTHROPIC.decode_reply(message(text("word " * 100), usage=usage)).usage
        assert other == Usage(output_tokens=115, estimated=True)
        assert OPENAI.decode_reply(completion({"content": ""}, usage=usage)).usage.output_tokens


def test_an_empty_answer_is_still_an_answer() -> None:
    assert as_message(completion({"content": None})).content == []
    assert as_completion(message()).choices[0].message.content == ""


def test_an_answer_without_an_id_gets_a_derived_one() -> None:
    raw = completion({"content": "x"}, id=None, model=None)
    assert as_message(raw).id == as_message(raw).id
    assert as_message(raw).id.startswith("msg_")
    assert len(as_message(raw).id) > 12


@pytest.mark.parametrize(
    ("finish", "message", "ended"),
    [
        (None, {"content": "x"}, ("stop_sequence", "END")),
        ("eos", {"content": "x"}, ("stop_sequence", "END")),
        ("stop", {"content": "x"}, ("stop_sequence", "END")),
        ("length", {"content": "x"}, ("length", None)),
        ("content_filter", {"content": "x"}, ("content_filter", None)),
        ("stop", {"refusal": "No."}, ("content_filter", None)),
        ("function_call", {"content": "x"}, ("tool_use", None)),
        ("stop", {"tool_calls": [{"id": "c", "function": {"name": "f"}}]}, ("tool_use", None)),
        ("length", {"tool_calls": [{"id": "c", "function": {"name": "f"}}]}, ("length", None)),
    ],
)
def test_why_a_chat_ended_is_read_as_the_upstream_meant_it(
    finish: str | None, message: dict[str, Any], ended: tuple[str, str | None]
) -> None:
    """Servers that tell the stop string tell it with every reason to stop."""
    raw = json.loads(completion(message, finish))
    raw["choices"][0]["stop_reason"] = "END"
    answer = OPENAI.decode_reply(json.dumps(raw).encode())

    assert (answer.stop_reason, answer.stop_sequence) == ended


def test_what_an_answer_leaves_out_is_nothing_and_no_error() -> None:
    raw = b'{"choices":[{"message":{"reasoning":"Hm.","tool_calls":[{"custom":{"input":"x"}}]}}]}'
    answer = OPENAI.decode_reply(raw)

    assert (answer.message_id, answer.model, answer.text, answer.refusal) == ("", "", "", "")
    # Nobody said which custom tool's call it is.
    assert answer.tool_calls == ()
    assert [(each.kind, each.text) for each in answer.thinking] == [("thinking", "Hm.")]


@pytest.mark.parametrize("function", [None, {}, {"name": ""}, {"arguments": "{}"}])
def test_a_call_of_no_tool_is_no_answer(function: dict[str, Any] | None) -> None:
    with pytest.raises(UpstreamMalformed):
        OPENAI.decode_reply(completion({"tool_calls": [{"id": "c", "function": function}]}))


@pytest.mark.parametrize(
    ("usage", "tier", "read"),
    [
        ({"prompt_tokens": 9}, "flex", Usage(input_tokens=9, service_tier="flex")),
        ({"completion_tokens": 4}, "scale", Usage(output_tokens=4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            None,
            Usage(9, 4, cache_read_tokens=5, cache_write_tokens=3, reasoning_tokens=2),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": None, "cache_write_tokens": None},
                "completion_tokens_details": {"reasoning_tokens": None},
            },
            "priority",
            Usage(9, 4, service_tier="priority"),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": None,
                "completion_tokens_details": None,
            },
            "default",
            Usage(9, 4, service_tier="default"),
        ),
    ],
)
def test_what_a_chat_counted_is_read_figure_by_figure(
    usage: dict[str, Any], tier: str | None, read: Usage
) -> None:
    raw = completion({"content": "x"}, usage=usage, service_tier=tier)

    assert OPENAI.decode_reply(raw).usage == read


def test_all_of_an_answer_of_another_dialect_stands_in_its_place() -> None:
    thinking = (
        *(Delta("thinking", "One. "), Delta("thinking", "Two.", signature="s")),
        Delta("thinking", redacted="r"),
    )
    answer = Completion(
        raw=b"raw",
        message_id="msg_1",
        model="there",
        text="Yes.",
        tool_calls=(ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", "")),
        stop_reason="tool_use",
        stop_sequence=None,
        usage=Usage(9, 4, 5, 3, 2, 1, service_tier="flex"),
        thinking=thinking,
    )
    tree = json.loads(OPENAI.encode_reply(answer, "anthropic_messages", chat()))

    (choice,) = tree.pop("choices")
    assert tree == {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "there",
        "service_tier": "flex",
        "usage": {
            "prompt_tokens": 9,
            "completion_tokens": 4,
            "total_tokens": 13,
            "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }
    called = [("c1", "f", '{"a":1}'), ("c2", "g", "{}")]
    assert choice == {
        "index": 0,
        "logprobs": None,
        "finish_reason": "tool_calls",
        "message": {
            "role": "assistant",
            "content": "Yes.",
            "refusal": None,
            "reasoning_content": "One. Two.",
            "thinking_blocks": [
                {"type": "thinking", "thinking": "Two.", "signature": "s"},
                {"type": "redacted_thinking", "data": "r"},
            ],
            "tool_calls": [
                {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
                for i, name, arguments in called
            ],
        },
    }


@pytest.mark.parametrize(
    ("text", "refusal", "calls", "content"),
    [("", "", 0, ""), ("", "No.", 0, None), ("", "", 1, None), ("x", "No.", 1, "x")],
)
def test_who_says_nothing_says_an_empty_text_unless_there_is_something_else(
    text: str, refusal: str, calls: int, content: str | None
) -> None:
    answer = Completion(
        raw=b"raw",
        message_id="",
        model="m",
        text=text,
        tool_calls=(ToolCall("c", "f", "{}"),) * calls,
        stop_reason="unheard_of",
        stop_sequence=None,
        usage=Usage(service_tier="batch"),
        refusal=refusal,
    )
    tree = json.loads(OPENAI.encode_reply(answer, "openai_responses", chat()))

    message = tree["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (content, refusal or None)
    assert message.keys() - {"tool_calls"} == {"role", "content", "refusal"}
    assert ("tool_calls" in message) == bool(calls)
    assert tree["choices"][0]["finish_reason"] == "stop"
    assert "service_tier" not in tree
