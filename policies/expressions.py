"""Expressions: parsed, typed and compiled to closures when a document is loaded.

    text ──▶ lexer ──▶ parser ──▶ tree ──▶ types checked, closures built ──▶ Expression

Evaluation is total: types are settled here, so a compiled expression cannot raise. An absent value
has a meaning: a missing label counts as 0, and every comparison with an absent number is false (so
its negation is true; ask has() first where that matters).
"""

from typing import Final

import msgspec

from policies.facts import Facts
from policies.language.comparisons import Mismatch, compare
from policies.language.functions import FUNCTIONS, call
from policies.language.parser import parse
from policies.language.syntax import (
    Call,
    Compare,
    ListLiteral,
    Literal,
    Logic,
    Lookup,
    Name,
    Node,
    Not,
    canonical_text,
)
from policies.language.vocabulary import (
    FACTS,
    Condition,
    ConstantList,
    Counts,
    Headers,
    Number,
    OptionalNumber,
    Text,
    Truth,
    Value,
)
from policies.limits import EXPRESSION_LENGTH_MAX, PATTERN_COST
from policies.problems import ExpressionInvalid, Position, Problem, shown, suggestion


class Reading(msgspec.Struct, frozen=True):
    """A fact that an expression looks at; `key` if it looks at one entry of it."""

    fact: str
    key: str | None = None


class Expression(msgspec.Struct, frozen=True):
    """A condition ready to be evaluated, in its canonical text, with the facts it reads."""

    text: str
    holds: Condition
    readings: tuple[Reading, ...]
    cost: int
    """The most steps that one evaluation takes."""


_START: Final = Position(line=1, column=1)


def compile_expression(text: str) -> Expression:
    """Parse, type-check and compile; raises ExpressionInvalid with every type error found."""
    tree = parse(text)
    canonical = canonical_text(tree)
    compiler = _Compiler()
    if len(canonical) > EXPRESSION_LENGTH_MAX:
        # The canonical text is what is stored, so it must be readable again.
        compiler.report(
            f"the expression is longer than {EXPRESSION_LENGTH_MAX} characters when spelled out",
            _START,
        )
    holds = compiler.condition(tree)
    if compiler.problems:
        raise ExpressionInvalid(compiler.problems)
    return Expression(canonical, holds, tuple(dict.fromkeys(compiler.readings)), compiler.cost)


