"""Everything that can be said about a document before it is published.

Errors keep a document from being used. Warnings point at what its author cannot have meant. The
document's own test cases must pass as well.
"""

from collections.abc import Iterator

import msgspec

from policies.decide import decide
from policies.decision import Decision
from policies.document import Case, Constraint, Expectation, PolicyBody, Preference
from policies.examples import EXAMPLE_FACTS, EXAMPLE_TARGETS, facts_from_example
from policies.facts import TargetFacts
from policies.loading import load_document
from policies.problems import DocumentInvalid, Position, Problem, shown, suggestion
from policies.program import ConstraintStep, PolicyDocument
from policies.reach import constant_verdict, shadowed, unreachable
from policies.selectors import Selector
from policies.texts import place_finder


class CaseResult(msgspec.Struct, frozen=True):
    """How one test case of the document went."""

    name: str
    failures: tuple[str, ...]
    at: Position | None = None
    """Where the test case stands."""

    @property
    def has_passed(self) -> bool:
        return not self.failures


class CheckReport(msgspec.Struct, frozen=True):
    """The findings about one document; `document` is None when it could not be loaded."""

    source_name: str
    document: PolicyDocument | None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    tests: tuple[CaseResult, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.errors and all(result.has_passed for result in self.tests)


def check(text: str, source_name: str, targets: tuple[TargetFacts, ...] = ()) -> CheckReport:
    """Load a document, look for contradictions and shadowed rules, run its test cases.

    With the `targets` of a catalogue, names that it lacks and a document that closes all of it
    are errors too.
    """
    try:
        document = load_document(text)
    except DocumentInvalid as error:
        return CheckReport(source_name, None, errors=error.problems)
    find = place_finder(text)
    errors = [
        Problem(each.path, each.reason, each.name) for each in shadowed(document.body.preferences)
    ]
    warnings = [*_warnings(document.body)]
    if targets:
        errors += _catalogue_errors(document, targets)
    elif document.body.example_targets:
        errors += _closed(document, document.body.example_targets, "every example target")
    else:
        # A catalogue may have what the examples lack.
        warnings += _closed(document, EXAMPLE_TARGETS, "every example target")
    cases = [
        run_case(document, case, find(Problem(f"tests[{place}]", "", case.name)).rule_at)
        for place, case in enumerate(document.body.tests)
    ]
    return CheckReport(
        source_name,
        document,
        errors=tuple(map(find, errors)),
        warnings=tuple(map(find, warnings)),
        tests=tuple(cases),
    )


def run_case(document: PolicyDocument, case: Case, at: Position | None = None) -> CaseResult:
    """Decide a test case's example request and compare with what the case expects."""
    targets = document.body.example_targets or EXAMPLE_TARGETS
    decision = decide(document, facts_from_example(case.facts, targets))
    return CaseResult(case.name, tuple(_failures(case.expect, decision)), at)


def _failures(expect: Expectation, decision: Decision) -> Iterator[str]:
    first = decision.candidates[0] if decision.candidates else None
    pairs: tuple[tuple[str, object, object], ...] = (
        ("effect", expect.effect, decision.effect),
        ("refusal", expect.refusal, decision.refusal),
        ("first", expect.first, first),
        ("candidates", expect.candidates, decision.candidates),
        ("preference", expect.preference, decision.matched_preference),
        ("output_tokens_cap", expect.output_tokens_cap, decision.obligations.output_tokens_cap),
    )
    for name, wanted, got in pairs:
        if wanted is not None and wanted != got:
            yield f"{name}: expected {_listed(wanted)}, got {_listed(got)}"
    excluded = {exclusion.target for exclusion in decision.excluded}
    for name in expect.excluded:
        if name not in excluded:
            yield f"excluded: {name} was not excluded"
    for name in expect.obligations:
        if not getattr(decision.obligations, name):
            yield f"obligations: {name} was not demanded"
    for name in expect.matched:
        if name not in decision.matched_constraints:
            yield f"matched: {name} did not match"


def _listed(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "nothing"
    return "nothing" if value is None else str(value)


def _catalogue_errors(
    document: PolicyDocument, targets: tuple[TargetFacts, ...]
) -> Iterator[Problem]:
    names = {target.name for target in targets}
    for path, rule, name in _named_targets(document.body):
        if name not in names:
            hint = suggestion(name, names)
            yield Problem(path, f"no target of the catalogue is named {shown(name)}{hint}", rule)
    yield from _closed(document, targets, "every target")


def _closed(
    document: PolicyDocument, targets: tuple[TargetFacts, ...], which: str
) -> Iterator[Problem]:
    """Constraints of every request that leave nothing of these targets."""
    always = [step for step in document.constraints if not step.readings and _holds(step)]
    closing = [step for step in always if step.closures]
    if all(any(_closes(step, target) for step in closing) for target in targets):
        rules = ", ".join(step.name for step in closing)
        message = f"{which} is closed for every request by: {rules}"
        first = closing[0]
        yield Problem(f"constraints[{document.constraints.index(first)}]", message, first.name)


def _holds(step: ConstraintStep) -> bool:
    return step.applies(EXAMPLE_FACTS)


def _closes(step: ConstraintStep, target: TargetFacts) -> bool:
    return any(closure.closes(target) for closure in step.closures)


def _named_targets(body: PolicyBody) -> Iterator[tuple[str, str, str]]:
    """Path, rule and name of every target a rule speaks of."""
    for place, constraint in enumerate(body.constraints):
        for key, selector in (
            ("allow_only", constraint.allow_only),
            ("forbid", constraint.forbid),
        ):
            for name in (selector or Selector()).targets:
                yield f"constraints[{place}].{key}.targets", constraint.name, name
    for place, preference in enumerate(body.preferences):
        for name in preference.targets:
            yield f"preferences[{place}].targets", preference.name, name


def _warnings(body: PolicyBody) -> Iterator[Problem]:
    never = {each.path: each.reason for each in unreachable(body) if not each.behind}
    rules: list[tuple[str, Constraint | Preference]] = [
        *((f"constraints[{place}]", rule) for place, rule in enumerate(body.constraints)),
        *((f"preferences[{place}]", rule) for place, rule in enumerate(body.preferences)),
    ]
    for path, rule in rules:
        reason = never.get(path, "")
        if rule.when is not None and constant_verdict(rule.when):
            reason = "the condition is always true"
        if reason:
            yield Problem(f"{path}.when", reason, rule.name)
    if not body.tests:
        yield Problem("tests", "the document has no test cases")
