"""Rules of translation from and to OpenAI's responses, without a network."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import FeatureUnsupported, RequestInvalid, StreamBroken, UpstreamFailed
from gateway.types import ChatRequest, DialectName
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    CHAT_TEXT_STREAM,
    CHAT_TOOL_STREAM,
    MESSAGE_TEXT_STREAM,
    MESSAGE_TOOL_STREAM,
    OPENAI,
    charged,
    chat,
    chunk,
    decoded,
    messages,
    recoded,
    sse,
    target,
    to_anthropic,
    to_openai,
)


RESPONSES = DIALECTS["openai_responses"]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
STREAMS: list[tuple[DialectName, bytes]] = [
    ("openai_chat", CHAT_TEXT_STREAM),
    ("openai_chat", CHAT_TOOL_STREAM),
    ("anthropic_messages", MESSAGE_TEXT_STREAM),
    ("anthropic_messages", MESSAGE_TOOL_STREAM),
]
CALL = {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": '{"a":1}'}
RESULT = {"type": "function_call_output", "call_id": "call_a", "output": "ok"}
USER = {"role": "user", "content": "Hi"}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}


def responses(**fields: Any) -> ChatRequest:
    body = {"model": "m", "input": "Hi"} | fields
    return RESPONSES.decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def to_responses(request: ChatRequest, *capabilities: str) -> tuple[dict[str, Any], set[str]]:
    upstream = RESPONSES.encode_request(request, target(*capabilities), 1000)
    return json.loads(upstream.body), set(upstream.dropped)


def datas(stream: bytes) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in Splitter().feed(stream) if event.data]


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 57,
    }
    shell = {"id": "resp_up", "object": "response", "created_at": 1, "model": "gpt-x"}
    return shell | {"status": "completed", "output": list(output), "usage": usage} | fields


def said(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "content": [part]}


REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "c2VhbGVk",
}

EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "response": response(status="in_progress")},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {"type": "reasoning", "id": "rs_1", "summary": []},
    },
    {
        "type": "response.reasoning_summary_text.delta",
        "item_id": "rs_1",
        "output_index": 0,
        "summary_index": 0,
        "delta": "Hm.",
    },
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_item.added", "output_index": 1, "item": said("")},
    {
        "type": "response.output_text.delta",
        "item_id": "msg_1",
        "output_index": 1,
        "content_index": 0,
        "delta": "I look.",
        "logprobs": [],
    },
    {
        "type": "response.output_item.added",
        "output_index": 2,
        "item": CALL | {"id": "fc_1", "arguments": ""},
    },
    {
        "type": "response.function_call_arguments.delta",
        "item_id": "fc_1",
        "output_index": 2,
        "delta": '{"a":1}',
    },
    {"type": "response.output_item.done", "output_index": 2, "item": CALL},
    {"type": "response.completed", "response": response(REASONING, said("I look."), CALL)},
]
STREAM = b"".join(
    sse(tree["type"], sequence_number=number, **{k: v for k, v in tree.items() if k != "type"})
    for number, tree in enumerate(EVENTS)
)


def test_rule_3_system_blocks_become_instructions() -> None:
    blocks = [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]
    body, dropped = to_responses(messages(system=blocks))

    assert body["instructions"] == "One.\nTwo."
    assert dropped == set()
    marked = [blocks[0] | {"cache_control": {"type": "ephemeral"}}]
    assert to_responses(messages(system=marked))[1] == {"cache_control"}


def test_rule_3_a_request_of_a_system_and_nothing_else_is_one_of_instructions() -> None:
    body, _ = to_responses(chat(messages=[{"role": "system", "content": "One."}]))
    assert (body["instructions"], body["input"]) == ("One.", [])


def test_rule_3_a_later_system_text_stays_the_developers() -> None:
    asked = [USER, {"role": "system", "content": "Two."}, USER]
    body, _ = to_responses(chat(messages=asked))
    assert [item["role"] for item in body["input"]] == ["user", "developer", "user"]


def test_rule_10_a_tool_without_a_schema_takes_an_object_of_nothing() -> None:
    empty = {"type": "object", "properties": {}}
    bare = chat(tools=[{"type": "function", "function": {"name": "f"}}])
    assert to_responses(bare)[0]["tools"][0]["parameters"] == empty
    asked = responses(tools=[{"type": "function", "name": "f", "parameters": None}])
    assert to_openai(asked)[0]["tools"][0]["function"]["parameters"] == empty


def test_rule_60_a_refusal_in_the_history_of_responses_stays_one_in_chat() -> None:
    refused = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "refusal", "refusal": "No."}],
    }
    asked = responses(input=[USER, refused, USER])
    body, dropped = to_openai(asked, "max_completion_tokens")
    assert body["messages"][1]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert dropped == set()
    # Compatible servers, the engine in this repository among them, refuse a part of that kind.
    body, dropped = to_openai(asked)
    assert body["messages"][1]["content"] == "No."
    assert dropped == set()


def test_rule_8_a_part_of_an_unknown_kind_is_refused_although_it_has_a_text() -> None:
    asked = responses(input=[{"role": "user", "content": [{"type": "hologram", "text": "x"}]}])
    with pytest.raises(FeatureUnsupported) as caught:
        to_openai(asked)
    assert caught.value.parameter == "input[0].content[0].type"


def test_rule_59_a_response_that_continues_nothing_says_null() -> None:
    usage = {"input_tokens": 5, "output_tokens": 3, "x_of_tomorrow": 1.50}
    answer = response(said("x"), previous_response_id="resp_of_the_upstream", usage=usage)
    raw = json.dumps(answer).encode()
    told = RESPONSES.encode_reply(RESPONSES.decode_reply(raw), "openai_responses", responses())
    assert json.loads(told)["previous_response_id"] is None
    assert json.loads(told)["usage"] == json.loads(raw)["usage"]


def test_rule_16_a_call_without_arguments_has_an_object_of_nothing() -> None:
    call = {name: value for name, value in CALL.items() if name != "arguments"}
    completion = RESPONSES.decode_reply(json.dumps(response(call)).encode())
    told = json.loads(OPENAI.encode_reply(completion, "openai_responses", chat()))
    assert told["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_rule_3_instructions_become_the_system() -> None:
    request = responses(instructions="One.", input=[{"role": "developer", "content": "Two."}, USER])
    body, _ = to_anthropic(request)

    assert [block["text"] for block in body["system"]] == ["One.", "Two."]


def test_rule_7_images_and_assistants_texts_have_their_own_words() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QQ"}}
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "What?"}, image]},
        {"role": "assistant", "content": "A dot."},
        {"role": "user", "content": "Sure?"},
    ]
    body, _ = to_responses(messages(messages=turns))

    assert [part["type"] for part in body["input"][0]["content"]] == ["input_text", "input_image"]
    assert body["input"][0]["content"][1]["image_url"] == "data:image/png;base64,QQ"
    assert body["input"][1]["content"][0]["type"] == "output_text"
    back, _ = to_anthropic(responses(input=body["input"]))
    assert back["messages"][0]["content"][1] == image


def test_rule_18_only_the_call_id_pairs_calls_with_results() -> None:
    request = responses(input=[USER, CALL | {"id": "fc_9"}, RESULT], tools=[tool("f")])
    body, _ = to_anthropic(request)

    assert body["messages"][1]["content"][0]["id"] == "call_a"
    assert body["messages"][2]["content"][0]["tool_use_id"] == "call_a"


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


def test_rule_19_server_tools_of_responses_are_refused_across_dialects_and_kept_within() -> None:
    request = responses(tools=[{"type": "web_search"}])
    with pytest.raises(FeatureUnsupported) as caught:
        to_anthropic(request)
    assert caught.value.parameter == "tools[0].type"
    assert to_responses(request)[0]["tools"] == [{"type": "web_search"}]


def test_rule_20_thinking_text_and_calls_keep_their_order() -> None:
    wrapped = ANTHROPIC.encode_reply(
        RESPONSES.decode_reply(json.dumps(response(REASONING, said("I look."), CALL)).encode()),
        "openai_responses",
        messages(),
    )
    blocks = json.loads(wrapped)["content"]
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": blocks},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_a", "content": "ok"}],
        },
    ]
    body, dropped = to_responses(messages(messages=turns), "reasoning_effort")

    kinds = [item["type"] for item in body["input"]]
    assert kinds == [*("message", "reasoning", "message"), "function_call", "function_call_output"]
    assert body["input"][1] == REASONING
    assert dropped == {"messages.thinking"}, "the readable summary is no block of its own there"


def test_rule_23_stop_sequences_are_refused_and_top_k_is_reported() -> None:
    with pytest.raises(FeatureUnsupported):
        to_responses(chat(stop="END"))
    assert to_responses(messages(top_k=5))[1] == {"top_k"}


def test_a_truncation_that_is_none_is_refused_whoever_answers() -> None:
    for known in (None, "auto", "disabled"):
        responses(truncation=known)
    with pytest.raises(RequestInvalid) as caught:
        responses(truncation="middle")
    assert caught.value.parameter == "truncation"


def test_rule_68_what_another_vendor_may_know_to_include_is_refused_where_nobody_does() -> None:
    asked = responses(include=["reasoning.encrypted_content", "inline_citations"])
    assert b"inline_citations" in RESPONSES.encode_request(asked, target(), 100).body
    for refuse in (to_anthropic, to_openai):
        with pytest.raises(FeatureUnsupported) as caught:
            refuse(asked)
        assert caught.value.parameter == "include[1]"


def test_rule_30_reasoning_items_survive_a_client_of_another_dialect() -> None:
    completion = RESPONSES.decode_reply(json.dumps(response(REASONING, said("x"))).encode())
    answer = json.loads(OPENAI.encode_reply(completion, "openai_responses", chat()))
    message = answer["choices"][0]["message"]
    body, _ = to_responses(
        chat(messages=[USER, message, USER], reasoning_effort="low"), "reasoning_effort"
    )

    assert REASONING in body["input"]
    assert body["include"] == ["reasoning.encrypted_content"]
    assert (
        b"gw_reasoning_item"
        not in ANTHROPIC.encode_request(chat(messages=[USER, message, USER]), target(), 100).body
    )


def test_rule_30_a_reasoning_item_of_another_vendors_thinking_comes_back_signed() -> None:
    whole = {"type": "message", "content": [SIGNED, {"type": "text", "text": "x"}]}
    completion = ANTHROPIC.decode_reply(json.dumps(whole).encode())
    answer = json.loads(RESPONSES.encode_reply(completion, "anthropic_messages", responses()))
    Response.model_validate_json(json.dumps(answer), strict=True)

    body, _ = to_anthropic(responses(input=[USER, *answer["output"], USER]))
    assert body["messages"][1]["content"][0] == SIGNED


def test_rule_31_reasoning_of_another_vendor_stays_behind_in_responses_too() -> None:
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gw_thinking_block:W10="}
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    done = {"type": "function_call_output", "call_id": "c", "output": "r"}
    request = responses(input=[USER, sealed, REASONING, call, done])

    upstream = RESPONSES.encode_request(request, target(), 1000)

    bare = {name: value for name, value in call.items() if name != "id"}
    assert json.loads(upstream.body)["input"] == [USER, REASONING, bare, done]
    assert upstream.dropped == ("input.reasoning",)


def test_rule_37_an_incomplete_response_says_why_and_a_failed_one_is_an_error() -> None:
    def reason(**fields: Any) -> str:
        return RESPONSES.decode_reply(
            json.dumps(response(said("x"), **fields)).encode()
        ).stop_reason

    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    filtered = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
    assert [reason(), reason(**cut), reason(**filtered)] == ["end", "length", "content_filter"]
    calls = RESPONSES.decode_reply(json.dumps(response(CALL)).encode())
    assert calls.stop_reason == "tool_use"
    with pytest.raises(UpstreamFailed):
        reason(status="failed")


def test_rule_37_an_answer_that_a_filter_cut_is_no_complete_response() -> None:
    request = responses(stream=True)
    choice = {"index": 0, "message": {"content": "Half of"}, "finish_reason": "content_filter"}
    whole = OPENAI.decode_reply(json.dumps({"choices": [choice]}).encode())
    cut = chunk({"content": "Half of"}) + chunk({}, "content_filter") + b"data: [DONE]\n\n"
    last = datas(recoded("openai_chat", cut, request))[-1]
    assert last["type"] == "response.incomplete"
    for told in (
        json.loads(RESPONSES.encode_reply(whole, "openai_chat", request)),
        last["response"],
    ):
        assert told["status"] == "incomplete"
        assert told["incomplete_details"] == {"reason": "content_filter"}

    choice = {"index": 0, "message": {"refusal": "No."}, "finish_reason": "stop"}
    whole = OPENAI.decode_reply(json.dumps({"choices": [choice]}).encode())
    refused = chunk({"refusal": "No."}) + chunk({}, "stop") + b"data: [DONE]\n\n"
    last = datas(recoded("openai_chat", refused, request))[-1]
    for told in (
        json.loads(RESPONSES.encode_reply(whole, "openai_chat", request)),
        last["response"],
    ):
        assert (told["status"], told["incomplete_details"]) == ("completed", None)
        assert told["output"][-1]["content"][-1] == {"type": "refusal", "refusal": "No."}


def test_rule_38_cached_tokens_are_part_of_a_responses_input() -> None:
    usage = RESPONSES.decode_reply(json.dumps(response(said("x"))).encode()).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (50, 20, 5)
    assert (usage.output_tokens, usage.reasoning_tokens) == (7, 3)


@pytest.mark.parametrize(("source", "stream"), STREAMS)
def test_rule_46_every_event_is_one_of_the_official_types_and_numbered(
    source: DialectName, stream: bytes
) -> None:
    events = datas(recoded(source, stream, responses(stream=True)))

    for event in events:
        EVENT.validate_python(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    whole = Response.model_validate_json(json.dumps(events[-1]["response"]), strict=True)
    assert events[-1]["type"] == "response.completed"
    assert [item.type for item in whole.output] == [
        event["item"]["type"] for event in events if event["type"] == "response.output_item.added"
    ]


def test_rule_46_arguments_are_told_whole_at_the_end() -> None:
    events = datas(recoded("openai_chat", CHAT_TOOL_STREAM, responses(stream=True)))
    done = [e for e in events if e["type"] == "response.function_call_arguments.done"]

    assert [event["arguments"] for event in done] == ['{"city":"Bonn"}', "{}"]


def test_rule_46_a_stream_of_responses_crosses_to_both_other_dialects() -> None:
    chunks = datas(recoded("openai_responses", STREAM, chat(stream=True)).replace(b"[DONE]", b"{}"))
    deltas = [data["choices"][0]["delta"] for data in chunks if data.get("choices")]
    assert [delta["content"] for delta in deltas if delta.get("content")] == ["I look."]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"

    crossed = datas(recoded("openai_responses", STREAM, messages(stream=True)))
    starts = [e["content_block"]["type"] for e in crossed if e["type"] == "content_block_start"]
    assert starts == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert crossed[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("size", [1, 2, 7, 100, 10_000])
def test_rule_48_any_chunking_of_a_stream_of_responses_gives_the_same_events(size: int) -> None:
    decoder = RESPONSES.stream_decoder()
    events = [
        event
        for start in range(0, len(STREAM), size)
        for event in decoder.feed(STREAM[start : start + size])
    ]

    assert events + decoder.close() == decoded("openai_responses", STREAM)
    assert events[-1].is_terminal


def test_rule_47_a_failure_is_the_one_end_of_a_stream_of_responses() -> None:
    for source, stream in [*STREAMS, ("openai_responses", STREAM)]:
        encoder = RESPONSES.stream_encoder(responses(stream=True), source)
        events = decoded(source, stream)
        sent = encoder.encode(events[:-1])
        sent += encoder.fail(StreamBroken("The stream broke."), "req_1")
        sent += encoder.finish("late", charged(events))
        kinds = [event["type"] for event in datas(sent)]
        assert "response.completed" not in kinds
        assert len({"response.failed", "error"} & set(kinds)) == 1
        assert kinds[-1] in {"response.failed", "error"}


def test_rule_54_upstreams_hold_nothing_and_see_no_id_of_ours() -> None:
    for own in (
        {"previous_response_id": "resp_x"},
        {"conversation": {"id": "conv_x"}},
        {"background": True},
    ):
        request = responses(**own, store=True, include=["x"])
        body, _ = to_responses(request, "reasoning_effort")

        assert body["store"] is False
        assert body.keys().isdisjoint(own)
        assert body["include"] == ["x", "reasoning.encrypted_content"]


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": {"id": "pmpt_1"}},
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        {"tools": [{"type": "code_interpreter", "container": "cntr_1"}]},
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": ["f"]}}]},
        {"tools": [{"type": "shell", "environment": {"container_id": "cntr_1"}}]},
        {"tools": [{"type": "shell", "environment": {"file_ids": ["file_1"]}}]},
    ],
)
def test_rule_56_what_only_an_upstream_holds_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FeatureUnsupported):
        responses(**fields)


@pytest.mark.parametrize("encode", [to_responses, to_openai, to_anthropic])
def test_rule_56_an_item_that_is_only_named_goes_nowhere(encode: Callable[..., object]) -> None:
    request = responses(input=[{"type": "item_reference", "id": "rs_1"}])
    assert request.thread is not None
    assert request.thread.references == ("rs_1",)

    with pytest.raises(FeatureUnsupported) as caught:
        encode(request)
    assert caught.value.parameter == "input[0]"


def test_rule_55_unknown_fields_are_kept_within_the_dialect_and_reported_across() -> None:
    request = responses(brand_new={"b": 1}, text={"verbosity": "low"})
    assert to_responses(request)[0]["brand_new"] == {"b": 1}
    assert to_openai(request)[1] == {"brand_new", "text.verbosity"}


def test_rule_59_a_response_for_every_kind_of_answer_validates_strictly() -> None:
    for source, raw in (
        ("anthropic_messages", {"type": "message", "content": [], "stop_reason": "max_tokens"}),
        (
            "anthropic_messages",
            {
                "type": "message",
                "content": [{"type": "text", "text": "x"}],
                "stop_reason": "refusal",
            },
        ),
        ("openai_chat", {"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}),
    ):
        completion = DIALECTS[source].decode_reply(json.dumps(raw).encode())  # type: ignore[index]
        answer = RESPONSES.encode_reply(completion, source, responses(tools=[tool("f")]))  # type: ignore[arg-type]
        whole = Response.model_validate_json(answer, strict=False)
        assert whole.usage is not None
        assert whole.created_at == 1


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_wrong_with_a_request_is_named_by_its_path(
    fields: dict[str, Any], place: str
) -> None:
    with pytest.raises(RequestInvalid) as caught:
        responses(**fields)

    assert caught.value.parameter == place
