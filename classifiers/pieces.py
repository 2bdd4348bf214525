"""Values sent as a list: a number as groups or digits, a text as its bytes.

Programs and agents send both: `["4111", "1111", …]`, `{"type": "Buffer", "data": [52, 49, …]}`.
"""

from collections.abc import Sequence
from typing import Final

from classifiers.pii.numerals import validators
from classifiers.pii.views.encodings import of_bytes


_LEAST_DIGITS: Final = 12
_PIECE_LENGTH: Final = 12
_GROUP: Final = 4
_NO_MARKS: Final = dict.fromkeys(map(ord, " -"))
"""A piece may itself consist of several groups."""
_LONGEST: Final = 34
"""An IBAN is the longest of all identifiers with a check digit."""
_BYTES_LEAST: Final = 9
_BYTES_MAX: Final = 65_536


def pieces_of(items: Sequence[object]) -> list[str]:
    """Short texts or whole numbers that make one identifier by its check digit; otherwise none."""
    if not 1 < len(items) <= _LONGEST:
        return []
    pieces: list[str] = []
    for item in items:
        if item.__class__ is float and item.is_integer():
            item = int(item)  # noqa: PLW2901 - some programs write every number with a point.
        if item.__class__ is not str and item.__class__ is not int:
            return []
        pieces.append(str(item))
        plain = pieces[-1].translate(_NO_MARKS)
        if len(plain) > _PIECE_LENGTH or not (plain.isascii() and plain.isalnum()):
            return []
    said = "".join(pieces).translate(_NO_MARKS)
    if _is_proved(said) or (items[0].__class__ is str and _is_aadhaar(pieces, said)):
        return pieces
    # A number begins with no nought, a group of digits does.
    padded = [piece.zfill(_GROUP) for piece in pieces]
    return padded if items[0].__class__ is not str and _is_proved("".join(padded)) else []


def _is_proved(said: str) -> bool:
    if not _LEAST_DIGITS <= len(said) <= _LONGEST:
        return False
    if said.isdigit():
        return validators.card(said)
    return validators.iban(said)


def _is_aadhaar(pieces: Sequence[str], said: str) -> bool:
    """Three numbers of four digits are too often something else, such as years."""
    years = sum(len(piece) == _GROUP and piece[:2] in {"19", "20"} for piece in pieces)
    return years < len(pieces) - 1 and validators.aadhaar(said)


def bytes_said(items: Sequence[object]) -> str | None:
    """The text that a list of bytes encodes; None if it encodes none."""
    if not _BYTES_LEAST <= len(items) <= _BYTES_MAX or items[0].__class__ is not int:
        return None
    if not all(item.__class__ is int for item in items):
        return None
    return of_bytes(items)  # type: ignore[arg-type]
