"""Finds comparisons with a value that the fact never has, so that the rule waits in vain.

Such a rule fails silently: a limit for `weekday == 7` leaves Sundays open. So each comparison is
checked by itself, however it is joined with others.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec
import re2

from policies.document import Constraint, PolicyBody, Preference
from policies.facts import DIALECTS, SEALING_DIALECTS, SERVICE_TIERS
from policies.language.functions import text_test
from policies.language.parser import parse
from policies.language.syntax import (
    COMPARED,
    FLIPPED,
    SEARCHES,
    Call,
    Compare,
    ListLiteral,
    Literal,
    Logic,
    Lookup,
    Name,
    Node,
    Not,
    Operator,
    Scalar,
    canonical_text,
)
from policies.language.vocabulary import FACTS, OptionalNumber
from policies.problems import Problem, shown, suggestion
from policies.program import ConstraintStep, PolicyDocument, PreferenceStep


class _Range(msgspec.Struct, frozen=True):
    lowest: float
    highest: float
    is_whole: bool

    def __str__(self) -> str:
        kind = "a whole number" if self.is_whole else "a number"
        if self.highest == _ENDLESS:
            return f"{kind} from {self.lowest:g} up"
        return f"{kind} from {self.lowest:g} to {self.highest:g}"

    def has(self, value: float) -> bool:
        return self.lowest <= value <= self.highest and not (self.is_whole and value % 1)


_ENDLESS: Final = float("inf")
_COUNT: Final = _Range(0, _ENDLESS, is_whole=True)
_SHARE: Final = _Range(0, 1, is_whole=False)
_RANGES: Final[Mapping[str, _Range]] = {
    "complexity": _SHARE,
    "findings": _COUNT,
    "hour_utc": _Range(0, 23, is_whole=True),
    "injection": _SHARE,
    "input_tokens_estimate": _COUNT,
    "longest_tokens_estimate": _COUNT,
    "max_output_tokens": _COUNT,
    "warm_tokens": _COUNT,
    "weekday": _Range(0, 6, is_whole=True),
}
"""The money left on a budget may be negative, so it is not among these."""
_TEXTS: Final[Mapping[str, tuple[str, ...]]] = {
    "dialect": DIALECTS,
    "sealed": ("", *SEALING_DIALECTS),
    "service_tier": SERVICE_TIERS,
}
_PLACES: Final = frozenset({"organisation", "workspace", "project"})
_NAME: Final = re2.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
"""The form of such a name."""
_NEGATED: Final[Mapping[Operator, Operator]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_HEADER: Final = re2.compile(r"[a-z0-9][a-z0-9_]*")


def never_had(body: PolicyBody, labels: Collection[str]) -> Iterator[Problem]:
    """A warning for each value; for labels only if the ones that can be found are known."""
    rules: tuple[tuple[str, tuple[Constraint | Preference, ...]], ...] = (
        ("constraints", body.constraints),
        ("preferences", body.preferences),
    )
    for section, found in rules:
        for place, rule in enumerate(found):
            told = _of(parse(rule.when), labels, is_negated=False) if rule.when else ()
            for message in dict.fromkeys(told):
                yield Problem(f"{section}[{place}].when", message, rule.name)


def never_seen(document: PolicyDocument, headers: Collection[str]) -> Iterator[Problem]:
    """A warning for each header that the settings hide from policies: it is always empty."""
    rules: tuple[tuple[str, tuple[ConstraintStep | PreferenceStep, ...]], ...] = (
        ("constraints", document.constraints),
        ("preferences", document.preferences),
    )
    for section, steps in rules:
        for place, step in enumerate(steps):
            for reading in step.readings:
                if reading.fact == "headers" and reading.key and reading.key not in headers:
                    hint = suggestion(reading.key, headers)
                    message = (
                        f"always empty: policy.headers does not list {shown(reading.key)}{hint}"
                    )
                    yield Problem(f"{section}[{place}].when", message, step.name)


def _of(node: Node, labels: Collection[str], *, is_negated: bool) -> Iterator[str]:
    match node:
        case Not(operand=operand):
            yield from _of(operand, labels, is_negated=not is_negated)
        case Logic(operands=parts):
            for part in parts:
                yield from _of(part, labels, is_negated=is_negated)
        case Call(function=function, arguments=(Name(name=name), Literal(value=str(part)))):
            yield from _searched(name, function, part)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from _of(argument, labels, is_negated=is_negated)
        case Compare(left=Literal(value=str(label)), right=Name(name="findings")):
            yield from _found_as(label, labels)
        case Compare(left=left, right=right):
            yield from _of(left, labels, is_negated=is_negated)
            yield from _of(right, labels, is_negated=is_negated)
            yield from _compared(node, is_negated=is_negated)
        case Lookup():
            yield from _entry(node, labels)


def _entry(node: Lookup, labels: Collection[str]) -> Iterator[str]:
    if node.name == "findings":
        yield from _found_as(node.key, labels)
    elif not _HEADER.fullmatch(node.key):
        close = node.key.lower().replace("-", "_")
        yield f"no header is called {shown(node.key)} here; did you mean {shown(close)}?"


def _found_as(label: str, labels: Collection[str]) -> Iterator[str]:
    if labels and label not in labels:
        yield f"nothing is ever found as {shown(label)}{suggestion(label, labels)}"


def _searched(fact: str, function: str, part: str) -> Iterator[str]:
    texts = _TEXTS.get(fact, ())
    if texts and function in SEARCHES and not any(map(text_test(function, part), texts)):
        yield f"{function}({fact}, {shown(part)}) never holds; {fact} is {_listed(texts)}"


def _compared(node: Compare, *, is_negated: bool) -> Iterator[str]:
    symbol, fact, written = node.operator, node.left, node.right
    if isinstance(fact, Literal) and symbol in FLIPPED:
        symbol, fact, written = FLIPPED[symbol], written, fact
    if not isinstance(fact, Name | Lookup) or not isinstance(written, Literal | ListLiteral):
        return
    items = written.items if isinstance(written, ListLiteral) else (written,)
    for value in (item.value for item in items):
        if isinstance(value, str):
            yield from _never_called(fact.name, value)
        elif fact.name in _RANGES:
            yield from _beyond(fact, symbol, value, is_negated=is_negated)


def _never_called(fact: str, value: str) -> Iterator[str]:
    if fact in _PLACES and not _NAME.fullmatch(value):
        rule = "a name is 1 to 63 lower-case letters, digits, '.', '_' and '-'"
        yield f"{fact} is never {shown(value)}; {rule}"
    texts = _TEXTS.get(fact, ())
    if texts and value not in texts:
        hint = suggestion(value, texts) or f"; it is {_listed(texts)}"
        yield f"{fact} is never {shown(value)}{hint}"


def _beyond(
    fact: Name | Lookup, symbol: Operator, value: Scalar, *, is_negated: bool
) -> Iterator[str]:
    assert not isinstance(value, str)
    possible, name = _RANGES[fact.name], canonical_text(fact)
    if symbol not in _NEGATED:
        if not possible.has(value):
            yield f"{name} is never {value}; it is {possible}"
        return
    if is_negated and isinstance(FACTS[fact.name], OptionalNumber):
        return  # Of one that is absent no comparison holds, so its negation does.
    asked = _NEGATED[symbol] if is_negated else symbol
    # One of the two ends is where a comparison of order holds most easily.
    if not any(COMPARED[asked](end, value) for end in (possible.lowest, possible.highest)):
        yield f"{name} {asked} {value} never holds; it is {possible}"


def _listed(texts: tuple[str, ...]) -> str:
    return "one of " + ", ".join(text or "an empty text" for text in texts)
