"""The smallest body of every kind that a vendor's types describe, made from the types themselves.

A new version of an SDK brings its new kinds along: nobody has to think of them.
"""

import types
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import (
    Annotated,
    Any,
    Literal,
    Required,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel
from typing_extensions import is_typeddict


DEPTH_MAX = 6
_PLAIN: Mapping[Any, object] = {
    str: "x",
    int: 1,
    float: 1.0,
    bool: True,
    object: {},
    Any: {},
    None: None,
    type(None): None,
    datetime: "2026-11-22T00:00:00Z",
}


def members(annotation: object) -> list[Any]:
    """What a union is made of, however it is nested and annotated; one of itself else."""
    origin = get_origin(annotation)
    if origin in {Annotated, Required}:
        return members(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return [each for part in get_args(annotation) for each in members(part)]
    return [annotation]


def samples(adapter_type: object) -> Iterator[dict[str, Any]]:
    """Each kind of a union of models, once for every kind of what it holds at its top level."""
    for kind in members(adapter_type):
        base = sample(kind)
        yield base
        for name, annotation in fields_of(kind):
            held = [each for each in members(annotation) if is_shaped(each)]
            for each in held if len(held) > 1 else ():
                yield base | {name: sample(each)}


def fields_of(kind: Any) -> Iterable[tuple[str, Any]]:
    """Names and types of the fields of a model or a typed dictionary."""
    if is_typeddict(kind):
        return get_type_hints(kind, include_extras=True).items()
    return [(field.alias or name, field.annotation) for name, field in kind.model_fields.items()]


def sample(annotation: object, depth: int = 0) -> Any:
    """The least that a type allows: what is not required is left out."""
    kinds = members(annotation)
    # What may be nothing is nothing, once it is deep enough.
    kind = kinds[-1] if depth > DEPTH_MAX else kinds[0]
    origin = get_origin(kind)
    if origin is Literal:
        return get_args(kind)[0]
    if origin in {dict, Mapping}:
        return {}
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return [] if depth > DEPTH_MAX else [sample(get_args(kind)[0], depth + 1)]
    if isinstance(kind, TypeVar):
        return "x"
    if is_shaped(kind):
        needed = _needed(kind)
        named = fields_of(kind)
        return {name: sample(each, depth + 1) for name, each in named if name in needed}
    return _PLAIN.get(kind, "x")


def _needed(kind: Any) -> set[str]:
    """Fields that must be there, and the one that says which kind it is."""
    if not is_typeddict(kind):
        fields = kind.model_fields.items()
        return {field.alias or name for name, field in fields if field.is_required()} | {"type"}
    hints = get_type_hints(kind, include_extras=True)
    return {
        name for name, each in hints.items() if kind.__total__ or get_origin(each) is Required
    } | {"type"}


def is_shaped(kind: object) -> bool:
    """Whether a type has fields of its own."""
    return is_typeddict(kind) or (isinstance(kind, type) and issubclass(kind, BaseModel))
