"""Finds a number that is split over several messages of the same role.

It may also be split over blocks of one message: the results of two tools are two texts, and so is
the text beside them.

People send a number in pieces, and so do those who hope that nobody puts the pieces together.
Messages are not read as one text. Only the digits at the end of one and at the beginning of the
other are tested against the check digits of cards, Aadhaars and IBANs, and something else must
support the finding as well.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from msgspec import Struct

from classifiers.pii.detect import find
from classifiers.pii.labels import data_class_of
from classifiers.pii.numerals.torn import DIGITS, LEAST_DIGITS, MOST_DIGITS, WORDS, label_of
from classifiers.pii.views.normalise import normalise
from classifiers.verdicts import CLEAN, Verdict, counted


_EDGE_LENGTH: Final = 96
"""Characters of a message's beginning and end that are looked at."""
_RUN: Final = r"\d(?:\W{0,3}\d){0,31}"
_HEAD = re.compile(rf"\D{{0,40}}(?<![\w.])({_RUN})(?!\w)")
_TAIL = re.compile(rf"(?<![\w.])({_RUN})(?!\w)\D{{0,40}}\Z")
_APART_MAX: Final = 4
"""The most messages that may stand between two pieces."""
_SMALL: Final = 2
_SHORT: Final = 5
"""A message of this many digits or fewer, and nothing else, may be a score, year or count."""
_LEAST_GROUPS: Final = 4
WINDOWS_MAX: Final = 1_000


class Edges(Struct, frozen=True):
    """How many digits a message begins and ends with, and whether it has nothing else."""

    role: str
    head: int
    tail: int
    is_all: bool


class Window(Struct, frozen=True):
    """Messages, by their places, that may share one number."""

    places: tuple[int, ...]


def edges_of(role: str, text: str) -> Edges | None:
    """Signs of a split number at the edges of a message; None for nearly every message."""
    head = _HEAD.match(text[:_EDGE_LENGTH])
    tail = _TAIL.search(text[-_EDGE_LENGTH:])
    if head is None and tail is None:
        return None
    is_all = head is not None and len(text) <= _EDGE_LENGTH and not any(map(str.isalpha, text))
    return Edges(role, _count(head), _count(tail), is_all and _count(head) == _count(tail))


def _count(match: re.Match[str] | None) -> int:
    return sum(map(str.isdigit, match[1])) if match is not None else 0


def windows(edges: Sequence[tuple[int, Edges]]) -> Iterator[Window]:
    """Sets of messages that may share a number, by the number of digits at their edges.

    `edges` are those of the messages that have any, with the place of each.
    """
    by_role: dict[str, list[tuple[int, Edges]]] = {}
    for place, each in edges:
        by_role.setdefault(each.role, []).append((place, each))
    for said in by_role.values():
        for last in range(1, len(said)):
            yield from _ending(said, last)


def _ending(said: Sequence[tuple[int, Edges]], last: int) -> Iterator[Window]:
    """The windows of messages of one role whose number ends in the message `last`."""
    place, each = said[last]
    places: tuple[int, ...] = (place,)
    inner, longest, is_bare = 0, each.head, each.is_all
    for first in range(last - 1, -1, -1):
        at, other = said[first]
        if not each.head or places[0] - at > _APART_MAX + 1:
            return
        places = (at, *places)
        longest, is_bare = max(longest, other.tail), is_bare and other.is_all
        if other.tail and other.tail + inner + each.head >= LEAST_DIGITS:
            is_row = is_bare and longest <= _SHORT
            if not is_row or not _says_nothing(said, first, last, longest):
                yield Window(places)
        inner += other.tail
        if not other.is_all or inner >= MOST_DIGITS - 1:
            return


