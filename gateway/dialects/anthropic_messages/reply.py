"""Complete (non-streamed) messages: reads an upstream's, and writes ours."""

from collections.abc import Mapping

import msgspec

from gateway.admission.answer_bounds import is_readable
from gateway.admission.half_pairs import paired
from gateway.conversation import RAW_ARGUMENTS
from gateway.dialects.anthropic_messages.foreign import block_of, searches_in
from gateway.dialects.anthropic_messages.wire import Reply, ReplyBlock, StopDetails, UsageWire
from gateway.dialects.bodies import body
from gateway.dialects.figures import read_figures
from gateway.dialects.fitting.answer_tool import ANSWER_TOOL
from gateway.dialects.fitting.naming import call_id, message_id
from gateway.errors import UpstreamMalformed
from gateway.estimate import estimate_written_tokens
from gateway.price import paid_place
from gateway.types import Completion, Delta, ToolCall, Usage


STOP_REASONS = {
    "end_turn": "end",
    "stop_sequence": "stop_sequence",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "refusal": "content_filter",
    "pause_turn": "pause",
}
REPEATABLE = STOP_REASONS.keys() - {"refusal"}
STOPPED_BY = {
    "end": "end_turn",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "tool_use": "tool_use",
    "content_filter": "refusal",
    "pause": "pause_turn",
}
COMPACTION = "compaction"
"""A turn in which a conversation is summarised."""
REFUSED = "The model declined to continue."

_REPLY = msgspec.json.Decoder(Reply)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])

_SERVED = {"standard": "default", "priority": "priority", "batch": "batch"}
_SERVED_AS = {tier: word for word, tier in _SERVED.items()}


def decode_reply(raw: bytes) -> Completion:
    """See `ports.Dialect.decode_reply`."""
    raw = paired(raw)
    try:
        wire = _REPLY.decode(raw)
        blocks = [block_of(each) for each in wire.content]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed("The upstream's answer is not a message.") from error
    figures, is_sound = read_figures(wire.usage, UsageWire)
    stop_reason = STOP_REASONS.get(wire.stop_reason or "", "end")
    text = "".join(block.text or "" for block in blocks if block.type == "text")
    calls = tuple(_tool_call(block) for block in blocks if block.type == "tool_use")
    if any(call.name == ANSWER_TOOL for call in calls):
        text += "".join(call.arguments_json for call in calls if call.name == ANSWER_TOOL)
        calls = tuple(call for call in calls if call.name != ANSWER_TOOL)
        stop_reason = "end" if stop_reason == "tool_use" and not calls else stop_reason
    return Completion(
        raw=raw,
        message_id=wire.id or "",
        model=wire.model or "",
        text=text,
        tool_calls=calls,
        stop_reason=stop_reason,
        stop_sequence=wire.stop_sequence,
        usage=usage_of(figures, is_sound=is_sound) or _estimated(blocks),
        thinking=tuple(
            Delta(
                "thinking",
                block.thinking or "",
                signature=block.signature or "",
                redacted=block.data or "",
            )
            for block in blocks
            if block.type in {"thinking", "redacted_thinking"}
        ),
        refusal=refusal_of(wire.stop_details) if stop_reason == "content_filter" else "",
        is_repeatable=wire.stop_reason in REPEATABLE,
    )


def refusal_of(details: StopDetails | None) -> str:
    """Why the model refused, in its own words if it gave any."""
    return (details.explanation if details is not None else None) or REFUSED


def _tool_call(block: ReplyBlock) -> ToolCall:
    if not block.id or not block.name:
        raise UpstreamMalformed("The upstream called a tool without a name or an id.")
    return ToolCall(block.id, block.name, msgspec.json.encode(block.input or {}).decode())


