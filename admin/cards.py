"""Turns table rows into cards on a phone: every cell carries the heading of its column.

A table of eight columns does not fit on a phone, and its last columns are pushed out of sight.
There each row is a card (`table.cards`), and a card has no heading above it. So the words of the
heading are copied to the cells here, from the heading itself, and can say nothing else. A table
that is laid out as something else is no longer a table to a screen reader, unless its parts say
what they are.

It reads the output of our own templates, in which every value is escaped.
"""

import re
from typing import Final

from markupsafe import Markup


_TAG: Final = re.compile(r"<(?P<end>/?)(?P<name>table|thead|tbody|tr|th|td)\b(?P<rest>[^>]*)>")
_ANY_TAG: Final = re.compile(r"<[^>]*>")
_CLASS: Final = re.compile(r'class="([^"]*)"')
_HEAD: Final = re.compile(r"<th\b[^>]*>(.*?)</th>", re.DOTALL)
_ROLES: Final = {
    "table": "table",
    "thead": "rowgroup",
    "tbody": "rowgroup",
    "tr": "row",
    "th": "columnheader",
    "td": "cell",
}
_SPAN: Final = re.compile(r'colspan="(\d+)"')
_BLANK: Final = re.compile(r'\s*(<span class="soft">)?\u2013?(</span>)?\s*</td>')
"""Nothing, or the dash that says so in a column."""


def as_cards(table: str) -> Markup:
    """The table, marked as one of cards; a cell over several columns is given no word."""
    words = [_word(each) for each in _HEAD.findall(table)]
    written, last, column = list[str](), 0, 0
    for tag in _TAG.finditer(table):
        written.append(table[last : tag.start()])
        last = tag.end()
        if tag["end"]:
            written.append(tag[0])
            continue
        name, rest = tag["name"], tag["rest"]
        if name == "table":
            rest = _CLASS.sub(r'class="\1 cards"', rest, count=1)
        column = 0 if name == "tr" else column
        if name == "td":
            rest += _said(words, column, rest, is_blank=bool(_BLANK.match(table, last)))
            column += _columns(rest)
        written.append(f'<{name} role="{_ROLES[name]}"{rest}>')
    return Markup("".join([*written, table[last:]]))  # noqa: S704 - a template's own, escaped there


def _said(words: list[str], column: int, rest: str, *, is_blank: bool) -> str:
    """The first cell says what the card is about: it needs no word, and is never left out."""
    if is_blank and column:
        return " data-blank"
    is_named = 0 < column < len(words) and _columns(rest) == 1
    return f' data-of="{words[column]}"' if is_named and words[column] else ""


def _columns(attributes: str) -> int:
    """How many columns a cell stands in."""
    found = _SPAN.search(attributes)
    return int(found[1]) if found else 1


def _word(head: str) -> str:
    """What stands in a head, without what it is dressed in; nothing where it is not seen."""
    if "visually-hidden" in head:
        return ""
    text = _ANY_TAG.sub(" ", head.replace('<span aria-hidden="true">↓</span>', ""))
    return " ".join(text.split()).replace('"', "&quot;")
