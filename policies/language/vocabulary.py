"""The facts that an expression may name, each with its type and how it is read.

A scale is an ordered set of names: `data_class >= "S3"` compares places, not letters. `targets` is
not a name of the language: targets are chosen with `allow_only` and `forbid`.
"""

from collections.abc import Callable, Collection, Mapping
from operator import attrgetter
from typing import Final, TypeAlias

import msgspec

from policies.facts import DATA_CLASSES, TIERS, Facts, data_class_rank, tier_rank


Condition: TypeAlias = Callable[[Facts], bool]


class Scale(msgspec.Struct, frozen=True):
    """Ordered names, lowest first."""

    title: str
    levels: tuple[str, ...]


class Truth(msgspec.Struct, frozen=True):
    """A truth value."""

    read: Condition
    title: str = "a truth value"


class Text(msgspec.Struct, frozen=True):
    """A string; `constant` if it is written in the expression."""

    read: Callable[[Facts], str]
    constant: str | None = None
    title: str = "a string"


class Number(msgspec.Struct, frozen=True):
    """A number; `constant` if it is written in the expression."""

    read: Callable[[Facts], float]
    constant: float | None = None
    title: str = "a number"


class OptionalNumber(msgspec.Struct, frozen=True):
    """A number that may be absent; a comparison with an absent number is false."""

    read: Callable[[Facts], float | None]
    title: str = "a number that may be absent"


class Level(msgspec.Struct, frozen=True):
    """A place on a scale."""

    read: Callable[[Facts], int]
    scale: Scale
    constant: int | None = None

    @property
    def title(self) -> str:
        return self.scale.title


class Texts(msgspec.Struct, frozen=True):
    """A set of strings."""

    read: Callable[[Facts], Collection[str]]
    title: str = "a list of strings"


class Headers(msgspec.Struct, frozen=True):
    """Texts by name; a missing name is an empty text."""

    read: Callable[[Facts], Mapping[str, str]]
    title: str = "request headers"


class Counts(msgspec.Struct, frozen=True):
    """Numbers by label; a missing label counts 0."""

    read: Callable[[Facts], Mapping[str, int]]
    title: str = "counts by label"


class ConstantList(msgspec.Struct, frozen=True):
    """A list written in the expression: only strings, or only numbers."""

    texts: tuple[str, ...] = ()
    numbers: tuple[float, ...] = ()
    title: str = "a list"


Value: TypeAlias = (
    Truth | Text | Number | OptionalNumber | Level | Texts | Counts | Headers | ConstantList
)

DATA_CLASS_SCALE: Final = Scale("a data class", DATA_CLASSES)
TIER_SCALE: Final = Scale("a tier", TIERS)

FACTS: Final[Mapping[str, Value]] = {
    "organisation": Text(attrgetter("organisation")),
    "workspace": Text(attrgetter("workspace")),
    "project": Text(attrgetter("project")),
    "key_id": Text(attrgetter("key_id")),
    "labels": Texts(attrgetter("labels")),
    "dialect": Text(attrgetter("dialect")),
    "model_requested": Text(attrgetter("model_requested")),
    "stream": Truth(attrgetter("stream")),
    "has_tools": Truth(attrgetter("has_tools")),
    "has_images": Truth(attrgetter("has_images")),
    "has_documents": Truth(attrgetter("has_documents")),
    "input_tokens_estimate": Number(attrgetter("input_tokens_estimate")),
    "longest_tokens_estimate": Number(attrgetter("window_tokens")),
    "max_output_tokens": OptionalNumber(attrgetter("max_output_tokens")),
    "data_class": Level(data_class_rank, DATA_CLASS_SCALE),
    "inspection_complete": Truth(attrgetter("inspection_complete")),
    "findings": Counts(attrgetter("findings")),
    "complexity": Number(attrgetter("complexity")),
    "complexity_tier": Level(lambda facts: tier_rank(facts.complexity_tier), TIER_SCALE),
    "budget_left_microusd": OptionalNumber(attrgetter("budget_left_microusd")),
    "service_tier": Text(attrgetter("service_tier")),
    "warm_target": Text(attrgetter("warm_target")),
    "warm_tokens": Number(attrgetter("warm_tokens")),
    "sealed": Text(attrgetter("sealed")),
    "headers": Headers(attrgetter("headers")),
    "injection": Number(attrgetter("injection")),
    "injection_suspected": Truth(attrgetter("injection_suspected")),
    "hour_utc": Number(attrgetter("hour_utc")),
    "weekday": Number(attrgetter("weekday")),
}
