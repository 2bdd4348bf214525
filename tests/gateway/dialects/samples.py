"""Requests, targets and upstream streams that the tests of the dialects share."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from gateway.dialects.registry import DIALECTS
from gateway.price import Price
from gateway.tally import Tally
from gateway.types import ChatRequest, DialectName, StreamEvent, Target, Usage


OPENAI = DIALECTS["openai_chat"]
ANTHROPIC = DIALECTS["anthropic_messages"]

INPUT_ESTIMATE = 17
"""What a request is estimated at where its upstream counts nothing."""

PRICE = Price(
    input_microusd_per_mtok=1,
    output_microusd_per_mtok=1,
    cache_read_microusd_per_mtok=1,
    cache_write_microusd_per_mtok=1,
    cache_write_1h_microusd_per_mtok=1,
    batch_percent=50,
    web_search_microusd=10_000,
    source="test",
    as_of="2026-11-01",
)


def target(
    *capabilities: str, model: str = "upstream-model", parameters: Mapping[str, str] | None = None
) -> Target:
    return Target(
        name="target",
        provider="provider",
        model=model,
        jurisdiction="eu",
        in_house=False,
        tier="mid",
        price=PRICE,
        context_window_tokens=200_000,
        output_tokens_max=8192,
        capabilities=frozenset(capabilities),
        parameters=parameters or {},
    )


def chat(**fields: Any) -> ChatRequest:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]} | fields
    return OPENAI.decode_request(json.dumps(body).encode(), "req_1")


def messages(**fields: Any) -> ChatRequest:
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    return ANTHROPIC.decode_request(json.dumps(body | fields).encode(), "req_1")


def to_anthropic(
    request: ChatRequest, *capabilities: str, **parameters: str
) -> tuple[dict[str, Any], set[str]]:
    chosen = target(*capabilities, parameters=parameters)
    upstream = ANTHROPIC.encode_request(request, chosen, 1000)
    return json.loads(upstream.body), set(upstream.dropped)


def to_openai(
    request: ChatRequest, *capabilities: str, **parameters: str
) -> tuple[dict[str, Any], set[str]]:
    chosen = target(*capabilities, parameters=parameters)
    upstream = OPENAI.encode_request(request, chosen, 1000)
    return json.loads(upstream.body), set(upstream.dropped)


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **fields: Any) -> bytes:
    """One chunk of a chat completion's stream; no choices at all without a delta."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    data = {
        "id": "chatcmpl-77",
        "object": "chat.completion.chunk",
        "created": 1_790_000_000,
        "model": "gpt-x",
        "choices": choices,
    }
    return b"data: " + json.dumps(data | fields).encode() + b"\n\n"


CHAT_USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 7,
    "total_tokens": 57,
    "prompt_tokens_details": {"cached_tokens": 20},
    "completion_tokens_details": {"reasoning_tokens": 3},
}


def call_piece(index: int, arguments: str, **fields: Any) -> dict[str, Any]:
    name = {"name": fields.pop("name")} if "name" in fields else {}
    function = {"arguments": arguments} | name
    return {"tool_calls": [{"index": index, "function": function} | fields]}


CHAT_TEXT_STREAM = (
    chunk({"role": "assistant", "content": ""})
    + chunk({"content": "Grüße "})
    + chunk({"content": "\u2028 world"})
    + chunk({}, "stop")
    + chunk(None, usage=CHAT_USAGE)
    + b"data: [DONE]\n\n"
)

CHAT_TOOL_STREAM = (
    chunk({"role": "assistant", "content": None})
    + chunk({"content": "Let me look."})
    + chunk(call_piece(0, "", id="call_a", type="function", name="weather"))
    + chunk(call_piece(0, '{"city":'))
    + chunk(call_piece(1, "", id="call_b", type="function", name="clock"))
    + chunk(call_piece(0, '"Bonn"}'))
    + chunk({}, "tool_calls")
    + chunk(None, usage=CHAT_USAGE)
    + b"data: [DONE]\n\n"
)


def sse(name: str, **fields: Any) -> bytes:
    """One event of a message's stream."""
    return f"event: {name}\ndata: {json.dumps({'type': name} | fields)}\n\n".encode()


MESSAGE_START = sse(
    "message_start",
    message={
        "id": "msg_42",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 5,
            "output_tokens": 1,
        },
    },
)


def block_start(index: int, **block: Any) -> bytes:
    return sse("content_block_start", index=index, content_block=block)


def block_delta(index: int, **delta: Any) -> bytes:
    return sse("content_block_delta", index=index, delta=delta)


def block_stop(index: int) -> bytes:
    return sse("content_block_stop", index=index)


def message_delta(reason: str, **fields: Any) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None} | fields
    return sse("message_delta", delta=delta, usage={"output_tokens": 12})


MESSAGE_STOP = sse("message_stop")

MESSAGE_TEXT_STREAM = (
    MESSAGE_START
    + block_start(0, type="text", text="")
    + sse("ping")
    + block_delta(0, type="text_delta", text="Grüße ")
    + block_delta(0, type="text_delta", text="\u2028 world")
    + block_stop(0)
    + message_delta("end_turn")
    + MESSAGE_STOP
)

MESSAGE_TOOL_STREAM = (
    MESSAGE_START
    + block_start(0, type="thinking", thinking="", signature="")
    + block_delta(0, type="thinking_delta", thinking="Hm.")
    + block_delta(0, type="signature_delta", signature="c2ln")
    + block_stop(0)
    + block_start(1, type="text", text="")
    + block_delta(1, type="text_delta", text="Let me look.")
    + block_stop(1)
    + block_start(2, type="tool_use", id="toolu_a", name="weather", input={})
    + block_delta(2, type="input_json_delta", partial_json="")
    + block_delta(2, type="input_json_delta", partial_json='{"city":')
    + block_delta(2, type="input_json_delta", partial_json='"Bonn"}')
    + block_stop(2)
    + block_start(3, type="tool_use", id="toolu_b", name="clock", input={})
    + block_stop(3)
    + message_delta("tool_use")
    + MESSAGE_STOP
)


def decoded(dialect: DialectName, stream: bytes) -> list[StreamEvent]:
    decoder = DIALECTS[dialect].stream_decoder()
    return decoder.feed(stream) + decoder.close()


def recoded(
    source: DialectName, stream: bytes, request: ChatRequest, comment: str = "x-gatewright-test=1"
) -> bytes:
    """A whole upstream stream as the caller of `request` gets it."""
    encoder = DIALECTS[request.dialect].stream_encoder(request, source)
    events = decoded(source, stream)
    return encoder.encode(events) + encoder.finish(comment, charged(events))


def charged(events: list[StreamEvent]) -> Usage:
    """What the relay would charge for these events."""
    tally = Tally(0)
    tally.add(events)
    return tally.usage(INPUT_ESTIMATE)


def exhaust(value: object) -> None:
    """Walk a validated value to its leaves: pydantic checks an `Iterable` only as it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            exhaust(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for inner in value:
            exhaust(inner)
