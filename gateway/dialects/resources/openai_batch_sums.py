"""The total usage of a batch's answers, in OpenAI's format. Pure."""

from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from gateway.batches import AnswerSums
from gateway.dialects.bodies.strict_json import Count


class _Details(Struct, frozen=True):
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Chat(Struct, frozen=True):
    """The usage of chats, completions and embeddings."""

    read: Count | None = field(name="prompt_tokens", default=None)
    written: Count | None = field(name="completion_tokens", default=None)
    of_read: _Details | None = field(name="prompt_tokens_details", default=None)
    of_written: _Details | None = field(name="completion_tokens_details", default=None)


class _Response(Struct, frozen=True):
    read: Count | None = field(name="input_tokens", default=None)
    written: Count | None = field(name="output_tokens", default=None)
    of_read: _Details | None = field(name="input_tokens_details", default=None)
    of_written: _Details | None = field(name="output_tokens_details", default=None)


class _Answer(Struct, frozen=True):
    model: str = ""
    usage: msgspec.Raw = msgspec.Raw(b"null")


_NONE: Final = _Details()
_ANSWER: Final = msgspec.json.Decoder(_Answer)
_CHAT: Final = msgspec.json.Decoder(_Chat | None)
_RESPONSE: Final = msgspec.json.Decoder(_Response | None)


def with_answer(endpoint: str, sums: AnswerSums, body: bytes) -> AnswerSums:
    """The sums plus one more answer; one without token counts makes them inexact.

    Only the words of the batch's `endpoint` count. Relays write those of the other API beside them,
    as zeros or worse, and those were never read before.
    """
    answer = _Answer()
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = _ANSWER.decode(body)
    usage: _Chat | _Response | None = None
    with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        usage = (_RESPONSE if endpoint == "/v1/responses" else _CHAT).decode(answer.usage)
    usage = usage or _Chat()
    of_read, of_written = usage.of_read or _NONE, usage.of_written or _NONE
    return AnswerSums(
        sums.answers + 1,
        answer.model if sums.answers == 0 or sums.model == answer.model else "",
        sums.is_counted and usage.read is not None,
        sums.input_tokens + (usage.read or 0),
        sums.cached_tokens + (of_read.cached_tokens or 0),
        sums.output_tokens + (usage.written or 0),
        sums.reasoning_tokens + (of_written.reasoning_tokens or 0),
    )


def usage_object(sums: AnswerSums) -> dict[str, Any] | None:
    """None if there is no answer, or one of them does not state its usage."""
    if not sums.answers or not sums.is_counted:
        return None
    return {
        "input_tokens": sums.input_tokens,
        "input_tokens_details": {"cached_tokens": sums.cached_tokens},
        "output_tokens": sums.output_tokens,
        "output_tokens_details": {"reasoning_tokens": sums.reasoning_tokens},
        "total_tokens": sums.input_tokens + sums.output_tokens,
    }