class _Compiler:
    """Builds closures bottom-up; a broken part is reported once and silences its parents."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.readings: list[Reading] = []
        self.cost = 0

    def report(self, message: str, at: Position) -> None:
        self.problems.append(Problem(path="", message=message, position=at))

    def condition(self, node: Node) -> Condition:
        value = self._value(node)
        if isinstance(value, Truth):
            return value.read
        if value is not None:
            self.report(f"expected a condition, not {value.title}", node.at)
        return lambda _: False

    def _value(self, node: Node) -> Value | None:
        is_pattern = isinstance(node, Call) and node.function == "matches"
        self.cost += PATTERN_COST if is_pattern else 1
        match node:
            case Literal():
                return _literal(node)
            case ListLiteral():
                return self._list(node)
            case Name():
                return self._fact(node)
            case Lookup():
                return self._lookup(node)
            case Call():
                return self._call(node)
            case Compare():
                return self._compare(node)
        return Truth(self._connective(node))

    def _connective(self, node: Not | Logic) -> Condition:
        if isinstance(node, Not):
            negated = self.condition(node.operand)
            return lambda facts: not negated(facts)
        operands = tuple(self.condition(operand) for operand in node.operands)
        return _all_hold(operands) if node.connective == "and" else _any_holds(operands)

    def _list(self, node: ListLiteral) -> Value | None:
        if not node.items:
            return self._broken("the list is empty", node.at)
        values = [item.value for item in node.items]
        texts = tuple(value for value in values if isinstance(value, str))
        numbers = tuple(
            value
            for value in values
            if isinstance(value, int | float) and value is not True and value is not False
        )
        if max(len(texts), len(numbers)) < len(values):
            return self._broken("a list holds either only strings or only numbers", node.at)
        return ConstantList(texts=texts, numbers=numbers)

    def _broken(self, message: str, at: Position) -> Value | None:
        self.report(message, at)
        return None

    def _fact(self, node: Name) -> Value | None:
        value = FACTS.get(node.name)
        if value is None:
            return self._broken(_unknown(node.name), node.at)
        self.readings.append(Reading(node.name))
        return value

    def _lookup(self, node: Lookup) -> Value | None:
        value = FACTS.get(node.name)
        if value is None:
            return self._broken(_unknown(node.name), node.at)
        if not isinstance(value, Counts | Headers):
            return self._broken(f"{node.name} is {value.title} and has no entries", node.at)
        self.readings.append(Reading(node.name, node.key))
        return _entry(value, node.key)

    def _call(self, node: Call) -> Value | None:
        if node.function not in FUNCTIONS:
            hint = suggestion(node.function, FUNCTIONS)
            return self._broken(f"unknown function {shown(node.function)}{hint}", node.at)
        arguments: list[Value] = []
        for each in node.arguments:
            value = self._value(each)
            if value is None:
                return None
            if node.function == "has" and isinstance(each, Lookup) and each.name == "findings":
                value = _entry_or_absent(each)
            arguments.append(value)
        try:
            return call(node.function, tuple(arguments))
        except Mismatch as mismatch:
            return self._broken(str(mismatch), node.at)

    def _compare(self, node: Compare) -> Value | None:
        left, right = self._value(node.left), self._value(node.right)
        if left is None or right is None:
            return None
        try:
            return Truth(compare(node.operator, left, right))
        except Mismatch as mismatch:
            return self._broken(str(mismatch), node.at)


def _literal(node: Literal) -> Value:
    value = node.value
    if isinstance(value, bool):
        return Truth(lambda _: value)
    if isinstance(value, str):
        return Text(lambda _: value, constant=value)
    return Number(lambda _: value, constant=value)


def _entry(value: Counts | Headers, key: str) -> Value:
    if isinstance(value, Headers):
        texts = value.read
        return Text(lambda facts: texts(facts).get(key, ""))
    counts = value.read
    return Number(lambda facts: counts(facts).get(key, 0))


def _entry_or_absent(node: Lookup) -> OptionalNumber:
    key = node.key
    return OptionalNumber(lambda facts: facts.findings.get(key))


_CALLERS: Final = frozenset(
    {"user", "user_id", "username", "end_user", "person", "email", "caller", "client", "subject"}
    | {"team", "app", "application", "key", "api_key", "group", "role", "tenant"}
)
"""Names that authors may try for the caller; there is no fact of that kind."""


def _unknown(name: str) -> str:
    if name == "targets":
        return "targets are chosen with allow_only and forbid, not in expressions"
    if name in _CALLERS:
        return f"unknown fact {shown(name)}; who asks is told by key_id, labels, workspace, project"
    hint = suggestion(name, FACTS) or f"; one of {', '.join(FACTS)}"
    return f"unknown fact {shown(name)}{hint}"


def _all_hold(conditions: tuple[Condition, ...]) -> Condition:
    if len(conditions) == 2:  # noqa: PLR2004  (the common case, without a loop)
        first, second = conditions
        return lambda facts: first(facts) and second(facts)

    def holds(facts: Facts) -> bool:
        for condition in conditions:  # noqa: SIM110  (a generator costs half again)
            if not condition(facts):
                return False
        return True

    return holds


def _any_holds(conditions: tuple[Condition, ...]) -> Condition:
    if len(conditions) == 2:  # noqa: PLR2004  (the common case, without a loop)
        first, second = conditions
        return lambda facts: first(facts) or second(facts)

    def holds(facts: Facts) -> bool:
        for condition in conditions:  # noqa: SIM110  (a generator costs half again)
            if condition(facts):
                return True
        return False

    return holds
