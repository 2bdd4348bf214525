"""Complete (non-streamed) chat completions: reads an upstream's, and writes ours."""

from collections.abc import Iterable, Sequence

import msgspec

from gateway.admission.half_pairs import paired
from gateway.dialects.bodies import body
from gateway.dialects.figures import read_figures, written_in_all
from gateway.dialects.fitting.naming import message_id, own_id
from gateway.dialects.fitting.text_tools import text_as_arguments, text_of
from gateway.dialects.openai_chat.seals import seal_of
from gateway.dialects.openai_chat.tools import Told
from gateway.dialects.openai_chat.wire import (
    Ended,
    Reply,
    ReplyMessage,
    ReplyPart,
    ReplyToolCall,
    UsageWire,
)
from gateway.dialects.token_odds import Token, whole
from gateway.errors import UpstreamFailed, UpstreamMalformed
from gateway.estimate import estimate_written_tokens
from gateway.types import Completion, Delta, ToolCall, Usage


STOP_REASONS = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "content_filter",
    "eos": "end",
}
REPEATABLE = STOP_REASONS.keys() - {"content_filter"}
"""Others have words of their own for withheld answers (`SAFETY`, `sensitive`) or broken ones
(`time_limit`, `network_error`)."""
GIVEN_UP = frozenset({"abort", "error", "insufficient_system_resource"})
"""Reasons that servers give for answers they abandoned midway, although the stream ends in good
order: vLLM and SGLang if a replica is drained or a scheduler drops a request, DeepSeek if it runs
out of capacity."""
FINISH_REASONS = {
    "end": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "tool_use": "tool_calls",
    "content_filter": "content_filter",
    "pause": "length",
}
"""A paused turn is not finished, and `length` is this dialect's only word for that."""

SERVED_TIERS = frozenset({"default", "flex", "priority", "batch"})

_REPLY = msgspec.json.Decoder(Reply)


def decode_reply(raw: bytes) -> Completion:
    """See `ports.Dialect.decode_reply`."""
    raw = paired(raw)
    try:
        wire = _REPLY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed("The upstream's answer is not a chat completion.") from error
    is_repeatable = check_finished(wire.choices, usage_of(wire.usage, wire.service_tier))
    choice = wire.choices[0]
    message = choice.message
    identity = wire.id or ""
    calls = _calls_of(message.tool_calls, identity) if message.tool_calls else ()
    stop_reason = STOP_REASONS.get(choice.finish_reason or "", "end")
    if message.refusal:
        stop_reason = "content_filter"
    elif calls and stop_reason == "end" and any(not call.is_text for call in calls):
        stop_reason = "tool_use"
    stop_sequence = stopped_by(choice) if stop_reason == "end" else None
    text, thought = said_of(message)
    return Completion(
        raw=raw,
        message_id=identity,
        model=wire.model or "",
        text=text,
        tool_calls=calls,
        stop_reason=stop_reason if stop_sequence is None else "stop_sequence",
        stop_sequence=stop_sequence,
        usage=usage_of(wire.usage, wire.service_tier) or _estimated(wire),
        thinking=_thoughts(thought, message.tool_calls or (), calls) if thought or calls else (),
        refusal=message.refusal or "",
        is_repeatable=is_repeatable and not any(each.message.refusal for each in wire.choices),
    )


def _thoughts(
    thought: str, given: Sequence[ReplyToolCall], calls: Sequence[ToolCall]
) -> tuple[Delta, ...]:
    """The thinking, and the seals of calls."""
    said = [Delta("thinking", thought)] if thought else []
    if any(call.extra_content for call in given) and len(given) == len(calls):
        seals = (
            seal_of(call.extra_content, read.tool_id)
            for call, read in zip(given, calls, strict=True)
        )
        said.extend(seal for seal in seals if seal is not None)
    return tuple(said)


def check_finished(choices: Iterable[Ended], counted: Usage | None) -> bool:
    """Whether each answer stopped for a reason that allows it to be repeated from the cache.

    Raises UpstreamFailed, with the upstream's token counts, if it abandoned an answer.
    """
    is_repeatable = True
    for choice in choices:
        if choice.finish_reason in REPEATABLE:
            continue
        if choice.finish_reason in GIVEN_UP:
            error = UpstreamFailed("The upstream gave up its answer.")
            error.counted = counted
            raise error
        is_repeatable = False
    return is_repeatable


def said_of(message: ReplyMessage) -> tuple[str, str]:
    """The words of a message, and the thinking before them."""
    thought = message.reasoning_content or message.reasoning or ""
    content = message.content
    if not isinstance(content, list):
        return content or "", thought
    words = "".join([part.text or "" for part in content])
    return words, thought or "".join([_thought_in(part) for part in content])


def _thought_in(part: ReplyPart) -> str:
    said = part.thinking
    if isinstance(said, list):
        return "".join([(inner.text or "") + _thought_in(inner) for inner in said])
    return said or ""


def stopped_by(choice: Ended) -> str | None:
    """The stop string that ended an answer, if an upstream reports it; OpenAI does not."""
    told = choice.stop_reason or choice.matched_stop
    return told if isinstance(told, str) else None


def _calls_of(given: Iterable[ReplyToolCall], identity: str) -> tuple[ToolCall, ...]:
    told: set[str] = set()
    return tuple(
        _tool_call(call, identity, index, told)
        for index, call in enumerate(given)
        if (call.custom.name if call.custom is not None else call.type in {None, "function"})
    )


