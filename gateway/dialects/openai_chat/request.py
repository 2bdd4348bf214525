"""Parses chat requests; patches their bytes for a target of the same dialect."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.admission.hosted_tools import offers_hosted_tools
from gateway.dialects.bodies import body
from gateway.dialects.bodies.reserved import check_not_reserved, check_part
from gateway.dialects.bodies.strict_json import checked, decode_object, invalid
from gateway.dialects.fitting.parameters import (
    CHAT_WORDS,
    FITS,
    LEAST_EFFORT,
    cannot_rest,
    reasons_at,
    unfit,
)
from gateway.dialects.fitting.unpriced import leave_out
from gateway.dialects.loss import (
    check_schema_wanted,
    check_tier_priced,
    unsupported,
)
from gateway.dialects.openai_chat.addresses import carries, in_part, in_tools
from gateway.dialects.openai_chat.wire import ChatBody, ChatMessage, ContentPart
from gateway.estimate import estimate_input_tokens
from gateway.ports import UpstreamBody
from gateway.types import ChatRequest, Target


INCLUDE_USAGE = b'{"include_usage":true}'
NEWER, OLDER = "max_completion_tokens", "max_tokens"
"""Names of the limit; OpenAI's reasoning models refuse the older one."""
_WORDS: Final = frozenset({"text", "refusal"})
_OF_WORDS: Final = frozenset({*_WORDS, "type", "cache_control", "prompt_cache_breakpoint"})
"""Fields of a text part that are known; everything else is looked at."""
_REQUIRED_OF_PART = {"text": "text", "refusal": "refusal", "image_url": "image_url", "file": "file"}
"""The field that each kind of part must have; else the error would call it no text."""


def decode_request(raw: bytes, request_id: str) -> ChatRequest:
    """See `ports.Dialect.decode_request`.

    Raises:
        FeatureUnsupported: it names something that the upstream holds; nobody could inspect it.
    """
    tree = decode_object(raw)
    check_not_reserved(tree)
    wire = checked(tree, ChatBody)
    _check(wire)
    destinations: list[tuple[str, str]] = []
    images, documents, attached_bytes = _attachments(wire.messages, tree, destinations)
    if wire.tools:
        destinations += in_tools(tree)
    stream_options, response_format = wire.stream_options, wire.response_format
    about, most = estimate_input_tokens(raw, images, documents, attached_bytes)
    return ChatRequest(
        request_id=request_id,
        dialect="openai_chat",
        raw=raw,
        tree=tree,
        model=wire.model,
        stream=bool(wire.stream),
        max_output_tokens=wire.max_completion_tokens or wire.max_tokens,
        wants_stream_usage=stream_options is not None and bool(stream_options.include_usage),
        has_tools=bool(wire.tools or wire.functions),
        has_images=images > 0,
        has_documents=documents > 0,
        wants_json_schema=response_format is not None and response_format.type == "json_schema",
        input_tokens_estimate=about,
        input_tokens_most=most,
        destinations=tuple(destinations),
    )


def _check(wire: ChatBody) -> None:
    if wire.max_tokens is not None and wire.max_completion_tokens is not None:
        raise invalid("max_tokens", "Set this or max_completion_tokens, not both")
    for index, message in enumerate(wire.messages):
        if message.content is None or message.role == "tool" or message.audio is not None:
            _check_message(message, f"messages[{index}]")
    for index, tool in enumerate(wire.tools or ()):
        if tool.type == "function" and tool.function is None:
            raise invalid(f"tools[{index}].function", "This field is required")
    choice = wire.tool_choice
    if isinstance(choice, str) and choice not in {"auto", "none", "required"}:
        raise invalid("tool_choice", "This value is not one of those allowed")
    response_format = wire.response_format
    has_schema = response_format is None or response_format.json_schema is not None
    if response_format is not None and response_format.type == "json_schema" and not has_schema:
        raise invalid("response_format.json_schema", "This field is required")


def _check_message(message: ChatMessage, place: str) -> None:
    if message.audio is not None:
        raise unsupported(f"{place}.audio", "Audio that an upstream holds cannot be inspected", 56)
    if message.role == "tool" and not message.tool_call_id:
        raise invalid(f"{place}.tool_call_id", "This field is required")
    if message.content is None and message.role not in {"assistant", "function"}:
        raise invalid(f"{place}.content", "This field is required")


def _attachments(
    messages: list[ChatMessage], tree: Mapping[str, Any], destinations: list[tuple[str, str]]
) -> tuple[int, int, int]:
    """Images, documents, and the bytes of both that lie inline; appends addresses named."""
    images = documents = attached_bytes = 0
    for index, message in enumerate(messages):
        if isinstance(message.content, list):
            for position, part in enumerate(message.content):
                required = _REQUIRED_OF_PART.get(part.type)
                if required is not None and getattr(part, required) is None:
                    place = f"messages[{index}].content[{position}].{required}"
                    raise invalid(place, "This field is required")
                kind, length_bytes = _attachment(part)
                told = tree["messages"][index]["content"][position]
                if part.type not in _WORDS:
                    place = f"messages[{index}].content[{position}]"
                    check_part(told, place)
                    destinations += in_part(told, place)
                elif not _OF_WORDS.issuperset(told):
                    _check_words(told, f"messages[{index}].content[{position}]")
                images += kind == "image"
                documents += kind == "document"
                attached_bytes += length_bytes
    return images, documents, attached_bytes


