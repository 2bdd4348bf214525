"""Which rules hold for a request, found without asking each of them.

Most conditions compare a fact with a written value, or join such comparisons by `and`. For each
fact such comparisons become one table: from the fact's value to the rules that it lets through. A
request is looked up once per fact, whatever the number of rules; only what no table can say (`or`,
functions, two facts compared) is evaluated, and only for rules that every table let through.

    when ──▶ conjuncts ──▶ atoms (one fact, written values) ──▶ tables: value → bits of rules
                      └──▶ the rest, compiled as a condition of its own

Bits are places of rules in their list. Tables and conditions say the same as the rules' own
compiled conditions: a property test compares them.
"""

import operator
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import xor
from typing import Any, Final, TypeAlias
from typing import Literal as OneOf

import msgspec

from policies.expressions import compile_expression
from policies.facts import Facts
from policies.language.functions import text_test
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
from policies.limits import REMEMBERED_LENGTH_MAX, REMEMBERED_TEXTS_MAX


Test: TypeAlias = Operator | OneOf["startswith", "endswith", "contains", "matches"]
Asking: TypeAlias = "Mapping[int, list[Atom]]"
"""What each rule asks of one fact, by the rule's bit."""
Allowed: TypeAlias = Callable[[Facts], int]

_FLIPPED: Final[Mapping[Operator, Operator]] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_SEARCHES: Final[Mapping[str, Test]] = {
    "startswith": "startswith",
    "endswith": "endswith",
    "contains": "contains",
    "matches": "matches",
}
_ORDERED: Final = frozenset({"==", "<", "<=", ">", ">="})
"""What a table of numbers can say: "not equal" also holds for what is no number."""
_HOLDS: Final[Mapping[str, Callable[[Any, float], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Atom(msgspec.Struct, frozen=True):
    """A fact, or one entry of it, against written values; several values only after `in`."""

    fact: str
    operator: Test
    values: tuple[Scalar, ...]
    key: str = ""


class Rule(msgspec.Struct, frozen=True):
    """A condition taken apart: all atoms and the rest must hold."""

    bit: int
    atoms: tuple[Atom, ...]
    rest: Condition | None


class Guard(msgspec.Struct, frozen=True):
    """The tables of a list of rules."""

    everything: int
    tables: tuple[Allowed, ...]
    rests: Mapping[int, Condition]
    """By bit, what the tables do not say."""
    rest_mask: int

    def matching(self, facts: Facts) -> int:
        """The bits of all rules that hold."""
        mask = self.everything
        for allowed in self.tables:
            mask &= allowed(facts)
        open_ = mask & self.rest_mask
        while open_:
            bit = open_ & -open_
            if not self.rests[bit](facts):
                mask ^= bit
            open_ ^= bit
        return mask

    def first(self, facts: Facts) -> int:
        """The bit of the first rule that holds; 0 for none."""
        mask = self.everything
        for allowed in self.tables:
            mask &= allowed(facts)
        while mask:
            bit = mask & -mask
            rest = self.rests.get(bit)
            if rest is None or rest(facts):
                return bit
            mask ^= bit
        return 0


def make_guard(conditions: Sequence[str | None]) -> Guard:
    """The guard of checked conditions, in the order of their rules; None always holds."""
    rules = [_taken_apart(1 << place, when) for place, when in enumerate(conditions)]
    everything = (1 << len(rules)) - 1
    by_fact: dict[tuple[str, str], list[tuple[int, Atom]]] = {}
    for rule in rules:
        for atom in rule.atoms:
            by_fact.setdefault((atom.fact, atom.key), []).append((rule.bit, atom))
    tables = [_table(fact, atoms, everything) for (fact, _), atoms in sorted(by_fact.items())]
    rests = {rule.bit: rule.rest for rule in rules if rule.rest is not None}
    return Guard(everything, tuple(tables), rests, sum(rests))


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
    """The comparison as a table can hold it; None for everything else."""
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
            return _against(name, _FLIPPED[symbol], (value,))
        case Name(name=name), ListLiteral(items=items):
            return _against(name, "in", tuple(item.value for item in items))
        case Name(name=name), Literal(value=value):
            return _against(name, symbol, (value,))
        case Lookup(name=name, key=key), Literal(value=value):
            is_count = isinstance(FACTS[name], Counts) and symbol in _ORDERED
            return Atom(name, symbol, (value,), key) if is_count else None
    return None


def _searching(fact: str, function: str, part: str) -> Atom | None:
    test = _SEARCHES.get(function)
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


def _table(fact: str, atoms: Sequence[tuple[int, Atom]], everything: int) -> Allowed:
    """Per value of the fact: the rules that ask for it, and those that do not ask."""
    asking: dict[int, list[Atom]] = {}
    for bit, atom in atoms:
        asking.setdefault(bit, []).append(atom)
    others = everything & ~sum(asking)
    match FACTS[fact]:
        case Text(read=text):
            return _texts(text, asking, others)
        case Truth(read=truth):
            yes, no = (_holding(asking, others, wanted) for wanted in (True, False))
            return lambda facts: yes if truth(facts) else no
        case Level(read=level, scale=scale):
            ranks = [_holding(asking, others, rank) for rank in range(len(scale.levels))]
            return lambda facts: ranks[level(facts)]
        case Texts(read=texts):
            return _labels(texts, asking, others)
        case Counts(read=counts):
            key = atoms[0][1].key
            return _numbers(lambda facts: counts(facts).get(key, 0), asking, others)
        case Number(read=number):
            return _numbers(number, asking, others)
        case OptionalNumber(read=optional):
            return _numbers(optional, asking, others)
    raise AssertionError(fact)  # pragma: no cover - `atom_of` makes no atoms of other kinds.


def _holding(asking: Asking, others: int, value: float) -> int:
    """The rules all of whose atoms hold for a value, and those that do not ask."""
    for bit, atoms in asking.items():
        if all(atom_holds(atom, value) for atom in atoms):
            others |= bit
    return others


def atom_holds(atom: Atom, value: float | Fraction) -> bool:
    """Whether a number, or a place on a scale, is what the comparison asks for."""
    if atom.operator == "in":
        return value in atom.values
    return _HOLDS[atom.operator](value, _number(atom.values[0]))


def _texts(read: Callable[[Facts], str], asking: Asking, others: int) -> Allowed:
    known: dict[str, int] = {}
    tests: list[tuple[int, tuple[Callable[[str], bool], ...]]] = []
    for bit, atoms in asking.items():
        searches = [atom for atom in atoms if atom.operator in _SEARCHES]
        named = [frozenset(atom.values) for atom in atoms if atom.operator not in _SEARCHES]
        searching = tuple(text_test(each.operator, str(each.values[0])) for each in searches)
        if not named:
            tests.append((bit, searching))
            continue
        for text in map(str, frozenset.intersection(*named)):
            if all(holds(text) for holds in searching):
                known[text] = known.get(text, others) | bit
    if not tests:
        return lambda facts: known.get(read(facts), others)
    return _searched(read, known, others, tests)


def _searched(
    read: Callable[[Facts], str],
    known: Mapping[str, int],
    others: int,
    tests: Sequence[tuple[int, tuple[Callable[[str], bool], ...]]],
) -> Allowed:
    """What was found in a text is remembered: the same ones come again and again."""
    remembered: dict[str, int] = {}

    def allowed(facts: Facts) -> int:
        text = read(facts)
        mask = remembered.get(text)
        if mask is None:
            mask = known.get(text, others)
            for bit, searching in tests:
                if all(holds(text) for holds in searching):
                    mask |= bit
            if len(text) <= REMEMBERED_LENGTH_MAX:
                if len(remembered) >= REMEMBERED_TEXTS_MAX:
                    remembered.clear()
                remembered[text] = mask
        return mask

    return allowed


def _labels(read: Callable[[Facts], Iterable[str]], asking: Asking, others: int) -> Allowed:
    wanted: dict[str, int] = {}
    for bit, (atom,) in asking.items():
        label = str(atom.values[0])
        wanted[label] = wanted.get(label, 0) | bit

    def allowed(facts: Facts) -> int:
        mask = others
        for label in read(facts):
            mask |= wanted.get(label, 0)
        return mask

    return allowed


def _numbers(read: Callable[[Facts], float | None], asking: Asking, others: int) -> Allowed:
    """By intervals: between two written numbers every value is the same to every rule.

    Written number n has the place 2n+1; what lies between has the even places.
    """
    values = {
        _number(value) for atoms in asking.values() for each in atoms for value in each.values
    }
    written = sorted(values)
    count = len(written)
    changes = [0] * (2 * count + 2)
    for bit, atoms in asking.items():
        for low, high in _intervals(written, atoms):
            changes[low] ^= bit
            changes[high] ^= bit
    masks: list[int] = [others | running for running in accumulate(changes, xor)]

    def allowed(facts: Facts) -> int:
        value = read(facts)
        if value is None or value != value:  # noqa: PLR0124 - not a number is like no other
            return others
        at = bisect_left(written, value)
        return masks[2 * at + (at < count and written[at] == value)]

    return allowed


def _intervals(written: Sequence[float], atoms: Sequence[Atom]) -> list[tuple[int, int]]:
    """The places where all atoms hold, as half-open intervals that do not overlap."""
    low, high = 0, 2 * len(written) + 1
    points: set[int] | None = None
    for atom in atoms:
        places = {2 * bisect_left(written, _number(value)) + 1 for value in atom.values}
        place = min(places)
        match atom.operator:
            case "<":
                high = min(high, place)
            case "<=":
                high = min(high, place + 1)
            case ">":
                low = max(low, place + 1)
            case ">=":
                low = max(low, place)
            case _:
                points = places if points is None else points & places
    if points is not None:
        return [(point, point + 1) for point in points if low <= point < high]
    return [(low, high)] if low < high else []


def _number(value: Scalar) -> float:
    """The number as it was written: an integer of many digits would lose some as a float."""
    assert not isinstance(value, str)
    return value