def usage_of(wire: UsageWire, *, is_sound: bool = True) -> Usage | None:
    """None if the upstream counted nothing.

    On the wire, input excludes what was read from and written to the cache; ours includes it. Of
    the cache writes, `cache_write_tokens` is those for five minutes only, beside those for an hour.
    Tokens used for a summary are in no other figure, and are added.
    """
    if wire.input_tokens is None and wire.output_tokens is None:
        return None
    turns = wire.iterations or ()
    compactions = [each for each in turns if each.type == COMPACTION]
    paid = (wire, *compactions)
    read, written = sum(each.read for each in paid), sum(each.written for each in paid)
    hour = sum(each.written_1h for each in paid)
    tools, details = wire.server_tool_use, wire.output_tokens_details
    return Usage(
        input_tokens=sum(each.input_tokens or 0 for each in paid) + read + written,
        output_tokens=sum(each.output_tokens or 0 for each in paid),
        cache_read_tokens=read,
        cache_write_tokens=written - hour,
        cache_write_1h_tokens=hour,
        reasoning_tokens=(details.thinking_tokens or 0) if details is not None else 0,
        estimated=not is_sound,
        service_tier=_SERVED.get(wire.service_tier or "", ""),
        web_searches=(tools.web_search_requests or 0) if tools is not None else 0,
        inference_geo=paid_place(wire.inference_geo),
        compactions=len(compactions),
    )


def _estimated(blocks: list[ReplyBlock]) -> Usage:
    texts: list[str | None] = []
    for block in blocks:
        texts += (block.text, block.thinking, block.name)
        if block.input is not None:
            texts.append(msgspec.json.encode(block.input).decode())
    return Usage(
        output_tokens=estimate_written_tokens(texts, "anthropic"),
        estimated=True,
        web_searches=searches_in(blocks),
    )


def with_usage(completion: Completion) -> bytes:
    """The upstream's own bytes, with our estimate if it counted nothing."""
    if not completion.usage.estimated:
        return completion.raw
    counted = msgspec.json.encode(encode_usage(completion.usage))
    return body.patch(completion.raw, {"usage": counted})


def encode_reply(completion: Completion, names: Mapping[str, str]) -> bytes:
    """An answer of another dialect as a message.

    `names` gives back the caller's names of tools that had to be renamed.
    """
    content: list[object] = []
    for delta in completion.thinking:
        if delta.text or not delta.redacted:
            content.append(
                {"type": "thinking", "thinking": delta.text, "signature": delta.signature}
            )
        if delta.redacted:
            content.append({"type": "redacted_thinking", "data": delta.redacted})
    content += [
        {"type": "text", "text": text} for text in (completion.text, completion.refusal) if text
    ]
    content += [
        _tool_use(call, names.get(call.name, call.name))
        for call in completion.tool_calls
        if not call.is_text
    ]
    answer = {
        "id": message_id("msg_", completion.message_id, completion.raw),
        "type": "message",
        "role": "assistant",
        "model": completion.model,
        "content": content,
        "stop_reason": STOPPED_BY.get(completion.stop_reason, "end_turn"),
        "stop_sequence": completion.stop_sequence,
        "stop_details": stop_details(completion.stop_reason, completion.refusal),
        "usage": encode_usage(completion.usage) | _tier(completion.usage),
    }
    return msgspec.json.encode(answer)


def stop_details(stop_reason: str, refusal: str) -> dict[str, object] | None:
    """What accompanies the stop reason `refusal`, and no other."""
    if stop_reason != "content_filter":
        return None
    return {"type": "refusal", "category": None, "explanation": refusal or None}


def _tool_use(call: ToolCall, name: str) -> dict[str, object]:
    arguments = msgspec.Raw(as_object(call.arguments_json))
    return {"type": "tool_use", "id": call_id(call.tool_id), "name": name, "input": arguments}


def as_object(arguments: str) -> str:
    """Keeps arguments that a model left unfinished readable, instead of losing the answer."""
    if not arguments.strip():
        return "{}"
    try:
        if is_readable(arguments):
            _OBJECT.decode(arguments)
            return arguments
    except (msgspec.DecodeError, RecursionError):
        pass
    return msgspec.json.encode({RAW_ARGUMENTS: arguments}).decode()


def _tier(usage: Usage) -> dict[str, object]:
    """The tier that served, if this dialect has a word for it."""
    word = _SERVED_AS.get(usage.service_tier)
    return {"service_tier": word} if word else {}


def encode_usage(usage: Usage) -> dict[str, object]:
    """Usage in this dialect's format, where input excludes the cached parts."""
    written = usage.cache_write_tokens + usage.cache_write_1h_tokens
    return {
        "input_tokens": max(usage.input_tokens - usage.cache_read_tokens - written, 0),
        "output_tokens": usage.output_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation_input_tokens": written,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }
