"""Any answer an upstream could give, told whole and told as a stream, for hypothesis to draw."""

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import Struct

from gateway.dialects.fitting.answer_tool import ANSWER_TOOL
from gateway.types import DialectName


Json = dict[str, Any]

TEXTS = st.text('ab {}"\\,:[]\nü€\u2028😀', min_size=1, max_size=10)
NAMES = st.sampled_from(
    ["weather", "files_read_601e4eb608f9", "exec", "shell", "apply_patch", "local_shell"]
)
"""Of tools that are called; a caller's request may know another name for one."""
SCALARS = st.integers(-9, 9) | TEXTS | st.booleans() | st.none()
OBJECTS = st.dictionaries(
    st.sampled_from(["input", "command", "commands", "type", "path", "a"]),
    SCALARS | st.lists(TEXTS, max_size=2),
    max_size=3,
)
COUNTS = st.integers(0, 90)


class Told(Struct, frozen=True):
    """One answer; the events of its stream are in the order in which they come."""

    source: DialectName
    whole: bytes
    events: list[bytes]
    is_natural: bool
    """Whether the stream tells it in the order of the whole one: thoughts, words, calls."""

    @property
    def stream(self) -> bytes:
        return b"".join(self.events)


@st.composite
def in_pieces(draw: st.DrawFn, text: str) -> list[str]:
    """A text as a stream may bring it, with empty pieces among the others."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@st.composite
def spelled(draw: st.DrawFn, arguments: Json) -> str:
    """Arguments as a model writes them."""
    spaces = draw(st.sampled_from([(",", ":"), (", ", ": ")]))
    return json.dumps(arguments, separators=spaces, ensure_ascii=draw(st.booleans()))


def data_of(tree: object) -> bytes:
    return b"data: " + json.dumps(tree, ensure_ascii=False).encode() + b"\n\n"


def event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\n".encode() + data_of({"type": kind} | fields)


@st.composite
def merged(draw: st.DrawFn, lanes: Sequence[Sequence[Any]], in_order: int) -> list[Any]:
    """Lanes in one line, each in its own order.

    The last `in_order` of them begin one after the other, as calls do.
    """
    rest = [list(lane) for lane in lanes]
    first_call = len(rest) - in_order
    line = []
    while any(rest):
        begun = [place for place in range(len(rest)) if rest[place]]
        waiting = [p for p in begun if p >= first_call and len(rest[p]) == len(lanes[p])]
        ready = [place for place in begun if place not in waiting[1:]]
        line.append(rest[draw(st.sampled_from(ready))].pop(0))
    return line


# Chat completions


@st.composite
def chat_usages(draw: st.DrawFn) -> Json:
    read, written = draw(COUNTS), draw(COUNTS)
    prompt, said = 10 + read + written, 1 + draw(COUNTS)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": said,
        "total_tokens": prompt + said,
        "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "completion_tokens_details": {"reasoning_tokens": draw(st.integers(0, said))},
    }


@st.composite
def chat_calls(draw: st.DrawFn, number: int, may_be_late: bool) -> tuple[Json, list[Json]]:
    """A call and its pieces; its name may come after its id."""
    name, arguments = draw(NAMES), draw(OBJECTS.flatmap(spelled) | st.just(""))
    identity = draw(st.sampled_from([f"call_{number}", f"functions.weather:{number}"]))
    call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
    texts = draw(in_pieces(arguments))
    begun: Json = {"index": number, "id": identity, "type": "function"}
    pieces = [begun | {"function": {"name": name, "arguments": texts.pop(0)}}]
    if may_be_late and draw(st.integers(0, 4)) == 0:
        later = {"index": number, "function": pieces[0]["function"]}
        pieces = [begun | {"function": {"arguments": ""}}, later]
    pieces += [{"index": number, "function": {"arguments": text}} for text in texts]
    return call, pieces


def likelihood(text: str) -> Json:
    token = {"token": text, "logprob": -0.5, "bytes": list(text.encode())}
    return token | {"top_logprobs": [token]}


@st.composite
def chat_answers(draw: st.DrawFn, with_logprobs: bool = False) -> Told:
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    lanes: list[list[Json]] = []
    reasons = draw(st.sampled_from(["reasoning_content", "reasoning"]))
    for names in ((reasons,), ("content", "refusal")):
        lanes.append([])
        for name in names:
            if draw(st.integers(0, 2)) == 0:
                message[name] = draw(TEXTS)
                lanes[-1] += [{name: text} for text in draw(in_pieces(message[name]))]
    is_natural = draw(st.booleans())
    calls = [draw(chat_calls(number, is_natural)) for number in range(draw(st.integers(0, 3)))]
    if calls:
        message["tool_calls"] = [call for call, _ in calls]
    lanes += [[{"tool_calls": [piece]} for piece in pieces] for _, pieces in calls]
    line = list(chain(*lanes)) if is_natural else draw(merged(lanes, len(calls)))
    line = draw(_together(line)) if not with_logprobs else line
    # Some servers call tools and say that they just stopped.
    reasons_to_stop = ["tool_calls", "stop"] if calls else ["stop", "length", "content_filter"]
    finish = draw(st.sampled_from(reasons_to_stop))
    choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    if finish == "stop" and draw(st.booleans()):
        choice["stop_reason"] = draw(TEXTS)
    likely = [likelihood(piece["content"]) for piece in line if piece.get("content")]
    if with_logprobs and likely:
        choice["logprobs"] = {"content": likely, "refusal": None}
    whole: Json = {"id": "chatcmpl-7x", "object": "chat.completion", "created": 5, "model": "up"}
    whole |= {"choices": [choice], "service_tier": draw(st.sampled_from(["default", "flex"]))}
    usage = draw(st.none() | chat_usages())
    if usage is not None:
        whole["usage"] = usage
    chunks = draw(_chunks(whole, line, with_logprobs))
    return Told("openai_chat", json.dumps(whole).encode(), chunks, is_natural)


@st.composite
def _together(draw: st.DrawFn, line: list[Json]) -> list[Json]:
    """Some of the pieces in one chunk with those before them, as hurried servers send them."""
    joined: list[Json] = []
    for piece in line:
        last = joined[-1] if joined else {}
        may = bool(joined) and last.keys() & piece.keys() <= {"tool_calls"}
        if may and draw(st.integers(0, 3)) == 0:
            calls = {"tool_calls": [*last.get("tool_calls", []), *piece.get("tool_calls", [])]}
            joined[-1] = last | piece | (calls if calls["tool_calls"] else {})
        else:
            joined.append(piece)
    return joined


@st.composite
def _chunks(draw: st.DrawFn, whole: Json, line: list[Json], with_logprobs: bool) -> list[bytes]:
    (choice,) = whole["choices"]
    head = {k: v for k, v in whole.items() if k not in {"choices", "usage"}}
    head["object"] = "chat.completion.chunk"

    def told(delta: Json, **more: Any) -> Json:
        return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} | more

    first: Json = {"role": "assistant"} | draw(st.sampled_from([{}, {"content": ""}]))
    choices = [told(first)]
    for delta in line:
        said = delta.get("content")
        likely = {"content": [likelihood(said)], "refusal": None} if said else None
        choices.append(told(delta, logprobs=likely if with_logprobs else None))
    if draw(st.booleans()):
        choices.append(told({}))
    ending = choices[-1]
    ending |= {key: choice[key] for key in ("finish_reason", "stop_reason") if key in choice}
    chunks = [head | {"choices": [each]} for each in choices]
    if "usage" in whole:
        if draw(st.booleans()):
            chunks[-1]["usage"] = whole["usage"]
        else:
            chunks.append(head | {"choices": [], "usage": whole["usage"]})
    events = [data_of(each) for each in chunks]
    events.insert(draw(st.integers(0, len(events))), b": ping\n\n")
    return [*events, b"data: [DONE]\n\n"]


# Messages


@st.composite
def message_blocks(draw: st.DrawFn, index: int) -> tuple[Json, list[Json]]:
    """A block as it is in a whole message, and its pieces; it begins as what they leave of it."""
    kind = draw(
        st.sampled_from(
            ["thinking", "redacted", "text", "text", "tool", "tool", "search", "answer"]
        )
    )
    if kind == "thinking":
        text, seal = draw(TEXTS | st.just("")), draw(st.sampled_from(["c2lnbmVk", "c2Vh"]))
        pieces = [{"type": "thinking_delta", "thinking": each} for each in draw(in_pieces(text))]
        pieces.append({"type": "signature_delta", "signature": seal})
        return {"type": "thinking", "thinking": text, "signature": seal}, pieces
    if kind == "redacted":
        return {"type": "redacted_thinking", "data": draw(st.sampled_from(["c2Vj", "cmV0"]))}, []
    if kind == "text":
        return draw(_cited())
    if kind == "search":
        query = draw(OBJECTS)
        block: Json = {"type": "server_tool_use", "id": f"srvtoolu_{index}", "name": "web_search"}
        return block | {"input": query}, _json_pieces(draw(in_pieces(draw(spelled(query)))))
    given: Json = draw(OBJECTS)
    name = draw(NAMES) if kind == "tool" else ANSWER_TOOL
    text = draw(spelled(given)) if kind == "tool" else msgspec.json.encode(given).decode()
    is_told = bool(given) or draw(st.sampled_from([True, False]))
    pieces = _json_pieces(draw(in_pieces(text if is_told else "")))
    return {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": given}, pieces


def _json_pieces(texts: list[str]) -> list[Json]:
    return [{"type": "input_json_delta", "partial_json": text} for text in texts]


@st.composite
def _cited(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    text = draw(TEXTS)
    pieces: list[Json] = [{"type": "text_delta", "text": t} for t in draw(in_pieces(text))]
    block: Json = {"type": "text", "text": text}
    if draw(st.integers(0, 2)) == 0:
        cited: Json = {"type": "char_location", "cited_text": "a", "document_index": 0}
        cited |= {"document_title": None, "start_char_index": 0, "end_char_index": 1}
        block["citations"] = [cited]
        citing: Json = {"type": "citations_delta", "citation": cited}
        pieces.insert(1, citing)
    return block, pieces


EMPTY: Mapping[str, Json] = {
    "thinking": {"thinking": "", "signature": ""},
    "text": {"text": ""},
    "tool_use": {"input": {}},
    "server_tool_use": {"input": {}},
}


@st.composite
def message_answers(draw: st.DrawFn) -> Told:
    blocks = [draw(message_blocks(index)) for index in range(draw(st.integers(0, 5)))]
    is_natural = draw(st.booleans())
    blocks.sort(key=lambda block: block[0].get("name") == ANSWER_TOOL)
    if is_natural:
        blocks.sort(key=lambda block: _rank(block[0]))
    calls = any(block["type"] == "tool_use" for block, _ in blocks)
    reason = "tool_use" if calls else draw(st.sampled_from(list(_REASONS)))
    stop: Json = {"stop_reason": reason, "stop_sequence": None, "stop_details": None} | _REASONS[
        reason
    ]
    if reason == "refusal" and draw(st.booleans()):
        stop["stop_details"] = {"type": "refusal", "category": "bio", "explanation": draw(TEXTS)}
    read, written, hour = draw(COUNTS), draw(COUNTS), draw(COUNTS)
    opened: Json = {"input_tokens": 9, "cache_read_input_tokens": read, "output_tokens": 1}
    opened |= {"cache_creation_input_tokens": written + hour, "service_tier": "standard"}
    kinds = {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": hour}
    opened["cache_creation"] = kinds
    closed: Json = {"output_tokens": 2 + draw(COUNTS)}
    closed["output_tokens_details"] = {"thinking_tokens": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        closed["input_tokens"] = 9
        closed["cache_read_input_tokens"] = read
    head: Json = {"id": "msg_7x", "type": "message", "role": "assistant", "model": "up"}
    content = [block for block, _ in blocks]
    whole = head | {"content": content, "usage": opened | closed} | stop
    begun = head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": opened}
    events = [event("message_start", message=begun)]
    for index, (block, pieces) in enumerate(blocks):
        start = block | EMPTY.get(block["type"], {})
        start.pop("citations", None)
        events.append(event("content_block_start", index=index, content_block=start))
        events += [event("content_block_delta", index=index, delta=piece) for piece in pieces]
        events.append(event("content_block_stop", index=index))
    events.insert(draw(st.integers(1, len(events))), event("ping"))
    events += (event("message_delta", delta=stop, usage=closed), event("message_stop"))
    return Told("anthropic_messages", json.dumps(whole).encode(), events, is_natural)


_RANKS = {"thinking": 0, "redacted_thinking": 0, "tool_use": 3}
_REASONS: Mapping[str, Json] = {
    "end_turn": {},
    "max_tokens": {},
    "stop_sequence": {"stop_sequence": "END"},
    "refusal": {},
    "pause_turn": {},
    "tool_use": {},
}


def _rank(block: Json) -> int:
    """An answer that comes as a tool's arguments is text, after all other."""
    return 1 if block.get("name") == ANSWER_TOOL else _RANKS.get(block["type"], 1)
