"""Complete (non-streamed) text completions: reads an upstream's, and writes ours."""

import msgspec

from gateway.admission.half_pairs import paired
from gateway.dialects.fitting.naming import message_id
from gateway.dialects.openai_chat.reply import (
    FINISH_REASONS,
    STOP_REASONS,
    check_finished,
    encode_usage,
    stopped_by,
    told_tier,
    usage_of,
    with_usage,
)
from gateway.dialects.openai_completions.wire import Choice, Reply
from gateway.errors import UpstreamMalformed
from gateway.estimate import estimate_written_tokens
from gateway.types import ChatRequest, Completion, Usage


_REPLY = msgspec.json.Decoder(Reply)
_NOT_ONE = "The upstream's answer is no text completion."


def decode_reply(raw: bytes) -> Completion:
    """See `ports.Dialect.decode_reply`. In the hub's words it has only the first choice."""
    raw = paired(raw)
    try:
        wire = _REPLY.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UpstreamMalformed(_NOT_ONE) from error
    is_repeatable = check_finished(wire.choices, usage_of(wire.usage, wire.service_tier))
    texts = [choice.text for choice in wire.choices]
    if None in texts:
        raise UpstreamMalformed(_NOT_ONE)
    first = wire.choices[0]
    stop_reason, stop_sequence = stop_of(first, STOP_REASONS.get(first.finish_reason or "", "end"))
    return Completion(
        raw=raw,
        message_id=wire.id or "",
        model=wire.model or "",
        text=first.text or "",
        tool_calls=(),
        stop_reason=stop_reason,
        stop_sequence=stop_sequence,
        usage=usage_of(wire.usage, wire.service_tier)
        or Usage(output_tokens=estimate_written_tokens(texts), estimated=True),
        is_repeatable=is_repeatable,
    )


def stop_of(choice: Choice, reason: str) -> tuple[str, str | None]:
    """Why a continuation ended, and at which stop string if an upstream reports it."""
    sequence = stopped_by(choice) if reason == "end" else None
    return (reason, None) if sequence is None else ("stop_sequence", sequence)


def passed_on(completion: Completion, request: ChatRequest) -> bytes:
    """The upstream's own bytes.

    Raises:
        UpstreamMalformed: it made fewer or more continuations than asked for: nobody could tell
            which of them belongs to which prompt.
    """
    count = request.tree.get("n")
    asked = request.prompts * (count if isinstance(count, int) else 1)
    if asked > 1 and len(_REPLY.decode(completion.raw).choices) != asked:
        raise UpstreamMalformed("The upstream's answer has not as many choices as were asked for.")
    return with_usage(completion)


def encode_reply(completion: Completion, created: int) -> bytes:
    """A chat's answer as a continuation: its words, or its refusal.

    It was made at `created` seconds since 1970.
    """
    choice = {
        "text": completion.text or completion.refusal,
        "index": 0,
        "logprobs": None,
        "finish_reason": FINISH_REASONS.get(completion.stop_reason, "stop"),
    }
    answer: dict[str, object] = {
        "id": message_id("cmpl-", completion.message_id, completion.raw),
        "object": "text_completion",
        "created": created,
        "model": completion.model,
        "choices": [choice],
        "usage": encode_usage(completion.usage),
    }
    if tier := told_tier(completion.usage):
        answer["service_tier"] = tier
    return msgspec.json.encode(answer)
