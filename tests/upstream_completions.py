"""The recording upstream's answers on OpenAI's endpoint for text completions."""

from typing import Protocol

import msgspec


class Continued(Protocol):
    """The part of `tests.upstreams.Answer` that makes an answer."""

    @property
    def text(self) -> str: ...
    @property
    def stop(self) -> str: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


def text_completion(answer: Continued, model: object) -> dict[str, object]:
    return _shell(model) | {
        "choices": [_choice(answer.text, answer.stop or "stop")],
        "usage": _usage(answer),
    }


def text_completion_events(answer: Continued, request: dict[str, object]) -> list[bytes]:
    shell = _shell(request.get("model"))
    pieces = words_of(answer.text)
    last = len(pieces) - 1
    # Compatible servers say why they stop with the last piece of text.
    trees = [
        shell | {"choices": [_choice(piece, (answer.stop or "stop") if at == last else None)]}
        for at, piece in enumerate(pieces)
    ]
    options = request.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage"):
        trees.append(shell | {"choices": [], "usage": _usage(answer)})
    events = [b"data: " + msgspec.json.encode(tree) + b"\n\n" for tree in trees]
    return [*events, b"data: [DONE]\n\n"]


def words_of(text: str) -> list[str]:
    """The text word by word, spaces kept, so that joining restores it."""
    words = text.split(" ")
    return [word if i == 0 else " " + word for i, word in enumerate(words)]


def _shell(model: object) -> dict[str, object]:
    return {"id": "cmpl-fake", "object": "text_completion", "created": 1, "model": model}


def _choice(text: str, finish_reason: str | None) -> dict[str, object]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}


def _usage(answer: Continued) -> dict[str, object]:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
