"""Makes answers unambiguous, so that text masked in one reading cannot survive in another.

If a JSON object has two members of one name, some readers take the last and some the first; and a
server-sent event may have lines that this gateway does not read while its caller does.
"""

import json
import re
from typing import Final

import msgspec

from gateway.errors import UpstreamMalformed


_DATA: Final = b"data:"
_EVENT: Final = b"event:"
_DONE: Final = b"[DONE]"
_NAME: Final = re.compile(rb" ?[a-z_.]{0,64}")
_EMPTY: Final = b":\n\n"


class _Twins(ValueError):
    """Two members of an object have the same name."""


def read_solely(raw: bytes) -> tuple[object, bytes]:
    """A JSON document and its text, written anew if other programs could read it differently.

    Raises:
        UpstreamMalformed: it cannot be read.
    """
    try:
        tree: object = msgspec.json.decode(raw)
        plain = msgspec.json.encode(tree)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise UpstreamMalformed("The upstream's answer cannot be read, so not masked.") from error
    return tree, raw if plain == raw or not _has_twins(raw) else plain


def _has_twins(raw: bytes) -> bool:
    def unique(pairs: list[tuple[str, object]]) -> None:
        if len({name for name, _ in pairs}) != len(pairs):
            raise _Twins

    try:
        json.loads(raw, object_pairs_hook=unique)
    except (ValueError, RecursionError):
        return True
    return False


def event_alone(raw: bytes) -> bytes:
    """A server-sent event with no lines but its name and its data.

    Raises:
        UpstreamMalformed: its data cannot be read.
    """
    if not raw:
        return raw
    lines = [line.rstrip(b"\r") for line in raw.split(b"\n")]
    kept = [each for each in map(_line, lines) if each]
    if not any(line.startswith(_DATA) for line in kept):
        return _EMPTY
    alone = b"\n".join(kept) + b"\n\n"
    return raw if alone == raw else alone


def _line(line: bytes) -> bytes:
    if line.startswith(_DATA):
        data = line[len(_DATA) :].removeprefix(b" ")
        if data == _DONE:
            return line
        sole = read_solely(data)[1]
        return line if sole == data else b"%b %b" % (_DATA, sole)
    if line.startswith(_EVENT) and _NAME.fullmatch(line, len(_EVENT)) is not None:
        return line
    return b""
