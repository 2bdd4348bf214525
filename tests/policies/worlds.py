"""Random but well-formed requests, targets and documents, and short ways to write fixed ones."""

import json
from collections.abc import Mapping

import msgspec
from hypothesis import strategies as st

from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.facts import Facts, TargetFacts
from policies.program import PolicyDocument
from policies.text.loading import load_document


NAMES = ("in-house", "managed-cheap", "managed-mid", "managed-frontier")
JURISDICTIONS = ("in-house", "us", "eu")
LABELS = ("aadhaar", "pan", "email")

CONDITIONS = (
    'data_class >= "S3"',
    'data_class in ["S1", "S2"]',
    "not inspection_complete",
    "findings.aadhaar > 0",
    'has(findings.pan) and "email" not in findings',
    "size(findings) > 1 or size(labels) == 0",
    '"restricted" in labels',
    'startswith(model_requested, "auto") and not endswith(model_requested, "quality")',
    'matches(model_requested, r"^managed-(mid|frontier)$")',
    'contains(dialect, "chat")',
    "max_output_tokens > 1000",
    "budget_left_microusd < 5000 or not has(budget_left_microusd)",
    "complexity >= 0.5",
    'complexity_tier > "cheap"',
    "hour_utc in [0, 1, 2] or weekday >= 5",
    "stream == true and has_tools != has_images",
    "max_output_tokens == input_tokens_estimate or has_documents",
    "true",
    "1 > 2",
)


def document(
    *constraints: Mapping[str, object],
    preferences: tuple[Mapping[str, object], ...] = (),
    **rest: object,
) -> PolicyDocument:
    """A document from plain tables; rules without a name get one from their place."""
    return load_document(document_text(*constraints, preferences=preferences, **rest))


def document_text(
    *constraints: Mapping[str, object],
    preferences: tuple[Mapping[str, object], ...] = (),
    **rest: object,
) -> str:
    table: dict[str, object] = {
        "name": "test",
        "version": 1,
        "constraints": [{"name": f"c{n}", **rule} for n, rule in enumerate(constraints)],
        "preferences": [{"name": f"p{n}", **rule} for n, rule in enumerate(preferences)],
        **rest,
    }
    return json.dumps(table)


def request(**fields: object) -> Facts:
    return facts_from_example(fields)


def target(name: str, /, **fields: object) -> TargetFacts:
    """An example target, changed."""
    found = next(each for each in EXAMPLE_TARGETS if each.name == name)
    return msgspec.structs.replace(found, **fields)


@st.composite
def targets(draw: st.DrawFn, name: str) -> TargetFacts:
    return TargetFacts(
        name=name,
        provider=draw(st.sampled_from(["scripted", "other"])),
        jurisdiction=draw(st.sampled_from(JURISDICTIONS)),
        in_house=draw(st.booleans()),
        tier=draw(st.sampled_from(["cheap", "mid", "frontier", "unheard-of"])),
        input_price_microusd_per_mtok=draw(st.integers(0, 5)),
        output_price_microusd_per_mtok=draw(st.integers(0, 5)),
        context_window_tokens=draw(st.sampled_from([0, 1_000, 200_000])),
        output_tokens_max=draw(st.sampled_from([0, 4_000])),
        capabilities=draw(st.frozensets(st.sampled_from(["tools", "images", "streaming"]))),
        available=draw(st.booleans()),
        unavailable_reason=draw(st.sampled_from(["", "no credential"])),
        permitted_to_key=draw(st.booleans()),
        assurances=draw(st.frozensets(st.sampled_from(["no_training", "no_retention"]))),
    )


