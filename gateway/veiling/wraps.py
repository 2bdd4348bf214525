"""Edits another vendor's reasoning as a client carries it: unwrapped, changed, wrapped again."""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.conversation import BLOCK_MARK, FOREIGN_MARKS
from gateway.types import Delta


_MARKS: Final = (*FOREIGN_MARKS, BLOCK_MARK)


def in_wrap(text: str, change: Callable[[object], object]) -> str:
    """A wrap with its JSON changed; other texts, and a wrap without changes, are returned as is."""
    if not text.startswith(_MARKS):
        return text
    mark, _, wrapped = text.partition(":")
    try:
        inside = msgspec.json.decode(b64decode(wrapped, b"-_", validate=True))
    except (Error, msgspec.MsgspecError, ValueError, RecursionError):
        return text
    changed = change(inside)
    if changed == inside:
        return text
    return f"{mark}:{urlsafe_b64encode(msgspec.json.encode(changed)).decode()}"


def beside_words(delta: Delta, change: Callable[[object], object]) -> Delta:
    """A delta whose parts besides words are changed: a wrap, and the stop sequence it ended at."""
    if delta.redacted:
        return msgspec.structs.replace(delta, redacted=in_wrap(delta.redacted, change))
    if delta.stop_sequence:
        return msgspec.structs.replace(delta, stop_sequence=str(change(delta.stop_sequence)))
    return delta
