"""What an upstream says it counted, as far as it can be read: no figure of its costs an answer.

A text, a fraction or a number below zero is no count. It is as good as left out: an estimate of
ours stands in for it, flagged, and the words that came with it are given.
"""

from typing import TypeVar, get_args

import msgspec
from msgspec import Struct, structs


Wire = TypeVar("Wire", bound=Struct)


def read_figures(said: object, wire: type[Wire]) -> tuple[Wire, bool]:
    """The figures of a usage, and whether all of it could be read."""
    try:
        return msgspec.convert({} if said is None else said, wire), True
    except msgspec.ValidationError:
        return _readable(said, wire), False


def written_in_all(read: int, written: int, reasoning: int, total: object) -> int:
    """Tokens that a model wrote, with what it thought.

    xAI, and some relays, bill what a model thought beside what it said, and only their total tells
    so; with others it is a part of what was said, and their sum is another.
    """
    return written + reasoning if total == read + written + reasoning else written


def _readable(said: object, wire: type[Wire]) -> Wire:
    fields = said if isinstance(said, dict) else {}
    kept: dict[str, object] = {}
    for field in structs.fields(wire):
        value = fields.get(field.encode_name)
        inner = [each for each in get_args(field.type) if _is_struct(each)]
        try:
            kept[field.name] = msgspec.convert(value, field.type)
        except msgspec.ValidationError:
            kept[field.name] = _readable(value, inner[0]) if inner else None
    return wire(**kept)


def _is_struct(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Struct)
