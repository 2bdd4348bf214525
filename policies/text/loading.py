"""Loads the text of a policy document into a `PolicyDocument`, or reports all its problems."""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from policies.document import (
    ANSWER_CHECKS,
    OBLIGATIONS,
    SCHEMA_VERSION,
    AuditContent,
    Canary,
    Case,
    Constraint,
    Defaults,
    Effect,
    Expectation,
    OutputScanning,
    PolicyBody,
    Preference,
    Refusal,
    Sticky,
    WhenClosed,
)
from policies.examples import EXAMPLE_TARGETS, facts_from_example, targets_from_examples
from policies.expressions import compile_expression
from policies.facts import ASSURANCES, TIERS, TargetFacts
from policies.limits import (
    CACHE_S_MAX,
    CONDITIONS_COST_MAX,
    EXPRESSION_LENGTH_MAX,
    HEDGE_MS_MAX,
    LIST_LENGTH_MAX,
    NAME_LENGTH_MAX,
    RULES_MAX,
    TESTS_MAX,
    WEIGHT_MAX,
)
from policies.ordering import ORDERINGS
from policies.problems import (
    DocumentInvalid,
    ExpressionInvalid,
    FactsInvalid,
    Problem,
)
from policies.program import PolicyDocument, compile_policy
from policies.selectors import Selector
from policies.text.reading import TableReader
from policies.text.texts import parse_text, place_finder


T = TypeVar("T")

_WHEN_CLOSED: Final[Mapping[str, WhenClosed]] = {"substitute": "substitute", "refuse": "refuse"}
_AUDIT_CONTENTS: Final[Mapping[str, AuditContent]] = {
    "none": "none",
    "metadata": "none",  # What is recorded about a request is always recorded.
    "redacted": "redacted",
    "encrypted": "encrypted",
    "full": "encrypted",
}
_SCANNINGS: Final[Mapping[str, OutputScanning]] = {"count": "count", "mask": "mask"}
_STICKY: Final[Mapping[str, Sticky]] = {
    "key": "key",
    "project": "project",
    "workspace": "workspace",
}
_EFFECTS: Final[Mapping[str, Effect]] = {"allow": "allow", "deny": "deny"}
_REFUSALS: Final[Mapping[str, Refusal]] = {
    "closed_by_policy": "closed_by_policy",
    "no_target_available": "no_target_available",
    "denied": "denied",
    "approval_required": "approval_required",
    "context_too_long": "context_too_long",
    "capability_missing": "capability_missing",
}
_EFFECT_KEYS: Final = (
    "allow_only",
    "forbid",
    "deny",
    "cap_output_tokens",
    "cap_input_tokens",
    "audit_content",
    "require_approval",
    "scan_output",
)
_FLAGS: Final = ("no_cache", "pseudonymise", "redact")
_ROUTE: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


def load_document(text: str) -> PolicyDocument:
    """Read TOML, JSON or YAML; raises DocumentInvalid with all problems."""
    table = parse_text(text)
    problems: list[Problem] = []
    body = _body(TableReader(table, "", problems))
    _report_twins(body, problems)
    _report_cost(body, problems)
    if problems:
        raise DocumentInvalid(map(place_finder(text), problems))
    return compile_policy(body)


def constraint_from(table: Mapping[str, object]) -> Constraint:
    """A constraint from its keys as written; raises DocumentInvalid."""
    return _alone(_constraint, table)


def preference_from(table: Mapping[str, object]) -> Preference:
    """A preference from its keys as written; raises DocumentInvalid."""
    return _alone(_preference, table)


def case_from(
    table: Mapping[str, object], targets: tuple[TargetFacts, ...] = EXAMPLE_TARGETS
) -> Case:
    """A test case among these targets from its keys as written; raises DocumentInvalid."""
    return _alone(lambda reader: _test(reader, targets), table)


def _alone(read: Callable[[TableReader], T], table: Mapping[str, object]) -> T:
    problems: list[Problem] = []
    found = read(TableReader(table, "", problems))
    if problems:
        raise DocumentInvalid(problems)
    return found


def _body(reader: TableReader) -> PolicyBody:
    name = reader.name()
    version = reader.count("version")
    if version != SCHEMA_VERSION and (version is not None or not reader.has("version")):
        reader.report("version", f"the schema version is required and is {SCHEMA_VERSION}")
    example_targets = _example_targets(reader)
    body = PolicyBody(
        name=name,
        version=SCHEMA_VERSION,
        description=reader.text("description") or "",
        defaults=_defaults(reader.table("defaults")),
        constraints=tuple(map(_constraint, reader.tables("constraints", RULES_MAX))),
        preferences=tuple(map(_preference, reader.tables("preferences", RULES_MAX))),
        example_targets=example_targets,
        tests=tuple(
            _test(each, example_targets or EXAMPLE_TARGETS)
            for each in reader.tables("tests", TESTS_MAX)
        ),
    )
    reader.finish()
    return body