@st.composite
def requests(draw: st.DrawFn) -> Facts:
    """Any facts at all, also with classes and tiers that nobody has heard of."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    model = st.sampled_from(["auto", "auto:cheap", "auto:nowhere", "auto:", "nobody", *NAMES])
    return Facts(
        organisation=draw(st.text(max_size=5)),
        workspace="w",
        project="p",
        key_id="k",
        labels=draw(st.sampled_from([(), ("restricted",), ("a", "b")])),
        dialect=draw(st.sampled_from(["openai_chat", "anthropic_messages"])),
        model_requested=draw(model | st.text(max_size=80)),
        stream=draw(st.booleans()),
        has_tools=draw(st.booleans()),
        has_images=draw(st.booleans()),
        has_documents=draw(st.booleans()),
        input_tokens_estimate=draw(st.integers(0, 2_000)),
        max_output_tokens=draw(st.none() | st.integers(0, 3_000)),
        data_class=draw(st.sampled_from(["S0", "S1", "S2", "S3", "S4", "S9", ""])),
        inspection_complete=draw(st.booleans()),
        findings=draw(st.dictionaries(st.sampled_from(LABELS), st.integers(0, 3))),
        complexity=draw(st.floats(0, 1)),
        complexity_tier=draw(st.sampled_from(["cheap", "mid", "frontier", ""])),
        budget_left_microusd=draw(st.none() | st.integers(-10, 10_000)),
        hour_utc=draw(st.integers(0, 23)),
        weekday=draw(st.integers(0, 6)),
        targets=tuple(draw(targets(name)) for name in names),
    )


def _subset(*names: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(names), min_size=1, unique=True)


SELECTORS = st.fixed_dictionaries(
    {},
    optional={
        "in_house": st.booleans(),
        "jurisdictions": _subset(*JURISDICTIONS),
        "targets": _subset(*NAMES),
        "tiers": _subset("cheap", "mid", "frontier"),
        "providers": _subset("scripted", "other"),
        "capabilities": _subset("tools", "images"),
        "assurances": _subset("no_training", "no_retention"),
    },
).filter(bool)

_EFFECTS: Mapping[str, st.SearchStrategy[object]] = {
    "allow_only": SELECTORS,
    "forbid": SELECTORS,
    "deny": st.just("Not today."),
    "cap_output_tokens": st.integers(1, 5_000),
    "cap_input_tokens": st.integers(0, 2_000),
    "no_cache": st.just(value=True),
    "audit_content": st.sampled_from(["none", "redacted", "encrypted"]),
    "scan_output": st.sampled_from(["count", "mask"]),
}


@st.composite
def constraints(draw: st.DrawFn) -> dict[str, object]:
    kinds = st.lists(st.sampled_from(sorted(_EFFECTS)), min_size=1, max_size=2, unique=True)
    rule: dict[str, object] = {kind: draw(_EFFECTS[kind]) for kind in draw(kinds)}
    when = draw(st.none() | st.sampled_from(CONDITIONS))
    return rule if when is None else {**rule, "when": when}


ORDERS = st.lists(
    st.sampled_from(["cheap", "mid", "frontier", "cheapest", "in_house_first"]),
    min_size=1,
    unique=True,
)


@st.composite
def preferences(draw: st.DrawFn) -> dict[str, object]:
    rule: dict[str, object] = {"order": draw(ORDERS)}
    if draw(st.booleans()):
        rule["targets"] = draw(_subset(*NAMES))
    if draw(st.booleans()):
        rule["route"] = draw(st.sampled_from(["cheap", "quality"]))
    when = draw(st.none() | st.sampled_from(CONDITIONS))
    return rule if when is None else {**rule, "when": when}


@st.composite
def defaults(draw: st.DrawFn) -> dict[str, object]:
    return {
        "order": draw(ORDERS),
        "output_tokens_max": draw(st.integers(1, 5_000)),
        "when_requested_model_closed": draw(st.sampled_from(["substitute", "refuse"])),
    }


RULE_LISTS = st.lists(constraints(), max_size=4)
PREFERENCE_LISTS = st.lists(preferences(), max_size=4).map(tuple)


@st.composite
def documents(draw: st.DrawFn) -> PolicyDocument:
    rules = draw(RULE_LISTS)
    return document(*rules, preferences=draw(PREFERENCE_LISTS), defaults=draw(defaults()))
