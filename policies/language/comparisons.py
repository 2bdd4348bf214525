"""Typed comparisons and membership tests as closures over the facts."""

from collections.abc import Callable, Container

from policies.facts import Facts
from policies.language.syntax import COMPARED, Operator
from policies.language.vocabulary import (
    Condition,
    ConstantList,
    Counts,
    Level,
    Number,
    OptionalNumber,
    Scale,
    Text,
    Texts,
    Truth,
    Value,
)
from policies.problems import shown


class Mismatch(Exception):
    """Two operands do not go together; the message says why."""


def compare(symbol: Operator, left: Value, right: Value) -> Condition:
    """The closure of a comparison; raises Mismatch."""
    if symbol == "in":
        return _member(left, right)
    if isinstance(left, Text) and isinstance(right, Level):
        left = _written_level(left, right.scale)
    if isinstance(right, Text) and isinstance(left, Level):
        right = _written_level(right, left.scale)
    match left, right:
        case Level(), Level() if left.scale != right.scale:
            pass
        case Level(), Level():
            return _ordered(symbol, left, right)
        case Number(), Number():
            return _ordered(symbol, left, right)
        case ((Number() | OptionalNumber()), (Number() | OptionalNumber())):
            return _present_numbers(COMPARED[symbol], left.read, right.read)
        case Text(), Text():
            return _equality(symbol, left, right)
        case Truth(), Truth():
            return _equality(symbol, left, right)
    raise Mismatch(f"cannot compare {left.title} with {right.title}")


def _written_level(text: Text, scale: Scale) -> Level:
    if text.constant is None:
        raise Mismatch(f"cannot compare {scale.title} with {text.title}")
    place = _place(text.constant, scale)
    return Level(lambda _: place, scale, place)


def _place(name: str, scale: Scale) -> int:
    if name not in scale.levels:
        raise Mismatch(f"{shown(name)} is not {scale.title}; one of {', '.join(scale.levels)}")
    return scale.levels.index(name)


def _ordered(symbol: Operator, left: Level | Number, right: Level | Number) -> Condition:
    if right.constant is not None:
        return _numbers_against(symbol, left.read, right.constant)
    return _numbers(COMPARED[symbol], left.read, right.read)


def _numbers(
    holds: Callable[[float, float], bool],
    left: Callable[[Facts], float],
    right: Callable[[Facts], float],
) -> Condition:
    return lambda facts: holds(left(facts), right(facts))


def _numbers_against(symbol: Operator, read: Callable[[Facts], float], bound: float) -> Condition:
    """A comparison with a written number: the common case, with two calls less."""
    match symbol:
        case ">=":
            return lambda facts: read(facts) >= bound
        case ">":
            return lambda facts: read(facts) > bound
        case "<=":
            return lambda facts: read(facts) <= bound
        case "<":
            return lambda facts: read(facts) < bound
        case "==":
            return lambda facts: read(facts) == bound
    return lambda facts: read(facts) != bound


def _present_numbers(
    holds: Callable[[float, float], bool],
    left: Callable[[Facts], float | None],
    right: Callable[[Facts], float | None],
) -> Condition:
    def condition(facts: Facts) -> bool:
        first, second = left(facts), right(facts)
        return first is not None and second is not None and holds(first, second)

    return condition


def _equality(symbol: Operator, left: Text | Truth, right: Text | Truth) -> Condition:
    if isinstance(right, Text) and right.constant is not None:
        return _text_equality(symbol, left, right.constant)
    read_left: Callable[[Facts], object] = left.read
    read_right: Callable[[Facts], object] = right.read
    if symbol == "==":
        return lambda facts: read_left(facts) == read_right(facts)
    if symbol == "!=":
        return lambda facts: read_left(facts) != read_right(facts)
    raise Mismatch(f"{left.title} has no order; use '==', '!=' or 'in'")


def _text_equality(symbol: Operator, left: Text | Truth, wanted: str) -> Condition:
    read: Callable[[Facts], object] = left.read
    if symbol == "==":
        return lambda facts: read(facts) == wanted
    if symbol == "!=":
        return lambda facts: read(facts) != wanted
    raise Mismatch(f"{left.title} has no order; use '==', '!=' or 'in'")


def _member(left: Value, right: Value) -> Condition:
    match left, right:
        case Text(constant=str(wanted)), (Texts() | Counts()):
            return _holds_text(wanted, right.read)
        case Text(), (Texts() | Counts()):
            return _text_member(left.read, right.read)
        case Text(), ConstantList(numbers=()):
            return _text_among(left.read, frozenset(right.texts))
        case Level(), ConstantList(numbers=()):
            return _level_member(left, right.texts)
        case ((Number() | OptionalNumber()), ConstantList(texts=())):
            return _number_member(left.read, frozenset(right.numbers))
        case Text(), Text():
            raise Mismatch("'in' looks into lists; use contains(text, part) for strings")
    raise Mismatch(f"cannot look for {left.title} in {right.title}{_holding(right)}")


def _holding(value: Value) -> str:
    if not isinstance(value, ConstantList):
        return ""
    return " of strings" if value.texts else " of numbers"


def _text_member(
    read: Callable[[Facts], str], collection: Callable[[Facts], Container[str]]
) -> Condition:
    return lambda facts: read(facts) in collection(facts)


def _text_among(read: Callable[[Facts], str], texts: frozenset[str]) -> Condition:
    return lambda facts: read(facts) in texts


def _holds_text(wanted: str, read: Callable[[Facts], Container[str]]) -> Condition:
    return lambda facts: wanted in read(facts)


def _level_member(level: Level, names: tuple[str, ...]) -> Condition:
    read = level.read
    places = frozenset(_place(name, level.scale) for name in names)
    return lambda facts: read(facts) in places


def _number_member(read: Callable[[Facts], float | None], numbers: frozenset[float]) -> Condition:
    return lambda facts: read(facts) in numbers
