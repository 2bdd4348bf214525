"""Where a refused body is wrong: the path of its first flaw, found only after it was refused.

A second look with markers instead of errors: whoever sends good bodies pays nothing for it. Only
words of the dialects are repeated; any other key might be content, and becomes a star.
"""

import json
from collections.abc import Iterator

from msgspec import Struct


PATH_LENGTH_MAX = 200
_WORDS = frozenset(
    {
        *(
            "model",
            "messages",
            "input",
            "instructions",
            "system",
            "role",
            "content",
            "type",
            "text",
        ),
        *("tools", "tool_choice", "tool_calls", "tool_call_id", "tool_use_id", "function", "name"),
        *("arguments", "parameters", "input_schema", "description", "strict", "schema", "id"),
        *("temperature", "top_p", "top_k", "seed", "stop", "stop_sequences", "n", "logit_bias"),
        *("max_tokens", "max_completion_tokens", "max_output_tokens", "logprobs", "top_logprobs"),
        *("stream", "stream_options", "include_usage", "response_format", "json_schema", "format"),
        *("output_config", "effort", "thinking", "budget_tokens", "reasoning", "reasoning_effort"),
        *("image_url", "url", "detail", "source", "media_type", "data", "file", "file_data"),
        *("metadata", "user", "user_id", "store", "include", "service_tier", "output", "call_id"),
        *("presence_penalty", "frequency_penalty", "dimensions", "encoding_format"),
        *("properties", "items", "required", "enum", "minimum", "maximum", "cache_control"),
    }
)


class _Flaw(Struct):
    """Stands where the flaw is; `key` names the member of an object, if it is one."""

    key: str = ""


def path_of_ambiguity(text: str) -> str:
    """The path of the first key that is there twice, or of a number that is none."""
    tree = json.loads(
        text, object_pairs_hook=_marked, parse_float=_checked, parse_constant=lambda _: _Flaw()
    )
    return next((path for path, node in _nodes(tree, 0) if isinstance(node, _Flaw)), "")


def path_of_half_pair(tree: object) -> str:
    """The path of the first text that holds half of a surrogate pair."""
    for path, node in _nodes(tree, 0):
        try:
            (node if isinstance(node, str) else "").encode()
        except UnicodeEncodeError:
            return path
    return ""


def path_of_depth(tree: object, depth_max: int) -> str:
    """The path of the first value that lies too deep, as far as it can be told."""
    return next((path for path, _ in _nodes(tree, depth_max)), "")


def _marked(pairs: list[tuple[str, object]]) -> object:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            return _Flaw(key)
        seen.add(key)
    return dict(pairs)


def _checked(text: str) -> object:
    number = float(text)
    return number if number - number == 0.0 else _Flaw()


def _nodes(tree: object, from_depth: int) -> Iterator[tuple[str, object]]:
    """Paths and values in the order of the body, those above `from_depth` left out."""
    pending: list[tuple[str, object, int]] = [("", tree, 0)]
    while pending:
        path, node, depth = pending.pop()
        if depth >= from_depth:
            at = _joined(path, node.key) if isinstance(node, _Flaw) and node.key else path
            yield at[:PATH_LENGTH_MAX], node
        if isinstance(node, dict):
            pending += [
                (_joined(path, key), value, depth + 1) for key, value in reversed(node.items())
            ]
        elif isinstance(node, list):
            inner = [(f"{path}[{at}]", value, depth + 1) for at, value in enumerate(node)]
            pending += reversed(inner)


def _joined(path: str, key: str) -> str:
    word = key if key in _WORDS else "*"
    # A path that is too long to be told need not be built any further.
    return path if len(path) > PATH_LENGTH_MAX else f"{path}.{word}" if path else word
