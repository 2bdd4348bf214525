"""The functions of the expression language, each from typed arguments to a typed value."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import re2

from policies.facts import Facts
from policies.language.comparisons import Mismatch
from policies.language.vocabulary import (
    Condition,
    ConstantList,
    Counts,
    Number,
    OptionalNumber,
    Text,
    Texts,
    Truth,
    Value,
)
from policies.limits import PATTERN_MEMORY_MAX_BYTES
from policies.problems import shown


Arguments: TypeAlias = tuple[Value, ...]


def call(function: str, arguments: Arguments) -> Value:
    """The value of a call; raises Mismatch when the arguments do not fit."""
    return FUNCTIONS[function](arguments)


def _has(arguments: Arguments) -> Value:
    match arguments:
        case (OptionalNumber(read=read),):
            return Truth(lambda facts: read(facts) is not None)
        case (value,):
            raise Mismatch(f"{value.title} is always present; has() asks about an optional fact")
    raise Mismatch("has() takes one optional fact or one entry such as findings.aadhaar")


def _size(arguments: Arguments) -> Value:
    match arguments:
        case ((Text() | Texts() | Counts()) as value,):
            sized = value.read
            return Number(lambda facts: len(sized(facts)))
        case (value,):
            raise Mismatch(f"{value.title} has no size")
    raise Mismatch("size() takes one string, list or counts")


def _two_texts(name: str, holds: Callable[[str, str], bool]) -> Callable[[Arguments], Value]:
    def function(arguments: Arguments) -> Value:
        match arguments:
            case Text(read=subject), Text(read=part):
                return Truth(lambda facts: holds(subject(facts), part(facts)))
            case ((Texts() | Counts() | ConstantList()), Text()):
                raise Mismatch(f"{name}() looks into strings; use 'in' for lists")
        raise Mismatch(f"{name}() takes two strings")

    return function


def _matches(arguments: Arguments) -> Value:
    match arguments:
        case Text(read=subject), Text(constant=str(pattern)):
            return Truth(_search(subject, pattern))
        case Text(), Text():
            raise Mismatch("the pattern of matches() must be written as a string")
    raise Mismatch("matches() takes a string and a pattern")


def _search(subject: Callable[[Facts], str], pattern: str) -> Condition:
    is_found = text_test("matches", pattern)
    return lambda facts: is_found(subject(facts))


def text_test(function: str, written: str) -> Callable[[str], bool]:
    """Whether a text has a written part; raises Mismatch on a pattern that RE2 does not accept."""
    if function != "matches":
        holds = _PARTS[function]
        return lambda text: holds(text, written)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = PATTERN_MEMORY_MAX_BYTES
    try:
        search = re2.compile(written, options).search
    except re2.error as problem:
        reason = shown(problem.args[0].decode("utf-8", "replace"))
        raise Mismatch(f"not a pattern that RE2 accepts: {reason}") from None
    # Bytes, because a lone surrogate in a fact must neither raise nor match.
    return lambda text: search(text.encode("utf-8", "replace")) is not None


_PARTS: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "startswith": str.startswith,
    "endswith": str.endswith,
    "contains": str.__contains__,
}
FUNCTIONS: Final[Mapping[str, Callable[[Arguments], Value]]] = {
    "has": _has,
    "size": _size,
    **{name: _two_texts(name, holds) for name, holds in _PARTS.items()},
    "matches": _matches,
}
