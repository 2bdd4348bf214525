"""Parses Responses requests; patches their bytes for a target of the same dialect."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gateway.conversation import BLOCK_MARK
from gateway.dialects.bodies import body
from gateway.dialects.bodies.reserved import check_not_reserved
from gateway.dialects.bodies.strict_json import checked, decode_object, invalid
from gateway.dialects.fitting.parameters import (
    LEAST_EFFORT,
    RESPONSES_WORDS,
    cannot_rest,
    reasons_at,
    unfit,
)
from gateway.dialects.fitting.unpriced import leave_out
from gateway.dialects.loss import check_schema_wanted, check_tier_priced, unsupported
from gateway.dialects.openai_responses.foreign import attached, readable
from gateway.dialects.openai_responses.tools import listed
from gateway.dialects.openai_responses.wire import (
    Item,
    NamedConversation,
    Part,
    ResponsesBody,
)
from gateway.estimate import estimate_input_tokens
from gateway.ports import UpstreamBody
from gateway.thread import Thread
from gateway.types import ChatRequest, Target


OUTPUT_TOKENS_MIN = 16
"""The vendor's API takes no smaller limit."""

ENCRYPTED = "reasoning.encrypted_content"

UNREADABLE = "invalid_encrypted_content"
"""The upstream's code for reasoning that another account, or another vendor, has sealed."""

REASONING = "input.reasoning"
"""The name under which lost reasoning in a history is reported."""

