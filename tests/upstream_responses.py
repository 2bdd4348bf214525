"""The recording upstream's answers on OpenAI's responses endpoint."""

from typing import Protocol

import msgspec


class Told(Protocol):
    """The part of `tests.upstreams.Answer` that makes an answer."""

    @property
    def text(self) -> str: ...
    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...
    @property
    def cache_read_tokens(self) -> int: ...


def openai_response(answer: Told, model: object) -> dict[str, object]:
    return {
        "id": "resp_upstream",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": model,
        "output": [_message(answer.text)],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "store": False,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {
                "cached_tokens": answer.cache_read_tokens,
                "cache_write_tokens": 0,
            },
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        },
    }


def _message(text: str, status: str = "completed") -> dict[str, object]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        "id": "msg_upstream",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part] if text else [],
    }


def openai_response_events(answer: Told, request: dict[str, object]) -> list[bytes]:
    whole = openai_response(answer, request.get("model", ""))
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    item = {"item_id": "msg_upstream", "output_index": 0}
    part = item | {"content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    words = answer.text.split(" ")
    pieces = [word if i == 0 else " " + word for i, word in enumerate(words)]
    trees: list[dict[str, object]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": _message("", "in_progress"),
        },
        {"type": "response.content_part.added", **part, "part": empty},
        *(
            {"type": "response.output_text.delta", **part, "delta": piece, "logprobs": []}
            for piece in pieces
        ),
        {"type": "response.output_text.done", **part, "text": answer.text, "logprobs": []},
        {"type": "response.content_part.done", **part, "part": empty | {"text": answer.text}},
        {"type": "response.output_item.done", "output_index": 0, "item": _message(answer.text)},
        {"type": "response.completed", "response": whole},
    ]
    return [
        b"event: %b\ndata: %b\n\n"
        % (str(tree["type"]).encode(), msgspec.json.encode(tree | {"sequence_number": number}))
        for number, tree in enumerate(trees)
    ]
