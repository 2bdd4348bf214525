"""Rules of translation between chat completions and messages that have no test beside the code.

Each test is named after its rule; the table in docs/api.md lists them all.
"""

import json
from typing import Any

import pytest

from gateway.dialects.fitting.naming import tool_name
from gateway.dialects.openai_responses.errors import error_event, response_error
from gateway.dialects.sse import Splitter
from gateway.errors import ContextTooLong, FeatureUnsupported
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    CHAT_TEXT_STREAM,
    MESSAGE_START,
    MESSAGE_STOP,
    MESSAGE_TEXT_STREAM,
    OPENAI,
    block_delta,
    block_start,
    block_stop,
    call_piece,
    charged,
    chat,
    chunk,
    decoded,
    message_delta,
    messages,
    recoded,
    target,
    to_anthropic,
    to_openai,
)


CALL = {"id": "call_a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "call_a", "content": "ok"}
USER = {"role": "user", "content": "Hi"}
LONG_NAME = "crm.customers/look up " + "x" * 80


def tool(name: str, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": {"type": "object", "properties": {}}} | fields
    return {"type": "function", "function": function}


def calls(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [CALL]} | fields


def datas(stream: bytes) -> list[dict[str, Any]]:
    events = Splitter().feed(stream)
    return [json.loads(event.data) for event in events if event.data not in {None, b"[DONE]"}]


def chat_reply(message: dict[str, Any], **fields: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": "stop"}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    return json.dumps(body | {"choices": [choice]} | fields).encode()


def message_reply(*content: dict[str, Any], **fields: Any) -> bytes:
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
    ending = {"stop_reason": "end_turn", "stop_sequence": None}
    return json.dumps(body | {"content": content} | ending | fields).encode()


def test_rule_4_turns_of_one_role_in_a_row_stay_in_their_order() -> None:
    turns = [USER, {"role": "user", "content": "again"}]
    crossed, _ = to_openai(messages(messages=turns))

    assert [message["content"] for message in crossed["messages"]] == ["Hi", "again"]


def test_rule_4_blank_texts_are_left_out_with_notice() -> None:
    _, dropped = to_anthropic(chat(messages=[USER, {"role": "assistant", "content": " "}, USER]))

    assert dropped == {"messages.blank_text"}


def test_rule_5_a_function_message_answers_the_call_before_it() -> None:
    asked = {"role": "assistant", "content": None, "function_call": CALL["function"]}
    body, dropped = to_anthropic(
        chat(messages=[USER, asked, {"role": "function", "name": "f", "content": "ok"}])
    )

    _, use, result = body["messages"]
    assert result["content"][0]["tool_use_id"] == use["content"][0]["id"]
    assert dropped == set()


def test_rule_5_a_function_message_without_a_call_becomes_text() -> None:
    body, dropped = to_anthropic(
        chat(messages=[USER, {"role": "function", "name": "f", "content": "ok"}])
    )

    assert [block["text"] for block in body["messages"][-1]["content"]] == ["Result of f:", "ok"]
    assert dropped == {"messages.role"}


def test_rule_11_names_of_tools_are_renamed_on_the_way_and_restored_in_answers() -> None:
    request = chat(tools=[tool(LONG_NAME)], stream=True)
    body, _ = to_anthropic(request)
    renamed = body["tools"][0]["name"]
    assert renamed == tool_name(LONG_NAME)
    assert len(renamed) <= 64

    whole = message_reply({"type": "tool_use", "id": "t", "name": renamed, "input": {}})
    answer = json.loads(
        OPENAI.encode_reply(ANTHROPIC.decode_reply(whole), "anthropic_messages", request)
    )
    assert answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == LONG_NAME

    stream = (
        MESSAGE_START
        + block_start(0, type="tool_use", id="t", name=renamed, input={})
        + block_stop(0)
        + message_delta("tool_use")
        + MESSAGE_STOP
    )
    assert json.dumps(LONG_NAME).encode() in recoded("anthropic_messages", stream, request)


def test_rule_11_names_are_restored_for_the_other_dialect_too() -> None:
    schema = {"type": "object", "properties": {}}
    request = messages(tools=[{"name": LONG_NAME, "input_schema": schema}], stream=True)
    body, _ = to_openai(request)
    renamed = body["tools"][0]["function"]["name"]
    stream = (
        chunk(call_piece(0, "{}", id="a", name=renamed))
        + chunk({}, "tool_calls")
        + b"data: [DONE]\n\n"
    )

    assert json.dumps(LONG_NAME).encode() in recoded("openai_chat", stream, request)


@pytest.mark.parametrize(
    "turns",
    [
        [USER, calls()],
        [USER, calls(), USER],
        [USER, RESULT],
        [USER, calls(), RESULT, RESULT],
    ],
)
def test_rule_14_calls_without_results_and_results_without_calls_are_refused(
    turns: list[dict[str, Any]],
) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_anthropic(chat(messages=turns), "prefill")

    assert caught.value.parameter == "messages"


def test_rule_19_server_tools_are_refused_and_a_pause_is_no_finished_answer() -> None:
    with pytest.raises(FeatureUnsupported):
        to_openai(messages(tools=[{"type": "web_search_20250305", "name": "web_search"}]))

    paused = ANTHROPIC.decode_reply(message_reply(stop_reason="pause_turn"))
    answer = json.loads(OPENAI.encode_reply(paused, "anthropic_messages", chat()))
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("cap", "budget"), [(100_000, 16_384), (8192, 4096), (2048, 1024), (2047, None), (10, None)]
)
def test_rule_28_a_thinking_budget_leaves_room_for_the_answer(cap: int, budget: int | None) -> None:
    request = chat(reasoning_effort="high", temperature=0.5)
    upstream = ANTHROPIC.encode_request(request, target("thinking"), cap)
    body = json.loads(upstream.body)

    if budget is None:
        assert "thinking" not in body
        assert upstream.dropped == ("reasoning_effort",)
    else:
        assert body["thinking"] == {"type": "enabled", "budget_tokens": budget}
        assert budget < body["max_tokens"]
        assert upstream.dropped == ("temperature",)


def test_rule_28_thinking_goes_with_no_forced_tool_and_no_unsigned_call() -> None:
    forced = chat(reasoning_effort="low", tools=[tool("f")], tool_choice="required")
    unsigned = chat(reasoning_effort="low", tools=[tool("f")], messages=[USER, calls(), RESULT])
    for request in (forced, unsigned):
        upstream = ANTHROPIC.encode_request(request, target("thinking"), 50_000)
        assert b'"thinking"' not in upstream.body
        assert upstream.dropped == ("reasoning_effort",)


def test_rule_28_of_effort_and_what_contradicts_it_one_is_reported() -> None:
    low = {"effort": "low"}
    budget = {"type": "enabled", "budget_tokens": 9000}
    body, dropped = to_openai(messages(output_config=low, thinking=budget), "reasoning_effort")
    assert (body["reasoning_effort"], dropped) == ("low", {"thinking.budget_tokens"})
    none = {"type": "disabled"}
    body, dropped = to_openai(messages(output_config=low, thinking=none), "reasoning_effort")
    assert (body["reasoning_effort"], dropped) == ("none", {"output_config.effort"})


SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "b3BhcXVl"}


def test_rule_29_signed_thinking_goes_through_a_chat_client_unchanged_and_in_order() -> None:
    use = {"type": "tool_use", "id": "call_a", "name": "f", "input": {}}
    given = ANTHROPIC.decode_reply(message_reply(SIGNED, REDACTED, use))
    answer = json.loads(OPENAI.encode_reply(given, "anthropic_messages", chat()))
    said = answer["choices"][0]["message"]
    assert said["thinking_blocks"] == [SIGNED, REDACTED]

    body, dropped = to_anthropic(chat(messages=[USER, said, RESULT], tools=[tool("f")]))
    assert body["messages"][1]["content"][:2] == [SIGNED, REDACTED]
    assert dropped == set()


def test_rule_29_a_chat_stream_carries_signed_thinking_too() -> None:
    stream = (
        MESSAGE_START
        + block_start(0, type="thinking", thinking="", signature="")
        + block_delta(0, type="thinking_delta", thinking="H")
        + block_delta(0, type="thinking_delta", thinking="m.")
        + block_delta(0, type="signature_delta", signature="c2ln")
        + block_stop(0)
        + block_start(1, **REDACTED)
        + block_stop(1)
        + message_delta("end_turn")
        + MESSAGE_STOP
    )
    crossed = datas(recoded("anthropic_messages", stream, chat(stream=True)))
    pieces = [data["choices"][0]["delta"] for data in crossed]

    blocks = [block for piece in pieces for block in piece.get("thinking_blocks", [])]
    # Official clients put lists together by these numbers, and leave them there.
    assert blocks == [{"index": 0, **SIGNED}, {"index": 1, **REDACTED}]
    assert "".join(piece.get("reasoning_content", "") for piece in pieces) == "Hm."

    said = calls(thinking_blocks=blocks)
    body, dropped = to_anthropic(chat(messages=[USER, said, RESULT], tools=[tool("f")]))
    assert body["messages"][1]["content"][:2] == [SIGNED, REDACTED]
    assert dropped == set()


def test_rule_31_a_fallback_to_another_vendor_strips_signatures_and_keeps_tool_pairs() -> None:
    said = calls(thinking_blocks=[SIGNED], content="I look.")
    request = chat(messages=[USER, said, RESULT], tools=[tool("f")])
    upstream = OPENAI.encode_request(request, target(), 100)
    sent = json.loads(upstream.body)

    assert upstream.dropped == ("messages.thinking_blocks",)
    assert "thinking_blocks" not in sent["messages"][1]
    assert sent["messages"][1]["tool_calls"] == [CALL]
    assert sent["messages"][2] == RESULT


def test_rule_31_a_conversation_that_moves_to_claude_leaves_others_thinking_behind() -> None:
    """It came to a messages client as blocks that only look like Claude's own."""
    sealed = {"type": "redacted_thinking", "data": "gw_reasoning_item:e30="}
    unsigned = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    use = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1.50}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}
    said = {"role": "assistant", "content": [sealed, unsigned, SIGNED, use]}
    thought = {"role": "assistant", "content": [unsigned]}
    budget = {"type": "enabled", "budget_tokens": 1024}
    history = [USER, thought, USER, said, result]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    request = messages(messages=history, tools=tools, thinking=budget)

    upstream = ANTHROPIC.encode_request(request, target(), 4000)

    sent = json.loads(upstream.body)
    assert sent["messages"] == [USER, USER, {**said, "content": [SIGNED, use]}, result]
    assert "thinking" not in sent, "a call without its own thinking cannot be thought on from"
    assert upstream.dropped == ("messages.thinking", "thinking")
    kept = messages(messages=[USER, {**said, "content": [SIGNED, use]}, result], thinking=budget)
    again = ANTHROPIC.encode_request(kept, target(), 4000)
    assert again.dropped == ()
    assert json.loads(again.body)["thinking"] == budget


