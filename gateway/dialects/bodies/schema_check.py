"""Checks that an answer is JSON and matches the requested schema. Pure and bounded.

It is for targets that do not enforce a schema, or only part of it. Keywords of JSON Schema that
cannot be checked here (`format`, remote references) count as met.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import msgspec
import re2

from gateway.admission.answer_bounds import is_readable
from gateway.conversation import ResponseFormat


TEXT_LENGTH_MAX = 1024 * 1024
"""Limit for an answer that is compared; no model writes as much."""
STEPS_MAX = 20_000
"""Limit on values compared with schemas, including recursion: the rest counts as valid."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[object], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "number": _is_number,
    "integer": lambda value: (
        _is_number(value) and (isinstance(value, int) or value.is_integer())  # type: ignore[attr-defined]
    ),
}
_BOUNDS: Mapping[str, Callable[[float, float], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: (
        bound == 0 or math.isclose(value / bound, round(value / bound))
    ),
}
_LENGTHS = {
    str: ("minLength", "maxLength"),
    list: ("minItems", "maxItems"),
    dict: ("minProperties", "maxProperties"),
}


class _GivenUpError(Exception):
    pass


def unmet(asked: ResponseFormat, text: str) -> str:
    """Where an answer differs from the requested format, `$` for all of it; empty if nowhere.

    An answer that is too long to compare counts as valid.
    """
    if len(text) > TEXT_LENGTH_MAX or not is_readable(text):
        return ""
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "$"
    if asked.kind == "json_object":
        return "" if isinstance(value, dict) else "$"
    try:
        return next(_Check(asked.schema).differences(value, asked.schema, "$"), "")
    except (_GivenUpError, RecursionError, OverflowError):
        return ""  # Too much to compare, too deep, or a quotient beyond a float.


class _Check:
    """One answer and its schema, with the work spent on them so far."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._steps = 0

    def differences(self, value: object, schema: object, path: str) -> Iterator[str]:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise _GivenUpError
        if schema is False:
            yield path
        if not isinstance(schema, dict):
            return
        if not _is_of_type(value, schema.get("type")) or not _is_listed(value, schema):
            yield path
        if not _is_within(value, schema):
            yield path
        yield from self._combined(value, schema, path)
        if isinstance(value, dict):
            yield from self._members(value, schema, path)
        elif isinstance(value, list):
            yield from self._items(value, schema, path)

    def _fits(self, value: object, schema: object) -> bool:
        return next(self.differences(value, schema, "$"), None) is None

    def _combined(self, value: object, schema: dict[str, object], path: str) -> Iterator[str]:
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield from self.differences(value, self._found(reference), path)
        for each in _listed(schema.get("allOf")):
            yield from self.differences(value, each, path)
        fitting = [self._fits(value, each) for each in _listed(schema.get("anyOf"))]
        if fitting and not any(fitting):
            yield path
        fitting = [self._fits(value, each) for each in _listed(schema.get("oneOf"))]
        if fitting and sum(fitting) != 1:
            yield path
        if "not" in schema and self._fits(value, schema["not"]):
            yield path

    def _found(self, reference: str) -> object:
        """The target of a reference inside the schema; other references count as satisfied."""
        node: object = self._root
        for word in reference.removeprefix("#").split("/")[1:]:
            key = word.replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, dict) else None
        return node

    def _members(
        self, value: dict[str, object], schema: dict[str, object], path: str
    ) -> Iterator[str]:
        for name in _listed(schema.get("required")):
            if isinstance(name, str) and name not in value:
                yield f"{path}.{name}"
        properties = schema.get("properties")
        known: dict[str, object] = properties if isinstance(properties, dict) else {}
        for name, each in value.items():
            # Names that the model made up are content, and are not repeated in a header.
            at = f"{path}.{name}" if name in known else f"{path}.*"
            inner = known.get(name, schema.get("additionalProperties", True))
            yield from self.differences(each, inner, at)

    def _items(self, value: list[object], schema: dict[str, object], path: str) -> Iterator[str]:
        if schema.get("uniqueItems") is True:
            seen = {msgspec.json.encode(each, order="deterministic") for each in value}
            if len(seen) < len(value):
                yield path
        if "contains" in schema and not any(self._fits(each, schema["contains"]) for each in value):
            yield path
        first = _listed(schema.get("prefixItems"))
        for index, each in enumerate(value):
            inner = first[index] if index < len(first) else schema.get("items", True)
            yield from self.differences(each, inner, f"{path}[{index}]")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _is_of_type(value: object, wanted: object) -> bool:
    words = wanted if isinstance(wanted, list) else [wanted]
    checks = [_TYPES[word] for word in words if isinstance(word, str) and word in _TYPES]
    return not checks or any(check(value) for check in checks)


def _is_listed(value: object, schema: dict[str, object]) -> bool:
    def same(other: object) -> bool:
        return value == other and isinstance(value, bool) == isinstance(other, bool)

    options = schema.get("enum")
    if isinstance(options, list) and not any(same(each) for each in options):
        return False
    return "const" not in schema or same(schema["const"])


def _is_within(value: object, schema: dict[str, object]) -> bool:
    """Bounds of numbers and lengths, and patterns of texts."""
    if _is_number(value):
        for word, holds in _BOUNDS.items():
            bound = schema.get(word)
            if _is_number(bound) and not holds(value, bound):  # type: ignore[arg-type]
                return False
        return True
    if not isinstance(value, str | list | dict):
        return True
    least, most = (schema.get(word) for word in _LENGTHS[type(value)])
    if isinstance(least, int) and len(value) < least:
        return False
    if isinstance(most, int) and len(value) > most:
        return False
    pattern = schema.get("pattern")
    return not isinstance(value, str) or not isinstance(pattern, str) or _matches(pattern, value)


def _matches(pattern: str, text: str) -> bool:
    """Takes linear time; a pattern that this engine does not know counts as matched."""
    try:
        return re2.search(pattern, text) is not None
    except re2.error:
        return True
