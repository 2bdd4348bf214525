"""Converts rules to forms and back; a condition becomes rows of fact, operator and value.

Only a condition that consists of comparisons joined by `and` has rows; any other is edited as text.
What a form gives back is checked exactly like a document's own text.
"""

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from policies.checking.reach import unreachable
from policies.document import Case, Constraint, PolicyBody, Preference
from policies.expressions import compile_expression
from policies.language.parser import parse
from policies.language.syntax import (
    SEARCHES,
    Call,
    Compare,
    ListLiteral,
    Logic,
    Lookup,
    Name,
    Node,
    Not,
    Scalar,
    canonical_text,
)
from policies.language.syntax import Literal as Written
from policies.language.vocabulary import (
    FACTS,
    Counts,
    Headers,
    Level,
    Number,
    OptionalNumber,
    Text,
    Texts,
    Truth,
)
from policies.problems import ExpressionInvalid, Position, Problem, shown
from policies.text.texts import place_finder


RowOperator: TypeAlias = Literal[
    "is",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "includes",
    "startswith",
    "endswith",
    "contains",
    "matches",
    "present",
]
FactKind: TypeAlias = Literal["truth", "text", "number", "scale", "labels", "counts", "headers"]
Section: TypeAlias = Literal["constraints", "preferences", "tests"]

_HERE: Final = Position(1, 1)
_ORDERED: Final[tuple[RowOperator, ...]] = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
_TEXT: Final[tuple[RowOperator, ...]] = (
    "==",
    "!=",
    "in",
    "not in",
    "startswith",
    "endswith",
    "contains",
    "matches",
)


class Row(msgspec.Struct, frozen=True):
    """One comparison: `values` has one entry, or several after `in`; `key` is a label or header.

    `is` tests a truth value, `includes` a label, `present` whether there is a number.
    """

    fact: str
    operator: RowOperator
    values: tuple[Scalar, ...]
    key: str = ""


class FactField(msgspec.Struct, frozen=True):
    """A fact that a row may name: how it can be compared, and with what."""

    name: str
    kind: FactKind
    operators: tuple[RowOperator, ...]
    choices: tuple[str, ...] = ()
    """The names of a scale, the least first."""
    has_keys: bool = False
    """Whether the row names an entry of the fact."""


class EditableRule(msgspec.Struct, frozen=True):
    """A rule of a document for a form; `parts` holds every key with its type."""

    section: Section
    place: int
    parts: Constraint | Preference | Case
    rows: tuple[Row, ...] | None
    """Its condition in rows; None if it can only be edited as text."""
    at: Position | None
    """Its position in the text."""
    never_matches: str
    """Why it can never match; empty if it may."""


def editable_rules(body: PolicyBody, text: str) -> tuple[EditableRule, ...]:
    """The rules and test cases of a document that was loaded from this text, in its order."""
    find = place_finder(text)
    never = {each.path: each.reason for each in unreachable(body)}
    found: list[EditableRule] = []
    listed: tuple[tuple[Section, Sequence[Constraint | Preference | Case]], ...] = (
        ("constraints", body.constraints),
        ("preferences", body.preferences),
        ("tests", body.tests),
    )
    for section, rules in listed:
        for place, parts in enumerate(rules):
            path = f"{section}[{place}]"
            rows = () if isinstance(parts, Case) else rows_of(parts.when)
            at = find(Problem(path, "", parts.name)).rule_at
            found.append(EditableRule(section, place, parts, rows, at, never.get(path, "")))
    return tuple(found)


def fact_fields() -> tuple[FactField, ...]:
    """Every fact that a condition may name, by name."""
    return tuple(_field(name) for name in sorted(FACTS))


def _field(name: str) -> FactField:
    match FACTS[name]:
        case Truth():
            return FactField(name, "truth", ("is",))
        case Text():
            return FactField(name, "text", _TEXT)
        case Level(scale=scale):
            return FactField(name, "scale", _ORDERED, scale.levels)
        case Texts():
            return FactField(name, "labels", ("includes",))
        case Counts():
            return FactField(name, "counts", _ORDERED, has_keys=True)
        case Headers():
            return FactField(name, "headers", _TEXT, has_keys=True)
        case OptionalNumber():
            return FactField(name, "number", (*_ORDERED, "present"))
        case Number():
            return FactField(name, "number", _ORDERED)
    raise AssertionError(name)  # pragma: no cover - a kind of fact without a field


