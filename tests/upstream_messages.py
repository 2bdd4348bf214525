"""The recording upstream's answers on Anthropic's messages endpoint."""

from typing import Protocol

import msgspec

from tests.upstream_completions import words_of


class Told(Protocol):
    """The part of `tests.upstreams.Answer` that makes an answer."""

    @property
    def text(self) -> str: ...
    @property
    def stop(self) -> str: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int: ...


def anthropic_message(answer: Told, model: object) -> dict[str, object]:
    return {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": answer.text}],
        "stop_reason": answer.stop or "end_turn",
        "stop_sequence": None,
        "usage": _usage(answer, answer.output_tokens),
    }


def anthropic_events(answer: Told, request: dict[str, object]) -> list[bytes]:
    message = anthropic_message(answer, request.get("model", ""))
    message |= {"content": [], "stop_reason": None, "usage": _usage(answer, 1)}
    trees: list[dict[str, object]] = [
        {"type": "message_start", "message": message},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        },
        *(
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": piece},
            }
            for piece in words_of(answer.text)
        ),
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": answer.stop or "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": answer.output_tokens},
        },
        {"type": "message_stop"},
    ]
    return [
        b"event: %b\ndata: %b\n\n" % (str(tree["type"]).encode(), msgspec.json.encode(tree))
        for tree in trees
    ]


def _usage(answer: Told, output_tokens: int) -> dict[str, object]:
    return {
        "input_tokens": answer.input_tokens - answer.cache_read_tokens,
        "output_tokens": output_tokens,
        "cache_read_input_tokens": answer.cache_read_tokens,
        "cache_creation_input_tokens": 0,
    }
