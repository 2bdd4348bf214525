"""Every kind of event, answer and request that the vendors' types know, in both directions.

What comes from an upstream is made from the types themselves, kind by kind, so that nobody has to
think of them; what goes to a caller is validated strictly, and unknown fields count as flaws.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from anthropic.types import (
    ContentBlock,
    ContentBlockParam,
    Message,
    MessageCreateParams,
    RawMessageStreamEvent,
    ToolUnionParam,
)
from anthropic.types.beta import BetaContentBlockParam, BetaToolUnionParam
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionContentPartParam,
    ChatCompletionMessageParam,
    ChatCompletionToolUnionParam,
)
from openai.types.chat.chat_completion import Choice as WholeChoice
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses import (
    Response,
    ResponseInputItemParam,
    ResponseOutputItem,
    ResponseStreamEvent,
    ToolParam,
)
from openai.types.responses.response_create_params import ResponseCreateParams
from openai.types.responses.response_input_message_content_list_param import (
    ResponseInputContentParam,
)
from pydantic import TypeAdapter

from gateway.dialects.registry import DIALECTS
from gateway.errors import FeatureUnsupported, RequestInvalid, StreamBroken
from gateway.types import ChatRequest, DialectName, StreamEvent
from tests.conformance.probes import BASES, NAMES
from tests.conformance.strict_types import event_flaws, flaws, whole_flaws
from tests.conformance.vendor_samples import fields_of, members, sample, samples
from tests.gateway.dialects.samples import (
    MESSAGE_START,
    block_start,
    call_piece,
    charged,
    chunk,
    sse,
)
from tests.upstream_responses import openai_response_events
from tests.upstreams import Answer


Json = dict[str, Any]
SOURCES: tuple[DialectName, ...] = tuple(NAMES)
PAIRS = list(itertools.product(SOURCES, SOURCES))
FAILURES = {"error", "response.failed"}


def chat_chunks() -> Iterator[Json]:
    """A chunk with each field of a delta, each reason to finish and each field beside choices."""
    base = sample(ChatCompletionChunk)
    for name, annotation in fields_of(ChoiceDelta):
        yield base | {"choices": [sample(Choice) | {"delta": {name: sample(annotation)}}]}
    for name, annotation in fields_of(Choice):
        for value in _values(annotation) if name != "delta" else ():
            yield base | {"choices": [sample(Choice) | {name: value}]}
    for name, annotation in fields_of(ChatCompletionChunk):
        for value in _values(annotation) if name not in base else ():
            yield base | {name: value}


def _values(annotation: object) -> list[Any]:
    """Every word of a literal, a sample of everything else."""
    return [value for kind in members(annotation) for value in sample_values(kind)]


def sample_values(kind: Any) -> list[Any]:
    words = getattr(kind, "__args__", ())
    is_literal = str(kind).startswith("typing.Literal")
    return list(words) if is_literal else [] if kind is type(None) else [sample(kind)]


def of_event(dialect: DialectName, tree: Json) -> bytes:
    data = json.dumps(tree).encode()
    if dialect == "openai_chat":
        return b"data: " + data + b"\n\n"
    return b"event: %b\ndata: %b\n\n" % (tree["type"].encode(), data)


RESPONSE = openai_response_events(Answer(text="one two"), {"model": "m"})
FRAMES: Mapping[DialectName, tuple[bytes, bytes]] = {
    "openai_chat": (
        chunk({"role": "assistant", "content": ""})
        + chunk(call_piece(1, "", id="call_a", type="function", name="f")),
        chunk({"content": "x"}) + chunk({}, "stop") + b"data: [DONE]\n\n",
    ),
    "anthropic_messages": (
        MESSAGE_START + block_start(1, type="tool_use", id="toolu_a", name="f", input={}),
        sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
        + sse("message_stop"),
    ),
    "openai_responses": (b"".join(RESPONSE[:2]), RESPONSE[-1]),
}
EVENTS: Mapping[DialectName, list[Json]] = {
    "openai_chat": list(chat_chunks()),
    "anthropic_messages": list(samples(RawMessageStreamEvent)),
    "openai_responses": list(samples(ResponseStreamEvent)),
}


def request_of(dialect: DialectName) -> ChatRequest:
    body = BASES[dialect] | {"stream": True}
    if dialect == "openai_chat":
        body |= {"stream_options": {"include_usage": True}}
    return DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_0000000003e8abcdef")


def carried(source: DialectName, caller: DialectName, stream: bytes) -> bytes:
    """What a caller gets of an upstream's stream: to its end, or to the error in it."""
    decoder = DIALECTS[source].stream_decoder()
    encoder = DIALECTS[caller].stream_encoder(request_of(caller), source)
    events: list[StreamEvent] = decoder.feed(stream)
    sent = b""
    for event in events:
        if any(delta.kind == "error" for delta in event.deltas):
            return sent + encoder.fail(StreamBroken("The upstream failed."), "req_1")
        sent += encoder.encode([event])
    assert events[-1].is_terminal
    return sent + encoder.finish("x-a=1", charged(events))