def _defaults(reader: TableReader | None) -> Defaults:
    if reader is None:
        return Defaults()
    defaults = Defaults(
        output_tokens_max=reader.count("output_tokens_max"),
        when_requested_model_closed=reader.choice("when_requested_model_closed", _WHEN_CLOSED)
        or "substitute",
        order=reader.texts("order", ORDERINGS) or Defaults().order,
        cache_s=_cached(reader),
        cache_like_percent=reader.percent("cache_like_percent"),
    )
    reader.finish()
    return defaults


def _constraint(reader: TableReader) -> Constraint:
    constraint = Constraint(
        name=reader.rule_name(),
        when=_when(reader),
        allow_only=_selector(reader, "allow_only"),
        forbid=_selector(reader, "forbid"),
        deny=reader.text("deny"),
        cap_output_tokens=reader.count("cap_output_tokens"),
        cap_input_tokens=reader.count("cap_input_tokens", lowest=0),
        no_cache=reader.flag("no_cache") or False,
        audit_content=reader.choice("audit_content", _AUDIT_CONTENTS),
        require_approval=reader.text("require_approval"),
        pseudonymise=reader.flag("pseudonymise") or False,
        redact=reader.flag("redact") or False,
        scan_output=reader.choice("scan_output", _SCANNINGS),
    )
    for key in ("deny", "require_approval"):
        reason: str | None = getattr(constraint, key)
        if reason is not None and not reason.strip():
            reader.report(key, "a refusal says why")
    has_flag = any(getattr(constraint, flag) for flag in _FLAGS)
    if not has_flag and not any(map(reader.has, _EFFECT_KEYS)):
        reader.report("", "the constraint has no effect")
    reader.finish()
    return constraint


def _preference(reader: TableReader) -> Preference:
    preference = Preference(
        name=reader.rule_name(),
        route=reader.text("route", length_max=NAME_LENGTH_MAX),
        when=_when(reader),
        targets=reader.texts("targets") or (),
        order=reader.texts("order", ORDERINGS) or (),
        weights=_weights(reader.table("weights")),
        canary=_canary(reader.table("canary")),
        sticky=reader.choice("sticky", _STICKY) or "key",
        hedge_after_ms=_hedge(reader),
        cascade_above_percent=reader.percent("cascade_above_percent"),
        stay_warm=reader.flag("stay_warm") or False,
        cache_s=_cached(reader),
        cache_like_percent=reader.percent("cache_like_percent"),
    )
    if preference.route is not None and not _ROUTE.fullmatch(preference.route):
        reader.report("route", "a route is lower-case letters, digits, '.', '_' and '-'")
    if reader.has("hedge_after_ms") and reader.has("cascade_above_percent"):
        reader.report("cascade_above_percent", "a cascade waits for its first answer: no hedging")
    if not any(map(reader.has, ("targets", "order", "weights", "canary"))):
        reader.report("", "the preference needs an order, targets, weights or a canary")
    reader.finish()
    return preference


def _weights(reader: TableReader | None) -> Mapping[str, int]:
    if reader is None:
        return {}
    found = {name: reader.count(name) for name in reader.keys(LIST_LENGTH_MAX)}
    weights = {name: weight for name, weight in found.items() if weight is not None}
    for name, weight in weights.items():
        if weight > WEIGHT_MAX:
            reader.report(name, f"not between 1 and {WEIGHT_MAX}")
    if not found:
        reader.report("", "weights name at least one target")
    return weights


def _canary(reader: TableReader | None) -> Canary | None:
    if reader is None:
        return None
    target, percent = reader.text("target", length_max=NAME_LENGTH_MAX), reader.percent("percent")
    if not target or percent is None:
        reader.report("", "a canary has a target and a percent")
    checks = reader.texts("checks", ANSWER_CHECKS) or ()
    reader.finish()
    return Canary(target or "", percent or 0.0, checks)


def _hedge(reader: TableReader) -> int | None:
    after_ms = reader.count("hedge_after_ms")
    if after_ms is not None and after_ms > HEDGE_MS_MAX:
        reader.report("hedge_after_ms", f"not between 1 and {HEDGE_MS_MAX}")
        return None
    return after_ms


