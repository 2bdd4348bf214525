"""The tree of a parsed expression, and its single canonical text."""

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, assert_never
from typing import Literal as OneOf

from policies.problems import Position


Operator: TypeAlias = OneOf["==", "!=", "<", "<=", ">", ">=", "in"]
Search: TypeAlias = OneOf["startswith", "endswith", "contains", "matches"]
"""A function that asks whether a text holds another."""
Scalar: TypeAlias = str | int | float | bool

COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""The meaning of the operators between two values of one kind."""
FLIPPED: Final[Mapping[Operator, Operator]] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
"""The operator that says the same with its sides exchanged."""
SEARCHES: Final[Mapping[str, Search]] = {
    "startswith": "startswith",
    "endswith": "endswith",
    "contains": "contains",
    "matches": "matches",
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, number or truth value written in the expression."""

    value: Scalar
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """A list of literals, right of `in` or inside `size`."""

    items: tuple[Literal, ...]
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Name:
    """A fact."""

    name: str
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Lookup:
    """An entry of a fact that holds counts: `findings.aadhaar`."""

    name: str
    key: str
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A function; the method form `a.f(b)` is read as `f(a, b)`."""

    function: str
    arguments: tuple["Node", ...]
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Negation."""

    operand: "Node"
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    """Two or more operands joined by the same connective."""

    connective: OneOf["and", "or"]
    operands: tuple["Node", ...]
    at: Position = field(compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison or a membership test; `at` is the operator's place."""

    operator: Operator
    left: "Node"
    right: "Node"
    at: Position = field(compare=False)


Node: TypeAlias = Literal | ListLiteral | Name | Lookup | Call | Not | Logic | Compare


def canonical_text(node: Node) -> str:
    """The same text for all spellings that differ only in blanks, synonyms and parentheses."""
    match node:
        case Literal():
            return _literal_text(node)
        case ListLiteral():
            return "[" + ", ".join(map(_literal_text, node.items)) + "]"
        case Name():
            return node.name
        case Lookup():
            return f"{node.name}[{json.dumps(node.key, ensure_ascii=False)}]"
        case Call():
            return f"{node.function}({', '.join(map(canonical_text, node.arguments))})"
        case Not():
            return _negation_text(node)
        case Logic():
            return f" {node.connective} ".join(_within(node, each) for each in node.operands)
        case Compare():
            return f"{_within(node, node.left)} {node.operator} {_within(node, node.right)}"
        case _:  # pragma: no cover
            assert_never(node)


def _negation_text(node: Not) -> str:
    match node.operand:
        case Compare(operator="in", left=left, right=right):
            return f"{_within(node.operand, left)} not in {_within(node.operand, right)}"
        case operand:
            return f"not {_within(node, operand)}"


def _within(outer: Node, inner: Node) -> str:
    """The inner text, in parentheses only if it would otherwise be read differently."""
    text = canonical_text(inner)
    binds_tighter = _binding(inner) > _binding(outer)
    return (
        text
        if binds_tighter or (isinstance(outer, Not) and isinstance(inner, Not))
        else f"({text})"
    )


def _binding(node: Node) -> int:
    match node:
        case Logic(connective="or"):
            return 0
        case Logic():
            return 1
        case Not():
            return 2
        case Compare():
            return 3
    return 4


def _literal_text(literal: Literal) -> str:
    # JSON's spelling of strings, numbers and truth values is also the language's.
    return json.dumps(literal.value, ensure_ascii=False)