def _check_words(part: Mapping[str, Any], place: str) -> None:
    """Readers that go by a part's fields, not by its type, would fetch or read the other fields."""
    for name, value in part.items():
        if value is not None and carries(name):
            reason = "A part of text brings nothing else; send this as a part of its own"
            raise unsupported(f"{place}.{name}", reason, 56)


def _attachment(part: ContentPart) -> tuple[str, int]:
    if part.type == "image_url":
        return "image", len(part.image_url.url) if part.image_url is not None else 0
    if part.type == "file":
        return "document", len(part.file.file_data or "") if part.file is not None else 0
    return "", 0


def patch_request(request: ChatRequest, target: Target, output_tokens_cap: int) -> UpstreamBody:
    """The caller's own bytes with model, output limit and `include_usage` set.

    Raises:
        RequestInvalid: the stream options are no object.
        FeatureUnsupported: the model cannot do what is asked.
    """
    check_schema_wanted(target, is_wanted=request.wants_json_schema)
    check_tier_priced(request, target)
    limit = _limit(request, target, output_tokens_cap)
    lacks_usage = request.stream and not request.wants_stream_usage
    messages = request.tree["messages"]
    has_thinking = isinstance(messages, list) and "thinking_blocks" in set().union(*messages)
    effort = request.tree.get("reasoning_effort")
    misfits = unfit(request.tree, target, CHAT_WORDS, reasons=reasons_at(target, effort))
    is_restless = cannot_rest(target, effort)
    is_other = has_thinking or misfits is not FITS or is_restless or request.model != target.model
    is_other = is_other or offers_hosted_tools(request)
    if limit is None and not lacks_usage and not is_other:
        return UpstreamBody(request.raw)
    fields: dict[str, msgspec.Raw | bytes] = dict(body.split(request.raw))
    left_out = leave_out(fields, request, target)
    for name in misfits.fields:
        del fields[name]
    fields["model"] = msgspec.json.encode(target.model)
    if limit is not None:
        name, tokens = limit
        if name == NEWER and request.tree.get(OLDER) is not None:
            del fields[OLDER]
        fields[name] = b"%d" % tokens
    if lacks_usage:
        fields["stream_options"] = with_usage_asked(fields)
    dropped = left_out + misfits.dropped
    if is_restless:
        fields["reasoning_effort"] = msgspec.json.encode(LEAST_EFFORT)
        dropped += ("reasoning_effort",)
    lost = _without_thinking(fields["messages"]) if has_thinking else None
    if lost is not None:
        fields["messages"] = lost
        dropped += ("messages.thinking_blocks",)
    return UpstreamBody(body.join(fields), dropped, is_less=bool(left_out))


def _without_thinking(messages: msgspec.Raw | bytes) -> bytes | None:
    """Leave out another vendor's signed thinking, sent back by a caller: not for this vendor.

    None if there is none.
    """
    listed = msgspec.json.decode(bytes(messages), type=list[dict[str, msgspec.Raw]])
    found = [message.pop("thinking_blocks", None) for message in listed]
    return msgspec.json.encode(listed) if any(each is not None for each in found) else None


def _limit(request: ChatRequest, target: Target, output_tokens_cap: int) -> tuple[str, int] | None:
    """The answer's limit and its name at the target; None if the caller's fields will do.

    The caller's name for it stays, except the older one for a model that refuses it.
    """
    asked = request.max_output_tokens
    has_newer = request.tree.get(NEWER) is not None
    name = NEWER if has_newer else limit_field(target)
    is_named = has_newer or request.tree.get(name) is not None
    if asked is not None and asked <= output_tokens_cap and is_named:
        return None
    return name, output_tokens_cap if asked is None else min(asked, output_tokens_cap)


def limit_field(target: Target) -> str:
    """OpenAI's own API wants the newer name; compatible servers know the older one."""
    return NEWER if NEWER in target.capabilities else OLDER


def with_usage_asked(fields: Mapping[str, msgspec.Raw | bytes]) -> bytes:
    """The stream's options as sent upstream, so that its tokens are counted.

    Raises:
        RequestInvalid: they are no object.
    """
    options = fields.get("stream_options")
    if options is None or bytes(options) == b"null":
        return INCLUDE_USAGE
    try:
        return body.patch(bytes(options), {"include_usage": b"true"})
    except msgspec.DecodeError:
        raise invalid("stream_options", "An object is expected") from None