def _cached(reader: TableReader) -> int | None:
    """Seconds; 0 means that no answer is reused."""
    keeps_s = reader.count("cache_s", lowest=0)
    if keeps_s is not None and keeps_s > CACHE_S_MAX:
        reader.report("cache_s", f"not between 0 and {CACHE_S_MAX}")
        return None
    return keeps_s


def _when(reader: TableReader) -> str | None:
    text = reader.text("when", length_max=EXPRESSION_LENGTH_MAX)
    if text is None or reader.is_full:
        return None
    try:
        return compile_expression(text).text
    except ExpressionInvalid as error:
        for problem in error.problems:
            reader.report("when", problem.message, problem.position)
        return None


def _selector(parent: TableReader, key: str) -> Selector | None:
    reader = parent.table(key)
    if reader is None:
        return None
    selector = Selector(
        in_house=reader.flag("in_house"),
        jurisdictions=_set_of(reader.texts("jurisdictions")),
        targets=_set_of(reader.texts("targets")),
        tiers=_set_of(reader.texts("tiers", TIERS)),
        providers=_set_of(reader.texts("providers")),
        capabilities=_set_of(reader.texts("capabilities")),
        assurances=_set_of(reader.texts("assurances", ASSURANCES)),
    )
    if not any(map(reader.has, Selector.__struct_fields__)):
        reader.report("", "the selector is empty")
    reader.finish()
    return selector


def _set_of(names: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(sorted(names or ()))


def _example_targets(reader: TableReader) -> tuple[TargetFacts, ...]:
    entries = reader.raw("example_targets")
    if entries is None:
        return ()
    try:
        return targets_from_examples(entries)
    except FactsInvalid as error:
        for problem in error.problems:
            reader.report(f"example_targets{problem.path}", problem.message)
        return ()


def _test(reader: TableReader, targets: tuple[TargetFacts, ...]) -> Case:
    name = reader.rule_name()
    facts = reader.raw("facts") if reader.has("facts") else {}
    if not isinstance(facts, dict):
        reader.report("facts", "expected a table of facts")
        facts = {}
    try:
        facts_from_example(facts, targets)
    except FactsInvalid as error:
        for problem in error.problems:
            reader.report(f"facts.{problem.path}", problem.message)
    expectation = _expectation(reader)
    reader.finish()
    return Case(name=name, facts=facts, expect=expectation)


def _expectation(parent: TableReader) -> Expectation:
    reader = parent.table("expect")
    if reader is None:
        if not parent.has("expect"):
            parent.report("expect", "a test case says what it expects")
        return Expectation()
    expectation = Expectation(
        effect=reader.choice("effect", _EFFECTS),
        refusal=reader.choice("refusal", _REFUSALS),
        first=reader.text("first"),
        candidates=reader.texts("candidates"),
        excluded=reader.texts("excluded") or (),
        matched=reader.texts("matched") or (),
        preference=reader.text("preference"),
        output_tokens_cap=reader.count("output_tokens_cap"),
        obligations=reader.texts("obligations", OBLIGATIONS) or (),
    )
    if not any(map(reader.has, Expectation.__struct_fields__)):
        reader.report("", "a test case expects at least one thing")
    reader.finish()
    return expectation


def _report_twins(body: PolicyBody, problems: list[Problem]) -> None:
    """Names identify rules in decisions and records, so no two rules may share one."""
    first: dict[str, str] = {}
    entries = [(f"constraints[{n}]", rule.name) for n, rule in enumerate(body.constraints)]
    entries += [(f"preferences[{n}]", rule.name) for n, rule in enumerate(body.preferences)]
    for path, name in entries:
        if name and name in first:
            problems.append(Problem(f"{path}.name", f"{first[name]} has the same name", name))
        first.setdefault(name, path)
    cases: dict[str, str] = {}
    for place, case in enumerate(body.tests):
        path = f"tests[{place}]"
        if case.name and case.name in cases:
            problems.append(
                Problem(f"{path}.name", f"{cases[case.name]} has the same name", case.name)
            )
        cases.setdefault(case.name, path)


def _report_cost(body: PolicyBody, problems: list[Problem]) -> None:
    """All conditions together are evaluated per request, so their sum is bounded too."""
    conditions = [rule.when for rule in body.constraints]
    conditions += [rule.when for rule in body.preferences]
    cost = sum(compile_expression(when).cost for when in conditions if when is not None)
    if cost > CONDITIONS_COST_MAX and not problems:
        message = f"the conditions cost {cost} steps together, more than {CONDITIONS_COST_MAX}"
        problems.append(Problem("", message))
