"""Example requests for tests and `explain`: facts made from a few fields, the rest filled in."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from policies.facts import ASSURANCES, DATA_CLASSES, TIERS, Facts, TargetFacts
from policies.limits import COUNT_MAX, LIST_LENGTH_MAX, PROBLEMS_MAX
from policies.problems import FactsInvalid, Problem, shown, suggestion


_EVERYTHING: Final = frozenset({"tools", "images", "documents", "json_schema", "streaming"})

_EXAMPLE_TARGET: Final = TargetFacts(
    name="example",
    provider="scripted",
    jurisdiction="us",
    in_house=False,
    tier="cheap",
    input_price_microusd_per_mtok=1_000_000,
    output_price_microusd_per_mtok=5_000_000,
    context_window_tokens=200_000,
    output_tokens_max=64_000,
    capabilities=_EVERYTHING,
    available=True,
    unavailable_reason="",
    permitted_to_key=True,
)

# The catalogue that a document's own tests run against unless it brings `example_targets`.
EXAMPLE_TARGETS: Final = (
    msgspec.structs.replace(
        _EXAMPLE_TARGET,
        name="in-house",
        jurisdiction="in-house",
        in_house=True,
        assurances=frozenset(ASSURANCES),
        input_price_microusd_per_mtok=200_000,
        output_price_microusd_per_mtok=600_000,
        context_window_tokens=128_000,
    ),
    msgspec.structs.replace(_EXAMPLE_TARGET, name="managed-cheap"),
    msgspec.structs.replace(
        _EXAMPLE_TARGET,
        name="managed-mid",
        tier="mid",
        input_price_microusd_per_mtok=3_000_000,
        output_price_microusd_per_mtok=15_000_000,
    ),
    msgspec.structs.replace(
        _EXAMPLE_TARGET,
        name="managed-frontier",
        tier="frontier",
        input_price_microusd_per_mtok=15_000_000,
        output_price_microusd_per_mtok=75_000_000,
    ),
)

EXAMPLE_FACTS: Final = Facts(
    organisation="example",
    workspace="example",
    project="example",
    key_id="example",
    labels=(),
    dialect="openai_chat",
    model_requested="auto",
    stream=False,
    has_tools=False,
    has_images=False,
    has_documents=False,
    input_tokens_estimate=500,
    max_output_tokens=None,
    data_class="S0",
    inspection_complete=True,
    findings={},
    complexity=0.1,
    complexity_tier="cheap",
    budget_left_microusd=None,
    hour_utc=12,
    weekday=0,
    targets=EXAMPLE_TARGETS,
)

_LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "complexity": (0, 1),
    "injection": (0, 1),
    "hour_utc": (0, 23),
    "weekday": (0, 6),
    "input_tokens_estimate": (0, COUNT_MAX),
    "longest_tokens_estimate": (0, COUNT_MAX),
    "max_output_tokens": (0, COUNT_MAX),
    "budget_left_microusd": (-(10**15), 10**15),
    "input_price_microusd_per_mtok": (0, COUNT_MAX),
    "output_price_microusd_per_mtok": (0, COUNT_MAX),
    "context_window_tokens": (0, COUNT_MAX),
    "output_tokens_max": (0, COUNT_MAX),
}
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "data_class": DATA_CLASSES,
    "complexity_tier": TIERS,
    "tier": TIERS,
}


def facts_from_example(
    example: Mapping[str, object], targets: tuple[TargetFacts, ...] = EXAMPLE_TARGETS
) -> Facts:
    """Facts of a request that differs from a harmless one in the given fields.

    The entries of an example's own `targets` are completed from a managed one in the same way.
    Raises FactsInvalid with every unknown field and every wrong type.
    """
    problems: list[Problem] = []
    values = {key: value for key, value in example.items() if key != "targets"}
    given: dict[str, object] = {"targets": targets}
    if "targets" in example:
        given["targets"] = _targets(example["targets"], "targets", problems)
    given |= _fields(values, Facts, "", problems)
    if problems:
        raise FactsInvalid(problems)
    return msgspec.structs.replace(EXAMPLE_FACTS, **given)


def targets_from_examples(entries: object) -> tuple[TargetFacts, ...]:
    """Targets from a list of partial descriptions; raises FactsInvalid."""
    problems: list[Problem] = []
    targets = _targets(entries, "", problems)
    if problems:
        raise FactsInvalid(problems)
    return targets


def _targets(entries: object, path: str, problems: list[Problem]) -> tuple[TargetFacts, ...]:
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        problems.append(Problem(path, "expected a list of targets"))
        return ()
    if len(entries) > LIST_LENGTH_MAX:
        problems.append(Problem(path, f"more than {LIST_LENGTH_MAX} targets"))
        return ()
    targets = tuple(
        _target(entry, f"{path}[{place}]", problems) for place, entry in enumerate(entries)
    )
    names = [target.name for target in targets]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems.extend(Problem(path, f"two targets are named {shown(name)}") for name in twice)
    return targets


def _target(entry: object, path: str, problems: list[Problem]) -> TargetFacts:
    if not isinstance(entry, Mapping) or "name" not in entry:
        problems.append(Problem(path, "expected a table with a name"))
        return _EXAMPLE_TARGET
    fields = _fields(entry, TargetFacts, f"{path}.", problems)
    if fields.get("in_house") is True:
        fields.setdefault("jurisdiction", "in-house")
    if fields.get("available") is False:
        fields.setdefault("unavailable_reason", "not available in this example")
    return msgspec.structs.replace(_EXAMPLE_TARGET, **fields)


def _fields(
    given: Mapping[str, object],
    struct: type[Facts | TargetFacts],
    prefix: str,
    problems: list[Problem],
) -> dict[str, object]:
    types = _types(struct)
    values: dict[str, object] = {}
    for key, value in given.items():
        if len(problems) >= PROBLEMS_MAX:
            break
        if key not in types:
            hint = suggestion(key, types)
            problems.append(Problem(prefix + key[:50], f"unknown fact {shown(key)}{hint}"))
            continue
        try:
            values[key] = msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            problems.append(Problem(prefix + key, str(error)))
            continue
        problems.extend(Problem(prefix + key, message) for message in _misfits(key, values[key]))
    return values


@cache
def _types(struct: type[Facts | TargetFacts]) -> Mapping[str, Any]:
    """Cached: resolving the annotations takes 20 times as long as using them."""
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def _misfits(key: str, value: object) -> Iterator[str]:
    if key == "findings" and isinstance(value, Mapping):
        for label, count in value.items():
            if not 0 <= count <= COUNT_MAX:
                yield f"the count of {shown(label)} is not between 0 and {COUNT_MAX}"
    if key in _CHOICES and value not in _CHOICES[key]:
        yield f"{shown(str(value))} is not one of {', '.join(_CHOICES[key])}"
    if key in _LIMITS and isinstance(value, int | float):
        lowest, highest = _LIMITS[key]
        if not lowest <= value <= highest:
            yield f"{value} is not between {lowest} and {highest}"
