"""Searches, within bounds, for a request that could meet some conditions and miss others.

Conditions are taken apart into facts and tests. A fact gets enough values to tell all comparisons
with it apart; a test is only true or false. Facts are assumed to vary independently of each other,
so "no request can" is certain, while "one could" may be wrong. A search that takes too long answers
"one could".
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

from policies.language.parser import parse
from policies.language.syntax import (
    COMPARED,
    FLIPPED,
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
    Counts,
    Headers,
    Level,
    Number,
    OptionalNumber,
    Text,
    Value,
)


STEPS_MAX: Final = 500_000
"""The most steps of all searches about one document; a step settles one fact or test."""
STEPS_OF_ONE: Final = 20_000
KNOWN_MAX: Final = 64
"""The most facts and tests that one search settles."""

Known: TypeAlias = dict[str, object]
"""Values by fact and entry, or by the text of a test."""
Condition: TypeAlias = Callable[[Known], bool | None]
"""True, false, or None if too little is known yet."""

_UNKNOWN: Final = object()
_ABSENT: Final = None
_ANOTHER: Final = "\0"
"""A text that no condition mentions."""


class Search:
    """Searches about conditions of one document; each is taken apart once."""

    def __init__(self) -> None:
        self.left = STEPS_MAX
        self._asked: dict[str, _Asked] = {}

    def could(self, holding: Sequence[str | None], missing: Sequence[str | None]) -> bool:
        """Whether a request could meet all of `holding` and none of `missing`; None is "always"."""
        if any(when is None for when in missing):
            return False
        met = [self._taken(when) for when in holding if when is not None]
        missed = [self._taken(when) for when in missing if when is not None]
        if self.left <= 0:
            return True
        budget = min(STEPS_OF_ONE, self.left)
        attempt = _Attempt(met, missed, budget)
        found = attempt.succeeds()
        self.spend(budget - attempt.left)
        return found

    def spend(self, steps: int) -> None:
        """Count steps that were spent elsewhere on behalf of the document."""
        self.left -= steps

    def _taken(self, when: str) -> "_Asked":
        if when not in self._asked:
            self._asked[when] = _Asked(parse(when))
        return self._asked[when]


class _Asked:
    """A condition, with the facts and tests in it."""

    def __init__(self, tree: Node) -> None:
        self.written: dict[str, list[Any]] = {}
        """By fact: the values that it is compared with; empty for a test that is true or false."""
        self.facts: dict[str, Value | None] = {}
        self.steps = 1
        self.holds = self._condition(tree)

    def _condition(self, node: Node) -> Condition:
        match node:
            case Literal(value=value):
                is_true = value is True
                return lambda _: is_true
            case Not(operand=operand):
                return _negated(self._condition(operand))
            case Logic(connective=connective, operands=operands):
                parts = [self._condition(each) for each in operands]
                return _joined(parts, decides=connective == "or")
            case Call(function="has", arguments=(Name() | Lookup() as fact,)):
                if isinstance(FACTS[fact.name], OptionalNumber):
                    return self._about(fact, (), lambda value: value is not _ABSENT)
            case Compare():
                if (found := self._compared(node)) is not None:
                    return found
        return self._test(canonical_text(node))

    def _compared(self, node: Compare) -> Condition | None:
        symbol, left, right = node.operator, node.left, node.right
        if isinstance(left, Literal) and isinstance(right, Name | Lookup) and symbol != "in":
            symbol, left, right = FLIPPED[symbol], right, left
        if not isinstance(left, Name | Lookup) or not _is_compared_by_value(left):
            return None
        scale = FACTS[left.name]
        match right:
            case Literal(value=value) if symbol != "in":
                wanted = _written(scale, value)
                holds = COMPARED[symbol]
                return self._about(
                    left, (wanted,), lambda held: held is not _ABSENT and holds(held, wanted)
                )
            case ListLiteral(items=items):
                among = tuple(_written(scale, item.value) for item in items)
                return self._about(left, among, lambda held: held in among)
        return None

    def _about(
        self, fact: Name | Lookup, written: Sequence[Any], holds: Callable[[Any], bool]
    ) -> Condition:
        name = canonical_text(fact)
        self.steps += 1
        self.written.setdefault(name, []).extend(written)
        self.facts[name] = FACTS[fact.name]

        def condition(known: Known) -> bool | None:
            value = known.get(name, _UNKNOWN)
            return None if value is _UNKNOWN else holds(value)

        return condition

    def _test(self, text: str) -> Condition:
        self.steps += 1
        self.facts[text] = None

        def condition(known: Known) -> bool | None:
            return known.get(text)  # type: ignore[return-value]

        return condition


class _Attempt:
    """One search: facts get values one by one, as long as nothing contradicts."""

    def __init__(self, met: Sequence[_Asked], missed: Sequence[_Asked], budget: int) -> None:
        self.left = budget
        self._met, self._missed = met, missed
        self._steps = sum(each.steps for each in (*met, *missed))

    def succeeds(self) -> bool:
        try:
            return self._reaches({})
        except _TooLongError:
            return True

    def _reaches(self, known: Known) -> bool:
        if self.left < self._steps or len(known) > KNOWN_MAX:
            raise _TooLongError
        self.left -= self._steps
        unsettled: _Asked | None = None
        for wanted, conditions in ((True, self._met), (False, self._missed)):
            for asked in conditions:
                verdict = asked.holds(known)
                if verdict is None:
                    unsettled = unsettled or asked
                elif verdict is not wanted:
                    return False
        if unsettled is None:
            return True
        name = next(each for each in unsettled.facts if each not in known)
        return any(self._reaches({**known, name: value}) for value in self._values(name, unsettled))

    def _values(self, name: str, asked: _Asked) -> Iterator[object]:
        everyone = [each for each in (*self._met, *self._missed) if name in each.facts]
        written = [value for each in everyone for value in each.written.get(name, ())]
        self.left -= len(written)
        return _samples(asked.facts[name], written)


class _TooLongError(Exception):
    """The search has used up its steps."""


def _samples(fact: Value | None, written: Sequence[Any]) -> Iterator[object]:
    """Values that tell all comparisons apart: the written ones, and one between each two."""
    if fact is None:
        yield from (True, False)
        return
    if isinstance(fact, Level):
        yield from range(len(fact.scale.levels))
        return
    if isinstance(fact, Text | Headers):
        yield from dict.fromkeys((*written, "", _ANOTHER))
        return
    values = sorted(set(written)) or [Fraction(0)]
    yield from (values[0] - 1, *values, values[-1] + 1)
    yield from ((low + high) / 2 for low, high in pairwise(values))
    if isinstance(fact, OptionalNumber):
        yield _ABSENT


def _is_compared_by_value(fact: Name | Lookup) -> bool:
    kind = FACTS[fact.name]
    if isinstance(fact, Lookup):
        return isinstance(kind, Counts | Headers)
    return isinstance(kind, Text | Number | OptionalNumber | Level)


def _written(fact: Value, value: object) -> object:
    if isinstance(fact, Level):
        return fact.scale.levels.index(str(value))
    # As fractions: a number of many digits is not the float nearest to it.
    return Fraction(value) if isinstance(value, int | float) else value


def _negated(condition: Condition) -> Condition:
    def holds(known: Known) -> bool | None:
        verdict = condition(known)
        return None if verdict is None else not verdict

    return holds


def _joined(parts: Sequence[Condition], *, decides: bool) -> Condition:
    """One true operand decides `or`; one false operand decides `and`."""

    def holds(known: Known) -> bool | None:
        is_open = False
        for part in parts:
            verdict = part(known)
            if verdict is decides:
                return decides
            is_open = is_open or verdict is None
        return None if is_open else not decides

    return holds
