"""What the answers of a batch use together, in OpenAI's words. Pure: answers in, their sums out."""

from typing import Any, Final

import msgspec
from msgspec import Struct

from gateway.batches import AnswerSums


class _Details(Struct, frozen=True):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


_NONE: Final = _Details()


class _Usage(Struct, frozen=True):
    """Of chats, completions and embeddings by the first names, of responses by the second."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None


class _Answer(Struct, frozen=True):
    model: str = ""
    usage: _Usage | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


def with_answer(sums: AnswerSums, body: bytes) -> AnswerSums:
    """The sums with one more answer; one that does not say its tokens makes them inexact."""
    try:
        answer = _ANSWER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        answer = _Answer()
    model = answer.model if sums.answers == 0 or sums.model == answer.model else ""
    usage = answer.usage or _Usage()
    read = usage.prompt_tokens if usage.input_tokens is None else usage.input_tokens
    of_read = usage.input_tokens_details or usage.prompt_tokens_details or _NONE
    written = usage.completion_tokens if usage.output_tokens is None else usage.output_tokens
    of_written = usage.output_tokens_details or usage.completion_tokens_details or _NONE
    return AnswerSums(
        sums.answers + 1,
        model,
        sums.is_counted and read is not None,
        sums.input_tokens + (read or 0),
        sums.cached_tokens + (of_read.cached_tokens or 0),
        sums.output_tokens + (written or 0),
        sums.reasoning_tokens + (of_written.reasoning_tokens or 0),
    )


def usage_object(sums: AnswerSums) -> dict[str, Any] | None:
    """None where there is no answer, or one of them does not say what it used."""
    if not sums.answers or not sums.is_counted:
        return None
    return {
        "input_tokens": sums.input_tokens,
        "input_tokens_details": {"cached_tokens": sums.cached_tokens},
        "output_tokens": sums.output_tokens,
        "output_tokens_details": {"reasoning_tokens": sums.reasoning_tokens},
        "total_tokens": sums.input_tokens + sums.output_tokens,
    }
