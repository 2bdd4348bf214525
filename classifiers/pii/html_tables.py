"""Reads HTML tables: a column's heading or a row's first cell applies to its values.

As in `columns`, a value is read as if its heading stood right before it. Unclosed tags are read as
browsers do; of merged cells none is counted twice.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from classifiers.pii.columns import COLUMNS_MAX, HEADING, Cell, word_in
from classifiers.pii.views.decoded import Change


TRIGGER: Final = r"(?i)<t[hd][\s>]"
_MARK = re.compile(r"<(/?)(table|tr|th|td)\b[^<>]{0,400}>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{0,400}>")
_BEFORE = re.compile(r"(?:\s|<[^<>]{0,400}>){0,40}")
_LEAST_VALUE: Final = 4
_SAID_LENGTH: Final = 400
"""No heading is longer, including tags."""


class _Row(Struct, frozen=True):
    """The places of a row's cells, and where their table began."""

    table: int
    start: int
    end: int
    cells: list[Cell]


def in_html(text: str) -> Iterator[Change]:
    """`text` is ASCII. Nothing is removed: each change puts a heading before a value."""
    if HEADING.search(text.encode("ascii")) is None:
        return
    table = -1
    named: Mapping[int, str] = {}
    for row in _rows(text):
        if row.table != table:
            table, named = row.table, {}
        words = _named(text, row)
        if words and not named:
            named = words
        put = {at: named[at] for at in named if at not in words}
        if len(row.cells) == 2 and 0 in words:  # noqa: PLR2004 - a name and its value.
            put[1] = words[0]
        for at in sorted(put):
            if at < len(row.cells):
                yield from _put_before(text, row.cells[at], put[at])


def open_row(text: str) -> str:
    """The headings of a table that continues where an ASCII text was cut; "" if there is none."""
    if HEADING.search(text.encode("ascii")) is None:
        return ""
    found, table, closed = "", -1, text.lower().rfind("</table")
    for row in _rows(text):
        if row.table != table:
            table, found = row.table, ""
        if not found and row.start > closed and _named(text, row):
            cells = "".join(f"<th>{_said(text, cell)[:_SAID_LENGTH]}</th>" for cell in row.cells)
            found = f"<table><tr>{cells}</tr>\n"
    return found


def _rows(text: str) -> Iterator[_Row]:
    table, start, begin = 0, 0, -1
    cells: list[Cell] = []
    for mark in _MARK.finditer(text):
        name = mark[2].lower()
        if begin >= 0 and len(cells) < COLUMNS_MAX:
            cells.append((begin, mark.start()))
        begin = mark.end() if name in {"th", "td"} and not mark[1] else -1
        if name not in {"th", "td"}:
            if cells:
                yield _Row(table, start, mark.start(), cells)
            cells, start = [], mark.start()
            table = mark.start() if name == "table" else table
    if begin >= 0:
        cells.append((begin, len(text)))
    if cells:
        yield _Row(table, start, len(text), cells)


def _named(text: str, row: _Row) -> Mapping[int, str]:
    """The cells that are headings and say something, and the word in each."""
    words: dict[int, str] = {}
    for at, cell in enumerate(row.cells):
        word = word_in(_said(text, cell)) if cell[1] - cell[0] <= _SAID_LENGTH else None
        if word:
            words[at] = word
    return words


def _said(text: str, cell: Cell) -> str:
    return _TAG.sub("", text[cell[0] : cell[1]]).strip()


def _put_before(text: str, cell: Cell, word: str) -> Iterator[Change]:
    before = _BEFORE.match(text, *cell)
    start = cell[0] if before is None else before.end()
    if cell[1] - start >= _LEAST_VALUE:
        yield start, start, f"{word}: "
