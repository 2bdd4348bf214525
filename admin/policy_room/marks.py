"""Marks errors in a text by line and column, and the differences to another text.

Pure. A problem inside a condition is counted from the condition's beginning; here it is moved to
its place in the text, so that an editor can point at it.
"""

import difflib
from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct

from policies.checking.check import CheckReport
from policies.problems import Position, Problem


Severity = Literal["error", "warning", "test"]
MARKS_MAX: Final = 100
EXCERPT_LENGTH_MAX: Final = 120
DIFF_LINES_MAX: Final = 2_000
LINES_COMPARED_MAX: Final = 20_000


class Mark(Struct, frozen=True):
    """One finding; line and column count from 1."""

    severity: Severity
    line: int
    column: int
    message: str
    rule: str = ""
    excerpt: str = ""
    """The line it stands in, cut around the column."""
    caret: int = 0
    """Where the column is in the excerpt, from 0."""


class DiffLine(Struct, frozen=True):
    """A line of a comparison: kind is ` `, `+`, `-` or `@`."""

    kind: str
    text: str


def marks_of(text: str, report: CheckReport) -> tuple[Mark, ...]:
    """Errors first, then failed test cases, then warnings; at most `MARKS_MAX`."""
    lines = text.split("\n")
    found: list[Mark] = [_mark(lines, "error", problem) for problem in report.errors]
    for result in report.tests:
        if not result.has_passed:
            message = f"test case fails: {'; '.join(result.failures)}"
            found.append(_at(lines, "test", result.at, message, result.name))
    found += [_mark(lines, "warning", problem) for problem in report.warnings]
    return tuple(found[:MARKS_MAX])


def line_difference(before: str, after: str) -> tuple[DiffLine, ...]:
    """What changed between two texts, with three lines around it; bounded."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > LINES_COMPARED_MAX:
        return (DiffLine("@", f"too long to compare: {len(old)} and {len(new)} lines"),)
    found: list[DiffLine] = []
    for line in difflib.unified_diff(old, new, lineterm="", n=3):
        if line.startswith(("---", "+++")) and not found:
            continue
        if len(found) >= DIFF_LINES_MAX:
            found.append(DiffLine("@", f"more than {DIFF_LINES_MAX} lines differ"))
            break
        found.append(DiffLine(line[:1], line if line.startswith("@") else line[1:]))
    return tuple(found)


def _mark(lines: list[str], severity: Severity, problem: Problem) -> Mark:
    where = problem.position
    if problem.rule_at is not None:
        where = _inside(lines, problem.rule_at, problem.position)
    path = problem.path if not problem.rule else ""
    message = f"{path}: {problem.message}" if path else problem.message
    return _at(lines, severity, where, message, problem.rule or "")


def _inside(lines: list[str], rule_at: Position, position: Position | None) -> Position:
    """Where a place in a condition of one line stands in the document."""
    if position is None or position.line != 1 or rule_at.line > len(lines):
        return rule_at
    line = lines[rule_at.line - 1]
    sign = next(_signs(line, rule_at.column), -1)
    quote = next((n for n in range(sign + 1, len(line)) if line[n] in "\"'"), -1)
    is_plain = sign >= 0 and quote >= 0 and not line[sign + 1 : quote].strip()
    if not is_plain or line[quote : quote + 3] in ('"""', "'''"):
        return rule_at
    return Position(rule_at.line, quote + 1 + position.column)


def _signs(line: str, column: int) -> Iterator[int]:
    return (n for n in range(column - 1, len(line)) if line[n] in "=:")


def _at(
    lines: list[str], severity: Severity, where: Position | None, message: str, rule: str
) -> Mark:
    if where is None:
        return Mark(severity, 1, 1, message, rule)
    line = lines[where.line - 1] if 0 < where.line <= len(lines) else ""
    start = max(0, where.column - EXCERPT_LENGTH_MAX // 2)
    excerpt = line[start : start + EXCERPT_LENGTH_MAX]
    caret = min(max(where.column - 1 - start, 0), len(excerpt))
    return Mark(severity, where.line, where.column, message, rule, excerpt, caret)
