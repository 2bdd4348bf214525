"""Streams made to be dear: what an upstream sends costs as much as it is long, and no more."""

import json
import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from gateway.dialects.registry import DIALECTS
from gateway.types import ChatRequest, DialectName
from tests.gateway.dialects.samples import charged, chat, messages, sse


DONE = b"data: [DONE]\n\n"
RESPONSE_ASKED = DIALECTS["openai_responses"].decode_request(
    b'{"model":"m","input":"Hi","stream":true}', "req_1"
)
CALLERS = [chat(stream=True), messages(stream=True), RESPONSE_ASKED]


def chunk(*calls: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"tool_calls": list(calls)}, "finish_reason": finish}
    tree = {"id": "c", "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(tree).encode() + b"\n\n"


def begun(index: int) -> dict[str, Any]:
    return {"index": index, "id": f"call_{index}", "function": {"name": "f", "arguments": ""}}


def argued(index: int, arguments: str) -> dict[str, Any]:
    return {"index": index, "function": {"arguments": arguments}}


def many_calls(count: int) -> bytes:
    """All of them begin before the first is told what to do."""
    return b"".join(
        [
            *(chunk(begun(index)) for index in range(count)),
            *(chunk(argued(index, "{}")) for index in range(count)),
            chunk(finish="tool_calls"),
            DONE,
        ]
    )


def many_blocks(count: int) -> bytes:
    tool = {"type": "tool_use", "name": "f", "input": {}}
    start = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    return b"".join(
        [
            sse("message_start", message=start | {"usage": {"input_tokens": 1}}),
            *(
                sse("content_block_start", index=at, content_block=tool | {"id": f"toolu_{at}"})
                for at in range(count)
            ),
            *(
                sse(
                    "content_block_delta",
                    index=at,
                    delta={"type": "input_json_delta", "partial_json": "{}"},
                )
                for at in range(count)
            ),
            sse("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 1}),
            sse("message_stop"),
        ]
    )


def crossed(source: DialectName, request: ChatRequest, stream: bytes) -> bytes:
    encoder = DIALECTS[request.dialect].stream_encoder(request, source)
    events = DIALECTS[source].stream_decoder().feed(stream)
    return encoder.encode(events) + encoder.finish("", charged(events))


def lines_run(work: Callable[[], object]) -> int:
    """Lines of ours that ran: no clock tells how much was done."""
    count = 0

    def note(frame: FrameType, what: str, _: object) -> Any:
        nonlocal count
        if "/gateway/dialects/" not in frame.f_code.co_filename:
            return None
        count += what == "line"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("request_", CALLERS, ids=lambda each: each.dialect)
@pytest.mark.parametrize(
    ("source", "stream"), [("openai_chat", many_calls), ("anthropic_messages", many_blocks)]
)
def test_twice_as_many_calls_are_twice_as_much_work(
    source: DialectName, stream: Callable[[int], bytes], request_: ChatRequest
) -> None:
    """A hundred thousand calls held a worker up for minutes, and all that it served."""
    once, twice = (
        lines_run(partial(crossed, source, request_, stream(count))) for count in (200, 400)
    )
    assert once > 200
    assert twice < 2.2 * once


@pytest.mark.parametrize("is_eager", [True, False])
def test_blanks_before_the_arguments_of_a_call_are_not_kept(*, is_eager: bool) -> None:
    """A model that is held to JSON may say nothing else until it is stopped."""
    blanks = [chunk(argued(0, "  \n\t\r")) for _ in range(50)]
    stream = [chunk(begun(0)), *blanks, chunk(argued(0, ' {"a": 1')), chunk(argued(0, " }"))]
    asked = messages(
        stream=True, tools=[{"name": "f", "input_schema": {}, "eager_input_streaming": is_eager}]
    )
    told = crossed("openai_chat", asked, b"".join([*stream, chunk(finish="stop"), DONE]))
    pieces = [
        json.loads(line[6:])["delta"]["partial_json"]
        for line in told.split(b"\n")
        if b"partial_json" in line
    ]
    assert pieces == (['{"a": 1', " }"] if is_eager else ['{"a": 1 }'])


@pytest.mark.parametrize("said", [["\u00a0", "{}"], ["[", "1]"], [" ", "x{", "}"]])
def test_what_is_no_object_is_told_as_one_in_one_piece(said: list[str]) -> None:
    stream = [chunk(begun(0)), *(chunk(argued(0, each)) for each in said)]
    told = crossed(
        "openai_chat", messages(stream=True), b"".join([*stream, chunk(finish="stop"), DONE])
    )
    (piece,) = [line[6:] for line in told.split(b"\n") if b"partial_json" in line]
    (words,) = json.loads(json.loads(piece)["delta"]["partial_json"]).values()
    assert words == "".join(said).lstrip(" ")