def test_rule_39_reasoning_is_part_of_the_output_and_never_added_to_it() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "total_tokens": 14}
    details = {"completion_tokens_details": {"reasoning_tokens": 4}}
    whole = OPENAI.decode_reply(chat_reply({"content": "x"}, usage=usage | details))
    answer = json.loads(ANTHROPIC.encode_reply(whole, "openai_chat", messages()))

    assert answer["usage"]["output_tokens"] == 9
    assert answer["usage"]["output_tokens_details"] == {"thinking_tokens": 4}


def test_rule_41_a_message_opens_with_an_estimate_and_closes_with_the_truth() -> None:
    request = messages(stream=True)
    events = datas(recoded("openai_chat", CHAT_TEXT_STREAM, request))

    opened = events[0]["message"]["usage"]
    assert opened["input_tokens"] == request.input_tokens_estimate > 0
    assert "cache_creation" not in opened, "the end has no word that could correct it"
    assert events[-2]["usage"]["input_tokens"] + 20 == 50


def test_rule_42_a_caller_of_the_same_dialect_gets_usage_that_its_upstream_left_out() -> None:
    asked = chat(stream=True, stream_options={"include_usage": True})
    bare = chunk({"content": "word " * 100}) + chunk({}, "stop") + b"data: [DONE]\n\n"
    last = datas(recoded("openai_chat", bare, asked))[-1]
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 104)
    assert last["id"] == "chatcmpl-77"

    silent = (
        MESSAGE_START.replace(b'"input_tokens": 10', b'"input_tokens": 0')
        + block_start(0, type="text", text="")
        + block_delta(0, type="text_delta", text="word " * 100)
        + block_stop(0)
        + b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}'
        + b"\n\n"
        + MESSAGE_STOP
    )
    closing = datas(recoded("anthropic_messages", silent, messages(stream=True)))[-2]
    assert closing["usage"]["output_tokens"] == 104


