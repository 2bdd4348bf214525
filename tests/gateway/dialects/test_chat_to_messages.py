"""Chat requests at an upstream that speaks messages: exact, reported or refused."""

import hashlib
import json
from base64 import b64encode
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming
from pydantic import ConfigDict, TypeAdapter, with_config

from gateway.conversation import TextPart, ToolResultPart
from gateway.dialects import hub
from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, RequestInvalid
from gateway.types import DialectName
from tests.gateway.dialects.samples import chat, exhaust, to_anthropic


PARAMETERS = TypeAdapter(with_config(ConfigDict(extra="forbid"))(MessageCreateParamsNonStreaming))
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Bonn", "Rome"]}},
            "additionalProperties": False,
        },
        "strict": True,
    },
}


def call(tool_id: str, name: str = "weather", arguments: str = '{"city":"Bonn"}') -> dict[str, Any]:
    return {"id": tool_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(tool_id: str, content: str = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": tool_id, "content": content}


def turn(role: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": content} | fields


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def test_rule_1_system_and_developer_texts_become_separate_system_blocks() -> None:
    body, dropped = to_anthropic(
        chat(messages=[turn("system", "A"), turn("developer", [text("B")]), turn("user", "Hi")])
    )
    assert body["system"] == [text("A"), text("B")]
    assert body["messages"] == [turn("user", [text("Hi")])]
    assert body["max_tokens"] == 1000
    assert body["model"] == "upstream-model"
    assert dropped == set()


def test_rule_2_a_later_system_text_is_hoisted_with_notice_or_stays_where_possible() -> None:
    talk = [turn("user", "Hi"), turn("assistant", "Ho"), turn("system", "S"), turn("user", "Go")]
    body, dropped = to_anthropic(chat(messages=talk))
    assert body["system"] == [text("S")]
    assert dropped == {"messages.system_position"}
    body, dropped = to_anthropic(chat(messages=talk), "mid_system")
    assert [message["role"] for message in body["messages"]] == [
        *("user", "assistant", "system", "user"),
    ]
    assert dropped == set()


def test_rule_4_blank_texts_are_left_out_because_the_upstream_refuses_them() -> None:
    body, _ = to_anthropic(
        chat(
            messages=[
                turn("user", [text(" "), text("Hi")]),
                turn("assistant", ""),
                turn("user", "Go"),
            ]
        )
    )
    assert body["messages"] == [turn("user", [text("Hi")]), turn("user", [text("Go")])]
    with pytest.raises(FeatureUnsupported):
        to_anthropic(chat(messages=[turn("user", "\n")]))


def test_rule_6_images_cross_inline_and_by_address() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://a.example/b.png", "detail": "high"}},
    ]
    body, dropped = to_anthropic(chat(messages=[turn("user", parts)]))
    inline, linked = body["messages"][0]["content"]
    assert inline["source"] == {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert linked["source"] == {"type": "url", "url": "https://a.example/b.png"}
    assert dropped == {"messages.image_url.detail"}


@pytest.mark.parametrize(
    ("said", "media_type"),
    [
        ("image/jpg", "image/jpeg"),
        ("image/pjpeg", "image/jpeg"),
        ("IMAGE/PNG", "image/png"),
        ("image/png;charset=utf-8", "image/png"),
        ("image/webp;name=a.webp;x=1", "image/webp"),
    ],
)
def test_rule_6_an_inline_image_is_of_a_type_that_others_take(said: str, media_type: str) -> None:
    """OpenAI takes what programs make of an ending, and Anthropic four types to the letter."""
    source = {"type": "base64", "media_type": media_type, "data": "AAAA"}
    for scheme in ("data", "DATA"):
        url = {"url": f"{scheme}:{said};base64,AAAA"}
        body, dropped = to_anthropic(
            chat(messages=[turn("user", [{"type": "image_url", "image_url": url}])])
        )
        assert body["messages"][0]["content"][0]["source"] == source
        assert dropped == set()
    part = {"type": "input_image", "image_url": f"data:{said};base64,AAAA"}
    asked = {"model": "m", "input": [{"role": "user", "content": [part]}]}
    request = DIALECTS["openai_responses"].decode_request(json.dumps(asked).encode(), "req_1")
    assert to_anthropic(request)[0]["messages"][0]["content"][0]["source"] == source


@pytest.mark.parametrize("url", ["data:image/svg+xml,%3Csvg/%3E", "data:;base64,AAAA", "data:,"])
def test_rule_6_an_image_inline_in_another_way_is_refused_by_its_place(url: str) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_anthropic(
            chat(messages=[turn("user", [{"type": "image_url", "image_url": {"url": url}}])])
        )
    assert caught.value.parameter == "messages[0].content[0].image_url.url"


def test_rule_8_inline_files_cross_and_other_kinds_are_refused_by_path() -> None:
    file = {"file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}
    body, _ = to_anthropic(chat(messages=[turn("user", [{"type": "file", "file": file}])]))
    document = body["messages"][0]["content"][0]
    assert document["source"]["media_type"] == "application/pdf"
    assert document["title"] == "a.pdf"
    for part in (
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
        {"type": "video_url"},
    ):
        with pytest.raises(FeatureUnsupported) as caught:
            to_anthropic(chat(messages=[turn("user", [text("x"), part])]))
        assert (caught.value.parameter or "").startswith("messages[0].content[1].")


@pytest.mark.parametrize("kind", ["text/plain", "text/csv;charset=utf-8", "application/json"])
def test_rule_8_an_inline_file_of_text_is_a_document_in_words(kind: str) -> None:
    """In base64 the vendor takes PDF only."""
    data = b64encode("größe,1".encode()).decode()
    file = {"file_data": f"data:{kind};base64,{data}", "filename": "a.csv"}
    body, _ = to_anthropic(chat(messages=[turn("user", [{"type": "file", "file": file}])]))
    del file["filename"]
    bare, _ = to_anthropic(chat(messages=[turn("user", [{"type": "file", "file": file}])]))
    assert "title" not in bare["messages"][0]["content"][0]
    source = {"type": "text", "media_type": "text/plain", "data": "größe,1"}
    document = {"type": "document", "source": source, "title": "a.csv"}
    assert body["messages"][0]["content"] == [document]
    for broken in ("_w==", "/w=="):
        file = {"file_data": f"data:{kind};base64,{broken}"}
        with pytest.raises(FeatureUnsupported):
            to_anthropic(chat(messages=[turn("user", [{"type": "file", "file": file}])]))


def test_rule_10_tools_keep_their_schema_and_strictness() -> None:
    bare = {"type": "function", "function": {"name": "clock"}}
    body, dropped = to_anthropic(chat(tools=[WEATHER, bare]))
    weather, clock = body["tools"]
    assert weather["input_schema"] == WEATHER["function"]["parameters"]  # type: ignore[index]
    assert weather["strict"] is True
    assert weather["description"] == "Tells the weather."
    assert clock == {"name": "clock", "input_schema": {"type": "object", "properties": {}}}
    assert dropped == set()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": "none", "parallel_tool_calls": False}, {"type": "none"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "weather"}}},
            {"type": "tool", "name": "weather"},
        ),
        (
            {"parallel_tool_calls": False},
            {"type": "auto", "disable_parallel_tool_use": True},
        ),
        (
            {"tool_choice": "required", "parallel_tool_calls": True},
            {"type": "any", "disable_parallel_tool_use": False},
        ),
    ],
)
def test_rule_12_tool_choice_and_parallel_calls_cross(
    fields: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    body, _ = to_anthropic(chat(tools=[WEATHER], **fields))
    assert body.get("tool_choice") == expected


def allowed(mode: str | None, *names: str, kind: str = "function") -> dict[str, Any]:
    listed = [{"type": kind, "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": listed}}


CLOCK = {"type": "function", "function": {"name": "clock"}}


@pytest.mark.parametrize(("mode", "kind"), [("auto", "auto"), ("required", "any")])
def test_rule_12_of_allowed_tools_no_others_are_offered_elsewhere(mode: str, kind: str) -> None:
    talk = [turn("user", "Hi"), turn("assistant", None, tool_calls=[call("a")]), result("a")]
    body, dropped = to_anthropic(
        chat(messages=talk, tools=[WEATHER, CLOCK], tool_choice=allowed(mode, "clock"))
    )
    assert [tool["name"] for tool in body["tools"]] == ["clock"]
    assert body["tool_choice"] == {"type": kind}
    assert "tool_choice" not in dropped


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (allowed("sometimes", "clock"), "tool_choice.allowed_tools.mode"),
        (allowed(None, "clock"), "tool_choice.allowed_tools.mode"),
        (allowed("auto", "clock", "nobody"), "tool_choice.allowed_tools.tools: One of them"),
        (allowed("required"), "tool_choice.allowed_tools.tools: No tool is left"),
        (allowed("auto", "clock", kind="other"), "tool_choice.allowed_tools.tools[0].type: Only"),
    ],
)
def test_rule_12_allowed_tools_that_are_none_are_told_by_their_place(
    choice: dict[str, Any], said: str
) -> None:
    with pytest.raises(RequestInvalid) as refused:
        to_anthropic(chat(tools=[WEATHER, CLOCK], tool_choice=choice))
    assert refused.value.message.startswith(said)


