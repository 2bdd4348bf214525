"""Answers whose text comes in several blocks: whole ones and streams, in each dialect."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gateway.dialects.registry import DIALECTS
from gateway.types import DialectName, StreamEvent
from gateway.veiling.rewriting import Lift
from tests.gateway.veiling.test_output_scan import event


Json = dict[str, Any]
Blocks = Sequence[Sequence[str]]
"""Of each block the pieces in which it comes."""
CITED = {"type": "char_location", "document_index": 0, "document_title": "rivers"}


def in_messages(blocks: Blocks, between: Sequence[bytes] = ()) -> list[bytes]:
    message = {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1, "output_tokens": 1}}
    raw = [event("message_start", message=message)]
    for index, pieces in enumerate(blocks):
        opening = {"type": "text", "text": "", "citations": []}
        raw.append(event("content_block_start", index=index, content_block=opening))
        citation = {"type": "citations_delta", "citation": CITED}
        raw.append(event("content_block_delta", index=index, delta=citation))
        for piece in pieces:
            delta = {"type": "text_delta", "text": piece}
            raw.append(event("content_block_delta", index=index, delta=delta))
        raw.append(event("content_block_stop", index=index))
        raw += between if index < len(blocks) - 1 else ()
    end = event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 9})
    return [*raw, end, event("message_stop")]


def message(texts: Sequence[str], between: Sequence[Json] = ()) -> Json:
    content: list[Json] = []
    for text in texts:
        content += [*(between if content else ()), {"type": "text", "text": text}]
    return {"type": "message", "content": content, "stop_reason": "end_turn"}


def part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": []}


def item(texts: Sequence[str]) -> Json:
    parts = [part(text) for text in texts]
    return {"type": "message", "id": "msg", "role": "assistant", "content": parts}


def response(output: list[Json]) -> Json:
    return {"id": "r", "object": "response", "model": "m", "status": "completed", "output": output}


def in_parts(blocks: Blocks) -> list[bytes]:
    """One message of several parts."""
    texts = ["".join(pieces) for pieces in blocks]
    raw = [
        event("response.created", response={**response([]), "status": "in_progress"}),
        event("response.output_item.added", output_index=0, item=item([])),
    ]
    for index, pieces in enumerate(blocks):
        raw += _part(0, index, pieces)
    done = event("response.output_item.done", output_index=0, item=item(texts))
    return [*raw, done, event("response.completed", response=response([item(texts)]))]


def in_items(blocks: Blocks) -> list[bytes]:
    """Several messages of one part each."""
    raw = [event("response.created", response={**response([]), "status": "in_progress"})]
    for index, pieces in enumerate(blocks):
        raw.append(event("response.output_item.added", output_index=index, item=item([])))
        raw += _part(index, 0, pieces)
        whole = item(["".join(pieces)])
        raw.append(event("response.output_item.done", output_index=index, item=whole))
    items = [item(["".join(pieces)]) for pieces in blocks]
    return [*raw, event("response.completed", response=response(items))]


def _part(output_index: int, content_index: int, pieces: Sequence[str]) -> list[bytes]:
    place = {"item_id": "msg", "output_index": output_index, "content_index": content_index}
    text = "".join(pieces)
    return [
        event("response.content_part.added", **place, part=part("")),
        *(event("response.output_text.delta", **place, delta=piece) for piece in pieces),
        event("response.output_text.done", **place, text=text),
        event("response.content_part.done", **place, part=part(text)),
    ]


STREAMED: dict[str, tuple[DialectName, Callable[[Blocks], list[bytes]]]] = {
    "messages": ("anthropic_messages", in_messages),
    "parts": ("openai_responses", in_parts),
    "items": ("openai_responses", in_items),
}
WHOLE: dict[str, Callable[[Sequence[str]], Json]] = {
    "messages": message,
    "parts": lambda texts: response([item(texts)]),
    "items": lambda texts: response([item([text]) for text in texts]),
    "chat": lambda texts: {
        "choices": [{"message": {"content": [{"type": "text", "text": t} for t in texts]}}]
    },
}


def lifted(shape: str, lift: Lift, blocks: Blocks) -> list[StreamEvent]:
    dialect, made = STREAMED[shape]
    return through(dialect, lift, made(blocks))


def through(dialect: DialectName, lift: Lift, raw: Sequence[bytes]) -> list[StreamEvent]:
    return [out for batch in each_through(dialect, lift, raw) for out in batch]


def each_through(dialect: DialectName, lift: Lift, raw: Sequence[bytes]) -> list[list[StreamEvent]]:
    """What comes of each event."""
    decoder = DIALECTS[dialect].stream_decoder()
    return [[out for found in decoder.feed(each) for out in lift.events([found])] for each in raw]


def trees(events: Sequence[StreamEvent]) -> list[Json]:
    return [msgspec.json.decode(each.raw.partition(b"data:")[2]) for each in events]


def told(events: Sequence[StreamEvent], count: int) -> list[str]:
    """What each block says in the bytes; nothing is said of a block that is not open."""
    said = [""] * count
    is_open: set[int] = set()
    for tree in trees(events):
        kind, place = tree["type"], tree.get("index", 0)
        place += tree.get("output_index", 0) + tree.get("content_index", 0)
        if kind in {"content_block_start", "response.content_part.added"}:
            assert place == max(is_open, default=place - 1) + 1
            is_open = {place}
            said[place] += tree.get("content_block", {}).get("text", "")
        elif kind in {"content_block_delta", "response.output_text.delta"}:
            assert place in is_open
            delta = tree["delta"]
            said[place] += delta if isinstance(delta, str) else delta.get("text", "")
        elif kind in {"response.output_text.done", "response.content_part.done"}:
            assert said[place] == tree.get("part", tree)["text"]
    return said


def repeated(events: Sequence[StreamEvent]) -> list[str]:
    """The blocks of a response as its last event says them."""
    return texts_of(trees(events)[-1]["response"])


def texts_of(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        if tree.get("type") in {"text", "output_text"}:
            return [tree["text"]]
        return [text for value in tree.values() for text in texts_of(value)]
    return [text for each in tree for text in texts_of(each)] if isinstance(tree, list) else []
