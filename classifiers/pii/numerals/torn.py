"""One number split over several places: what proves it, and what else must support it.

A check digit alone is right by chance one time in ten. So the groups must be those of a card or an
Aadhaar, or each place must hold one group, and a word, a name or a place that holds nothing else
must say so.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from classifiers.pii.numerals import validators
from classifiers.pii.numerals.scattered import AADHAARS, CARDS
from classifiers.pii.views.decoded import Change


LEAST_DIGITS, MOST_DIGITS = 12, 19
WORDS: Final = re.compile(
    r"card|credit|debit|visa|amex|\bcc\b|\bpan\b|karte|carte|tarjeta|a(?:adh|dh)aa?r|uidai"
    "|\u0906\u0927\u093e\u0930|\u0915\u093e\u0930\u094d\u0921|\u30ab\u30fc\u30c9|\u5361\u53f7"
    "|\uce74\ub4dc|\u043a\u0430\u0440\u0442",
    re.IGNORECASE,
)
DIGITS: Final = re.compile("[0-9]+")
_YEAR = re.compile("(?:19|20)[0-9]{2}")
_TRIPLE: Final = (4, 4, 4)
_AADHAAR_LENGTH: Final = 12

_KEY: Final = r"[A-Za-z][\w .\-]{0,31}"
_SEPARATOR: Final = r"(?:[\"']?[ ]{0,2}[:=][ ]{0,2}[\"']?|\x1f)"
_NEXT: Final = r"(?:[\"']?[ ]{0,2},\s{0,12}[\"']?|[\"']?\r?\n[ \t\-]{0,12}[\"']?|&|\x1f)"
TRIGGER: Final = (
    r"[0-9](?:[\"']?[ ]?,\s*[\"']?|[\"']?\r?\n[ \t\-]*[\"']?|&|\x1f)"
    r"[A-Za-z][\w .\-]*(?:[\"']?[ ]?[:=][ ]?[\"']?|\x1f)[0-9]{3}"
    r"|[0-9][\"']\s*,\s*[\"'][0-9]{3}"
)
_VALUE: Final = r"[0-9]{3,16}(?:[ .\-][0-9]{1,8}){0,4}"
_ENTRY = re.compile(rf"(?<![\w.\-])({_KEY}){_SEPARATOR}({_VALUE})(?![\w.])")
_LIST = re.compile(
    rf"\[\s{{0,12}}([\"'])({_VALUE}(?:\1\s{{0,3}},\s{{0,12}}\1{_VALUE}){{1,4}})\1\s{{0,12}}\]"
)
_BETWEEN_ITEMS = re.compile(r"[\"'][\s,]*[\"']")
_BETWEEN = re.compile(_NEXT)
_PIECES_MAX: Final = 5
_SAID_LENGTH: Final = 64
_HALF = re.compile(
    r"first|second|third|fourth|last|begin|start|end\b|head|tail|left|right|half|prefix|suffix|rest",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"(.*?)[ _.\-]?(?:[0-9]{1,2}|[A-Za-z])")


def label_of(pieces: Sequence[Sequence[str]], *, is_said: bool) -> str:
    """The label of groups of digits, some from each place; "" if no check digit proves them.

    If no word says so (`is_said`), they must be grouped as printed. If one of the places holds a
    complete number, the others are not part of it.
    """
    digits = "".join("".join(piece) for piece in pieces)
    if not LEAST_DIGITS <= len(digits) <= MOST_DIGITS or any(map(_is_one, pieces)):
        return ""
    shapes = {tuple(len(group) for piece in pieces for group in piece), _without_edges(pieces)}
    is_whole = is_said and all(len(piece) == 1 for piece in pieces)
    if (is_whole or CARDS & shapes) and validators.card(digits):
        return "CREDIT_CARD"
    if not (is_whole or AADHAARS & shapes) or not validators.aadhaar(digits):
        return ""
    years = sum(_YEAR.match(digits, at) is not None for at in range(0, _AADHAAR_LENGTH, 4))
    return "" if _TRIPLE in shapes and years > 1 else "IN_AADHAAR"


def _is_one(piece: Sequence[str]) -> bool:
    digits = "".join(piece)
    return validators.card(digits) or validators.aadhaar(digits)


def _without_edges(pieces: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Lengths of the groups if the edge of a place does not separate any."""
    lengths: list[int] = []
    for piece in pieces:
        first, *others = map(len, piece)
        if lengths:
            lengths[-1] += first
        else:
            lengths.append(first)
        lengths += others
    return tuple(lengths)


def siblings(text: str) -> Iterator[Change]:
    """Adjacent values that are parts, by their names or as a list; `text` is ASCII."""
    yield from sorted({*_of_names(text), *_of_lists(text)})


def _of_lists(text: str) -> Iterator[Change]:
    for found in _LIST.finditer(text):
        pieces = [DIGITS.findall(item) for item in _BETWEEN_ITEMS.split(found[2])]
        if label_of(pieces, is_said=False):
            yield *found.span(2), "".join(map("".join, pieces))


def _of_names(text: str) -> Iterator[Change]:
    row: list[re.Match[str]] = []
    for entry in _ENTRY.finditer(text):
        if row and not _BETWEEN.fullmatch(text, row[-1].end(), entry.start()):
            yield from _in_row(text, row)
            row = []
        row.append(entry)
    yield from _in_row(text, row)


def _in_row(text: str, row: Sequence[re.Match[str]]) -> Iterator[Change]:
    at = 0
    while at < len(row) - 1:
        size = _size(text, row[at : at + _PIECES_MAX])
        if size:
            some = row[at : at + size]
            yield some[0].start(2), some[-1].end(2), "".join(DIGITS.findall(_said(some)))
        at += size or 1


def _size(text: str, row: Sequence[re.Match[str]]) -> int:
    """The number of values, from the first on, that are one number; 0 if they are none."""
    for size in range(len(row), 1, -1):
        some = row[:size]
        pieces = [DIGITS.findall(entry[2]) for entry in some]
        is_said = _is_said(text, some)
        if label_of(pieces, is_said=is_said) and (is_said or _are_parts(some)):
            return size
    return 0


def _said(row: Sequence[re.Match[str]]) -> str:
    return " ".join(entry[2] for entry in row)


def _is_said(text: str, row: Sequence[re.Match[str]]) -> bool:
    before = text[max(0, row[0].start() - _SAID_LENGTH) : row[0].start()]
    return WORDS.search(" ".join((before, *(entry[1] for entry in row)))) is not None


def _are_parts(row: Sequence[re.Match[str]]) -> bool:
    names = [entry[1].strip() for entry in row]
    if any(map(_HALF.search, names)):
        return True
    # The first of them may stand in a sentence.
    for first in (names[0], names[0].rpartition(" ")[2], " ".join(names[0].split()[-2:])):
        stems = [_stem(name) for name in (first, *names[1:])]
        if stems[0] is not None and all(a == b for a, b in pairwise(stems)):
            return True
    return False


def _stem(name: str) -> str | None:
    """A name without its counter; None for a name without one."""
    match = _COUNTED.fullmatch(name)
    return match[1] if match else None
