"""Another dialect's stream as one of a response: every item opened, filled, closed and counted."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamFailed, UpstreamMalformed
from gateway.thread import Thread
from gateway.types import ChatRequest, Completion, Delta, StreamEvent, ToolCall, Usage
from tests.conformance.strict_types import EVENTS as VENDORS
from tests.conformance.strict_types import flaws


RESPONSES = DIALECTS["openai_responses"]
USAGE = Usage(input_tokens=5, output_tokens=3, service_tier="priority")
WORDS = st.text("ab ü", min_size=1, max_size=6)
STATUSES = {
    "end": ("completed", None),
    "tool_use": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "pause": ("incomplete", "max_output_tokens"),
    "content_filter": ("incomplete", "content_filter"),
}
KINDS = {"text": "message", "thinking": "reasoning", "call": "function_call"}
EVENTS = {
    "message": (
        ["content_part.added"],
        "output_text.delta",
        ["output_text.done", "content_part.done"],
    ),
    "reasoning": (
        ["reasoning_summary_part.added"],
        "reasoning_summary_text.delta",
        ["reasoning_summary_text.done", "reasoning_summary_part.done"],
    ),
    "function_call": (
        [],
        "function_call_arguments.delta",
        ["function_call_arguments.done"],
    ),
}
"""What opens an item, what fills it, and what closes it."""
PLACES = {
    "message": {"item_id", "content_index"},
    "reasoning": {"item_id", "summary_index"},
    "function_call": {"item_id"},
}
KEYS = {"message": "text", "reasoning": "text", "function_call": "arguments"}


def asked() -> ChatRequest:
    raw = b'{"model":"m","input":"Hi","stream":true}'
    request = RESPONSES.decode_request(raw, "req_0000000003e8abcdef")
    return structs.replace(request, thread=Thread(keeps=True, answer_id="resp_ours"))


def events_of(items: list[tuple[str, list[str]]]) -> list[Delta]:
    """What a model says, item by item; equal kinds in a row are one."""
    deltas: list[Delta] = []
    for at, (kind, pieces) in enumerate(items):
        if kind == "call":
            deltas.append(Delta("tool_start", index=at, tool_id=f"call_{at}", name=f"f{at}"))
            deltas += [Delta("tool_arguments", piece, at) for piece in pieces]
        elif kind == "thinking":
            deltas += [Delta("thinking", piece) for piece in pieces]
        else:
            deltas += [Delta("text", piece) for piece in pieces]
    return deltas


def written(
    deltas: list[Delta], *, at_once: bool = False
) -> tuple[list[dict[str, Any]], dict[str, Any], bytes]:
    """The events that are sent, the response that is kept, and the last bytes."""
    encoder = RESPONSES.stream_encoder(asked(), "anthropic_messages")
    events = [StreamEvent(b"", (delta,)) for delta in deltas]
    batches = [events] if at_once else [[event] for event in events]
    sent = b"".join([encoder.encode(batch) for batch in batches])
    ending = encoder.finish("x-cost=1", USAGE)
    trees = []
    for event in Splitter().feed(sent + ending):
        if event.data is not None:
            tree = json.loads(event.data)
            assert tree["type"] == event.name.decode()
            assert flaws(VENDORS["openai_responses"], event.data) == []
            trees.append(tree)
    return trees, json.loads(encoder.response), ending


@settings(max_examples=60)
@given(
    items=st.lists(
        st.tuples(st.sampled_from([*KINDS]), st.lists(WORDS, min_size=1, max_size=3)), max_size=5
    ),
    stop=st.sampled_from([*STATUSES]),
    has_start=st.booleans(),
    at_once=st.booleans(),
)
def test_every_item_is_opened_filled_and_closed_in_its_place(
    items: list[tuple[str, list[str]]], stop: str, *, has_start: bool, at_once: bool
) -> None:
    deltas = [Delta("start", message_id="msg_1", model="there")] if has_start else []
    deltas += [*events_of(items), Delta("stop", stop_reason=stop)]
    trees, kept, ending = written(deltas, at_once=at_once)

    merged: list[tuple[str, str]] = []
    for kind, pieces in items:
        name = KINDS[kind]
        if name != "function_call" and merged and merged[-1][0] == name:
            merged[-1] = (name, merged[-1][1] + "".join(pieces))
        else:
            merged.append((name, "".join(pieces)))
    assert [tree["sequence_number"] for tree in trees] == list(range(len(trees)))
    assert [tree["type"] for tree in trees[:2]] == ["response.created", "response.in_progress"]
    assert {tree["response"]["status"] for tree in trees[:2]} == {"in_progress"}
    for at, (name, text) in enumerate(merged):
        mine = [tree for tree in trees if tree.get("output_index") == at]
        count = len([tree for tree in mine if "delta" in tree])
        opening, piece, closing = EVENTS[name]
        assert [tree["type"].removeprefix("response.") for tree in mine] == [
            *("output_item.added", *opening, *[piece] * count, *closing, "output_item.done"),
        ]
        assert {tree.get("content_index", tree.get("summary_index", 0)) for tree in mine} == {0}
        for tree in mine[1:-1]:
            assert PLACES[name] <= tree.keys()
        for tree, said in zip((mine[1], mine[-2]), ("", text), strict=True):
            assert "part" not in tree or tree["part"]["text"] == said
        assert mine[-1]["item"] == kept["output"][at]
        assert {tree["item_id"] for tree in mine if "item_id" in tree} == {mine[0]["item"]["id"]}
        assert (mine[0]["item"]["type"], mine[-1]["item"]["type"]) == (name, name)
        assert "".join(tree["delta"] for tree in mine if "delta" in tree) == text
        (done,) = [
            tree for tree in mine if tree["type"].endswith((".text.done", "_text.done"))
        ] or [tree for tree in mine if tree["type"].endswith("arguments.done")]
        assert done[KEYS[name]] == text
        (whole,) = mine[-1]["item"].get("content") or mine[-1]["item"].get("summary") or [done]
        assert whole[KEYS[name]] == text
    assert len(kept["output"]) == len(merged)
    outside = [tree["type"] for tree in trees if "output_index" not in tree]
    assert len(outside) == 3, outside
    status, reason = STATUSES[stop]
    assert (kept["status"], (kept["incomplete_details"] or {}).get("reason")) == (status, reason)
    assert (kept["id"], kept["store"], kept["service_tier"]) == ("resp_ours", True, "priority")
    assert kept["model"] == ("there" if has_start else "m")
    assert kept["usage"]["total_tokens"] == 8
    assert trees[-1] == {
        "type": f"response.{status}",
        "sequence_number": len(trees) - 1,
        "response": kept,
    }
    assert b": x-cost=1\n\nevent: response." in ending


def test_a_refusal_in_words_is_a_whole_answer_of_its_own() -> None:
    refused = [Delta("text", "Well"), Delta("refusal", "No"), Delta("refusal", ".")]
    trees, kept, _ = written([*refused, Delta("stop", stop_reason="content_filter")])

    assert kept["status"] == "completed"
    assert [item["content"][0]["type"] for item in kept["output"]] == ["output_text", "refusal"]
    assert kept["output"][1]["content"][0]["refusal"] == "No."
    mine = [tree["type"] for tree in trees if tree.get("output_index") == 1]
    assert mine == [
        *("response.output_item.added", "response.content_part.added"),
        *["response.refusal.delta"] * 2,
        *("response.refusal.done", "response.content_part.done", "response.output_item.done"),
    ]
    parts = [tree["part"] for tree in trees if tree["type"] == "response.content_part.added"]
    assert [part.get("text", part.get("refusal")) for part in parts] == ["", ""]


def test_a_signature_closes_the_thought_before_it_and_a_sealed_block_is_its_own() -> None:
    trees, kept, _ = written(
        [
            *(Delta("thinking", "Hm."), Delta("thinking", signature="signed")),
            *(Delta("thinking", redacted="sealed"), Delta("thinking", "Open."), Delta("thinking")),
            *(Delta("thinking", redacted="again"), Delta("text", "Yes.")),
        ]
    )

    told = [
        (item["type"], [each["text"] for each in item.get("summary", ())])
        for item in kept["output"]
    ]
    assert told == [
        *(("reasoning", ["Hm."]), ("reasoning", []), ("reasoning", ["Open."]), ("reasoning", [])),
        ("message", []),
    ]
    sealed = [item["encrypted_content"] for item in kept["output"][:4]]
    assert [bool(each) for each in sealed] == [True, True, False, True]
    assert len({*sealed}) == 4
    added = [tree["item"]["type"] for tree in trees if tree["type"].endswith("item.added")]
    assert added == ["reasoning"] * 4 + ["message"]


def test_a_call_of_nothing_has_an_object_and_arguments_of_no_call_are_nothing() -> None:
    call = Delta("tool_start", index=3, tool_id="call_1", name="f")
    trees, kept, _ = written([Delta("tool_arguments", "{}", 9), call])

    (item,) = kept["output"]
    assert (item["call_id"], item["name"], item["arguments"]) == ("call_1", "f", "{}")
    assert (item["type"], item["status"]) == ("function_call", "completed")
    assert [tree["delta"] for tree in trees if "delta" in tree] == []
    assert [tree["item"]["status"] for tree in trees if "item" in tree] == [
        *("in_progress", "completed")
    ]
    (done,) = [tree for tree in trees if tree["type"].endswith("arguments.done")]
    assert (done["arguments"], done["name"]) == ("{}", "f")


def test_a_failure_is_an_error_before_anything_was_said_and_a_failed_response_after_it() -> None:
    error = UpstreamMalformed("It broke.")
    encoder = RESPONSES.stream_encoder(asked(), "openai_chat")
    assert not encoder.is_cut_on_failure
    (event,) = Splitter().feed(encoder.fail(error, "req_1"))
    assert (event.name, msgspec.json.decode(event.data or b"")["sequence_number"]) == (b"error", 0)
    assert encoder.finish("", USAGE) == encoder.response == b""

    encoder = RESPONSES.stream_encoder(asked(), "openai_chat")
    begun = encoder.encode([StreamEvent(b"", (Delta("start", model="there"),))])
    (event,) = Splitter().feed(encoder.fail(error, "req_1"))
    tree = msgspec.json.decode(event.data or b"")
    assert begun.count(b"event: ") == 2
    assert (tree["type"], tree["sequence_number"]) == ("response.failed", 2)
    assert (tree["response"]["status"], tree["response"]["model"]) == ("failed", "there")
    assert tree["response"]["error"]["code"]
    assert encoder.finish("", USAGE) == b""


def test_a_whole_response_has_thoughts_words_and_calls_in_their_order() -> None:
    answer = Completion(
        raw=b"raw",
        message_id="msg_1",
        model="there",
        text="Yes.",
        tool_calls=(ToolCall("c1", "f", '{"a":1}'), ToolCall("c2", "g", "")),
        stop_reason="tool_use",
        stop_sequence=None,
        usage=Usage(9, 4, 5, 3, 2, 1, service_tier="flex"),
        thinking=(Delta("thinking", "Hm.", signature="s"), Delta("thinking")),
        refusal="No.",
    )
    tree = json.loads(RESPONSES.encode_reply(answer, "anthropic_messages", asked()))

    name = "req_0000000003e8abcdef".removeprefix("req_")
    assert [(item["id"], item["type"]) for item in tree["output"]] == [
        *((f"rs_{name}_0", "reasoning"), (f"rs_{name}_1", "reasoning")),
        *((f"msg_{name}_2", "message"), (f"msg_{name}_3", "message")),
        *((f"fc_{name}_4", "function_call"), (f"fc_{name}_5", "function_call")),
    ]
    assert [item["summary"] for item in tree["output"][:2]] == [
        [{"type": "summary_text", "text": "Hm."}],
        [],
    ]
    (text,), (refusal,) = (item["content"] for item in tree["output"][2:4])
    assert text == {"type": "output_text", "text": "Yes.", "annotations": [], "logprobs": []}
    assert refusal == {"type": "refusal", "refusal": "No."}
    assert [
        (call["call_id"], call["name"], call["arguments"], call["status"])
        for call in tree["output"][4:]
    ] == [("c1", "f", '{"a":1}', "completed"), ("c2", "g", "{}", "completed")]
    assert (tree["id"], tree["model"], tree["status"]) == ("resp_ours", "there", "completed")
    assert (tree["created_at"], tree["service_tier"]) == (0x0000000003E8 // 1000, "flex")
    assert tree["usage"] == {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 5},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 1},
        "total_tokens": 13,
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "end"),
        ({"status": "incomplete"}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "unheard_of"}}, "length"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
        ),
    ],
)
def test_why_a_response_ended_is_read_as_the_upstream_meant_it(
    fields: dict[str, Any], reason: str
) -> None:
    def read(*output: dict[str, Any]) -> Completion:
        tree = {"object": "response", "status": "completed", "output": output} | fields
        return RESPONSES.decode_reply(json.dumps(tree).encode())

    def part(kind: str) -> dict[str, Any]:
        key = "refusal" if kind == "refusal" else "text"
        return {"type": "message", "content": [{"type": kind, key: each} for each in ("a", "b")]}

    plain = read(part("output_text"), {"type": "message", "content": "x"})
    call = {"type": "function_call", "call_id": "c", "name": "f"}
    called = read(call)
    refused = read(part("refusal"), call)

    assert (plain.text, plain.refusal, plain.stop_reason) == ("ab", "", reason)
    assert (plain.message_id, plain.model, plain.stop_sequence) == ("", "", None)
    assert plain.usage.estimated
    assert called.tool_calls == (ToolCall("c", "f", ""),)
    assert called.stop_reason == ("tool_use" if reason == "end" else reason)
    assert (refused.text, refused.refusal, refused.stop_reason) == ("", "ab", "content_filter")


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_response_that_failed_is_no_answer(status: str) -> None:
    with pytest.raises(UpstreamFailed):
        RESPONSES.decode_reply(
            json.dumps({"object": "response", "status": status, "output": []}).encode()
        )


@pytest.mark.parametrize("missing", ["call_id", "name"])
def test_a_call_in_a_response_that_names_nothing_is_no_answer(missing: str) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    tree = {"object": "response", "output": [call | {missing: ""}]}
    with pytest.raises(UpstreamMalformed):
        RESPONSES.decode_reply(json.dumps(tree).encode())


def test_a_response_was_made_when_its_request_came() -> None:
    """The time is in the request's id: twelve digits of milliseconds."""
    request = structs.replace(asked(), request_id="req_f19b3c8d4e5aabcdef")
    answer = RESPONSES.decode_reply(b'{"object":"response","output":[]}')
    tree = json.loads(RESPONSES.encode_reply(answer, "openai_chat", request))
    assert tree["created_at"] == 0xF19B3C8D4E5A // 1000
