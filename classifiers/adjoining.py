"""Reads texts that stand one behind the other both ways: as one text, and each by itself.

A value may be split over two of them, and the end of one may make another number of what begins
the next. Whoever sees both as one text reads the first, whoever sees two reads the second.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from classifiers.pii.detect import Scan
from classifiers.pii.findings import Finding
from classifiers.pii.labels import DataClass, data_class_of
from classifiers.units import SEAM


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
        """Where in the text without marks the character at a place stands."""
        return place - bisect_left(self._marks, place)


def scan_both_ways(
    scan: ScanText, text: str, edges: Sequence[int], least: DataClass = DataClass.S0
) -> Scan:
    """The findings of class `least` and above in a text whose parts end at `edges`.

    What overlaps is one finding, by the name of the most sensitive, then of the longest.
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
