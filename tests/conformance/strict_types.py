"""The vendors' own types, taken at their word: what is unknown to them and what they miss.

Their SDKs build answers without checking them, so a client shows little of what is wrong. Here the
same models are validated strictly, and every field they keep only because they allow any is named.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from anthropic.types import (
    ErrorResponse,
    Message,
    MessageTokensCount,
    ModelInfo,
    RawMessageStreamEvent,
)
from openai.types import Completion, CreateEmbeddingResponse, ErrorObject, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import InputTokenCountResponse, Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter, ValidationError

from gateway.dialects.sse import Splitter
from gateway.types import DialectName


EXTENSIONS = frozenset(
    {
        *("ChoiceDelta.reasoning_content", "ChoiceDelta.thinking_blocks"),
        *("ChatCompletionMessage.reasoning_content", "ChatCompletionMessage.thinking_blocks"),
        *("Response.store", "ResponseFunctionCallArgumentsDoneEvent.name"),
        "Completion.service_tier",
    }
)
"""What we add to a vendor's types: thinking, which chat completions have no word for and which has
to come back unchanged; what the vendor's own service says of a response although its type does not;
the tier that served a text;
and a field that the vendor's types for Node demand, and those for Python do not know."""

_WHOLE: Mapping[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(ChatCompletion),
    "anthropic_messages": TypeAdapter(Message),
    "openai_responses": TypeAdapter(Response),
    "openai_embeddings": TypeAdapter(CreateEmbeddingResponse),
    "count_tokens": TypeAdapter(MessageTokensCount),
    "input_tokens": TypeAdapter(InputTokenCountResponse),
    "openai_model": TypeAdapter(Model),
    "anthropic_model": TypeAdapter(ModelInfo),
    "openai_error": TypeAdapter(ErrorObject),
    "anthropic_error": TypeAdapter(ErrorResponse),
}
EVENTS: Mapping[DialectName, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(ChatCompletionChunk),
    "anthropic_messages": TypeAdapter(RawMessageStreamEvent),
    "openai_responses": TypeAdapter(ResponseStreamEvent),
    "openai_completions": TypeAdapter(Completion),
}


def flaws(adapter: TypeAdapter[Any], raw: bytes | msgspec.Raw) -> list[str]:
    """Everything about a body that its vendor's type does not say, by place."""
    try:
        model = adapter.validate_json(bytes(raw), strict=True)
    except ValidationError as error:
        return [f"{_place(each['loc'])}: {each['msg']}" for each in error.errors()]
    return [f"{name}: unknown" for name in _unknown(model) if name not in EXTENSIONS]


def whole_flaws(kind: str, raw: bytes) -> list[str]:
    """The same for a whole body of a kind; an error of OpenAI's is inside one field."""
    if kind == "openai_error":
        (raw,) = msgspec.json.decode(raw, type=dict[str, msgspec.Raw]).values()
    return flaws(_WHOLE[kind], raw)


def event_flaws(dialect: DialectName, stream: bytes) -> tuple[list[str], list[str]]:
    """Every flaw of a stream's events, and the kinds of all its events in order."""
    found: list[str] = []
    kinds: list[str] = []
    for event in Splitter().feed(stream):
        if event.data is None:
            continue
        kind, told = _event(dialect, event.data)
        kinds.append(kind)
        found += [f"{kind}: {each}" for each in told]
        if dialect != "openai_chat" and event.name.decode() != kind:
            found.append(f"{kind}: its name is {event.name.decode()!r}")
    return found, kinds


def _event(dialect: DialectName, data: bytes) -> tuple[str, list[str]]:
    """One event's kind and flaws, of those outside a vendor's union of events, too."""
    if data == b"[DONE]":
        return "[DONE]", [] if dialect == "openai_chat" else ["of another dialect"]
    tree = msgspec.json.decode(data, type=dict[str, Any])
    kind = str(tree.get("type") or tree.get("object"))
    if dialect == "openai_chat" and tree.keys() == {"error"}:
        return "error", whole_flaws("openai_error", data)
    if dialect == "anthropic_messages" and kind == "ping":
        return kind, [] if tree == {"type": "ping"} else ["more than a ping"]
    if dialect == "anthropic_messages" and kind == "error":
        return kind, whole_flaws("anthropic_error", data)
    return kind, flaws(EVENTS[dialect], data)


def _place(location: Sequence[object]) -> str:
    return ".".join(str(part) for part in location)


def _unknown(node: object) -> Iterator[str]:
    """Fields that a model keeps although its type does not have them, each with that type."""
    if isinstance(node, BaseModel):
        for name in node.model_extra or {}:
            yield f"{type(node).__name__}.{name}"
        for name in type(node).model_fields:
            yield from _unknown(getattr(node, name))
    elif isinstance(node, list):
        for each in node:
            yield from _unknown(each)
