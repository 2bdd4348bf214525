"""Finds the rules that match a request without evaluating each of them.

Most conditions compare a fact with a written value, or join such comparisons by `and`. The
comparisons of each fact become one table: from the fact's value to the rules that it lets through.
A request needs one look-up per fact, whatever the number of rules. Only what no table can express
(`or`, functions, two facts compared) is evaluated, and only for rules that every table let through.

For facts with few possible values, the combined result is remembered.

    when ──▶ conjuncts ──▶ atoms (one fact, written values) ──▶ tables: value → bits of rules
                      └──▶ the rest, compiled as a condition of its own

A bit is a rule's place in the list. Tables and conditions together give the same answer as the
rules' own compiled conditions: a property test compares them.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import msgspec

from policies.expressions import compile_expression
from policies.facts import Facts
from policies.language.parser import parse
from policies.language.syntax import (
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
from policies.language.vocabulary import (
    FACTS,
    Condition,
    Counts,
    Level,
    Number,
    OptionalNumber,
    Text,
    Texts,
    Truth,
)
from policies.limits import REMEMBERED_MASKS_MAX
from policies.tables import Allowed, Atom, table


_FEW: Final = frozenset(
    {"hour_utc", "weekday"}
    | {name for name, fact in FACTS.items() if isinstance(fact, Text | Texts | Truth | Level)}
)
"""Facts with few possible values, which come again and again."""
_ORDERED: Final = frozenset({"==", "<", "<=", ">", ">="})
"""Operators for a table of numbers: "not equal" also holds if there is no number."""


class Rule(msgspec.Struct, frozen=True):
    """A condition taken apart: all atoms and the rest must hold."""

    bit: int
    atoms: tuple[Atom, ...]
    rest: Condition | None


class Guard(msgspec.Struct, frozen=True):
    """The tables of a list of rules."""

    everything: int
    few: Callable[[Facts], object]
    """Reads at once all facts with few values that some rule asks for."""
    of_few: tuple[Allowed, ...]
    of_many: tuple[Allowed, ...]
    rests: Mapping[int, Condition]
    """By bit, the part of the condition that the tables do not cover."""
    rest_mask: int
    known: dict[object, int]
    """By the values that `few` read: the bits that all of its tables let through."""

    def _let_through(self, facts: Facts) -> int:
        few = self.few(facts)
        mask = self.known.get(few)
        if mask is None:
            mask = self.everything
            for allowed in self.of_few:
                mask &= allowed(facts)
            if len(self.known) >= REMEMBERED_MASKS_MAX:
                self.known.clear()
            self.known[few] = mask
        for allowed in self.of_many:
            mask &= allowed(facts)
        return mask

    def matching(self, facts: Facts) -> int:
        """The bits of all rules that hold."""
        mask = self._let_through(facts)
        open_ = mask & self.rest_mask
        while open_:
            bit = open_ & -open_
            if not self.rests[bit](facts):
                mask ^= bit
            open_ ^= bit
        return mask

    def first(self, facts: Facts) -> int:
        """The bit of the first rule that holds; 0 if none does."""
        mask = self._let_through(facts)
        while mask:
            bit = mask & -mask
            rest = self.rests.get(bit)
            if rest is None or rest(facts):
                return bit
            mask ^= bit
        return 0


def make_guard(conditions: Sequence[str | None]) -> Guard:
    """Builds the guard of checked conditions, in the order of their rules; None always holds."""
    rules = [_taken_apart(1 << place, when) for place, when in enumerate(conditions)]
    everything = (1 << len(rules)) - 1
    by_fact: dict[tuple[str, str], list[tuple[int, Atom]]] = {}
    for rule in rules:
        for atom in rule.atoms:
            by_fact.setdefault((atom.fact, atom.key), []).append((rule.bit, atom))
    few: list[Allowed] = []
    many: list[Allowed] = []
    for (fact, _), atoms in sorted(by_fact.items()):
        (few if fact in _FEW else many).append(table(fact, atoms, everything))
    # The data class depends on whether the inspection was complete, so both are read.
    read = attrgetter("inspection_complete", *sorted({fact for fact, _ in by_fact} & _FEW))
    rests = {rule.bit: rule.rest for rule in rules if rule.rest is not None}
    return Guard(everything, read, tuple(few), tuple(many), rests, sum(rests), {})


def _taken_apart(bit: int, when: str | None) -> Rule:
    if when is None:
        return Rule(bit, (), None)
    tree = parse(when)
    is_conjunction = isinstance(tree, Logic) and tree.connective == "and"
    conjuncts = tree.operands if isinstance(tree, Logic) and is_conjunction else (tree,)
    atoms: list[Atom] = []
    rest: list[Node] = []
    has_label = False
    for each in conjuncts:
        atom = atom_of(each)
        # A request has several labels, so a table can ask for one of them only.
        if atom is None or (has_label and atom.fact == "labels"):
            rest.append(each)
            continue
        atoms.append(atom)
        has_label = has_label or atom.fact == "labels"
    if not rest:
        return Rule(bit, tuple(atoms), None)
    left = rest[0] if len(rest) == 1 else Logic("and", tuple(rest), tree.at)
    return Rule(bit, tuple(atoms), compile_expression(canonical_text(left)).holds)


def atom_of(node: Node) -> Atom | None:
    """The comparison in the form that a table can hold; None for any other node."""
    match node:
        case Name(name=name) if isinstance(FACTS[name], Truth):
            return Atom(name, "==", (True,))
        case Not(operand=Name(name=name)) if isinstance(FACTS[name], Truth):
            return Atom(name, "==", (False,))
        case Call(function=function, arguments=(Name(name=name), Literal(value=str(part)))):
            return _searching(name, function, part)
        case Compare():
            return _compared(node)
    return None


def _compared(node: Compare) -> Atom | None:
    symbol = node.operator
    match node.left, node.right:
        case Literal(value=value), Name(name=name) if symbol == "in":
            return Atom(name, "==", (value,)) if isinstance(FACTS[name], Texts) else None
        case Literal(value=value), Name(name=name):
            return _against(name, FLIPPED[symbol], (value,))
        case Name(name=name), ListLiteral(items=items):
            return _against(name, "in", tuple(item.value for item in items))
        case Name(name=name), Literal(value=value):
            return _against(name, symbol, (value,))
        case Lookup(name=name, key=key), Literal(value=value):
            is_count = isinstance(FACTS[name], Counts) and symbol in _ORDERED
            return Atom(name, symbol, (value,), key) if is_count else None
    return None


def _searching(fact: str, function: str, part: str) -> Atom | None:
    test = SEARCHES.get(function)
    is_text = isinstance(FACTS[fact], Text)
    return Atom(fact, test, (part,)) if test is not None and is_text else None


def _against(fact: str, symbol: Operator, values: tuple[Scalar, ...]) -> Atom | None:
    match FACTS[fact]:
        case Text() if symbol in {"==", "in"}:
            return Atom(fact, symbol, values)
        case Truth() if symbol in {"==", "!="}:
            return Atom(fact, symbol, values)
        case Number() | OptionalNumber() if symbol != "!=":
            return Atom(fact, symbol, values)
        case Level(scale=scale):
            places = tuple(scale.levels.index(str(value)) for value in values)
            return Atom(fact, symbol, places)
    return None
