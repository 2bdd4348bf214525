"""Every kind of event, in a stream where it may stand, as the official SDKs put it together.

`test_vendor_types` gives events one by one, also where none may stand: most of those end a stream
that is translated. Here each has its place, with all that its type may hold and with the least.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

import pytest
from anthropic.types import MessageDeltaUsage
from openai.types.chat import ChatCompletionChunk
from openai.types.chat.chat_completion_chunk import Choice, ChoiceDelta, ChoiceDeltaToolCall
from openai.types.responses import ResponseOutputItem

from gateway.types import DialectName
from tests.conformance.put_together import Reader
from tests.conformance.strict_types import event_flaws
from tests.conformance.test_vendor_types import (
    ENDS,
    EVENTS,
    FAILURES,
    RESPONSE,
    SOURCES,
    Json,
    carried,
    of_event,
)
from tests.conformance.vendor_samples import fields_of, is_shaped, members, sample
from tests.gateway.dialects.samples import MESSAGE_START, chunk, sse


READER = Reader()
DEPTH_MAX = 4
DELTAS: Mapping[str, tuple[str, ...]] = {
    "text": ("text_delta", "citations_delta"),
    "thinking": ("thinking_delta", "signature_delta"),
    "tool_use": ("input_json_delta",),
    "server_tool_use": ("input_json_delta",),
}
"""Which kinds of deltas a kind of block has."""
CALL: Json = {"index": 0, "id": "call_a", "function": {"name": "f", "arguments": "{}"}}
ENDED = chunk({}, "stop") + b"data: [DONE]\n\n"

Make = Callable[[Any], Any]


def full(annotation: object, depth: int = 0) -> Any:
    """All that a type may hold, of each union the first kind that is something."""
    kinds = [kind for kind in members(annotation) if kind not in {type(None), None}]
    kind = kinds[0] if kinds else type(None)
    origin = get_origin(kind)
    if origin is list:
        return [full(get_args(kind)[0], depth + 1)] if depth < DEPTH_MAX else []
    if not is_shaped(kind) or origin is Literal:
        return sample(kind)
    if depth >= DEPTH_MAX:
        return sample(kind)
    return {name: full(each, depth + 1) for name, each in fields_of(kind)}


def chats(make: Make) -> Iterator[bytes]:
    """A chunk with each field, or with all of them; its choice and its call are the first ones."""
    for tree in [*EVENTS["openai_chat"], *_chunks(make)]:
        told = json.loads(json.dumps(tree))
        for choice in told["choices"]:
            choice["index"] = 0
            for call in choice["delta"].get("tool_calls") or ():
                call.update(CALL)
        opened = chunk({"role": "assistant", "content": ""})
        yield opened + of_event("openai_chat", told) + ENDED


def _chunks(make: Make) -> Iterator[Json]:
    base = sample(ChatCompletionChunk)
    for field, annotation in fields_of(ChoiceDelta):
        delta = {field: make(annotation)}
        yield base | {"choices": [sample(Choice) | {"delta": delta}]}
    delta = {"tool_calls": [make(ChoiceDeltaToolCall)]}
    yield make(ChatCompletionChunk) | {"choices": [make(Choice) | {"delta": delta}]}


def messages(make: Make) -> Iterator[bytes]:
    """Each kind of block, by itself, with each of its deltas and with all of them."""
    ended = sse("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
    ended += sse("message_stop")
    events = [tree | {"index": 0} for tree in EVENTS["anthropic_messages"] if "index" in tree]
    for start in (tree for tree in events if tree["type"] == "content_block_start"):
        kind = start["content_block"]["type"]
        deltas = [
            tree for tree in events if tree.get("delta", {}).get("type") in DELTAS.get(kind, ())
        ]
        for some in ([], *([tree] for tree in deltas), deltas):
            told = [of_event("anthropic_messages", _with_json(tree)) for tree in (start, *some)]
            yield MESSAGE_START + b"".join(told) + sse("content_block_stop", index=0) + ended
    for tree in EVENTS["anthropic_messages"]:
        if tree["type"] == "message_delta":
            usage = make(MessageDeltaUsage) | tree["usage"]
            for said in (tree, tree | {"usage": usage}):
                yield MESSAGE_START + of_event("anthropic_messages", said) + sse("message_stop")


def _with_json(tree: Json) -> Json:
    if tree.get("delta", {}).get("type") != "input_json_delta":
        return tree
    return tree | {"delta": {"type": "input_json_delta", "partial_json": "{}"}}


def responses(make: Make) -> Iterator[bytes]:
    """Each kind of item, added, done and in the response that it is of."""
    whole = json.loads(RESPONSE[-1].partition(b"data: ")[2])
    for kind in members(ResponseOutputItem):
        item = make(kind) | {"id": "x"}
        added = {"type": "response.output_item.added", "output_index": 0, "item": item}
        added |= {"sequence_number": 1}
        told = [added, added | {"type": "response.output_item.done"}]
        told.append(whole | {"response": whole["response"] | {"output": [item]}})
        yield b"".join([*RESPONSE[:2], *(of_event("openai_responses", each) for each in told)])


STREAMS: Mapping[DialectName, Callable[[Make], Iterator[bytes]]] = {
    "openai_chat": chats,
    "anthropic_messages": messages,
    "openai_responses": responses,
}


@pytest.mark.parametrize("make", [sample, full], ids=["least", "all"])
@pytest.mark.parametrize("caller", SOURCES)
@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_of_event_in_its_place_is_shown_by_every_sdk(
    source: DialectName, caller: DialectName, make: Make
) -> None:
    streams = list(STREAMS[source](make))
    assert len(streams) > 20
    for stream in streams:
        told = carried(source, caller, stream)
        found, kinds = event_flaws(caller, told)

        assert found == [], stream
        assert kinds[-1] in ENDS, stream
        assert not FAILURES & set(kinds), stream
        assert READER.streamed(caller, [told]), stream
