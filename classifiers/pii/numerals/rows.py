"""Rows of numbers, in which one stretch in ten forms an identifier by chance.

Figures in a table, counters, fractions and numbers of articles stand beside each other. Numbers
that go on as they began are a row; within one, a card is believed only in the groups that cards
have.
"""

# ruff: noqa: PLR2004 - the numbers here are those of the identifiers themselves.

from itertools import pairwise
from typing import Final

from classifiers.pii.numerals import validators
from classifiers.pii.numerals.scattered import CARDS


Span = tuple[int, int]

_CARDS: Final = (
    CARDS | {(4, 4, 4, 4, 3), (4, 6, 4), (4, 3, 3, 3), (6, 6, 4), (6, 13), (8, 4, 4), (4, 12)}
) - {(8, 8)}
_AADHAAR: Final = (4, 4, 4)
_SSN: Final = (3, 2, 4)
_SPELLED_MORE: Final = 3
"""How many single digits may surround a number in single digits: a card's expiry, and its code."""
_BESIDE: Final = {3: 0, 4: 1}
"""The same for a number in groups: a card may be followed by the year of its expiry."""
_FRACTION_LENGTH: Final = 9


def is_stretch(
    run: str, groups: list[Span], first: int, last: int, *, is_rest: bool = False
) -> bool:
    """Whether groups of a run are a stretch of a row, which only a word can make a number.

    `is_rest` says that the run is the rest of a longer one.
    """
    lengths = [end - start for start, end in groups]
    gaps = [run[a[1] : b[0]] for a, b in pairwise(groups)]
    if any(_is_fraction(lengths, gaps, at) for at in range(first, last)):
        return True
    shape = tuple(lengths[first:last])
    beside = len(groups) - len(shape)
    if len(shape) == 1:
        return False
    if max(shape) == 1:
        return beside > _SPELLED_MORE
    if not beside:
        return "\t" in gaps and shape not in _CARDS and shape not in {_AADHAAR, _SSN}
    if shape == _SSN:
        return _is_among_blanks(gaps, first, last)
    if shape not in _CARDS and shape != _AADHAAR:
        return True
    if min(shape) < max(shape):
        return False
    start, end = _row_around(lengths, gaps, first, last)
    most = 3 if is_rest else _BESIDE.get(len(shape), 0)
    row = groups[start:end]
    return len(row) - len(shape) > most and not _are_all(run, row, first - start, len(shape))


def _is_fraction(lengths: list[int], gaps: list[str], at: int) -> bool:
    """Whether a group follows a decimal point; groups between points are no fractions."""
    return (
        at > 0
        and lengths[at] >= _FRACTION_LENGTH
        and lengths[at - 1] <= 3
        and gaps[at - 1] == "."
        and gaps[max(0, at - 2) : at + 1].count(".") == 1
    )


def _is_among_blanks(gaps: list[str], first: int, last: int) -> bool:
    """Whether one blank separates all of these groups, and also one of their neighbours."""
    around = gaps[max(0, first - 1) : last]
    return len(around) >= last - first and around[0].isspace() and len({*around}) == 1


def _row_around(lengths: list[int], gaps: list[str], first: int, last: int) -> Span:
    """These groups together with the neighbours that continue them on both sides."""
    start, end = first, last
    while start and (lengths[start - 1], gaps[start - 1]) == (lengths[first], gaps[first]):
        start -= 1
    while end < len(lengths) and (lengths[end], gaps[end - 1]) == (lengths[first], gaps[first]):
        end += 1
    return start, end


def _are_all(run: str, row: list[Span], at: int, size: int) -> bool:
    """Whether a row is a list of such numbers: at least two or three, and each is one."""
    proves, least = (validators.card, 2) if size > 3 else (validators.aadhaar, 3)
    several = [row[first : first + size] for first in range(at % size, len(row) - size + 1, size)]
    return len(several) >= least and all(
        proves("".join(run[start:end] for start, end in each)) for each in several
    )
