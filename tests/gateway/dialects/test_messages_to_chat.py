"""Messages requests at an upstream that speaks chat: exact, reported or refused."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import ConfigDict, TypeAdapter, with_config

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported
from tests.gateway.dialects.samples import OPENAI, exhaust, messages, target, to_openai


PARAMETERS = TypeAdapter(
    with_config(ConfigDict(extra="forbid"))(CompletionCreateParamsNonStreaming)
)
MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = {"name": "weather", "description": "d", "input_schema": {"type": "object", "x": 1}}


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | fields


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


def turn(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def result(tool_id: str, content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content} | fields


CALL = {"type": "tool_use", "id": "toolu_a", "name": "weather", "input": {"city": "Bonn"}}


def test_system_blocks_cross_and_cache_marks_are_reported() -> None:
    body, dropped = to_openai(messages(system=[text("A"), text("B", **MARK)]))
    assert body["messages"][0] == {"role": "system", "content": [text("A"), text("B")]}
    assert body["messages"][1] == {"role": "user", "content": "Hi"}
    assert dropped == {"cache_control"}
    assert to_openai(messages(system="S"))[0]["messages"][0]["content"] == "S"


def test_system_turns_stay_in_their_place() -> None:
    talk = [turn("user", text("a")), turn("system", text("s")), turn("user", text("b"))]
    body, dropped = to_openai(messages(messages=talk))
    assert [message["role"] for message in body["messages"]] == ["user", "system", "user"]
    assert dropped == set()


def test_tools_choice_and_parallel_calls_cross() -> None:
    body, _ = to_openai(
        messages(
            tools=[TOOL | {"strict": True}],
            tool_choice={"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        )
    )
    assert body["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "d",
                "strict": True,
                "parameters": {"type": "object", "x": 1},
            },
        }
    ]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert body["parallel_tool_calls"] is False
    for mode, sent in (("auto", "auto"), ("any", "required"), ("none", "none")):
        body, _ = to_openai(messages(tools=[TOOL], tool_choice={"type": mode}))
        assert body["tool_choice"] == sent
        assert "parallel_tool_calls" not in body


def test_rule_9_images_in_tool_results_follow_in_a_user_message() -> None:
    pixel = image(type="base64", media_type="image/png", data="AAAA")
    talk = [
        turn("user", text("x")),
        turn("assistant", text("Looking."), CALL),
        turn("user", result("toolu_a", [text("a map"), pixel]), text("And?")),
    ]
    body, _ = to_openai(messages(messages=talk, tools=[TOOL]))
    _, asked, answered, attached = body["messages"]
    assert asked["content"] == "Looking."
    assert asked["tool_calls"][0]["id"] == "toolu_a"
    assert json.loads(asked["tool_calls"][0]["function"]["arguments"]) == {"city": "Bonn"}
    assert answered == {"role": "tool", "tool_call_id": "toolu_a", "content": "a map"}
    label, picture, words = attached["content"]
    assert "toolu_a" in label["text"]
    assert picture["image_url"]["url"] == "data:image/png;base64,AAAA"
    assert words == text("And?")


def test_rule_17_failed_tool_results_are_marked() -> None:
    talk = [
        turn("user", text("x")),
        turn("assistant", CALL),
        turn("user", result("toolu_a", "no such city", is_error=True)),
    ]
    body, _ = to_openai(messages(messages=talk, tools=[TOOL]))
    assert body["messages"][-1]["content"] == "[tool_error]\nno such city"


def test_rule_29_thinking_of_another_vendor_is_never_shown_and_reported() -> None:
    talk = [
        turn("user", text("x")),
        turn(
            "assistant",
            {"type": "thinking", "thinking": "secret", "signature": "s"},
            {"type": "redacted_thinking", "data": "d"},
            text("Ho"),
        ),
        turn("user", text("y")),
    ]
    body, dropped = to_openai(messages(messages=talk))
    assert body["messages"][1] == {"role": "assistant", "content": "Ho"}
    assert "secret" not in json.dumps(body)
    assert dropped == {"messages.thinking"}


UNSIGNED = {"type": "thinking", "thinking": "Bonn, then.", "signature": ""}


@pytest.mark.parametrize("where", ["in_house", "reasoning_content", ""])
def test_rule_32_what_an_engine_thought_before_its_call_goes_back_to_it(where: str) -> None:
    """Else it thinks anew at each result; DeepSeek's and Moonshot's refuse a call without it."""
    signed = {"type": "thinking", "thinking": "secret", "signature": "s"}
    talk = [
        turn("user", text("x")),
        turn("assistant", UNSIGNED, signed, CALL),
        turn("user", result("toolu_a", "rain")),
    ]
    request = messages(messages=talk, tools=[TOOL])
    chosen = msgspec.structs.replace(target(where), in_house=where == "in_house")
    upstream = OPENAI.encode_request(request, chosen, 1000)
    said = json.loads(upstream.body)["messages"][1]

    assert said.get("reasoning_content") == ("Bonn, then." if where else None)
    assert said.get("reasoning") == ("Bonn, then." if where == "in_house" else None)
    assert "secret" not in json.dumps(said)
    assert upstream.dropped == ("messages.thinking",)
    talk[1] = turn("assistant", UNSIGNED, CALL)
    again = OPENAI.encode_request(messages(messages=talk, tools=[TOOL]), chosen, 1000)
    assert again.dropped == (() if where else ("messages.thinking",))


def test_rule_32_a_reasoning_item_without_a_seal_goes_back_to_an_engine() -> None:
    """As Codex carries it, whose engine told of it in chunks."""
    summary = [{"type": "summary_text", "text": "Bonn, then."}]
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    given = [
        {"role": "user", "content": "x"},
        {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": None},
        call,
        {"type": "function_call_output", "call_id": "c", "output": "rain"},
    ]
    tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
    raw = json.dumps({"model": "m", "input": given, "tools": tools}).encode()
    request = DIALECTS["openai_responses"].decode_request(raw, "req_1")
    body, dropped = to_openai(request, "reasoning_content")

    assert body["messages"][1]["reasoning_content"] == "Bonn, then."
    assert "messages.thinking" not in dropped
    assert not any("reasoning" in name for name in dropped)


def test_documents_cross_as_files_or_as_text() -> None:
    pdf = {
        "type": "document",
        "title": "a.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"},
    }
    note = {
        "type": "document",
        "title": "Note",
        "context": "c",
        "citations": {"enabled": True},
        "source": {"type": "text", "media_type": "text/plain", "data": "words"},
    }
    body, dropped = to_openai(messages(messages=[turn("user", pdf, note)]))
    file, words = body["messages"][0]["content"]
    assert file["file"] == {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"}
    assert words == text("Note\nwords")
    assert dropped == {"messages.document.context", "messages.citations"}


FOUND = {
    "type": "search_result",
    "title": "Bridges",
    "source": "https://docs.example/bridges",
    "content": [text("It was built"), text("in 1906.")],
}
SAID = "Bridges\nhttps://docs.example/bridges\nIt was built\nin 1906."


def test_rule_8_results_of_the_callers_own_search_cross_as_texts() -> None:
    cited = FOUND | {"citations": {"enabled": True}}
    body, dropped = to_openai(messages(messages=[turn("user", cited, text("When?"))]))
    assert body["messages"][0]["content"] == [text(SAID), text("When?")]
    assert dropped == {"messages.citations"}
    plain = FOUND | {"citations": {"enabled": False}, "title": ""}
    body, dropped = to_openai(messages(messages=[turn("user", plain)]))
    assert body["messages"][0]["content"] == SAID.removeprefix("Bridges\n")
    assert dropped == set()


def test_rule_8_results_of_a_search_that_a_tool_made_cross_with_its_result() -> None:
    marked = FOUND | {"content": [text("A", **MARK)]}
    talk = [turn("assistant", CALL), turn("user", result("toolu_a", [FOUND, marked]))]
    body, dropped = to_openai(messages(messages=talk))
    told = body["messages"][1]
    assert told["role"] == "tool"
    assert told["content"][0] == text(SAID)
    assert told["content"][1] == text("Bridges\nhttps://docs.example/bridges\nA")
    assert dropped == {"cache_control"}


def test_rule_8_a_document_in_pieces_crosses_as_its_text() -> None:
    pieces = {"type": "content", "content": [text("A"), text("B")]}
    whole = {"type": "content", "content": "A"}
    documents = [{"type": "document", "source": source} for source in (pieces, whole)]
    body, dropped = to_openai(messages(messages=[turn("user", *documents)]))
    assert body["messages"][0]["content"] == [text("A\nB"), text("A")]
    assert dropped == set()
    picture = {"type": "content", "content": [image(type="url", url="https://a.example")]}
    with pytest.raises(FeatureUnsupported):
        to_openai(messages(messages=[turn("user", {"type": "document", "source": picture})]))


@pytest.mark.parametrize(
    "fields",
    [
        {"inference_geo": "eu"},
        {"container": "c_1"},
        {"mcp_servers": [{"url": "https://a.example"}]},
        {"max_tokens": 0},
        {"tools": [{"type": "web_search_20260209", "name": "web_search"}]},
        {"stop_sequences": ["a", "b", "c", "d", "e"]},
        {"messages": [turn("user", image(type="file", file_id="f"))]},
        {"messages": [turn("user", {"type": "document", "source": {"type": "url", "url": "u"}})]},
        {"messages": [turn("user", {"type": "search_result", "source": "u", "content": [CALL]})]},
        {"messages": [turn("user", {"type": "search_result", "source": "u"})]},
        {"messages": [turn("user", text("x")), turn("assistant", text("It is ("))]},
        {
            "messages": [
                turn("assistant", {"type": "server_tool_use", "id": "s", "name": "n"}),
                turn("user", text("x")),
            ]
        },
    ],
)
def test_what_cannot_be_left_out_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(FeatureUnsupported) as caught:
        to_openai(messages(**fields))
    assert caught.value.parameter


def test_what_can_be_left_out_is_reported() -> None:
    body, dropped = to_openai(
        messages(
            top_k=5,
            thinking={"type": "enabled", "budget_tokens": 2048},
            speed="fast",
            cache_control={"type": "ephemeral"},
            diagnostics={"previous_message_id": None},
            tools=[TOOL | MARK | {"defer_loading": True}],
            service_tier="other",
        )
    )
    assert dropped == {
        *("top_k", "thinking", "speed", "cache_control", "diagnostics", "tools.defer_loading"),
        "service_tier",
    }
    assert set(body) == {"model", "messages", "max_tokens", "tools"}


def test_rule_55_unknown_fields_inside_messages_are_reported() -> None:
    block = text("Hi") | {"x_hint": 1, "caller": None}
    _, dropped = to_openai(messages(messages=[turn("user", block) | {"x_note": 1}]))
    assert dropped == {"messages.content.x_hint", "messages.x_note"}


def test_capabilities_of_the_target_let_more_cross() -> None:
    request = messages(top_k=5, thinking={"type": "enabled", "budget_tokens": 2048})
    able = ("reasoning_effort", "max_completion_tokens")
    body, dropped = to_openai(request, *able, top_k="yes")
    assert (body["top_k"], body["reasoning_effort"], dropped) == (5, "low", set())
    assert body["max_completion_tokens"] == 1000
    for config, effort in (
        ({"thinking": {"type": "enabled", "budget_tokens": 50_000}}, "high"),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, "xhigh"),
        ({"thinking": {"type": "disabled"}}, "none"),
    ):
        assert to_openai(messages(**config), "reasoning_effort")[0]["reasoning_effort"] == effort


def test_models_with_fixed_sampling_get_none_with_notice() -> None:
    request = messages(temperature=0.3, top_p=0.5)
    body, dropped = to_openai(request, temperature="no", top_p="no")
    assert dropped == {"temperature", "top_p"}
    assert dropped.isdisjoint(body)


def test_sampling_stops_schema_and_user_cross() -> None:
    schema = {"type": "object", "properties": {}}
    body, dropped = to_openai(
        messages(
            temperature=0.5,
            top_p=0.9,
            stop_sequences=["END"],
            stream=True,
            metadata={"user_id": "u1"},
            service_tier="auto",
            output_config={"format": {"type": "json_schema", "schema": schema}},
        ),
        "json_schema",
    )
    assert (body["temperature"], body["top_p"], body["stop"]) == (0.5, 0.9, ["END"])
    assert body["response_format"]["json_schema"]["schema"] == schema
    assert body["stream_options"] == {"include_usage": True}
    assert (body["user"], body["service_tier"], dropped) == ("u1", "auto", set())
    assert len(to_openai(messages(metadata={"user_id": "u" * 80}))[0]["user"]) == 64


def test_the_official_types_accept_what_is_sent() -> None:
    talk = [
        turn("user", text("x"), image(type="url", url="https://a.example/b.png")),
        turn("assistant", CALL),
        turn("user", result("toolu_a", "sunny")),
    ]
    request = messages(
        messages=talk, system="S", tools=[TOOL], tool_choice={"type": "any"}, temperature=0.5
    )
    body, _ = to_openai(request)
    for message in body["messages"]:
        if isinstance(message["content"], str):
            # Pydantic takes a string for an iterable of parts, and then refuses its letters.
            message["content"] = [text(message["content"])]
    exhaust(PARAMETERS.validate_json(json.dumps(body)))
