"""Tables of one fact each: from its value to the bits of the rules that it lets through.

A rule with several tests of a fact passes only if all of them hold. A rule that does not ask for
the fact always passes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import accumulate
from operator import xor
from typing import TypeAlias

import msgspec

from policies.facts import Facts
from policies.language.functions import text_test
from policies.language.syntax import COMPARED, SEARCHES, Operator, Scalar, Search
from policies.language.vocabulary import (
    FACTS,
    Counts,
    Level,
    Number,
    OptionalNumber,
    Text,
    Texts,
    Truth,
)
from policies.limits import REMEMBERED_LENGTH_MAX, REMEMBERED_TEXTS_MAX


Test: TypeAlias = Operator | Search
Asking: TypeAlias = "Mapping[int, list[Atom]]"
"""The tests of one fact, by the bit of the rule that has them."""
Allowed: TypeAlias = Callable[[Facts], int]


class Atom(msgspec.Struct, frozen=True):
    """A test of a fact, or one entry of it, against written values; several only after `in`."""

    fact: str
    operator: Test
    values: tuple[Scalar, ...]
    key: str = ""


def table(fact: str, atoms: Sequence[tuple[int, Atom]], everything: int) -> Allowed:
    """Per value of the fact: the rules whose tests it passes, and those without a test of it."""
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
    """The rules whose atoms all hold for a value, and those without an atom."""
    for bit, atoms in asking.items():
        if all(atom_holds(atom, value) for atom in atoms):
            others |= bit
    return others


def atom_holds(atom: Atom, value: float | Fraction) -> bool:
    """Whether a number, or a place on a scale, satisfies the comparison."""
    if atom.operator == "in":
        return value in atom.values
    return COMPARED[atom.operator](value, _number(atom.values[0]))


def _texts(read: Callable[[Facts], str], asking: Asking, others: int) -> Allowed:
    known: dict[str, int] = {}
    tests: list[tuple[int, tuple[Callable[[str], bool], ...]]] = []
    for bit, atoms in asking.items():
        searches = [atom for atom in atoms if atom.operator in SEARCHES]
        named = [frozenset(atom.values) for atom in atoms if atom.operator not in SEARCHES]
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
    """Remembers the result for a text: the same texts come again and again."""
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
    """A table of intervals: all values between two written numbers are the same to every rule.

    Written number n has the place 2n+1; the values between have the even places. So the place of
    a value is the count of numbers below it plus the count of those not above it.
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
        return masks[bisect_left(written, value) + bisect_right(written, value)]

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
    """The number as it was written: an integer with many digits would lose some as a float."""
    assert not isinstance(value, str)
    return value