@pytest.mark.parametrize("source", SOURCES)
def test_a_sample_of_every_kind_of_event_is_one_to_its_vendor(source: DialectName) -> None:
    kinds = set()
    for tree in EVENTS[source]:
        found, (kind,) = event_flaws(source, of_event(source, tree))
        assert found == [], tree
        kinds.add(kind)
    types = {"openai_responses": ResponseStreamEvent, "anthropic_messages": RawMessageStreamEvent}
    assert len(kinds) == (len(members(types[source])) if source in types else 1)


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_every_kind_of_event_reaches_every_caller_as_events_of_his_own_types(
    source: DialectName, caller: DialectName
) -> None:
    head, tail = FRAMES[source]
    for tree in EVENTS[source]:
        found, kinds = event_flaws(
            caller, carried(source, caller, head + of_event(source, tree) + tail)
        )

        assert found == [], tree
        assert sum(kind in ENDS for kind in kinds) == 1, (tree, kinds)
        assert kinds[-1] in ENDS, (tree, kinds)


ENDS = {"[DONE]", "message_stop", "response.completed", "response.incomplete", *FAILURES}


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_event_passes_through_its_own_dialect_byte_for_byte(
    source: DialectName,
) -> None:
    head, tail = FRAMES[source]
    for tree in EVENTS[source]:
        raw = of_event(source, tree)
        kind = tree.get("type", "")
        if kind in {*FAILURES, "message_stop"} or "response" in tree:
            continue  # Told in our words, or given our id.
        assert raw in carried(source, source, head + raw + tail), tree


WHOLE: Mapping[DialectName, tuple[Any, str, Any]] = {
    "anthropic_messages": (Message, "content", ContentBlock),
    "openai_responses": (Response, "output", ResponseOutputItem),
}


def whole_answers(source: DialectName) -> Iterator[Json]:
    """An answer with each kind of what it may hold."""
    if source == "openai_chat":
        base = sample(ChatCompletion)
        for name, annotation in fields_of(WholeChoice):
            for value in _values(annotation):
                yield base | {"choices": [sample(WholeChoice) | {name: value}]}
        return
    answer, place, held = WHOLE[source]
    for each in samples(held):
        yield sample(answer) | {place: [each]}
    for name, annotation in fields_of(answer):
        for value in _values(annotation) if name not in {place, "type", "object"} else ():
            yield sample(answer) | {place: [], name: value}


@pytest.mark.parametrize(("source", "caller"), PAIRS)
def test_every_kind_of_whole_answer_reaches_every_caller_as_one_of_his_own_type(
    source: DialectName, caller: DialectName
) -> None:
    request = request_of(caller)
    for tree in whole_answers(source):
        raw = json.dumps(tree).encode()
        assert whole_flaws(source, raw) == [], tree
        if tree.get("status") in {"failed", "cancelled", "queued", "in_progress"}:
            continue
        completion = DIALECTS[source].decode_reply(raw)
        answer = DIALECTS[caller].encode_reply(completion, source, request)

        assert whole_flaws(caller, answer) == [], tree


def _turn_of(dialect: DialectName, *parts: Any) -> Json:
    place = "input" if dialect == "openai_responses" else "messages"
    return {place: [{"role": "user", "content": list(parts)}]}


HELD: tuple[tuple[DialectName, str, Any], ...] = (
    ("openai_chat", "messages", ChatCompletionMessageParam),
    ("openai_chat", "", ChatCompletionContentPartParam),
    ("openai_chat", "tools", ChatCompletionToolUnionParam),
    ("anthropic_messages", "", ContentBlockParam),
    ("anthropic_messages", "", BetaContentBlockParam),
    ("anthropic_messages", "tools", ToolUnionParam),
    ("anthropic_messages", "tools", BetaToolUnionParam),
    ("openai_responses", "input", ResponseInputItemParam),
    ("openai_responses", "", ResponseInputContentParam),
    ("openai_responses", "tools", ToolParam),
)
"""What a list of a request may hold; no name is for parts of a turn."""
TOPS: Mapping[DialectName, Any] = {
    "openai_chat": CompletionCreateParams,
    "anthropic_messages": MessageCreateParams,
    "openai_responses": ResponseCreateParams,
}


def _requests() -> Iterator[tuple[DialectName, Json]]:
    """A request with each kind of turn, part and tool, and with each field at the top."""
    for dialect, place, union in HELD:
        for kind in members(union):
            held = sample(kind)
            yield dialect, BASES[dialect] | ({place: [held]} if place else _turn_of(dialect, held))
    for dialect, params in TOPS.items():
        for field, annotation in fields_of(members(params)[0]):
            for value in _values(annotation) if field not in BASES[dialect] else ():
                yield dialect, BASES[dialect] | {field: value}


def test_every_kind_of_request_is_read_in_its_own_dialect_or_refused_by_a_rule() -> None:
    refused = []
    for dialect, body in _requests():
        try:
            request = DIALECTS[dialect].decode_request(json.dumps(body).encode(), "req_1")
        except FeatureUnsupported as error:
            refused.append(error.message)
            continue
        except RequestInvalid as error:
            pytest.fail(f"{dialect}: {error.message} {body}")
        assert request.dialect == dialect
    assert refused, "some name what only an upstream holds"
    assert all("(rule 56)" in message for message in refused)


def test_a_flaw_would_be_found() -> None:
    tree = {"type": "content_block_stop", "index": 0, "reason": "none"}
    assert event_flaws("anthropic_messages", of_event("anthropic_messages", tree))[0] == [
        "content_block_stop: RawContentBlockStopEvent.reason: unknown"
    ]
    adapter: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    assert flaws(adapter, b'{"type":"content_block_stop"}') != []
    assert flaws(adapter, b'{"type":"content_block_stop","index":"0"}') != []
