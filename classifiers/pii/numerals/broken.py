"""Numbers of three groups (an SSN, an NHS number) split by marks, tags or line ends.

No check digit proves an SSN, so its groups have to be separated by a dash with marks around it, or
a word has to say what it is: three numbers in a row of a table are three numbers.
"""

import re
from collections.abc import Iterator
from typing import Final

from classifiers.pii.views.decoded import Change


_TAG: Final = r"</?[A-Za-z][^<>]{0,120}>"
_MARK: Final = rf"(?:[*_~`\\\[]|\]\([^()\s]{{0,80}}\)|{_TAG})"
# A line ends behind a dash; in front of one the next item of a list begins.
_DASHED: Final = (
    rf"{_MARK}{{0,6}} ?{_MARK}{{0,6}}-{_MARK}{{0,6}} ?\r?\n?[ \t>]{{0,8}}{_MARK}{{0,6}}"
)
_APART: Final = rf"(?:{_MARK}|[-|>.#\s]){{1,24}}"
_GROUPS = re.compile(
    rf"(?<![0-9A-Za-z.,-])([0-9]{{3}})({_APART})([0-9]{{2,3}})({_APART})([0-9]{{4}})(?![0-9A-Za-z])"
)
_IS_DASHED = re.compile(_DASHED)
_GAP: Final = r"(?:[*_~`\\\[|>.#\s\-]|\]\([^()\s]*\)|<[^<>]*>)+"
TRIGGER: Final = rf"[0-9]{{3}}{_GAP}[0-9]{{2,3}}{_GAP}[0-9]{{4}}"
_SSN_WORDS = re.compile(r"\bss(?:n|#|\b)|social[ _-]?sec|\bitin\b", re.IGNORECASE)
_NHS_WORD = re.compile(r"\bnhs", re.IGNORECASE)
_ANY_TAG = re.compile(_TAG)
_BEFORE: Final = 200
_AFTER: Final = 40
_SAID: Final = 48
_SSN_MIDDLE: Final = 2
_AS_WRITTEN: Final = frozenset({"-", " ", "--", " - "})


def broken(text: str) -> Iterator[Change]:
    """`text` is the ASCII view."""
    for match in _GROUPS.finditer(text):
        gaps = match[2], match[4]
        if set(gaps) <= _AS_WRITTEN and len({*gaps}) == 1:
            continue  # The rules for numbers read it.
        is_ssn = len(match[3]) == _SSN_MIDDLE
        if is_ssn and all(_IS_DASHED.fullmatch(gap) for gap in gaps):
            said = "-"
        elif (_SSN_WORDS if is_ssn else _NHS_WORD).search(_around(text, *match.span())):
            said = "-" if is_ssn else " "
        else:
            continue
        yield *match.span(2), said
        yield *match.span(4), said


def _around(text: str, start: int, end: int) -> str:
    """The text directly before and directly after it, without tags."""
    before = _ANY_TAG.sub(" ", text[max(0, start - _BEFORE) : start])[-_SAID:]
    return f"{before} {_ANY_TAG.sub(' ', text[end : end + _AFTER])}"
