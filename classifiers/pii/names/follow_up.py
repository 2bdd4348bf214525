"""Extends a finding to the rest of its text: a town's postal code, a name's other places.

Whoever is named once is meant each time. Time is linear in the text: few names are followed.
"""

import re
from collections.abc import Iterator
from typing import Final

from classifiers.pii.findings import Finding
from classifiers.pii.labels import SOFT
from classifiers.pii.names.places import is_of_costs


_SURE: Final = 0.6
_SCORE: Final = 0.6
_LEAST_LENGTH: Final = 4
_NAMES_MAX: Final = 32
# Codes of thirty countries; nothing that goes on as a longer number, a share or a time.
_POSTAL_CODE = re.compile(
    r",?[ \n]?((?:[A-Z]{1,2}-)?(?:[0-9]{5}(?:-[0-9]{3,4})?|[0-9]{4}-[0-9]{3}|[0-9]{2}-[0-9]{3}"
    r"|[0-9]{3} ?[0-9]{2,3}|[0-9]{4} ?[A-Z]{2}|[0-9]{4}|[A-Z]{1,2}[0-9][A-Z0-9]? ?[0-9][A-Z]{2}"
    r"|[A-Z][0-9][A-Z] ?[0-9][A-Z][0-9]))(?![0-9A-Za-z%\u00b0/:\-]|[.,][0-9]| ?[%\u20ac$\u00a3])"
)
_LINE = re.compile(r"[^\s](?:[^\n]*[^\s])?")
_BOUNDS: Final = frozenset({"min", "max"})
"""Numbers after these are no codes: "defaults to 30000, min 10000"."""
_YEAR = re.compile("(?:19|20)[0-9]{2}")
# Letters that Python counts as none: the vowel signs and marks of Indian scripts, and accents.
_MARKS = (("\u0300", "\u036f"), ("\u0900", "\u0903"), ("\u093a", "\u094f"), ("\u0962", "\u0963"))


def followed(text: str, found: list[Finding]) -> list[Finding]:
    """The findings of a text and those that follow from them, in order and without overlaps."""
    added = [*_postal_codes(text, found), *_repeated(text, found)]
    if not added:
        return found
    taken = bytearray(len(text))
    kept = [finding for finding in found if finding.label not in SOFT]
    for finding in kept:
        taken[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
    for finding in (*added, *(f for f in found if f.label in SOFT)):
        if taken.find(1, finding.start, finding.end) < 0:
            taken[finding.start : finding.end] = b"\x01" * (finding.end - finding.start)
            kept.append(finding)
    return sorted(kept)


def lines_of(text: str, start: int, end: int) -> tuple[tuple[int, int], ...]:
    """The lines of an address, each as a place; one without a number is joined to the last."""
    parts: list[tuple[int, int]] = []
    for match in _LINE.finditer(text, start, end):
        if parts and not any(map(str.isdigit, match[0])):
            parts[-1] = parts[-1][0], match.end()
        else:
            parts.append(match.span())
    return tuple(parts)


def _postal_codes(text: str, found: list[Finding]) -> Iterator[Finding]:
    """The postal code after a town."""
    for finding in found:
        if finding.label != "LOCATION" or text[finding.start : finding.end] in _BOUNDS:
            continue
        match = _POSTAL_CODE.match(text, finding.end)
        if match is None or is_of_costs(text, match.start(1)):
            continue
        if not _YEAR.fullmatch(match[1]):
            yield Finding(match.start(1), match.end(1), "ADDRESS", _SCORE, "postal_code")


def _repeated(text: str, found: list[Finding]) -> Iterator[Finding]:
    """Where a found name, or its first or last word, occurs again."""
    persons = [(f.start, f.end) for f in found if f.label == "PERSON" and f.score >= _SURE]
    if not persons:
        return
    names = dict.fromkeys(name for a, b in persons for name in _forms(text[a:b]))
    for name in list(names)[:_NAMES_MAX]:
        at = text.find(name)
        while at >= 0:
            end = at + len(name)
            if not _goes_on(text[at - 1 : at]) and not _goes_on(text[end : end + 1]):
                yield Finding(at, end, "PERSON", _SCORE, "repeated")
            at = text.find(name, end)


def _forms(name: str) -> Iterator[str]:
    """Longest first. A single word must look like a name by itself."""
    if len(name) >= _LEAST_LENGTH and (" " in name or not name.islower()):
        yield name
    words = name.split()
    for word in (words[-1], words[0]) if len(words) > 1 else ():
        if len(word) >= _LEAST_LENGTH and word.isalpha() and not word.islower():
            yield word


def _goes_on(char: str) -> bool:
    return char.isalnum() or char == "_" or any(low <= char <= high for low, high in _MARKS)
