"""Finds the path of the first flaw in a body that has already been refused.

It reads the body a second time, with markers instead of errors, so that good bodies cost nothing
extra. The path repeats only words of the dialects; any other key might be content, and becomes a
star.
"""

import json
import re
from collections.abc import Iterator

from msgspec import Struct


PATH_LENGTH_MAX = 200
WALKED_CHARACTERS_MAX = 64 * 1024
"""No path is searched further into a broken body than this, which takes some ten milliseconds."""
WALKED_NODES_MAX = 10_000
"""Nor among more values than this, which takes as long."""
_TOLD = re.compile(r"[A-Za-z_]\w{0,63}(?:\[\d{1,6}\]|\.\w{1,64})*", re.ASCII)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],:]')
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
        *(
            "output_config",
            "output_format",
            "effort",
            "thinking",
            "budget_tokens",
            "reasoning",
            "reasoning_effort",
        ),
        *("image_url", "url", "detail", "source", "media_type", "data", "file", "file_data"),
        *("metadata", "user", "user_id", "store", "include", "service_tier", "output", "call_id"),
        *(
            "presence_penalty",
            "frequency_penalty",
            "prompt",
            "suffix",
            "echo",
            "dimensions",
            "encoding_format",
        ),
        *("prediction", "verbosity", "modalities", "prompt_cache_key", "safety_identifier"),
        *("parallel_tool_calls", "disable_parallel_tool_use", "max_tool_calls", "truncation"),
        *(
            "summary",
            "refusal",
            "encrypted_content",
            "signature",
            "is_error",
            "title",
            "filename",
            "ttl",
        ),
        *("properties", "items", "required", "enum", "minimum", "maximum", "cache_control"),
    }
)


class _Flaw(Struct):
    """Marks the flaw in the tree; `key` names the member of an object, if it is one."""

    key: str = ""


def path_of_ambiguity(text: str) -> str:
    """The path of the first duplicate key, or of an invalid number.

    Empty if the text is too long to be read again for this, or breaks off behind the flaw, so that
    it has no tree.
    """
    if len(text) > WALKED_CHARACTERS_MAX:
        return ""
    try:
        tree = json.loads(
            text, object_pairs_hook=_marked, parse_float=_checked, parse_constant=lambda _: _Flaw()
        )
    except (ValueError, RecursionError):
        return ""
    return next((path for path, node in _nodes(tree, 0) if isinstance(node, _Flaw)), "")


def path_to(text: str, end: int) -> str:
    """The path of the value in which a broken text breaks off, or of its container."""
    if end > WALKED_CHARACTERS_MAX:
        return ""
    path = ""
    for place in _places(text, end):
        if isinstance(place, int):
            path = f"{path}[{place}]"
        elif place:
            path = _joined(path, place)
    return path[:PATH_LENGTH_MAX]


def _places(text: str, end: int) -> list[int | str]:
    """For each object and list open at `end`: the key (empty before it) or the index."""
    places: list[int | str] = []
    said = ""
    for token in _TOKEN.finditer(text, 0, end):
        mark = token.group()
        if mark in {"{", "["}:
            places.append("" if mark == "{" else 0)
        elif not places:
            continue
        elif mark in {"}", "]"}:
            places.pop()
        elif mark == ":":
            # Without its quotes; an empty key counts as a key.
            places[-1] = said[1:-1] or "*"
        elif mark == ",":
            inner = places[-1]
            places[-1] = "" if isinstance(inner, str) else inner + 1
        said = mark
    return places


def path_of_half_pair(tree: object) -> str:
    """The path of the first text that holds half of a surrogate pair."""
    for path, node in _nodes(tree, 0):
        try:
            (node if isinstance(node, str) else "").encode()
        except UnicodeEncodeError:
            return path
    return ""


def path_of_depth(tree: object, depth_max: int) -> str:
    """The path of the first value that is nested too deeply, as far as it is safe to repeat."""
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
    """Paths and values in the order of the body, without those above `from_depth`.

    It ends early if there are too many.
    """
    pending: list[tuple[str, object, int]] = [("", tree, 0)]
    walked = 0
    while pending:
        path, node, depth = pending.pop()
        if depth >= from_depth:
            at = _joined(path, node.key) if isinstance(node, _Flaw) and node.key else path
            yield at[:PATH_LENGTH_MAX], node
        walked += len(node) if isinstance(node, dict | list) else 0
        if walked > WALKED_NODES_MAX:
            return
        if isinstance(node, dict):
            pending += [
                (_joined(path, key), value, depth + 1) for key, value in reversed(node.items())
            ]
        elif isinstance(node, list):
            inner = [(f"{path}[{at}]", value, depth + 1) for at, value in enumerate(node)]
            pending += reversed(inner)


def known_path(told: str) -> str:
    """A path from somebody else, in the form of our own paths; empty if it is not a path.

    Its first field stays as it is: the sender of the body knows whether it has such a field.
    """
    if len(told) > PATH_LENGTH_MAX or _TOLD.fullmatch(told) is None:
        return ""
    field, *inner = told.split(".")
    return ".".join([field, *map(_as_word, inner)])


def _as_word(place: str) -> str:
    word, bracket, index = place.partition("[")
    return (word if word in _WORDS or word.isdigit() else "*") + bracket + index


def _joined(path: str, key: str) -> str:
    word = key if key in _WORDS else "*"
    # A path that is too long to be reported need not be built any further.
    return path if len(path) > PATH_LENGTH_MAX else f"{path}.{word}" if path else word
