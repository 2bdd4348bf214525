"""A chat's stream as its caller gets it: chunks made of another dialect's, or passed on as such."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects.openai_chat.stream_out import PING
from gateway.dialects.registry import DIALECTS
from gateway.dialects.sse import Splitter
from gateway.errors import UpstreamMalformed
from gateway.types import Delta, DialectName, StreamEvent, Usage
from tests.conformance.strict_types import EVENTS, flaws
from tests.gateway.dialects.samples import (
    ANTHROPIC,
    MESSAGE_TEXT_STREAM,
    OPENAI,
    chat,
    recoded,
    target,
)
from tests.gateway.dialects.test_responses_written import KINDS, WORDS, events_of


USAGE = Usage(input_tokens=5, output_tokens=3, service_tier="priority")
REASONS = {
    "end": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "pause": "length",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "unheard_of": "stop",
}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def chunk(*choices: dict[str, Any], **more: Any) -> bytes:
    return b"data: " + json.dumps(HEAD | {"choices": choices} | more).encode() + b"\n\n"


def trees_of(stream: bytes) -> list[dict[str, Any]]:
    events = Splitter().feed(stream)
    assert events[-1].data == b"[DONE]"
    said = [each.data for each in events[:-1] if each.data is not None]
    assert [flaws(EVENTS["openai_chat"], each) for each in said] == [[]] * len(said)
    return [json.loads(each) for each in said]


def asked(*, wants_usage: bool = False, **fields: Any) -> Any:
    return chat(stream=True, stream_options={"include_usage": wants_usage}, **fields)


@settings(max_examples=60)
@given(
    items=st.lists(st.tuples(st.sampled_from([*KINDS]), st.lists(WORDS, max_size=3)), max_size=5),
    reason=st.sampled_from([*REASONS]),
    has_start=st.booleans(),
    wants_usage=st.booleans(),
    at_once=st.booleans(),
)
def test_chunks_say_all_that_another_dialects_stream_did(
    items: list[tuple[str, list[str]]],
    reason: str,
    *,
    has_start: bool,
    wants_usage: bool,
    at_once: bool,
) -> None:
    deltas = [Delta("start", message_id="msg_7", model="there")] if has_start else []
    deltas += [*events_of(items), Delta("stop", stop_reason=reason)]
    encoder = OPENAI.stream_encoder(asked(wants_usage=wants_usage), "anthropic_messages")
    events = [StreamEvent(b"", (delta,)) for delta in deltas]
    batches = [events] if at_once else [[event] for event in events]
    sent = b"".join([encoder.encode(batch) for batch in batches])
    ending = encoder.finish("x-cost=1", USAGE)

    trees = trees_of(sent + ending)
    identity, model = ("chatcmpl-7", "there") if has_start else (trees[0]["id"], "m")
    for tree in trees:
        assert (tree["id"], tree["model"], tree["created"]) == (identity, model, 0)
        assert tree["object"] == "chat.completion.chunk"
    assert identity.startswith("chatcmpl-")
    choices = [tree["choices"][0] for tree in trees if tree["choices"]]
    assert {each["index"] for each in choices} == {0}
    assert choices[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [each["finish_reason"] for each in choices] == [None] * (len(choices) - 1) + [
        REASONS[reason]
    ]
    said = [each["delta"] for each in choices[1:]]
    assert "".join(each.get("content", "") for each in said) == spoken(items, "text")
    assert "".join(each.get("reasoning_content", "") for each in said) == spoken(items, "thinking")
    calls: dict[int, list[dict[str, Any]]] = {}
    for each in said:
        for call in each.get("tool_calls", ()):
            calls.setdefault(call["index"], []).append(call)
    assert {
        at: (
            mine[0]["id"],
            mine[0]["type"],
            mine[0]["function"]["name"],
            "".join(call["function"]["arguments"] for call in mine),
        )
        for at, mine in calls.items()
    } == {
        at: (f"call_{at}", "function", f"f{at}", "".join(pieces) or "{}")
        for at, (kind, pieces) in enumerate(items)
        if kind == "call"
    }
    counted = [tree for tree in trees if not tree["choices"]]
    assert [tree["usage"]["total_tokens"] for tree in counted] == [8] * wants_usage
    assert [tree["service_tier"] for tree in counted] == ["priority"] * wants_usage
    assert ending.endswith(b": x-cost=1\n\ndata: [DONE]\n\n")


def spoken(items: list[tuple[str, list[str]]], kind: str) -> str:
    return "".join("".join(pieces) for each, pieces in items if each == kind)


def signed(index: int, **block: str) -> dict[str, Any]:
    return {"thinking_blocks": [{"index": index, **block}]}


def test_refusals_and_signed_thoughts_have_words_of_their_own() -> None:
    encoder = OPENAI.stream_encoder(asked(), "anthropic_messages")
    deltas = (
        *(Delta("thinking", "Hm"), Delta("thinking", "m."), Delta("thinking", signature="s")),
        *(Delta("thinking"), Delta("thinking", "Next"), Delta("thinking", redacted="r")),
        *(Delta("thinking", signature="t"), Delta("refusal", "No."), Delta("opaque", "x")),
    )
    sent = encoder.encode([StreamEvent(b"", deltas)]) + encoder.finish("", Usage())

    said = [tree["choices"][0]["delta"] for tree in trees_of(sent)][1:]
    assert said == [
        *({"reasoning_content": "Hm"}, {"reasoning_content": "m."}),
        signed(0, type="thinking", thinking="Hmm.", signature="s"),
        {"reasoning_content": "Next"},
        signed(1, type="redacted_thinking", data="r"),
        signed(2, type="thinking", thinking="Next", signature="t"),
        {"refusal": "No."},
    ]


def test_a_stream_without_a_word_has_a_beginning_and_an_end() -> None:
    encoder = OPENAI.stream_encoder(asked(wants_usage=True), "anthropic_messages")
    first, counted = trees_of(encoder.finish("", Usage(service_tier="batch")))

    assert first["choices"][0]["delta"]["role"] == "assistant"
    assert (counted["choices"], counted["id"]) == ([], first["id"])
    # A tier that official clients know no word for.
    assert "service_tier" not in counted
    assert encoder.ping() == PING


@pytest.mark.parametrize("source", ["openai_chat", "anthropic_messages"])
def test_nothing_but_an_error_follows_what_failed(source: Any) -> None:
    encoder = OPENAI.stream_encoder(asked(wants_usage=True), source)
    stopped = chunk({"index": 0, "delta": {}, "finish_reason": "stop"})
    encoder.encode(OPENAI.stream_decoder().feed(stopped))
    (event,) = Splitter().feed(encoder.fail(UpstreamMalformed("It broke."), "req_1"))

    assert json.loads(event.data or b"")["error"]["code"] == "upstream_malformed"
    assert encoder.finish("x-cost=1", Usage(estimated=True)) == b""
    assert (encoder.is_cut_on_failure, encoder.response) == (True, b"")


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("wants_usage", [False, True])
def test_an_upstreams_chunks_are_passed_on_but_for_what_only_we_asked_for(
    *, wants_usage: bool, at_once: bool
) -> None:
    said = chunk({"index": 0, "delta": {"content": "Hi"}, "finish_reason": None})
    last = chunk({"index": 0, "delta": {"content": "!"}, "finish_reason": "stop"})
    counted = chunk(usage={"prompt_tokens": 5, "completion_tokens": 3})
    decoder = OPENAI.stream_decoder()
    batches = [decoder.feed(each) for each in (said, said, last, counted, b"data: [DONE]\n\n")]
    if at_once:
        batches = [[event for batch in batches for event in batch]]
    encoder = OPENAI.stream_encoder(asked(wants_usage=wants_usage), "openai_chat")
    sent = b"".join([encoder.encode(batch) for batch in batches])

    # A piece that ends the answer waits, words and all: what comes behind it waits with it.
    assert sent == said + said
    ending = encoder.finish("x-cost=1", USAGE)
    told = counted if wants_usage else b""
    assert ending == last + told + b": x-cost=1\n\ndata: [DONE]\n\n"


@pytest.mark.parametrize("wants_usage", [False, True])
def test_usage_is_told_where_the_upstream_told_none_and_somebody_asked(
    *, wants_usage: bool
) -> None:
    said = chunk({"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"})
    encoder = OPENAI.stream_encoder(asked(wants_usage=wants_usage), "openai_chat")
    encoder.encode(OPENAI.stream_decoder().feed(said))
    ending = encoder.finish("", Usage(input_tokens=5, output_tokens=3, estimated=True))

    first, *rest = trees_of(ending)
    assert first["choices"][0]["delta"] == {"content": "Hi"}
    assert [tree["usage"]["total_tokens"] for tree in rest] == [8] * wants_usage
    assert [(tree["id"], tree["choices"]) for tree in rest] == [("chatcmpl-1", [])] * wants_usage


def test_a_renamed_tool_is_called_as_its_caller_calls_it() -> None:
    tool = {"type": "function", "function": {"name": "a tool!", "parameters": {}}}
    request = chat(stream=True, tools=[tool])
    renamed = json.loads(
        DIALECTS["anthropic_messages"].encode_request(request, target("tools"), 100).body
    )["tools"][0]["name"]
    encoder = OPENAI.stream_encoder(request, "anthropic_messages")
    sent = encoder.encode([StreamEvent(b"", (Delta("tool_start", tool_id="c", name=renamed),))])

    call, bare = [
        call
        for tree in trees_of(sent + encoder.finish("", Usage()))
        for choice in tree["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert renamed != "a tool!"
    assert call["function"]["name"] == "a tool!"
    assert bare["function"] == {"arguments": "{}"}, "whatever nobody said of its end"


@pytest.mark.parametrize("dialect", ["openai_chat", "openai_completions"])
def test_an_answer_of_another_dialect_was_made_when_its_request_came(dialect: DialectName) -> None:
    """Clients tell it as a date; the time is in the request's id: twelve digits of milliseconds."""
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    if dialect == "openai_completions":
        body = {"model": "m", "prompt": "Hi", "stream": True}
    spoken = DIALECTS[dialect]
    request = spoken.decode_request(json.dumps(body).encode(), "req_f19b3c8d4e5aabcdef")
    streamed = recoded("anthropic_messages", MESSAGE_TEXT_STREAM, request)
    datas = [event.data for event in Splitter().feed(streamed) if event.data]
    whole = json.dumps({"type": "message", "content": [{"type": "text", "text": "Hi"}]}).encode()
    answer = spoken.encode_reply(ANTHROPIC.decode_reply(whole), "anthropic_messages", request)
    told = [json.loads(data)["created"] for data in [answer, *datas] if data != b"[DONE]"]
    assert set(told) == {0xF19B3C8D4E5A // 1000}