def test_rule_13_tool_results_in_a_row_and_the_text_after_them_are_one_user_turn() -> None:
    talk = [
        turn("user", "Hi"),
        turn("assistant", "Looking.", tool_calls=[call("call_a"), call("call_b")]),
        result("call_a", "sunny"),
        result("call_b", "[tool_error]\nno such city"),
        turn("user", "And?"),
    ]
    body, _ = to_anthropic(chat(messages=talk, tools=[WEATHER]))
    _, asked, answered = body["messages"]
    assert [block["type"] for block in asked["content"]] == ["text", "tool_use", "tool_use"]
    assert answered["role"] == "user"
    first, second, words = answered["content"]
    assert (first["tool_use_id"], first["content"]) == ("call_a", [text("sunny")])
    assert "is_error" not in first
    assert (second["is_error"], second["content"]) == (True, [text("no such city")])
    assert words == text("And?")


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_responses"])
def test_rule_52_a_failed_tools_result_keeps_its_cache_marker(dialect: DialectName) -> None:
    said = {"text": "[tool_error]\nno such city", "prompt_cache_breakpoint": {}}
    body: dict[str, Any] = {
        "model": "m",
        "messages": [
            turn("user", "Hi"),
            turn("assistant", None, tool_calls=[call("call_a")]),
            turn("tool", [{"type": "text", **said}], tool_call_id="call_a"),
        ],
        "input": [
            {"type": "function_call", "call_id": "call_a", "name": "f", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "call_a",
                "output": [{"type": "input_text", **said}],
            },
        ],
    }
    request = DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_1")
    (failed,) = hub.read_conversation(request).turns[-1].parts
    assert failed == ToolResultPart("call_a", (TextPart("no such city", "5m"),), True)