def _says_nothing(said: Sequence[tuple[int, Edges]], first: int, last: int, longest: int) -> bool:
    """Whether messages of few digits each are no number, though one in ten passes a check digit.

    Such are scores in examples that show a model how to judge, and counts from tools: digits and
    pairs of them, fewer than four groups, and some out of a longer row.
    """
    if longest <= _SMALL or last - first + 1 < _LEAST_GROUPS:
        return True
    beside = [(said[first], said[first - 1])] if first else []
    beside += [(said[last], said[last + 1])] if last + 1 < len(said) else []
    return any(
        each.is_all and each.head <= _SHORT and abs(at - place) <= _APART_MAX + 1
        for (at, _), (place, each) in beside
    )


def edges_in(text: str) -> str:
    """The part of a message that `labels_across` looks at; its answer for this is the same."""
    if len(text) <= 2 * _EDGE_LENGTH:
        return text
    return text[:_EDGE_LENGTH] + text[-_EDGE_LENGTH:]


def labels_across(texts: Sequence[str]) -> tuple[str, ...]:
    """Labels of numbers that the digits at these texts' edges form; empty without support."""
    views = [normalise(text[-_EDGE_LENGTH:]).text for text in texts[:-1]]
    views.append(normalise(texts[-1][:_EDGE_LENGTH]).text)
    edge = f"{views[0]} {views[-1]}"
    if len(texts) == 2 and any(  # noqa: PLR2004 - an account in more pieces has letters there.
        f.label == "IBAN" and f.start < len(views[0]) < f.end for f in find(edge)
    ):
        return ("IBAN",)
    first, last = _TAIL.search(views[0]), _HEAD.match(views[-1])
    if first is None or last is None:
        return ()
    is_said = any(WORDS.search(f"{text[:_EDGE_LENGTH]} {text[-_EDGE_LENGTH:]}") for text in texts)
    if not is_said and not any(_is_bare(text) for text in texts):
        return ()
    inner = [DIGITS.findall(view) for view in views[1:-1]]
    begun, rest = DIGITS.findall(first[1]), DIGITS.findall(last[1])
    if not is_said and not inner and len(begun) == len(rest) == 1:
        return ()  # Eight digits twice are many things.
    for start in _ends(begun[::-1]):
        for end in _ends(rest):
            label = label_of([begun[-start:], *inner, rest[:end]], is_said=is_said)
            if label:
                return (label,)
    return ()


def labels_in_blocks(said: Sequence[str]) -> tuple[str, ...] | None:
    """Labels of values split over a message's blocks; None if they are too many to be tried."""
    edges = [(at, each) for at, text in enumerate(said) if (each := edges_of("", text)) is not None]
    found = list(islice(windows(edges), WINDOWS_MAX + 1))
    if len(found) > WINDOWS_MAX:
        return None
    return tuple(
        label for window in found for label in labels_across([said[at] for at in window.places])
    )


def _ends(groups: Sequence[str]) -> list[int]:
    """The numbers of groups after which a number may end: not within a row of like groups."""
    counts = range(len(groups), 0, -1)
    return [n for n in counts if n == len(groups) or len(groups[n]) != len(groups[n - 1])]


def _is_bare(text: str) -> bool:
    return len(text) <= _EDGE_LENGTH and not any(map(str.isalpha, text))


def verdict_of(labels: Sequence[str]) -> Verdict:
    """The verdict on values split over several messages: counted, without a place."""
    if not labels:
        return CLEAN
    counts = tuple(sorted((label, labels.count(label)) for label in set(labels)))
    return Verdict((), counts, max(map(data_class_of, labels)), (), is_torn=True)


def joined(one: Verdict, other: Verdict) -> Verdict:
    """Joins two verdicts on a part; the places are those of the first."""
    if one is CLEAN or other is CLEAN:
        return other if one is CLEAN else one
    counts = tuple(counted((one, other)).items())
    reasons = tuple(dict.fromkeys((*one.reasons, *other.reasons)))
    found_class = max(one.found_class, other.found_class)
    return Verdict(one.findings, counts, found_class, reasons, one.is_torn or other.is_torn)
