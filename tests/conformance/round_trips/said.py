"""One answer as each upstream says it, whole and in pieces, and what a client hears of it."""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from tests.running_gateway import Upstreams
from tests.upstreams import Answer, RecordedRequest, RecordingUpstream


Json = dict[str, Any]
PIECE = 7
"""Letters in a piece of a stream: words and arguments are cut anywhere."""


class Call(Struct, frozen=True):
    name: str
    arguments: Json
    tool_id: str = "call_1"


class Likely(Struct, frozen=True):
    """A token, its probability, and those that were nearly said instead."""

    token: str
    logprob: float
    others: tuple[tuple[str, float], ...] = ()


class Said(Struct, frozen=True, kw_only=True):
    """An answer; `end` is why it ended: end, length, stop, tool or filter."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    seal: str = ""
    """What its vendor signs or seals its thought with; only where somebody is to send it back."""
    refusal: str = ""
    end: str = "end"
    stopped_at: str = ""
    input_tokens: int = 11
    cached_tokens: int = 0
    output_tokens: int = 7
    reasoning_tokens: int = 0
    likely: tuple[Likely, ...] = ()


class Speaking(RecordingUpstream):
    """An upstream that gives one answer, in the dialect and the form that it is asked for."""

    said = Said()

    def answer_to(self, request: RecordedRequest) -> Answer:
        return answer_saying(self.said, request)


def answer_saying(said: Said, request: RecordedRequest) -> Answer:
    """In the dialect and the form of a request."""
    kind = request.path.partition("?")[0].rpartition("/v1/")[2]
    whole, events = _MAKERS[kind](said, request.json)
    if request.json.get("stream"):
        return Answer(events=tuple(events))
    return Answer(body=_encoded(whole))


class SpeakingUpstreams(Upstreams):
    """The three of a gateway, and what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.everyone = tuple(Speaking() for _ in range(3))
        self.engine, self.anthropic, self.openai = self.everyone

    def say(self, said: Said) -> None:
        """From now on, with nothing recorded."""
        for upstream in self.everyone:
            upstream.forget()
            upstream.said = said

    @property
    def calls(self) -> list[RecordedRequest]:
        return [call for upstream in self.everyone for call in upstream.calls]


def _encoded(tree: object) -> bytes:
    return json.dumps(tree, ensure_ascii=False).encode()


def _pieces(text: str) -> list[str]:
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def _arguments(call: Call) -> str:
    return json.dumps(call.arguments, ensure_ascii=False)


# Chat completions


_FINISH = {"end": "stop", "length": "length", "stop": "stop", "tool": "tool_calls"}
_FINISH |= {"filter": "content_filter"}


def _likely(said: Said) -> list[Json]:
    def one(token: str, logprob: float) -> Json:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}

    return [
        one(each.token, each.logprob) | {"top_logprobs": [one(*other) for other in each.others]}
        for each in said.likely
    ]


def _chat(said: Said, _: Json) -> tuple[Json, list[bytes]]:
    message: Json = {"role": "assistant", "content": said.text or None, "refusal": None}
    line: list[Json] = [{"role": "assistant", "content": ""}]
    if said.thought:
        message["reasoning_content"] = said.thought
        line += [{"reasoning_content": piece} for piece in _pieces(said.thought)]
    if said.refusal:
        message["refusal"] = said.refusal
    if said.calls:
        message["tool_calls"] = [
            {"id": call.tool_id, "type": "function"}
            | {"function": {"name": call.name, "arguments": _arguments(call)}}
            for call in said.calls
        ]
    choice: Json = {"index": 0, "message": message, "finish_reason": _FINISH[said.end]}
    if said.stopped_at:
        choice["stop_reason"] = said.stopped_at
    if said.likely:
        choice["logprobs"] = {"content": _likely(said), "refusal": None}
    usage = {
        "prompt_tokens": said.input_tokens,
        "completion_tokens": said.output_tokens,
        "total_tokens": said.input_tokens + said.output_tokens,
        "prompt_tokens_details": {"cached_tokens": said.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
    }
    head = {"id": "chatcmpl-up", "object": "chat.completion", "created": 5, "model": "up"}
    whole = head | {"choices": [choice], "usage": usage}
    chunks = [{"delta": delta} for delta in [*line, *_chat_words(said)]]
    if said.likely:
        chunks = [{"delta": delta} for delta in line]
        for token in _likely(said):
            told = {"content": [token], "refusal": None}
            chunks.append({"delta": {"content": token["token"]}, "logprobs": told})
    chunks.append({"delta": {}} | {k: v for k, v in choice.items() if k.endswith("_reason")})
    head |= {"object": "chat.completion.chunk"}
    trees = [head | {"choices": [{"index": 0, "finish_reason": None} | each]} for each in chunks]
    trees.append(head | {"choices": [], "usage": usage})
    events = [b"data: " + _encoded(tree) + b"\n\n" for tree in trees]
    return whole, [*events, b"data: [DONE]\n\n"]


def _chat_words(said: Said) -> Iterator[Json]:
    yield from ({"content": piece} for piece in _pieces(said.text))
    yield from ({"refusal": piece} for piece in _pieces(said.refusal))
    for index, call in enumerate(said.calls):
        begun = {"name": call.name, "arguments": ""}
        start = {"index": index, "id": call.tool_id, "type": "function", "function": begun}
        yield {"tool_calls": [start]}
        for piece in _pieces(_arguments(call)):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


# Messages


_STOP = {"end": "end_turn", "length": "max_tokens", "stop": "stop_sequence", "tool": "tool_use"}
_STOP |= {"filter": "refusal"}


def _named(kind: str, fields: Json) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encoded({"type": kind} | fields))