def test_rule_42_whole_answers_of_the_same_dialect_get_it_too() -> None:
    whole = OPENAI.decode_reply(chat_reply({"content": "word " * 100}))
    answer = json.loads(OPENAI.encode_reply(whole, "openai_chat", chat()))
    assert answer["usage"]["completion_tokens"] == 104
    said = ANTHROPIC.decode_reply(message_reply({"type": "text", "text": "word " * 100}))
    other = json.loads(ANTHROPIC.encode_reply(said, "anthropic_messages", messages()))
    assert other["usage"]["output_tokens"] == 115


@pytest.mark.parametrize(
    ("stream", "request_", "word"),
    [
        (CHAT_TEXT_STREAM, chat(stream=True), b'"stop"'),
        (CHAT_TEXT_STREAM, messages(stream=True), b"end_turn"),
        (MESSAGE_TEXT_STREAM, messages(stream=True), b"end_turn"),
        (MESSAGE_TEXT_STREAM, chat(stream=True), b'"stop"'),
    ],
)
def test_rule_47_no_reason_to_stop_is_given_before_the_answer_is_known_to_be_whole(
    stream: bytes, request_: Any, word: bytes
) -> None:
    source = OPENAI if stream is CHAT_TEXT_STREAM else ANTHROPIC
    encoder = DIALECT_OF[request_.dialect].stream_encoder(request_, source.name)
    events = decoded(source.name, stream)

    assert word not in encoder.encode(events[:-1])
    assert word in encoder.finish("", charged(events))


