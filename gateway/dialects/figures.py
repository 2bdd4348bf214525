"""Reads the token counts that an upstream reports; an unreadable one never fails the answer.

Text, a fraction or a negative number is not a count. It is treated as missing: our estimate
replaces it, marked as such, and the answer's text is still delivered.
"""

from typing import TypeVar, get_args

import msgspec
from msgspec import Struct, structs


Wire = TypeVar("Wire", bound=Struct)


def read_figures(said: object, wire: type[Wire]) -> tuple[Wire, bool]:
    """The counts of a usage, and whether all of them could be read."""
    try:
        return msgspec.convert({} if said is None else said, wire), True
    except msgspec.ValidationError:
        return _readable(said, wire), False


def written_in_all(read: int, written: int, reasoning: int, total: object) -> int:
    """Tokens that a model wrote, including its thinking.

    xAI, and some relays, bill thinking in addition to the answer, which shows only in their total;
    with others thinking is part of the answer's count, and the total is a different one.
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
