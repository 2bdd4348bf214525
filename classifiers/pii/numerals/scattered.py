"""Numbers whose digits are spread over lines, lists, quotes or tags, or split by any marks.

Digits are put together only if a check digit proves the result, and only from groups as people and
programs make them: a card is not looked for in every row of small numbers.
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Final

from classifiers.pii.numerals import validators
from classifiers.pii.views.decoded import Change


# \x1e and \x1f part what never was one text.
_GAP: Final = r"[^A-Za-z0-9\x1e\x1f]{1,8}"
_NARROW: Final = r"[^A-Za-z0-9\x1e\x1f]{1,2}"
TRIGGER: Final = (
    r"[0-9](?:[^A-Za-z0-9\x1e\x1f]{0,8}[0-9]){11}"
    r"|(?:^|[^A-Za-z0-9])[A-Z][^A-Za-z0-9\x1e\x1f]{0,2}[A-Z][^A-Za-z0-9\x1e\x1f]{0,2}[0-9]"
    r"(?:[^A-Za-z0-9\x1e\x1f]{0,8}[A-Z0-9]){12}"
    r"|(?:^|[^A-Za-z0-9])[0-9OoIl](?:[ .\-]?[0-9OoIl]){11}"
)
_RUN = re.compile(rf"(?<![A-Za-z0-9])[0-9]+(?:{_GAP}[0-9]+)+(?![A-Za-z0-9])")
_DIGITS = re.compile("[0-9]+")
_IBAN = re.compile(
    rf"(?<![A-Za-z0-9])[A-Z](?:{_NARROW})?[A-Z](?:{_NARROW})?[0-9](?:(?:{_GAP})?[A-Z0-9]){{12,31}}"
    r"(?![A-Za-z0-9])"
)
_ALIKE = re.compile(r"(?<![A-Za-z0-9])[0-9OoIl]{4}(?:[ .\-]?[0-9OoIl]){8,15}(?![A-Za-z0-9])")
_AS_DIGITS: Final = str.maketrans(
    {"O": "0", "o": "0", "I": "1", "l": "1", " ": "", ".": "", "-": ""}
)
CARDS: Final = frozenset(
    {
        (4, 4, 4, 4),
        (4, 4, 4, 3),
        (4, 6, 5),
        (8, 8),
        (5, 5, 5, 1),
        (3, 3, 3, 3, 3),
        (3, 3, 3, 3, 3, 1),
        (1, 3, 3, 3, 3, 3),  # As a number of money is written.
        (2,) * 8,
        (1,) * 15,
        (1,) * 16,
    }
)
AADHAARS: Final = frozenset({(4, 4, 4), (6, 6), (1,) * 12})
_SHAPES: Final = tuple(sorted(CARDS | AADHAARS, key=lambda shape: (-sum(shape), shape)))
_BY_FIRST: Final = {
    length: tuple(shape for shape in _SHAPES if shape[0] == length)
    for length in {shape[0] for shape in _SHAPES}
}
_SMALL: Final = 2
"""Groups with so few digits may be many things; they count only if their run holds no others."""
_BESIDE: Final = 3
"""How many single digits may surround a number in single digits."""
_WIDE: Final = 4
_TRIPLE: Final = (4, 4, 4)
_LISTED = re.compile(r"[\s,;|]*[,;|][\s,;|]*|\s*\n\s*")
"""Between numbers of a list or a column; three of four digits are too often something else."""
_SPACE = re.compile(r"[\s>]+")
_PLAIN: Final = frozenset(
    shape for shape in _SHAPES if min(shape[:-1]) > _SMALL and shape != (6, 6)
)
_ORDINARY = re.compile(r"[ .\-/()\t]{1,3}")
_USUAL = re.compile(r"[0-9]{3,5}(?:[ .\-/()\t]{1,3}[0-9]{3,5})+")
"""With gaps of these kinds, the rules for numbers find the same."""
_CONTINUED = re.compile(
    r"=\r?\n|\\\r?\n|-\r?\n|[ \t]*\r?\n[ \t>]*|[\"'`]\s{0,3}[+.&,|]{0,2}\s{0,3}[\"'`]"
)
"""Between two parts of one broken number: a line that continues, or two strings."""
_FRACTION = re.compile(r"(?<![0-9.])[0-9]{1,3}\.\Z")
_POINT = re.compile(r"\.[0-9]")
_CELL_MARKS: Final = ";,\t|"
_ROW_ENDS = re.compile(r"([;,\t|])[0-9]{1,16}[ ]?\r?\n[0-9]{1,16}(?=\1)")
_ROWS_LENGTH: Final = 400
_YEAR = re.compile("(?:19|20)[0-9]{2}")
_LEAST_CARD, _AADHAAR_LENGTH = 13, 12


def scattered(text: str) -> Iterator[Change]:
    """`text` is the ASCII view."""
    reached = 0
    for start, end, digits in sorted((*_ibans(text), *_runs(text), *_alike(text))):
        if start >= reached:
            yield start, end, digits
            reached = end


def _runs(text: str) -> Iterator[Change]:
    for run in _RUN.finditer(text):
        if _USUAL.fullmatch(run[0]):
            continue
        groups = [match.span() for match in _DIGITS.finditer(text, *run.span())]
        yield from _numbers(text, groups)


def _numbers(text: str, groups: list[tuple[int, int]]) -> Iterator[Change]:
    lengths = [end - start for start, end in groups]
    at = 0
    while at < len(groups):
        size = _size(text, groups, lengths, at)
        if size:
            start, end = groups[at][0], groups[at + size - 1][1]
            yield start, end, "".join(text[a:b] for a, b in groups[at : at + size])
        at += size or 1


def _size(text: str, groups: list[tuple[int, int]], lengths: list[int], at: int) -> int:
    """The number of groups from here on that make one number; 0 if they do not."""
    shapes = _BY_FIRST.get(lengths[at], ())
    for shape in () if shapes and _is_within_row(text, groups, lengths, at) else shapes:
        size = len(shape)
        if tuple(lengths[at : at + size]) != shape:
            continue
        if max(shape[:-1]) <= _SMALL and len(groups) > size + _BESIDE * (shape[0] == 1):
            continue
        some = groups[at : at + size]
        if not _fits(text, some, shape) or (
            shape in _PLAIN and all(_ORDINARY.fullmatch(text, a, b) for a, b in _gaps(some))
        ):
            continue
        if _is_before_row(text, groups, lengths, at, at + size) or (
            shape == _TRIPLE and _LISTED.fullmatch(text, some[0][1], some[1][0])
        ):
            continue
        if _proved("".join(text[a:b] for a, b in some), shape):
            return size
    return 2 if _goes_on(text, groups, at) else 0


def _is_within_row(text: str, groups: list[tuple[int, int]], lengths: list[int], at: int) -> bool:
    """Whether a group of this length comes before: in a long row every few groups make a number."""
    if not at or lengths[at] == 1 or lengths[at - 1] != lengths[at] or at + 1 >= len(groups):
        return False
    return _gap(text, groups, at - 1) == _gap(text, groups, at)


def _is_before_row(
    text: str, groups: list[tuple[int, int]], lengths: list[int], at: int, end: int
) -> bool:
    """Whether more groups of this length follow."""
    if lengths[at] == 1 or end >= len(groups) or lengths[end] != lengths[at]:
        return False
    return _gap(text, groups, end - 1) == _gap(text, groups, at)


def _gap(text: str, groups: list[tuple[int, int]], at: int) -> str:
    return _SPACE.sub("", text[groups[at][1] : groups[at + 1][0]])


def _goes_on(text: str, groups: list[tuple[int, int]], at: int) -> bool:
    """Whether two groups of any length are a card number that was torn between them."""
    if not _is_continued(text, groups, at):
        return False
    if (at and _is_continued(text, groups, at - 1)) or _is_continued(text, groups, at + 1):
        return False  # In a column each line ends so.
    digits = "".join(text[a:b] for a, b in groups[at : at + 2])
    if len(digits) < _LEAST_CARD or not validators.card(digits):
        return False
    return not _are_cells(text, groups[at][0], groups[at + 1][1])


def _are_cells(text: str, start: int, end: int) -> bool:
    """Whether two groups are numbers with a point, or the ends of two rows among more of them."""
    if _FRACTION.search(text, max(0, start - 5), start) or _POINT.match(text, end):
        return True
    mark = text[start - 1 : start]
    if not mark or mark not in _CELL_MARKS or text[end : end + 1] != mark:
        return False
    around = text[max(0, start - _ROWS_LENGTH) : end + _ROWS_LENGTH]
    return len([*islice(_ROW_ENDS.finditer(around), 2)]) > 1


def _is_continued(text: str, groups: list[tuple[int, int]], at: int) -> bool:
    if at + 1 >= len(groups):
        return False
    return _CONTINUED.fullmatch(text, groups[at][1], groups[at + 1][0]) is not None


def _fits(text: str, groups: list[tuple[int, int]], shape: tuple[int, ...]) -> bool:
    """Whether all gaps are equal, apart from white space between large groups."""
    gaps = {text[a:b] for a, b in _gaps(groups)}
    if shape[0] >= _WIDE:
        # A line may end between two groups.
        gaps = {_SPACE.sub("", gap) for gap in gaps}
    return len(gaps) == 1


def _gaps(groups: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    return ((a[1], b[0]) for a, b in pairwise(groups))


def _proved(digits: str, shape: tuple[int, ...]) -> bool:
    if shape not in AADHAARS:
        return validators.card(digits)
    if (
        shape == _TRIPLE
        and sum(_YEAR.match(digits, at) is not None for at in range(0, _AADHAAR_LENGTH, 4)) > 1
    ):
        return False  # "2021, 2022, 2023"
    return validators.aadhaar(digits)


def _alike(text: str) -> Iterator[Change]:
    """Letters that look like zero and one, among digits."""
    for match in _ALIKE.finditer(text):
        digits = match[0].translate(_AS_DIGITS)
        letters = sum(map(str.isalpha, match[0]))
        if not 0 < 2 * letters <= len(digits):
            continue
        if validators.card(digits) or validators.aadhaar(digits):
            yield match.start(), match.end(), digits


def _ibans(text: str) -> Iterator[Change]:
    for match in _IBAN.finditer(text):
        compact = [at for at in range(*match.span()) if text[at].isalnum()]
        said = "".join(text[at] for at in compact)
        length = validators.IBAN_LENGTH.get(said[:2], 0)
        if not length or len(compact) < length:
            continue
        end = compact[length - 1] + 1
        if not text[end : end + 1].isalnum() and validators.iban(said[:length]):
            yield match.start(), end, said[:length]
