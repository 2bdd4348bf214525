"""JSON schemas for Anthropic's structured outputs, which enforce only part of the language."""

from collections.abc import Mapping

import msgspec

from gateway.dialects.loss import Losses


_ENFORCED_FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email", "hostname", "uri"),
        *("ipv4", "ipv6", "uuid"),
    }
)
_NOT_ENFORCED = frozenset(
    {
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
        *("minLength", "maxLength", "maxItems", "uniqueItems", "contains"),
        *("minProperties", "maxProperties", "patternProperties", "propertyNames"),
    }
)
_OF_SCHEMAS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "allOf", "oneOf")

Json = dict[str, object]


def enforceable(schema: Mapping[str, object], losses: Losses, place: str) -> Json:
    """The schema with what cannot be enforced moved into descriptions, where the model reads it.

    An object takes no other properties than those named: the only kind that is enforced. `place` is
    where the schema stands, for what is reported.
    """
    kept: Json = {}
    moved: Json = {}
    for key, value in schema.items():
        if _is_enforced(key, value):
            kept[key] = _inner(key, value, losses, place)
        else:
            moved[key] = value
            losses.add(f"{place}.{key}")
    if _is_object(kept):
        if kept.get("additionalProperties") not in (None, False):
            losses.add(f"{place}.additionalProperties")
        kept["additionalProperties"] = False
    if moved:
        told = kept.get("description")
        words = msgspec.json.encode(moved).decode()
        kept["description"] = f"{told}\n{words}" if isinstance(told, str) else words
    return kept


def _is_enforced(key: str, value: object) -> bool:
    if key == "format":
        return isinstance(value, str) and value in _ENFORCED_FORMATS
    if key == "minItems":
        return value in (0, 1)
    return key not in _NOT_ENFORCED


def _is_object(schema: Mapping[str, object]) -> bool:
    """Whether it may be an object, also one among other types."""
    kind = schema.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _inner(key: str, value: object, losses: Losses, place: str) -> object:
    if key in _OF_SCHEMAS and isinstance(value, dict):
        return {name: _schema(each, losses, place) for name, each in value.items()}
    if key in _LISTS and isinstance(value, list):
        return [_schema(each, losses, place) for each in value]
    return _schema(value, losses, place) if key == "items" else value


def _schema(value: object, losses: Losses, place: str) -> object:
    return enforceable(value, losses, place) if isinstance(value, dict) else value