_HELD_ELSEWHERE: Mapping[str, str] = {
    "prompt": "Prompts that an upstream holds cannot be inspected; send the text",
}
REFERENCE = "item_reference"
_ROOMS = ("container", "environment")
"""Fields in which a tool names the vendor's room it works in."""
_MODES = frozenset({"auto", "none", "required"})
_TRUNCATIONS = frozenset({None, "auto", "disabled"})
_PARTS = frozenset(
    {
        *("input_text", "output_text", "input_image", "input_file", "input_audio"),
        *("refusal", "summary_text", "reasoning_text", "text"),
    }
)
"""Parts that belong inside items; alone, each would be read by itself, and by a model as one."""
_REQUIRED_OF_ITEM = {
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("output",),
    "message": ("role", "content"),
    REFERENCE: ("id",),
}
_REQUIRED_OF_PART = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field of a text part; without it the part would be refused as an unknown kind of content."""


def decode_request(raw: bytes, request_id: str) -> ChatRequest:
    """See `ports.Dialect.decode_request`.

    Raises:
        FeatureUnsupported: it names something that an upstream holds; nobody could inspect it.
        RequestInvalid: its answer is to be fetched later, but not to be stored.
    """
    tree = decode_object(raw)
    if tree.get("background") is True and tree.get("store") is False:
        raise invalid("background", "An answer made in the background is kept: leave store out")
    return read_request(tree, raw, request_id)


def read_request(tree: Mapping[str, object], raw: bytes, request_id: str) -> ChatRequest:
    """Check a body that was decoded; raises like the above."""
    check_not_reserved(tree)
    for name, reason in _HELD_ELSEWHERE.items():
        if tree.get(name):
            raise unsupported(name, reason, 56)
    legible, foreign = readable(tree)
    wire = checked(legible, ResponsesBody)
    items = wire.input if isinstance(wire.input, list) else []
    _check(wire, items)
    tools = list(listed(tree))
    destinations = _tool_servers(tools)
    images, documents, attached_bytes = _attachments(items, destinations)
    for index in foreign:
        brought = attached(tree["input"][index], f"input[{index}]")  # type: ignore[index]
        images += brought.images
        attached_bytes += brought.inline_bytes
        destinations += brought.addresses
    text = wire.text
    has_format = text is not None and text.format is not None
    about, most = estimate_input_tokens(raw, images, documents, attached_bytes)
    return ChatRequest(
        request_id=request_id,
        dialect="openai_responses",
        raw=raw,
        tree=tree,
        model=wire.model,
        stream=bool(wire.stream),
        max_output_tokens=wire.max_output_tokens,
        wants_stream_usage=True,
        has_tools=bool(tools),
        has_images=images > 0,
        has_documents=documents > 0,
        wants_json_schema=has_format and text.format.type == "json_schema",  # type: ignore[union-attr]
        input_tokens_estimate=about,
        input_tokens_most=most,
        destinations=tuple(destinations),
        thread=Thread(
            wire.previous_response_id or "",
            keeps=wire.store is not False,
            references=tuple(item.id or "" for item in items if item.type == REFERENCE),
            conversation_id=_conversation_of(wire),
            background=bool(wire.background),
        ),
    )


def _conversation_of(wire: ResponsesBody) -> str:
    named = wire.conversation
    conversation_id = named.id if isinstance(named, NamedConversation) else named or ""
    if conversation_id and wire.previous_response_id:
        reason = "Mutually exclusive with previous_response_id: send one of both"
        raise invalid("conversation", reason)
    return conversation_id


def _check(wire: ResponsesBody, items: Iterable[Item]) -> None:
    for index, item in enumerate(items):
        kind = item.type or "message"
        if kind in _PARTS:
            raise invalid(f"input[{index}].type", "A part stands in the content of a message")
        for name in _REQUIRED_OF_ITEM.get(kind, ()):
            if getattr(item, name) is None:
                raise invalid(f"input[{index}].{name}", "This field is required")
    for index, tool in enumerate(wire.tools or ()):
        if tool.type == "function" and not tool.name:
            raise invalid(f"tools[{index}].name", "This field is required")
    choice = wire.tool_choice
    if isinstance(choice, str) and choice not in _MODES:
        raise invalid("tool_choice", "This value is not one of those allowed")
    if wire.truncation not in _TRUNCATIONS:
        raise invalid("truncation", "This value is not one of those allowed")


def check_said(request: ChatRequest) -> None:
    """Refuse to pass on a request that still refers to items of kept answers by id only.

    Raises:
        FeatureUnsupported: `threads` has not inserted them.
    """
    if request.thread is None or not request.thread.references:
        return
    for index, item in enumerate(request.tree["input"]):  # type: ignore[var-annotated,arg-type]
        if item.get("type") == REFERENCE:
            raise unsupported(f"input[{index}]", "Send the item itself; it is not held here", 56)


def _tool_servers(tools: Iterable[tuple[str, Mapping[str, object]]]) -> list[tuple[str, str]]:
    """Addresses of remote tool servers; a connector that the vendor knows is an unknown address.

    Raises:
        FeatureUnsupported: a tool works with something that an upstream holds.
    """
    servers = []
    for place, tool in tools:
        if tool.get("vector_store_ids") or any(map(_is_held, map(tool.get, _ROOMS))):
            raise unsupported(place, "What an upstream holds cannot be inspected", 56)
        address = tool.get("server_url")
        if tool.get("type") == "mcp" or address is not None:
            servers.append((f"{place}.server_url", address if isinstance(address, str) else ""))
    return servers


def _is_held(room: object) -> bool:
    """Whether a tool works in rooms that were made before, or with files in them."""
    if isinstance(room, dict):
        return bool(room.get("container_id") or room.get("file_ids"))
    return isinstance(room, str)


def _attachments(
    items: Iterable[Item], destinations: list[tuple[str, str]]
) -> tuple[int, int, int]:
    """Images, documents, and the bytes of both that lie inline; appends addresses named."""
    images = documents = attached_bytes = 0
    for index, item in enumerate(items):
        for name in ("content", "output"):
            parts = getattr(item, name)
            for position, part in enumerate(parts if isinstance(parts, list) else ()):
                place = f"input[{index}].{name}[{position}]"
                required = _REQUIRED_OF_PART.get(part.type)
                if required is not None and getattr(part, required) is None:
                    raise invalid(f"{place}.{required}", "This field is required")
                images += part.type == "input_image"
                documents += part.type == "input_file"
                attached_bytes += len(part.file_data or "")
                attached_bytes += _image_bytes(part, place, destinations)
    return images, documents, attached_bytes


def _image_bytes(part: Part, place: str, destinations: list[tuple[str, str]]) -> int:
    if part.file_url is not None:
        destinations.append((f"{place}.file_url", part.file_url))
    if part.image_url is None:
        return 0
    if part.image_url[:5].lower() != "data:":
        destinations.append((f"{place}.image_url", part.image_url))
    return len(part.image_url)


def patch_request(request: ChatRequest, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """The caller's own bytes with model and output limit set; the upstream stores nothing.

    Raises:
        FeatureUnsupported: the model cannot do what is asked.
    """
    check_said(request)
    check_schema_wanted(target, "text.format", is_wanted=request.wants_json_schema)
    check_tier_priced(request, target)
    fields: dict[str, msgspec.Raw | bytes] = dict(body.split(request.raw))
    left_out = leave_out(fields, request, target)
    for name in ("previous_response_id", "conversation", "background"):
        fields.pop(name, None)
    fields["model"] = msgspec.json.encode(target.model)
    asked = request.max_output_tokens
    if asked is None or asked > output_tokens_cap:
        fields["max_output_tokens"] = b"%d" % check_limit(output_tokens_cap)
    fields["store"] = b"false"
    dropped = left_out + request.dropped + _fit(fields, request.tree, target)
    if BLOCK_MARK.encode() in request.raw and "input" in fields:
        # Another vendor's thinking, sent back by a caller, is not meant for this vendor.
        fields["input"] = _filtered(fields["input"], _is_own)
        dropped += (REASONING,)
    if "reasoning_effort" in target.capabilities:
        fields["include"] = _with_encrypted(request.tree.get("include"))
    return UpstreamBody(body.join(fields), dropped, is_less=bool(left_out))


def _fit(
    fields: dict[str, msgspec.Raw | bytes], tree: Mapping[str, object], target: Target
) -> tuple[str, ...]:
    """Remove fields that the model does not take; gives those that asked for something."""
    reasoning = tree.get("reasoning")
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    left_out = unfit(tree, target, RESPONSES_WORDS, reasons=reasons_at(target, effort))
    for name in left_out.fields:
        del fields[name]
    if not cannot_rest(target, effort):
        return left_out.dropped
    least = msgspec.json.encode(LEAST_EFFORT)
    fields["reasoning"] = body.patch(bytes(fields["reasoning"]), {"effort": least})
    return (*left_out.dropped, "reasoning.effort")


def without_sealed(raw: bytes) -> UpstreamBody | None:
    """A request without its reasoning items; None if there are none.

    The items that were paired with them by ids are sent without these ids.
    """
    fields: dict[str, msgspec.Raw | bytes] = dict(body.split(raw))
    given = fields.get("input", b"")
    if b'"reasoning"' not in bytes(given):
        return None
    kept = _filtered(given, lambda item: item.get("type") != "reasoning")
    if kept == bytes(given):
        return None
    fields["input"] = kept
    return UpstreamBody(body.join(fields), (REASONING,))


def _filtered(given: msgspec.Raw | bytes, keep: Callable[[dict[str, object]], bool]) -> bytes:
    """The items to keep; if any were removed, function calls lose the ids that paired them."""
    items = msgspec.json.decode(bytes(given))
    if not isinstance(items, list):
        return bytes(given)
    kept = [item for item in items if keep(item)]
    if len(kept) == len(items):
        return bytes(given)
    for item in kept:
        if item.get("type") == "function_call":
            item.pop("id", None)
    return msgspec.json.encode(kept)


def _is_own(item: dict[str, object]) -> bool:
    sealed = item.get("encrypted_content")
    return not isinstance(sealed, str) or not sealed.startswith(BLOCK_MARK)


def check_limit(output_tokens_cap: int) -> int:
    """The limit, if the vendor accepts such a small one.

    Raises:
        FeatureUnsupported
    """
    if output_tokens_cap < OUTPUT_TOKENS_MIN:
        raise unsupported("max_output_tokens", f"At least {OUTPUT_TOKENS_MIN} are needed there", 21)
    return output_tokens_cap


def _with_encrypted(include: object) -> bytes:
    """The caller's `include`, plus the entry that lets reasoning be resent without being stored."""
    listed = list(include) if isinstance(include, list) else []
    return msgspec.json.encode(listed if ENCRYPTED in listed else [*listed, ENCRYPTED])
