"""Finds rules that can never match: they contradict themselves, or earlier rules always win.

It is cautious: a rule is reported only if this follows from the written conditions. A rule that is
not reported may still never match anybody's traffic.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import msgspec

from policies.checking.possible import Search
from policies.document import Constraint, PolicyBody, Preference
from policies.examples import EXAMPLE_FACTS
from policies.expressions import compile_expression
from policies.guards import atom_of
from policies.language.parser import parse
from policies.language.syntax import Logic, Node, canonical_text
from policies.language.vocabulary import FACTS, Counts, Level, Number, OptionalNumber
from policies.problems import shown
from policies.tables import Atom, atom_holds


RuleKind: TypeAlias = Literal["constraint", "preference"]
COMPARISONS_MAX: Final = 20_000


class Unreachable(msgspec.Struct, frozen=True):
    """A rule that never matches; `behind` is the rule that always matches before it, if any."""

    kind: RuleKind
    name: str
    place: int
    """Its index among the document's constraints or preferences, from 0."""
    behind: str
    reason: str

    @property
    def path(self) -> str:
        """The path by which problems name the place."""
        return f"{self.kind}s[{self.place}]"


def unreachable(body: PolicyBody) -> tuple[Unreachable, ...]:
    """Every rule of a checked document that can never match, in the document's order."""
    return (
        *_impossible("constraint", body.constraints),
        *_impossible("preference", body.preferences),
        *shadowed(body.preferences),
    )


def shadowed(preferences: Sequence[Preference]) -> Iterator[Unreachable]:
    """Preferences hidden by earlier ones of the same route: one always matches when they do."""
    comparer, search = _Comparer(), Search()
    asked = [_Asked(preference.when) for preference in preferences]
    for place, preference in enumerate(preferences):
        for before, other in zip(preferences[:place], asked, strict=False):
            if before.route == preference.route and comparer.follows(asked[place], other):
                reason = f"never reached: {shown(before.name)} matches before it"
                yield Unreachable("preference", preference.name, place, before.name, reason)
                break
        else:
            earlier = [each for each in preferences[:place] if each.route == preference.route]
            if hiding := _hiding(search, preference, earlier):
                names = " or ".join(shown(each.name) for each in hiding)
                reason = f"never reached: {names} matches before it"
                yield Unreachable("preference", preference.name, place, hiding[0].name, reason)


def _hiding(
    search: Search, preference: Preference, earlier: Sequence[Preference]
) -> Sequence[Preference]:
    """The earlier ones that together leave it no request; empty if some may be left."""
    asked = [preference.when]
    if not search.could(asked, ()) or search.could(asked, [each.when for each in earlier]):
        return ()
    needed = list(earlier)
    for each in earlier:
        others = [other for other in needed if other is not each]
        if not search.could(asked, [other.when for other in others]):
            needed = others
    return needed


def constant_verdict(when: str | None) -> bool | None:
    """The value of a condition that reads no fact; a missing condition is always true."""
    if when is None:
        return True
    expression = compile_expression(when)
    return None if expression.readings else expression.holds(EXAMPLE_FACTS)


class _Part:
    """One part of a condition, all of whose parts must hold."""

    def __init__(self, node: Node) -> None:
        self.text = canonical_text(node)
        self.atom = atom_of(node)
        self.place = (self.text, "") if self.atom is None else (self.atom.fact, self.atom.key)


class _Asked:
    """A rule's condition, taken apart."""

    def __init__(self, when: str | None) -> None:
        self.verdict = constant_verdict(when)
        self.parts: tuple[_Part, ...] = ()
        if when is not None and self.verdict is None:
            tree = parse(when)
            is_conjunction = isinstance(tree, Logic) and tree.connective == "and"
            nodes = tree.operands if isinstance(tree, Logic) and is_conjunction else (tree,)
            self.parts = tuple(map(_Part, nodes))
        self.places = frozenset(part.place for part in self.parts)

    def contradiction(self) -> str:
        """The fact with contradictory tests; empty if there is none."""
        by_place: dict[tuple[str, str], list[Atom]] = {}
        for part in self.parts:
            if part.atom is not None:
                by_place.setdefault(part.place, []).append(part.atom)
        for (fact, _), atoms in by_place.items():
            values = _samples(atoms)
            if values and not any(_all_hold(atoms, value) for value in values):
                return fact
        return ""


class _Comparer:
    """Compares conditions, a limited number of times: a hostile document has many of them."""

    def __init__(self) -> None:
        self._left = COMPARISONS_MAX

    def follows(self, asked: _Asked, before: _Asked) -> bool:
        """Whether `before` holds whenever `asked` does."""
        if before.verdict is not None:
            return before.verdict
        if asked.verdict is not None or not before.places <= asked.places or self._left <= 0:
            return False
        return all(any(self._implies(one, other) for one in asked.parts) for other in before.parts)

    def _implies(self, one: _Part, other: _Part) -> bool:
        self._left -= 1
        if one.text == other.text:
            return True
        first, second = one.atom, other.atom
        if first is None or second is None or one.place != other.place:
            return False
        values = _samples([first, second])
        return bool(values) and all(
            atom_holds(second, value) for value in values if atom_holds(first, value)
        )


def _impossible(kind: RuleKind, rules: Sequence[Constraint | Preference]) -> Iterator[Unreachable]:
    search = Search()
    for place, rule in enumerate(rules):
        asked = _Asked(rule.when)
        if asked.verdict is False:
            yield Unreachable(kind, rule.name, place, "", "the condition is always false")
        elif fact := asked.contradiction():
            reason = f"what it asks of {fact} contradicts itself"
            yield Unreachable(kind, rule.name, place, "", reason)
        elif asked.verdict is None and not search.could([rule.when], ()):
            reason = "the condition contradicts itself"
            yield Unreachable(kind, rule.name, place, "", reason)


def _all_hold(atoms: Sequence[Atom], value: Fraction) -> bool:
    return all(atom_holds(atom, value) for atom in atoms)


def _samples(atoms: Sequence[Atom]) -> list[Fraction]:
    """Values that tell all comparisons apart: the written ones, and one between each two."""
    fact = FACTS[atoms[0].fact]
    if isinstance(fact, Level):
        return [Fraction(rank) for rank in range(len(fact.scale.levels))]
    if not isinstance(fact, Counts | Number | OptionalNumber):
        return []  # Texts and labels: only parts that are written alike are known to be alike.
    # As fractions: a number of many digits is not the float nearest to it.
    written = sorted({Fraction(value) for each in atoms for value in each.values})
    between = [(low + high) / 2 for low, high in pairwise(written)]
    return [written[0] - 1, *written, *between, written[-1] + 1]
