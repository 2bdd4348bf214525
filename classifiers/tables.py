"""Tables as lists of rows: a heading applies to every value below it.

Spreadsheets, data frames and databases are called by tools with `[["name", "password"], …]`, or
with the headings beside the rows. Read cell by cell, no value would have its heading before it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeGuard

import msgspec

from classifiers.pii.columns import HEADING


_HEADS: Final = frozenset({"columns", "headers", "header", "fields", "column_names"})
_ROWS: Final = ("rows", "data", "values", "records")
_ROWS_IN: Final = re.compile(r"\[\s{0,64}\[")
_LONGEST_HEADING: Final = 40
_MAX_INTEGER_BITS: Final = 256
_CELL_ENDS: Final = dict.fromkeys(map(ord, "\t\r\n\x0b\x0c\x1c\x1d\x1e\x1f"), " ")


def table_said(items: Sequence[object]) -> str:
    """A list of rows as lines of cells, if its first row has a heading that says something.

    Empty for any other list.
    """
    heads = items[0] if len(items) > 1 else None
    if not _is_row(heads) or not _says_something(heads):
        return ""
    rows = items[1:]
    if not all(_is_row(row) and len(row) <= len(heads) for row in rows):
        return ""
    lines = ["\t".join(_said(cell) for cell in row) for row in (heads, *rows) if _is_row(row)]
    # A blank line would end it for its readers.
    return "\n".join([line for line in lines if line.strip()])


def table_in(mapping: Mapping[object, object]) -> str:
    """The same for an object with separate headings and rows."""
    if _HEADS.isdisjoint(mapping):
        return ""
    for name in _HEADS:
        heads = mapping.get(name)
        if not _is_row(heads) or not _says_something(heads):
            continue
        for key in _ROWS:
            rows = mapping.get(key)
            if isinstance(rows, list) and (said := table_said([heads, *rows])):
                return said
    return ""


def tables_in_text(text: str) -> Iterator[str]:
    """The tables of a text that is JSON; its other content is in the text as it is."""
    if _ROWS_IN.search(text) is None or not _names_something(text):
        return
    try:
        pending = [msgspec.json.decode(text)]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    while pending:
        node = pending.pop()
        table = ""
        if isinstance(node, dict):
            table = table_in(node)
            pending += [each for each in node.values() if isinstance(each, dict | list)]
        elif isinstance(node, list):
            table = table_said(node)
            pending += [each for each in node if isinstance(each, dict | list)]
        if table:
            yield table


def _is_row(row: object) -> TypeGuard[list[object]]:
    return (
        isinstance(row, list)
        and bool(row)
        and not any(isinstance(cell, dict | list | tuple) for cell in row)
    )


def _says_something(heads: Sequence[object]) -> bool:
    names = [head for head in heads if isinstance(head, str) and len(head) <= _LONGEST_HEADING]
    return len(heads) > 1 and len(names) == len(heads) and any(map(_names_something, names))


def _names_something(text: str) -> bool:
    return HEADING.search(text.encode("ascii", "replace")) is not None


def _said(cell: object) -> str:
    if isinstance(cell, int) and cell.bit_length() > _MAX_INTEGER_BITS:
        return ""  # Python writes no number of any length, and nobody is called by such.
    return "" if cell is None else str(cell).translate(_CELL_ENDS)
