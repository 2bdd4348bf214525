"""Reads consecutive texts both ways: joined into one text, and each by itself.

A value may be split over two of them, and joining may also turn the start of the next text into
another number. A reader who sees both as one text reads the former, one who sees two the latter.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final

from msgspec.structs import replace

from classifiers.pii.detect import Scan, find
from classifiers.pii.findings import Finding
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.units import SEAM, Chain


REACH: Final = 128
"""Characters read on either side of a part's end, for a value that goes on after it."""
_WORD_LENGTH = 4096
"""Characters read of a word that reaches further."""

ScanText = Callable[[str], Scan]


class Seamed:
    """A text with a mark where one part of it ends and the next begins."""

    __slots__ = ("_marks", "text")

    def __init__(self, text: str, edges: Iterable[int], mark: str = SEAM) -> None:
        parts: list[str] = []
        self._marks: list[int] = []
        reached = 0
        for count, edge in enumerate(edges):
            parts += (text[reached:edge], mark)
            self._marks.append(edge + count)
            reached = edge
        parts.append(text[reached:])
        self.text = "".join(parts)

    def origin(self, place: int) -> int:
        """The place of a character in the text without marks."""
        return place - bisect_left(self._marks, place)


def scan_both_ways(
    scan: ScanText, text: str, edges: Sequence[int], least: DataClass = DataClass.S0
) -> Scan:
    """The findings of class `least` and above in a text whose parts end at `edges`.

    Overlapping ones become one finding, with the label of the most sensitive, then the longest.
    """
    one = scan(text)
    inner = [edge for edge in edges if 0 < edge < len(text)]
    if not inner:
        return one
    seamed = Seamed(text, inner)
    several = scan(seamed.text)
    found = [f for f in one.findings if data_class_of(f.label) >= least]
    found += [
        replace(f, start=seamed.origin(f.start), end=seamed.origin(f.end))
        for f in several.findings
        if data_class_of(f.label) >= least
    ]
    return Scan(tuple(_merged(found)), one.complete and several.complete)


def _merged(found: Iterable[Finding]) -> list[Finding]:
    merged: list[Finding] = []
    for finding in sorted(found):
        if not merged or finding.start >= merged[-1].end:
            merged.append(finding)
            continue
        last = merged.pop()
        name = max(last, finding, key=_weight)
        merged.append(replace(name, start=last.start, end=max(last.end, finding.end)))
    return merged


def _weight(finding: Finding) -> tuple[int, int]:
    return data_class_of(finding.label), finding.end - finding.start


def torn_values(text: str, chain: Chain, known: Sequence[Finding]) -> list[str]:
    """Labels of values that patterns find only if the texts of a chain are read as one.

    `known` are the findings in the text as it is, in order. If they cover all of a value in one of
    the parts, the text in the next part does not belong to the value but follows it.
    """
    parts = [text[start:end] for start, end in chain]
    joined, edges = "".join(parts), [0, *accumulate(map(len, parts))]
    labels: list[str] = []
    for start, end in _around(joined, edges[1:-1]):
        for f in find(joined[start:end]):
            first, last = start + f.start, start + f.end
            shares: list[tuple[int, int]] = []
            at = bisect_right(edges, first) - 1
            while edges[at] < last:
                shift = chain[at][0] - edges[at]
                share = max(first, edges[at]) + shift, min(last, edges[at + 1]) + shift
                shares += [share] if share[0] < share[1] else []
                at += 1
            if len(shares) > 1 and not any(_is_known(*share, f, known) for share in shares):
                labels.append(f.label)
    return labels


def _around(text: str, edges: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Stretches around the edges; overlapping ones are merged."""
    start = end = 0
    for edge in edges:
        word = text.rfind(" ", max(0, edge - _WORD_LENGTH), edge) + 1
        first = max(0, min(edge - REACH, word or edge - _WORD_LENGTH))
        if first > end:
            if end:
                yield start, end
            start = first
        word = text.find(" ", edge, edge + _WORD_LENGTH)
        end = max(end, edge + REACH, word if word >= 0 else edge + _WORD_LENGTH)
    yield start, end


def _is_known(start: int, end: int, finding: Finding, known: Sequence[Finding]) -> bool:
    """Whether one finding, at least as sensitive, covers a place."""
    at = bisect_right(known, start, key=attrgetter("start")) - 1
    return at >= 0 and end <= known[at].end and _class_of(finding) <= _class_of(known[at])


def _class_of(finding: Finding) -> DataClass:
    return data_class_of(finding.label)
