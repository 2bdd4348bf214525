"""Numbers with each group in a box of its own: cells and items between tags, numbered lines.

The text between two groups is longer there than any separator, and means nothing itself. Groups are
joined, with a bar between them, if they would form one number or account.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from classifiers.pii.numerals.scattered import scattered
from classifiers.pii.views.decoded import Change


TRIGGER: Final = (
    r"[0-9][\s\\nrt]*</?[A-Za-z]"
    r"|[0-9][ \t]?[,;]?[\s\\nrt]+[ \t>]{0,4}(?:[0-9]{1,2}|[A-Za-z])[.)]\s[0-9]"
)
_GROUP: Final = "[0-9A-Z]{1,34}"
_TAG: Final = r"<[/!?]?[A-Za-z][^<>]{0,200}>"
_BLANKS: Final = r"(?:\s|\\{1,8}[nrt]){0,16}"
"""White space, also as JSON inside JSON writes it."""
_TAGGED = re.compile(
    rf"(?<![A-Za-z0-9]){_GROUP}(?:{_BLANKS}(?:{_TAG}{_BLANKS}){{1,8}}{_GROUP})+(?![A-Za-z0-9])"
)
_TAG_OR_GROUP = re.compile(rf"{_TAG}|({_GROUP})")
_ITEM: Final = rf"(?:[0-9]{{1,2}}|[A-Za-z])[.)][ \t]{{1,4}}{_GROUP}(?![A-Za-z0-9])"
_NUMBERED_TRIGGER = re.compile(r"[.)][ \t]{1,4}[0-9A-Z]{1,34}[ \t]{0,4}[,;]?[\s\\]")
_NUMBERED = re.compile(
    rf"(?<![A-Za-z0-9.]){_ITEM}(?:[ \t]{{0,4}}[,;]?{_BLANKS}[ \t>]{{0,8}}{_ITEM})+"
)
_MARK_AND_GROUP = re.compile(rf"([0-9]{{1,2}}|[A-Za-z])[.)][ \t]{{1,4}}({_GROUP})")
_BAR: Final = "|"

Span = tuple[int, int]


def boxed(text: str) -> Iterator[Change]:
    """`text` is the ASCII view."""
    yield from sorted({*_between_tags(text), *_in_numbered_lines(text)})


def _between_tags(text: str) -> Iterator[Change]:
    for run in _TAGGED.finditer(text):
        found = _TAG_OR_GROUP.finditer(text, *run.span())
        yield from _together(text, [each.span(1) for each in found if each[1] is not None])


def _in_numbered_lines(text: str) -> Iterator[Change]:
    if _NUMBERED_TRIGGER.search(text) is None:
        return
    for run in _NUMBERED.finditer(text):
        items = [*_MARK_AND_GROUP.finditer(text, *run.span())]
        if all(_comes_next(*pair) for pair in pairwise(item[1] for item in items)):
            yield from _together(text, [item.span(2) for item in items])


def _comes_next(mark: str, following: str) -> bool:
    if mark.isdigit() and following.isdigit():
        return int(following) == int(mark) + 1
    return len(mark) == len(following) == 1 and ord(following) == ord(mark) + 1


def _together(text: str, groups: Sequence[Span]) -> Iterator[Change]:
    said = _BAR.join(text[start:end] for start, end in groups)
    starts, at = dict[int, int](), 0
    ends = dict[int, int]()
    for start, end in groups:
        starts[at] = start
        at += end - start
        ends[at] = end
        at += len(_BAR)
    for first, last, digits in scattered(said):
        if first in starts and last in ends:
            yield starts[first], ends[last], digits
