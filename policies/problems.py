"""Problems of a document, an expression or an example, each with its exact position.

Errors of this package:

    PolicyError
    ├── ExpressionInvalid     one expression, with lines and columns inside it
    ├── DocumentInvalid       a whole document, every problem found in it
    └── FactsInvalid          an example request with unknown or ill-typed facts
"""

import difflib
from collections.abc import Iterable

import msgspec

from policies.limits import NAME_LENGTH_MAX


class Position(msgspec.Struct, frozen=True):
    """A place in a text, counted from 1 in lines and characters."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class Problem(msgspec.Struct, frozen=True):
    """One finding about a document; a position in `when` or `matches` is one inside the text.

    `rule_at` is the place in the document where the rule, or the key in question, begins.
    """

    path: str
    message: str
    rule: str | None = None
    position: Position | None = None
    rule_at: Position | None = None

    def __str__(self) -> str:
        where = self.path
        if self.rule is not None:
            where += f" (rule {self.rule!r})" if where else f"rule {self.rule!r}"
        if self.rule_at is not None:
            where = f"{self.rule_at}: {where}"
        if self.position is not None:
            where = f"{where}, {self.position}" if where else str(self.position)
        return f"{where}: {self.message}" if where else self.message


class PolicyError(Exception):
    """Something a policy author wrote cannot be used; `problems` lists all that is wrong."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class ExpressionInvalid(PolicyError):
    """An expression does not parse or does not type-check."""


class DocumentInvalid(PolicyError):
    """A policy document cannot be used."""


class FactsInvalid(PolicyError):
    """An example request names unknown facts or gives them wrong types."""


def shown(text: str) -> str:
    """The text quoted and shortened, safe to put into a message."""
    return repr(text if len(text) <= NAME_LENGTH_MAX else text[:NAME_LENGTH_MAX] + "…")


def suggestion(name: str, known: Iterable[str]) -> str:
    """A "did you mean" clause, or empty if no known name is close."""
    close = difflib.get_close_matches(name[:NAME_LENGTH_MAX], sorted(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
