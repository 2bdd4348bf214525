"""Splits TOML text into blocks of statements, so that an edit changes only some of its lines.

The lines are found by asking the real parser: a statement is as many lines as it takes to parse.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Final

from policies.text.writing import toml_key, toml_value


STATEMENT_LINES_MAX: Final = 300
ATTEMPTS_MAX: Final = 20_000


class Statement:
    """One `key = value` with the comment lines and blank lines before it."""

    def __init__(self, lead: list[str], lines: list[str], key: tuple[str, ...]) -> None:
        self.lead = lead
        self.lines = lines
        self.key = key

    def write(self, key: str, value: object) -> None:
        """Write another value; indentation and the comment at the end of the line stay."""
        first = self.lines[0]
        indent = first[: len(first) - len(first.lstrip())]
        comment = _trailing_comment(self.lines[-1]) if len(self.lines) == 1 else ""
        inner = [line for line in self.lines[1:-1] if line.lstrip().startswith("#")]
        self.lead += inner
        gap = "  " if comment else ""
        self.lines = [f"{indent}{toml_key(key)} = {toml_value(value)}{gap}{comment}\n"]


class Block:
    """A header and its statements; the text's beginning is a block without a header."""

    def __init__(self, lead: list[str], header_line: str, header: tuple[str, ...]) -> None:
        self.lead = lead
        self.header_line = header_line
        self.header = header
        self.statements: list[Statement] = []
        self.tail: list[str] = []
        """Text after the last statement: blank lines, and comments that belong to nothing."""

    def text(self) -> str:
        parts = [*self.lead, self.header_line]
        for statement in self.statements:
            parts += [*statement.lead, *statement.lines]
        return "".join([*parts, *self.tail])

    def take_tail(self) -> list[str]:
        tail, self.tail = self.tail, []
        return tail

    def set(self, key: str, value: object) -> None:
        """Rewrite a key, add it, or remove it (None), however it was written."""
        mine = [each for each in self.statements if each.key[0] == key]
        if value is None:
            at = [each for each in self.statements if each.key[0] != key]
            self.statements = at
            return
        if not mine:
            # The name stands first, and whatever is new stands last.
            self.statements.append(
                Statement([], [f"{toml_key(key)} = {toml_value(value)}\n"], (key,))
            )
            return
        mine[0].write(key, value)
        mine[0].key = (key,)
        self.statements = [each for each in self.statements if each not in mine[1:]]


def blocks_of(text: str) -> list[Block] | None:
    """The blocks of a document; None if it cannot be taken apart line by line."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    try:
        return list(_blocks(lines))
    except ValueError:
        return None


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    block = Block([], "", ())
    waiting: list[str] = []
    at, attempts = 0, ATTEMPTS_MAX
    while at < len(lines):
        line = lines[at]
        start = line.lstrip()
        if not start or start.startswith("#"):
            waiting.append(line)
            at += 1
        elif start.startswith("["):
            lead = _own_comments(waiting)
            block.tail = waiting[: len(waiting) - len(lead)]
            yield block
            block, waiting = Block(lead, line, _header_of(line)), []
            at += 1
        else:
            count, key = _statement(lines[at : at + min(STATEMENT_LINES_MAX, attempts)])
            attempts -= count
            block.statements.append(Statement(waiting, list(lines[at : at + count]), key))
            waiting = []
            at += count
    block.tail = waiting
    yield block


def _own_comments(waiting: Sequence[str]) -> list[str]:
    """The comment lines directly above a header belong to it."""
    count = 0
    while count < len(waiting) and waiting[-1 - count].strip():
        count += 1
    return list(waiting[len(waiting) - count :])


def _statement(lines: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """How many lines the first statement has, and its key; raises ValueError."""
    for count in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        return count, tuple(_path(table))
    raise ValueError("no statement")


def _path(table: object) -> Iterator[str]:
    """The dotted key of a table with one entry; an inline table's own keys follow it."""
    while isinstance(table, dict) and len(table) == 1:
        ((key, table),) = table.items()
        yield key


def _header_of(line: str) -> tuple[str, ...]:
    table: object = tomllib.loads(line)
    found: list[str] = []
    while isinstance(table, dict) and table:
        ((key, table),) = table.items()
        found.append(key)
        if isinstance(table, list):
            table = table[0]
    return tuple(found)


def _trailing_comment(line: str) -> str:
    """The comment after a value on its line; empty if there is none."""
    for found in re.finditer("#", line):
        try:
            tomllib.loads(line[: found.start()])
        except tomllib.TOMLDecodeError:
            continue  # Inside a string.
        return line[found.start() :].rstrip("\n")
    return ""
