"""Decodes JSON of a model directory; every fault raises one refusal that names the file."""

import json
from typing import Any, TypeVar

import msgspec

from local_engine.model.errors import ModelRefused


_Kind = TypeVar("_Kind")
_LONGEST_KEY_TOLD = 100


def decode_json(name: str, content: bytes, kind: type[_Kind]) -> _Kind:
    """Decode `content` of the file `name` as `kind`; raises `ModelRefused`.

    Parsers differ in which of two equal keys of an object they take, so both are refused.
    """
    found = decode_part(name, content, kind)
    try:
        json.loads(content, object_pairs_hook=_seen_once)
    except _Twice as error:
        raise ModelRefused(f"{name} cannot be read: it has the key {error.key!r} twice") from None
    except RecursionError as error:
        raise ModelRefused(f"{name} cannot be read: it is nested too deeply") from error
    except ValueError as error:
        # In a part that nobody reads: invalid UTF-8, or a number of thousands of digits.
        raise ModelRefused(f"{name} cannot be read: {error}") from error
    return found


class _Twice(Exception):
    def __init__(self, key: str) -> None:
        super().__init__("twice")
        self.key = key[:_LONGEST_KEY_TOLD]


def _seen_once(pairs: list[tuple[str, Any]]) -> None:
    """Checks the keys of an object and keeps nothing of it."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Twice(key)
        seen.add(key)


def decode_part(name: str, content: bytes, kind: type[_Kind]) -> _Kind:
    """The same for a part of what was decoded before."""
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelRefused(f"{name} cannot be read: {error}") from error
    except RecursionError as error:
        raise ModelRefused(f"{name} cannot be read: it is nested too deeply") from error
