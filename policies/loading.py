"""Text of a policy document to a `PolicyDocument`, or to everything that is wrong with it."""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from typing import Final, NoReturn

import re2

from policies.document import (
    SCHEMA_VERSION,
    AuditContent,
    Case,
    Constraint,
    Defaults,
    Effect,
    Expectation,
    PolicyBody,
    Preference,
    Refusal,
    WhenClosed,
)
from policies.examples import EXAMPLE_TARGETS, facts_from_example, targets_from_examples
from policies.expressions import compile_expression
from policies.facts import TIERS, TargetFacts
from policies.limits import (
    DOCUMENT_LENGTH_MAX,
    EXPRESSION_LENGTH_MAX,
    KEY_PARTS_MAX,
    NAME_LENGTH_MAX,
    RULES_MAX,
    TESTS_MAX,
)
from policies.problems import (
    DocumentInvalid,
    ExpressionInvalid,
    FactsInvalid,
    Position,
    Problem,
    shown,
)
from policies.program import ORDERINGS, PolicyDocument, compile_policy
from policies.reading import TableReader
from policies.selectors import Selector


_WHEN_CLOSED: Final[Mapping[str, WhenClosed]] = {"substitute": "substitute", "refuse": "refuse"}
_AUDIT_CONTENTS: Final[Mapping[str, AuditContent]] = {"none": "none", "encrypted": "encrypted"}
_EFFECTS: Final[Mapping[str, Effect]] = {"allow": "allow", "deny": "deny"}
_REFUSALS: Final[Mapping[str, Refusal]] = {
    "closed_by_policy": "closed_by_policy",
    "no_target_available": "no_target_available",
    "denied": "denied",
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
)
_ROUTE: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
# tomllib's memory grows with the square of a dotted key's length, so long ones never reach it.
# In RE2, because a backtracking search would take the square of the time instead.
_LONG_KEY: Final = re2.compile(
    r"""(?:(?:[\w-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')[ \t]*\.[ \t]*)""" + f"{{{KEY_PARTS_MAX}}}"
)
_PLACE: Final = re.compile(r"\(at line (\d+), column (\d+)\)$")


def load_document(text: str) -> PolicyDocument:
    """Read TOML, or JSON when it starts with "{"; raises DocumentInvalid with all problems."""
    table = _parse(text)
    problems: list[Problem] = []
    body = _body(TableReader(table, "", problems))
    _report_twins(body, problems)
    if problems:
        raise DocumentInvalid(problems)
    return compile_policy(body)


def _refuse(message: str, position: Position | None = None) -> NoReturn:
    raise DocumentInvalid([Problem("", message, position=position)])


def _parse(text: str) -> Mapping[str, object]:
    if len(text) > DOCUMENT_LENGTH_MAX:
        _refuse(f"the document is longer than {DOCUMENT_LENGTH_MAX} characters")
    try:
        text.encode()
        table = _parse_json(text) if text.lstrip().startswith("{") else _parse_toml(text)
    except UnicodeEncodeError:
        _refuse("the document holds a surrogate, which is not a character")
    except json.JSONDecodeError as error:
        _refuse(f"not JSON: {error.msg}", Position(error.lineno, error.colno))
    except ValueError as error:
        place = _PLACE.search(str(error))
        position = Position(int(place[1]), int(place[2])) if place else None
        _refuse(f"not a document: {_PLACE.sub('', str(error)).strip()}", position)
    except RecursionError:
        _refuse("the document is nested too deeply")
    assert isinstance(table, dict)
    return table


def _parse_toml(text: str) -> object:
    if _LONG_KEY.search(text.encode()) is not None:
        raise ValueError(f"more than {KEY_PARTS_MAX} names are joined by dots")
    return tomllib.loads(text)


def _parse_json(text: str) -> object:
    parsed: object = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
    # JSON can spell a lone surrogate as an escape; this refuses it.
    json.dumps(parsed, ensure_ascii=False).encode()
    return parsed


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(twice)} stands twice in one object")
    return table


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


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
    )
    if constraint.deny is not None and not constraint.deny.strip():
        reader.report("deny", "a denial says why")
    if not constraint.no_cache and not any(map(reader.has, _EFFECT_KEYS)):
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
    )
    if preference.route is not None and not _ROUTE.fullmatch(preference.route):
        reader.report("route", "a route is lower-case letters, digits, '.', '_' and '-'")
    if not reader.has("targets") and not reader.has("order"):
        reader.report("", "the preference needs an order or targets")
    reader.finish()
    return preference


def _when(reader: TableReader) -> str | None:
    text = reader.text("when", length_max=EXPRESSION_LENGTH_MAX)
    if text is None:
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