def test_rule_15_a_history_with_calls_gets_tool_definitions_but_no_new_calls() -> None:
    talk = [turn("user", "Hi"), turn("assistant", None, tool_calls=[call("a")]), result("a")]
    body, _ = to_anthropic(chat(messages=talk))
    assert [tool["name"] for tool in body["tools"]] == ["weather"]
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("arguments", "sent", "is_reported"),
    [
        ("", {}, False),
        ('{"a": 1.0}', {"a": 1.0}, False),
        ('{"a": "tru', {"_raw_arguments": '{"a": "tru'}, True),
        ("[1]", {"_raw_arguments": "[1]"}, True),
    ],
)
def test_rule_16_broken_arguments_in_the_history_stay_readable(
    arguments: str, sent: dict[str, Any], is_reported: bool
) -> None:
    talk = [turn("user", "x"), turn("assistant", None, tool_calls=[call("a", "f", arguments)])]
    body, dropped = to_anthropic(chat(messages=[*talk, result("a")]))
    assert body["messages"][1]["content"][0]["input"] == sent
    assert ("messages.tool_calls.arguments" in dropped) == is_reported


def test_rule_22_temperatures_above_one_are_capped_with_notice() -> None:
    assert to_anthropic(chat(temperature=0.3))[0]["temperature"] == 0.3
    body, dropped = to_anthropic(chat(temperature=1.7, top_p=0.5))
    assert (body["temperature"], body["top_p"], dropped) == (1.0, 0.5, {"temperature"})


def test_rule_22_models_with_fixed_sampling_get_none_with_notice() -> None:
    request = chat(temperature=0.3, top_p=0.5)
    body, dropped = to_anthropic(request, temperature="no", top_p="no")
    assert dropped == {"temperature", "top_p"}
    assert dropped.isdisjoint(body)


def test_rule_23_stops_cross_without_the_blank_ones() -> None:
    assert to_anthropic(chat(stop="END"))[0]["stop_sequences"] == ["END"]
    body, dropped = to_anthropic(chat(stop=["END", "\n"]))
    assert (body["stop_sequences"], dropped) == (["END"], {"stop"})


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"logprobs": True},
        {"modalities": ["text", "audio"], "audio": {"voice": "x"}},
        {"functions": [{"name": "f"}], "tools": [{"type": "function", "function": {"name": "g"}}]},
        {"web_search_options": {"search_context_size": "low"}},
        {"tools": [{"type": "custom"}]},
        {"messages": [{"role": "tool", "tool_call_id": "nobody", "content": "x"}]},
        {"response_format": {"type": "grammar"}},
    ],
)
def test_rule_24_what_cannot_be_left_out_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_anthropic(chat(**fields))
    assert caught.value.parameter


