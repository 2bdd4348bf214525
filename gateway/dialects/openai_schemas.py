"""JSON schemas for OpenAI's strict mode, which accepts only schemas that list every property.

A schema that another vendor enforces may leave properties optional or open; in strict mode it would
be refused as a whole. It is therefore sent as a schema that is not enforced. This is reported, and
the answer is checked against the schema.
"""

from collections.abc import Iterator, Mapping


_REFUSED = frozenset(
    {
        *("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas"),
        *("patternProperties", "propertyNames", "unevaluatedProperties"),
    }
)
_OF_SCHEMAS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "prefixItems")


def is_enforceable(schema: Mapping[str, object]) -> bool:
    """Whether every object in it requires all of its properties and allows no others.

    OpenAI refuses `strict` with any other, and with every way to combine schemas except `anyOf`.
    """
    if not _REFUSED.isdisjoint(schema):
        return False
    kind = schema.get("type")
    properties = schema.get("properties")
    is_object = kind == "object" or (isinstance(kind, list) and "object" in kind)
    if is_object or properties is not None:
        required = schema.get("required")
        needed = [each for each in _listed(required) if isinstance(each, str)]
        named = properties if isinstance(properties, dict) else {}
        if schema.get("additionalProperties") is not False or set(needed) != set(named):
            return False
    return all(map(is_enforceable, _inner(schema)))


def _inner(schema: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    held: list[object] = [schema.get("items")]
    for name in _OF_SCHEMAS:
        named = schema.get(name)
        held += named.values() if isinstance(named, dict) else ()
    for name in _LISTS:
        held += _listed(schema.get(name))
    return (each for each in held if isinstance(each, dict))


def _listed(node: object) -> list[object]:
    return node if isinstance(node, list) else []