def rows_of(when: str | None) -> tuple[Row, ...] | None:
    """A checked condition as rows that mean exactly the same; None if no rows can."""
    if when is None:
        return ()
    tree = parse(when)
    is_joined = isinstance(tree, Logic) and tree.connective == "and"
    nodes = tree.operands if isinstance(tree, Logic) and is_joined else (tree,)
    rows: list[Row] = []
    for node in nodes:
        row = _row(node)
        if row is None or canonical_text(_node(row)) != canonical_text(node):
            return None
        rows.append(row)
    return tuple(rows)


def when_of(rows: Sequence[Row]) -> str | None:
    """The condition that rows express, in its canonical text; None for no rows.

    Raises:
        ExpressionInvalid: a row names no fact, or compares it with what it cannot be.
    """
    if not rows:
        return None
    for row in rows:
        if not row.values:
            raise ExpressionInvalid([Problem("", f"{shown(row.fact)} is compared with nothing")])
    nodes = tuple(_node(row) for row in rows)
    tree = nodes[0] if len(nodes) == 1 else Logic("and", nodes, _HERE)
    return compile_expression(canonical_text(tree)).text


def _row(node: Node) -> Row | None:
    match node:
        case Not(operand=operand):
            return _negated(_row(operand))
        case Name(name=name):
            return Row(name, "is", (True,))
        case Call(function="has", arguments=(Name(name=name),)):
            return Row(name, "present", (True,))
        case Call(function=search, arguments=(Name() | Lookup() as fact, Written(value=value))):
            return _searching(fact, search, value)
        case Compare(operator="in", left=Written(value=value), right=Name(name=name)):
            return Row(name, "includes", (value,))
        case Compare(operator=symbol, left=Name() | Lookup() as fact, right=right):
            return _compared(fact, symbol, right)
    return None


def _negated(row: Row | None) -> Row | None:
    """The opposite of a row, as a row."""
    if row is None:
        return None
    if row.operator in {"is", "present", "includes"}:
        value = row.values[0]
        is_not = not value if row.operator != "includes" else None
        return None if is_not is None else Row(row.fact, row.operator, (is_not,), row.key)
    return Row(row.fact, "not in", row.values, row.key) if row.operator == "in" else None


def _searching(fact: Name | Lookup, search: str, value: Scalar) -> Row | None:
    key = fact.key if isinstance(fact, Lookup) else ""
    found = SEARCHES.get(search)
    return None if found is None else Row(fact.name, found, (value,), key)


def _compared(fact: Name | Lookup, symbol: RowOperator, right: Node) -> Row | None:
    key = fact.key if isinstance(fact, Lookup) else ""
    match right:
        case Written(value=value):
            return Row(fact.name, symbol, (value,), key)
        case ListLiteral(items=items):
            return Row(fact.name, symbol, tuple(item.value for item in items), key)
    return None


def _node(row: Row) -> Node:
    fact: Node = Lookup(row.fact, row.key, _HERE) if row.key else Name(row.fact, _HERE)
    written = tuple(Written(value, _HERE) for value in row.values)
    match row.operator:
        case "is" | "present":
            asked = fact if row.operator == "is" else Call("has", (fact,), _HERE)
            return asked if row.values == (True,) else Not(asked, _HERE)
        case "includes":
            return Compare("in", written[0], fact, _HERE)
        case "in":
            return Compare("in", fact, ListLiteral(written, _HERE), _HERE)
        case "not in":
            return Not(Compare("in", fact, ListLiteral(written, _HERE), _HERE), _HERE)
        case "startswith" | "endswith" | "contains" | "matches":
            return Call(row.operator, (fact, written[0]), _HERE)
        case symbol:
            return Compare(symbol, fact, written[0], _HERE)