def test_rule_24_what_can_be_left_out_is_reported() -> None:
    body, dropped = to_anthropic(
        chat(
            seed=7,
            logit_bias={"1": 2},
            presence_penalty=0.5,
            frequency_penalty=0,
            n=1,
            store=True,
            prompt_cache_key="k",
            logprobs=False,
            x_new=1,
            service_tier="flex",
            **{"Mr Smith's address": "x", "null_field": None},
        )
    )
    assert dropped == {
        *("seed", "logit_bias", "presence_penalty", "store", "x_new"),
        *("service_tier", "unknown_field"),
    }
    assert set(body) == {"model", "max_tokens", "messages"}


def test_rule_55_unknown_fields_inside_messages_and_tools_are_reported() -> None:
    part = text("Hi") | {"future_field": {"mode": "explicit"}, "x": None}
    tool = {"type": "function", "function": {"name": "f", "x_hint": 1}}
    body, dropped = to_anthropic(
        chat(messages=[turn("user", [part], x_note=1, name="Ada")], tools=[tool])
    )
    assert dropped == {
        *("messages.content.future_field", "messages.x_note", "messages.name"),
        "tools.x_hint",
    }
    assert body["messages"] == [turn("user", [text("Hi")])]


def test_no_more_losses_are_named_than_a_header_can_carry() -> None:
    _, dropped = to_anthropic(chat(**{f"x_{index}": 1 for index in range(1000)}))
    assert len(dropped) == 33
    assert "and_more" in dropped


def test_rule_25_an_end_user_is_never_named() -> None:
    hashed = hashlib.sha256(b"ada@example.com").hexdigest()
    uuid = "7f3c9a52-1b7e-4c3d-9a52-1b7e4c3d9a52"
    for user, sent in (("ada@example.com", hashed), (uuid, uuid)):
        assert to_anthropic(chat(user=user))[0]["metadata"] == {"user_id": sent}


def test_rule_27_a_prefill_crosses_only_to_models_that_know_it() -> None:
    talk = [turn("user", "x"), turn("assistant", "It is ( \n")]
    body, _ = to_anthropic(chat(messages=talk), "prefill")
    assert body["messages"][1]["content"] == [text("It is (")]


def test_rule_31_what_an_assistant_thought_among_its_parts_is_left_out_reported() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "Hi"}]}
    user = {"role": "user", "content": "And?"}
    body, dropped = to_anthropic(chat(messages=[user, said, user]))
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Hi"}]
    assert dropped == {"messages.thinking"}
    with pytest.raises(FeatureUnsupported):
        to_anthropic(chat(messages=[user | {"content": [thought]}]))


def test_rule_28_reasoning_effort_crosses_only_where_the_model_has_it() -> None:
    body, dropped = to_anthropic(chat(reasoning_effort="high"), "effort")
    assert (body["output_config"], dropped) == ({"effort": "high"}, set())
    assert to_anthropic(chat(reasoning_effort="minimal"), "effort")[0]["output_config"] == {
        "effort": "low"
    }
    body, dropped = to_anthropic(chat(reasoning_effort="high"))
    assert ("output_config" in body, dropped) == (False, {"reasoning_effort"})


def test_rule_33_a_json_schema_crosses_exactly() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    body, dropped = to_anthropic(
        chat(
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "s", "schema": schema, "strict": True},
            }
        ),
        "json_schema",
    )
    closed = schema | {"additionalProperties": False}
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": closed}}
    assert dropped == set()


def test_rule_34_json_object_becomes_an_instruction_with_notice() -> None:
    body, dropped = to_anthropic(chat(response_format={"type": "json_object"}))
    assert "JSON object" in body["system"][0]["text"]
    assert dropped == {"response_format"}


def test_the_official_types_accept_what_is_sent() -> None:
    request = chat(
        messages=[
            turn("system", "S"),
            turn("user", [text("Hi"), {"type": "image_url", "image_url": {"url": "https://a/b"}}]),
            turn("assistant", None, refusal="No."),
            turn("assistant", None, tool_calls=[call("a")]),
            result("a"),
        ],
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        reasoning_effort="high",
        user="someone",
        service_tier="auto",
        stop="END",
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
    )
    body, _ = to_anthropic(request, "effort", "json_schema")
    exhaust(PARAMETERS.validate_json(json.dumps(body)))
    assert body["service_tier"] == "auto"


def test_a_stream_is_asked_for_as_a_stream() -> None:
    assert to_anthropic(chat(stream=True))[0]["stream"] is True