def _messages(said: Said, _: Json) -> tuple[Json, list[bytes]]:
    stop = {"stop_reason": _STOP[said.end], "stop_sequence": said.stopped_at or None}
    usage = {
        "input_tokens": said.input_tokens - said.cached_tokens,
        "cache_read_input_tokens": said.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": said.output_tokens,
    }
    head: Json = {"id": "msg_up", "type": "message", "role": "assistant", "model": "up"}
    blocks = list(_blocks(said))
    whole = head | {"content": [block for block, _, _ in blocks], "usage": usage} | stop
    begun = head | {"content": [], "usage": usage | {"output_tokens": 1}}
    begun |= {"stop_reason": None, "stop_sequence": None}
    events = [_named("message_start", {"message": begun})]
    for index, (_, empty, deltas) in enumerate(blocks):
        place = {"index": index}
        events.append(_named("content_block_start", place | {"content_block": empty}))
        events += [_named("content_block_delta", place | {"delta": each}) for each in deltas]
        events.append(_named("content_block_stop", place))
    told = {"delta": stop, "usage": {"output_tokens": said.output_tokens}}
    return whole, [*events, _named("message_delta", told), _named("message_stop", {})]


def _blocks(said: Said) -> Iterator[tuple[Json, Json, list[Json]]]:
    """Each block whole, as it begins, and its pieces."""
    if said.thought:
        block = {"type": "thinking", "thinking": said.thought, "signature": said.seal or "c2ln"}
        pieces = [{"type": "thinking_delta", "thinking": p} for p in _pieces(said.thought)]
        pieces.append({"type": "signature_delta", "signature": block["signature"]})
        yield block, block | {"thinking": "", "signature": ""}, pieces
    if text := said.text or said.refusal:
        pieces = [{"type": "text_delta", "text": piece} for piece in _pieces(text)]
        yield {"type": "text", "text": text}, {"type": "text", "text": ""}, pieces
    for call in said.calls:
        block = {"type": "tool_use", "id": call.tool_id, "name": call.name}
        parts = _pieces(_arguments(call)) if call.arguments else []
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in parts]
        yield block | {"input": call.arguments}, block | {"input": {}}, pieces


# Responses


_INCOMPLETE = {"length": "max_output_tokens", "filter": "content_filter"}