DIALECT_OF = {"openai_chat": OPENAI, "anthropic_messages": ANTHROPIC}


def test_rule_48_lines_end_at_cr_lf_and_crlf_and_comments_are_no_data() -> None:
    for end in ("\n", "\r", "\r\n"):
        text = f": note{end}event: x{end}data: one{end}data: two{end}{end}"
        for size in (1, 3, 100):
            splitter = Splitter()
            raw = text.encode()
            events = [
                event
                for start in range(0, len(raw), size)
                for event in splitter.feed(raw[start : start + size])
            ]
            events += splitter.close()
            assert [(event.name, event.data) for event in events] == [(b"x", b"one\ntwo")]


def test_rule_51_the_callers_version_and_harmless_features_are_kept() -> None:
    headers = [
        (b"anthropic-version", b"2023-06-01"),
        (b"anthropic-beta", b"context-1m-2025-08-07, message-threads-2026-08-12"),
        (b"anthropic-beta", b"mcp-client-2026-09-15, compact-2026-01-12"),
        (b"anthropic-beta", b"server-side-fallback-2026-07-01, prompt-caching-scope-2026-01-05"),
    ]
    request = ANTHROPIC.decode_request(messages().raw, "r", headers)

    assert request.version == "2023-06-01"
    assert request.betas == ("context-1m-2025-08-07",)
    assert ANTHROPIC.encode_request(request, target(), 9).dropped == ("anthropic-beta",)
    unknown = [(b"anthropic-version", b"2031-01-01\r\nx: y")]
    assert ANTHROPIC.decode_request(messages().raw, "r", unknown).version == ""


def test_rule_56_threads_that_an_upstream_holds_are_refused_as_the_tool_runner_expects() -> None:
    for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}):
        with pytest.raises(FeatureUnsupported) as caught:
            messages(thread=thread)
        status, body = ANTHROPIC.encode_error(caught.value, "req_1")
        assert status == 400
        details = json.loads(body)["error"]["details"]
        assert details == {"error_code": "thread_unsupported_request"}


@pytest.mark.parametrize("container", ["container_1", {"id": "container_1", "skills": []}])
def test_rule_56_a_container_of_earlier_turns_is_refused_and_a_new_one_is_not(
    container: object,
) -> None:
    with pytest.raises(FeatureUnsupported, match=r"rule 56"):
        messages(container=container)
    assert messages(container={"skills": []}).tree["container"] == {"skills": []}


def test_rule_56_audio_that_an_upstream_holds_is_refused() -> None:
    said = {"role": "assistant", "audio": {"id": "audio_1"}}
    with pytest.raises(FeatureUnsupported, match=r"rule 56"):
        chat(messages=[USER, said, USER])


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c"])
def test_rule_57_other_line_separators_are_text(separator: str) -> None:
    data = {"choices": [{"index": 0, "delta": {"content": f"a{separator}b"}}]}
    stream = f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
    if separator < " ":
        stream = f"data: {json.dumps(data)}\n\n".encode()

    assert decoded("openai_chat", stream)[0].deltas[-1].text == f"a{separator}b"


