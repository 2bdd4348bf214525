"""Reads tables in text: the heading of a column applies to every value below it.

A rule that needs a word in front of a value finds none in a table: the word stands once, lines
above. So each value of such a column is read as if its heading stood right before it. Tables are
lines with bars, tabs, semicolons or commas, as spreadsheets, databases and models write them, and
SQL that inserts rows.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

import re2

from classifiers.pii.gate import options
from classifiers.pii.views.decoded import CUT, Change
from classifiers.units import SEAM


_WORDS: Final = (
    r"passport|reisepass|pasaporte|passeport|pass(?:word|wd|phrase|code)|pwd|kennwort|passwort|ssn"
    r"|social[ _\-]?security|itin|nhs|\bsin\b|date[ _\-]?of[ _\-]?birth|birth[ _\-]?(?:date|day)"
    r"|\bdob|geburtsdatum|a(?:adh|dh)aa?r|national[ _\-]?id|tax[ _\-]?(?:payer[ _\-]?)?id|\bcpf\b"
    r"|\bpesel\b|\bbsn\b|\bnif\b|\bdni\b|account[ _\-]?n|account\b|\bacct|konto"
    r"|medical[ _\-]?record|\bmrn\b|patient[ _\-]?(?:id|n)|driv(?:er|ing)[ _'s\-]{0,4}licen[cs]e"
    r"|\bpin\b|\bpuk\b|\bcv[vc]2?\b|\botp\b|passcode|(?:door|gate|alarm|access)[ _\-]?code"
    r"|api[ _\-]?key|credit[ _\-]?card|card[ _\-]?n"
)
"""Words in a heading that decide about values which nothing else proves."""
_MARKS: Final = "|\t;,"
_HEAD: Final = r"[\w .\-\"'`*()#/]*"
TRIGGER: Final = (
    rf"(?i)(?:{_WORDS}){_HEAD}[{_MARKS}]|[{_MARKS}]{_HEAD}(?:{_WORDS}){_HEAD}\r?\n"
    rf"|insert\s+into\s+[^()]*\([^()]*(?:{_WORDS})[^()]*\)\s*values"
)
HEADING = re2.compile(f"(?i){_WORDS}".encode(), options())
_INSERTED = re2.compile(
    rb"(?i)\binsert\s{1,9}into\s{1,9}[^()]{1,120}\(([^()]*)\)\s{0,20}values", options()
)
_ROW = re.compile(r"\s{0,20},?\s{0,20}\(((?:'[^']*'|[^()'])*+)\)")
_LONGEST_HEADING: Final = 40
_MOST_WORDS: Final = 5
_BREAK = re.compile(rf"[\n{SEAM}{CUT}]")
_END = re.compile(rf"\n[ \t\r]*\n|[{SEAM}{CUT}]")
"""Where a table ends: at an empty line, or with the text that it is in."""
_VALUE = re.compile(r"[0-9]{3}")
"""No heading has so many digits in a row."""
_FRAME: Final = " \t\r\"'`*"
COLUMNS_MAX: Final = 200
_LINES_MAX: Final = 8
"""The number of further lines that a row may have between quotes."""
_MOST_INSERTED: Final = 24
"""Enough for "social security number"; tables of small cells stay within what may be decoded."""

Cell = tuple[int, int]
"""Its place in the text."""


def columns(text: str) -> Iterator[Change]:
    """`text` is ASCII. Nothing is removed: each change puts a heading before a value."""
    data = text.encode("ascii")
    yield from sorted({*_of_lines(text, data), *_of_rows(text, data)})


def _of_lines(text: str, data: bytes) -> Iterator[Change]:
    reached = 0
    for word in HEADING.finditer(data):
        if word.start() < reached:
            continue
        start, reached = _line_around(text, *word.span())
        mark = _mark_of(text[start:reached])
        heads = _cells(text, start, reached, mark)
        named = _named(text, heads)
        if not named:
            continue
        over = _END.search(text, reached)
        stop = len(text) if over is None else over.start()
        while reached < stop:
            start = reached + 1
            cells, reached = _row(text, start, stop, mark, len(heads))
            if len(cells) == len(heads):
                yield from _put_before(text, cells, named)


def _row(text: str, start: int, stop: int, mark: str, count: int) -> tuple[list[Cell], int]:
    """The cells of the row that begins there, and its end; quoted cells may hold line breaks."""
    first = end = _line_end(text, start, stop)
    for _ in range(_LINES_MAX):
        if end >= stop or text.count('"', start, end) % 2 == 0:
            break
        end = _line_end(text, end + 1, stop)
    cells = _cells(text, start, end, mark)
    if end == first or len(cells) == count:
        return cells, end
    return _cells(text, start, first, mark), first


def _line_end(text: str, start: int, stop: int) -> int:
    end = text.find("\n", start, stop)
    return stop if end < 0 else end


def open_heading(text: str) -> str:
    """The headings of a table that continues where an ASCII text was cut; "" if there is none.

    A reader of a long text in pieces puts the line before the next piece.
    """
    reached = 0
    for word in HEADING.finditer(text.encode("ascii")):
        if word.start() < reached:
            continue
        start, reached = _line_around(text, *word.span())
        if _named(text, _cells(text, start, reached, _mark_of(text[start:reached]))):
            over = _END.search(text, reached)
            if over is None:
                return f"{text[start:reached]}\n"
            reached = over.start()
    return ""


def _of_rows(text: str, data: bytes) -> Iterator[Change]:
    for inserted in _INSERTED.finditer(data):
        heads = _cells(text, inserted.start(1), inserted.end(1), ",")
        named = _named(text, heads)
        at = inserted.end()
        while named and (row := _ROW.match(text, at)) is not None:
            cells = _cells(text, row.start(1), row.end(1), ",")
            if len(cells) == len(heads):
                yield from _put_before(text, cells, named)
            at = row.end()


def _line_around(text: str, start: int, end: int) -> Cell:
    """A line, bounded also by seams and cuts in the text."""
    line = text.rfind("\n", 0, start) + 1
    before = max(line, *(text.rfind(each, line, start) + 1 for each in (SEAM, CUT)))
    behind = _BREAK.search(text, end)
    return before, len(text) if behind is None else behind.start()


def _mark_of(line: str) -> str:
    return max(_MARKS, key=line.count)


def _cells(text: str, start: int, end: int, mark: str) -> list[Cell]:
    """The cells of a row; marks inside quotes do not count. Empty if the row is too wide."""
    cells: list[Cell] = []
    begin = at = start
    is_quoted = '"' in text[start:end] or "'" in text[start:end]
    while len(cells) < COLUMNS_MAX:
        if is_quoted and text[at : at + 1] in {'"', "'"} and not text[begin:at].strip():
            at = _closing(text, at, end)
        stop = text.find(mark, at, end)
        if stop < 0:
            cells.append((begin, end))
            return cells
        cells.append((begin, stop))
        begin = at = stop + 1
        while is_quoted and at < end and text[at] == " ":
            at += 1
    return []


def _closing(text: str, at: int, end: int) -> int:
    """The place after the quote that closes the one at `at`; `at` itself if none does."""
    quote = text[at]
    close = text.find(quote, at + 1, end)
    while close >= 0 and text[close + 1 : close + 2] == quote:
        close = text.find(quote, close + 2, end)
    return at if close < 0 else close + 1


def _named(text: str, heads: Sequence[Cell]) -> dict[int, str]:
    """Columns whose heading says something, and the word in it; empty if this is no table.

    Headings are short and hold no numbers: a sentence with a comma in it is not a table.
    """
    if len(heads) < 2:  # noqa: PLR2004 - a table has two columns.
        return {}
    named: dict[int, str] = {}
    for at, (start, end) in enumerate(heads):
        word = word_in(text[start:end].strip(_FRAME))
        if word is None:
            return {}
        if word:
            named[at] = word
    return named


def word_in(head: str) -> str | None:
    """The telling word in an ASCII heading; "" if it has none, None if it is no heading."""
    if len(head) > _LONGEST_HEADING or len(head.split()) > _MOST_WORDS or _VALUE.search(head):
        return None
    word = HEADING.search(head.encode("ascii"))
    return head[word.start() :][:_MOST_INSERTED] if word is not None else ""


def _put_before(text: str, cells: Sequence[Cell], named: dict[int, str]) -> Iterator[Change]:
    for at, word in named.items():
        start, end = cells[at]
        value = text[start:end]
        start += len(value) - len(value.lstrip(_FRAME))
        if start < end:
            yield start, start, f"{word}: "