def _responses(said: Said, asked: Json) -> tuple[Json, list[bytes]]:
    reason = "" if said.refusal else _INCOMPLETE.get(said.end, "")
    kind = "incomplete" if reason else "completed"
    head: Json = {"id": "resp_up", "object": "response", "created_at": 5, "model": "up"}
    head |= {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "store": False}
    head |= {"text": asked.get("text") or {"format": {"type": "text"}}}
    usage = {
        "input_tokens": said.input_tokens,
        "input_tokens_details": {"cached_tokens": said.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": said.output_tokens,
        "output_tokens_details": {"reasoning_tokens": said.reasoning_tokens},
        "total_tokens": said.input_tokens + said.output_tokens,
    }
    items = list(_items(said))
    whole = head | {"status": kind, "output": [item for item, _ in items], "usage": usage}
    whole["incomplete_details"] = {"reason": reason} if reason else None
    begun = head | {"status": "in_progress", "output": []}
    told: list[tuple[str, Json]] = [("response.created", {"response": begun})]
    for index, (_, steps) in enumerate(items):
        told += [(name, {"output_index": index} | fields) for name, fields in steps]
    told.append((f"response.{kind}", {"response": whole}))
    numbered = enumerate(told)
    return whole, [_named(name, f | {"sequence_number": n}) for n, (name, f) in numbered]


def _items(said: Said) -> Iterator[tuple[Json, list[tuple[str, Json]]]]:
    if said.thought or said.seal:
        yield _reasoning(said)
    if said.text or said.refusal:
        yield _message(said)
    for number, call in enumerate(said.calls):
        begun: Json = {"type": "function_call", "id": f"fc_{number}", "call_id": call.tool_id}
        begun |= {"name": call.name, "arguments": "", "status": "in_progress"}
        item = begun | {"arguments": _arguments(call), "status": "completed"}
        inside = {"item_id": item["id"]}
        kind = "response.function_call_arguments"
        steps: list[tuple[str, Json]] = [("response.output_item.added", {"item": begun})]
        pieces = _pieces(item["arguments"])
        steps += [(f"{kind}.delta", inside | {"delta": piece}) for piece in pieces]
        done = inside | {"arguments": item["arguments"], "name": call.name}
        yield item, [*steps, (f"{kind}.done", done), ("response.output_item.done", {"item": item})]


def _reasoning(said: Said) -> tuple[Json, list[tuple[str, Json]]]:
    begun: Json = {"type": "reasoning", "id": "rs_up", "summary": []}
    item = dict(begun)
    steps: list[tuple[str, Json]] = [("response.output_item.added", {"item": begun})]
    if said.thought:
        item["summary"] = [{"type": "summary_text", "text": said.thought}]
        inside = {"item_id": "rs_up", "summary_index": 0}
        kind = "response.reasoning_summary"
        empty = {"part": {"type": "summary_text", "text": ""}}
        steps.append((f"{kind}_part.added", inside | empty))
        pieces = _pieces(said.thought)
        steps += [(f"{kind}_text.delta", inside | {"delta": piece}) for piece in pieces]
        steps.append((f"{kind}_text.done", inside | {"text": said.thought}))
        steps.append((f"{kind}_part.done", inside | {"part": item["summary"][0]}))
    if said.seal:
        item["encrypted_content"] = said.seal
    return item, [*steps, ("response.output_item.done", {"item": item})]


def _message(said: Said) -> tuple[Json, list[tuple[str, Json]]]:
    begun: Json = {"type": "message", "id": "msg_up", "role": "assistant", "content": []}
    begun["status"] = "in_progress"
    inside = {"item_id": "msg_up", "content_index": 0}
    likely = _likely(said)
    part: Json = {"type": "output_text", "text": said.text, "annotations": [], "logprobs": likely}
    empty = part | {"text": "", "logprobs": []}
    kind, field = "response.output_text", "text"
    if said.refusal:
        part, empty = ({"type": "refusal", "refusal": text} for text in (said.refusal, ""))
        kind, field = "response.refusal", "refusal"
    steps: list[tuple[str, Json]] = [
        ("response.output_item.added", {"item": begun}),
        ("response.content_part.added", inside | {"part": empty}),
    ]
    whole = said.refusal or said.text
    more: list[Json] = [{} if said.refusal else {"logprobs": []} for _ in _pieces(whole)]
    pieces = _pieces(whole)
    if likely:
        pieces, more = [t["token"] for t in likely], [{"logprobs": [t]} for t in likely]
    for piece, beside in zip(pieces, more, strict=True):
        steps.append((f"{kind}.delta", inside | {"delta": piece} | beside))
    ended = {field: whole} | ({} if said.refusal else {"logprobs": likely})
    steps.append((f"{kind}.done", inside | ended))
    steps.append(("response.content_part.done", inside | {"part": part}))
    item = begun | {"content": [part], "status": "completed"}
    return item, [*steps, ("response.output_item.done", {"item": item})]


_MAKERS = {"chat/completions": _chat, "messages": _messages, "responses": _responses}