def test_rule_58_anthropics_clients_learn_by_its_words_that_the_prompt_is_too_long() -> None:
    _, body = ANTHROPIC.encode_error(ContextTooLong("It fits no permitted target."), "req_1")
    assert json.loads(body)["error"]["message"].startswith("prompt is too long: ")
    _, other = OPENAI.encode_error(ContextTooLong("It fits no permitted target."), "req_1")
    assert json.loads(other)["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize(
    "words",
    [
        "Input tokens exceed the configured limit",
        "exceeds the context window",
        "maximum context length",
    ],
)
def test_rule_58_frameworks_learn_by_openais_words_that_the_input_is_too_long(words: str) -> None:
    ours = ContextTooLong("It fits no permitted target.")
    _, body = OPENAI.encode_error(ours, "req_1")
    told = json.loads(body)["error"]["message"]
    assert words in told
    assert told.endswith(": It fits no permitted target.")
    assert words in str(response_error(ours)["message"])
    assert words.encode() in error_event(ours, 1)

    raw = json.dumps({"error": {"message": "prompt is too long: 2 tokens > 1 maximum"}}).encode()
    _, body = OPENAI.encode_error(ANTHROPIC.decode_error(400, raw, None), "req_1")
    assert words in json.loads(body)["error"]["message"]


def test_rule_58_what_an_upstream_says_in_openais_words_stays_as_it_is() -> None:
    words = "This model's maximum context length is 100 tokens. However, you sent 200."
    raw = json.dumps({"error": {"message": words, "code": "context_length_exceeded"}}).encode()

    _, body = OPENAI.encode_error(OPENAI.decode_error(400, raw, None), "req_1")
    assert json.loads(body)["error"]["message"] == words


def test_rule_58_a_client_whose_answer_is_what_does_not_fit_is_told_the_vendors_numbers() -> None:
    words = "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000"
    raw = json.dumps(
        {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    )
    refusal = ANTHROPIC.decode_error(400, raw.encode(), None)

    _, body = ANTHROPIC.encode_error(refusal, "req_1")
    assert json.loads(body)["error"]["message"] == words


def test_rule_59_details_of_an_upstreams_error_are_kept() -> None:
    raw = b'{"type":"error","error":{"type":"x","message":"m","details":{"error_code":"c_1"}}}'
    error = ANTHROPIC.decode_error(400, raw, None)
    assert json.loads(ANTHROPIC.encode_error(error, "r")[1])["error"]["details"] == {
        "error_code": "c_1"
    }


@pytest.mark.parametrize("reason", ["pause_turn", "model_context_window_exceeded", "max_tokens"])
def test_rule_60_an_unfinished_answer_never_says_stop(reason: str) -> None:
    stream = MESSAGE_TEXT_STREAM.replace(b"end_turn", reason.encode())
    crossed = datas(recoded("anthropic_messages", stream, chat(stream=True)))

    assert crossed[-1]["choices"][0]["finish_reason"] == "length"


def test_rule_60_a_refusal_streams_and_stays_in_the_history() -> None:
    stream = MESSAGE_TEXT_STREAM.replace(b"end_turn", b"refusal")
    crossed = datas(recoded("anthropic_messages", stream, chat(stream=True)))
    assert crossed[-1]["choices"][0]["finish_reason"] == "content_filter"
    assert any(data["choices"][0]["delta"].get("refusal") for data in crossed)

    refused = {"role": "assistant", "content": None, "refusal": "I will not."}
    body, _ = to_anthropic(chat(messages=[USER, refused, USER]))
    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]


def test_rule_62_what_is_legal_for_the_caller_stays_legal_upstream() -> None:
    second = {**CALL, "id": "call_b", "function": {"name": "f", "arguments": '{"cut'}}
    turns = [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [CALL, second]},
        RESULT,
        {**RESULT, "tool_call_id": "call_b"},
        {"role": "assistant", "content": ""},
        USER,
    ]
    body, _ = to_anthropic(chat(messages=turns))

    assert [turn["role"] for turn in body["messages"]] == ["user", "assistant", "user"]
    kinds = [block["type"] for block in body["messages"][2]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]
    assert body["tools"][0]["name"] == "f"
    assert body["messages"][1]["content"][1]["input"] == {"_raw_arguments": '{"cut'}