def _tool_call(call: ReplyToolCall, identity: str, index: int, told: set[str]) -> ToolCall:
    if call.custom is not None:
        own = own_id(call.id or "", identity, index, told)
        arguments = text_as_arguments(call.custom.input or "")
        return ToolCall(own, call.custom.name or "", arguments, is_text=True)
    if call.function is None or not call.function.name:
        raise UpstreamMalformed("The upstream called a tool without a name.")
    arguments = call.function.arguments or ""
    own = own_id(call.id or "", identity, index, told)
    return ToolCall(own, call.function.name, arguments)


def usage_of(said: object, service_tier: str | None = None) -> Usage | None:
    """None if the upstream counted nothing; its cached tokens are part of the input."""
    wire, is_sound = read_figures(said, UsageWire)
    if wire.prompt_tokens is None and wire.completion_tokens is None:
        return None
    read, written = wire.prompt_tokens_details, wire.completion_tokens_details
    reasoning = (written.reasoning_tokens or 0) if written is not None else 0
    input_tokens, output_tokens = wire.prompt_tokens or 0, wire.completion_tokens or 0
    return Usage(
        input_tokens=input_tokens,
        output_tokens=written_in_all(input_tokens, output_tokens, reasoning, wire.total_tokens),
        cache_read_tokens=(read.cached_tokens or 0) if read is not None else 0,
        cache_write_tokens=read.written_for_short if read is not None else 0,
        cache_write_1h_tokens=read.written_for_long if read is not None else 0,
        reasoning_tokens=reasoning,
        estimated=not is_sound,
        service_tier=served_tier(service_tier),
    )


def served_tier(said: str | None) -> str:
    """The tier that an upstream says it served with; empty if the word is unknown."""
    return said if said in SERVED_TIERS else ""


def _estimated(wire: Reply) -> Usage:
    texts = [text for choice in wire.choices for text in _texts(choice.message)]
    return Usage(output_tokens=estimate_written_tokens(texts), estimated=True)


def _texts(message: ReplyMessage) -> list[str | None]:
    texts: list[str | None] = [*said_of(message), message.refusal]
    if message.function_call is not None:
        texts += (message.function_call.name, message.function_call.arguments)
    if message.audio is not None:
        texts.append(message.audio.transcript)
    for call in message.tool_calls or ():
        if call.function is not None:
            texts += (call.function.name, call.function.arguments)
        elif call.custom is not None:
            texts.append(call.custom.input)
    return texts


def told_tier(usage: Usage) -> str:
    """The tier that served, if OpenAI's clients know a word for it."""
    return "" if usage.service_tier == "batch" else usage.service_tier


def with_usage(completion: Completion) -> bytes:
    """The upstream's own bytes, with our estimate if it counted nothing."""
    if not completion.usage.estimated:
        return completion.raw
    counted = msgspec.json.encode(encode_usage(completion.usage))
    return body.patch(completion.raw, {"usage": counted})


def thinking_block(delta: Delta) -> dict[str, object]:
    """A thinking block in its vendor's words: it can be sent back only if it is unchanged."""
    if delta.redacted:
        return {"type": "redacted_thinking", "data": delta.redacted}
    return {"type": "thinking", "thinking": delta.text, "signature": delta.signature}


def encode_reply(
    completion: Completion, told: Told, created: int, tokens: Sequence[Token] = ()
) -> bytes:
    """An answer of another dialect as a chat completion, made at `created` seconds since 1970.

    `told` gives back the caller's names of tools that had to be renamed; `tokens` are the answer's
    tokens, with their probabilities.
    """
    message: dict[str, object] = {"role": "assistant", "content": completion.text or None}
    message["refusal"] = completion.refusal or None
    calls = [call for call in completion.tool_calls if not call.is_text or call.name in told.texts]
    if calls and told.is_older:
        message["function_call"] = _called(calls[0], told)
    elif calls:
        message["tool_calls"] = [_call(call, told) for call in calls]
    if thinking := "".join(delta.text for delta in completion.thinking):
        message["reasoning_content"] = thinking
    if any(delta.signature or delta.redacted for delta in completion.thinking):
        message["thinking_blocks"] = [
            thinking_block(delta)
            for delta in completion.thinking
            if delta.signature or delta.redacted
        ]
    if not completion.text and not calls and not completion.refusal:
        message["content"] = ""
    choice = {
        "index": 0,
        "message": message,
        "logprobs": {"content": whole(tokens), "refusal": None} if tokens else None,
        "finish_reason": finish_reason(completion.stop_reason, told, is_called=bool(calls)),
    }
    answer: dict[str, object] = {
        "id": message_id("chatcmpl-", completion.message_id, completion.raw),
        "object": "chat.completion",
        "created": created,
        "model": completion.model,
        "choices": [choice],
        "usage": encode_usage(completion.usage),
    }
    if tier := told_tier(completion.usage):
        answer["service_tier"] = tier
    return msgspec.json.encode(answer)


def _called(call: ToolCall, told: Told) -> dict[str, str]:
    name = told.names.get(call.name, call.name)
    return {"name": name, "arguments": call.arguments_json or "{}"}


def _call(call: ToolCall, told: Told) -> dict[str, object]:
    if call.name in told.texts:
        custom = {"name": told.texts[call.name], "input": text_of(call.arguments_json)}
        return {"id": call.tool_id, "type": "custom", "custom": custom}
    return {"id": call.tool_id, "type": "function", "function": _called(call, told)}


def finish_reason(stop_reason: str, told: Told, *, is_called: bool) -> str:
    """Other dialects know no calls with plain text: to them the model just came to an end."""
    stop_reason = "tool_use" if is_called and stop_reason == "end" else stop_reason
    reason = FINISH_REASONS.get(stop_reason, "stop")
    return "function_call" if told.is_older and reason == "tool_calls" else reason


def encode_usage(usage: Usage) -> dict[str, object]:
    """Usage in this dialect's words, in which the prompt's count includes cached parts."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
