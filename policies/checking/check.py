"""Checks a document before it is published and gives every error and warning.

A document with errors cannot be used. Warnings point at what its author cannot have meant. The
document's own test cases must pass as well.
"""

from collections.abc import Collection, Iterator

import msgspec

from policies.checking.possible import Search
from policies.checking.reach import Unreachable, constant_verdict, unreachable
from policies.checking.values import never_had, never_seen
from policies.decide import decide
from policies.decision import Decision
from policies.document import Case, Constraint, Expectation, PolicyBody, Preference
from policies.examples import EXAMPLE_TARGETS, facts_from_example
from policies.facts import TargetFacts
from policies.hierarchy import SEPARATOR
from policies.labels import approval_of, is_label
from policies.problems import DocumentInvalid, Position, Problem, shown, suggestion
from policies.program import ConstraintStep, PolicyDocument
from policies.selectors import Selector
from policies.text.loading import load_document
from policies.text.texts import place_finder


class CaseResult(msgspec.Struct, frozen=True):
    """How one test case of the document went."""

    name: str
    failures: tuple[str, ...]
    at: Position | None = None
    """The position of the test case."""

    @property
    def has_passed(self) -> bool:
        return not self.failures


class CheckReport(msgspec.Struct, frozen=True):
    """The findings about one document; `document` is None if it could not be loaded."""

    source_name: str
    document: PolicyDocument | None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    tests: tuple[CaseResult, ...] = ()

    @property
    def is_ok(self) -> bool:
        return not self.errors and all(result.has_passed for result in self.tests)


def check(
    text: str,
    source_name: str,
    targets: tuple[TargetFacts, ...] = (),
    labels: Collection[str] = (),
    headers: Collection[str] | None = None,
) -> CheckReport:
    """Load a document, look for contradictions and shadowed rules, run its test cases.

    With the `targets` of a catalogue, it is also an error to name one that the catalogue lacks, or
    to close all of it. With the `labels` that findings can have, there is a warning for a rule that
    counts another label and for one that compares a fact with a value it never has. With the
    `headers` that policies see, there is one for a rule that reads another header.
    """
    try:
        document = load_document(text)
    except DocumentInvalid as error:
        return CheckReport(source_name, None, errors=error.problems)
    find = place_finder(text)
    never = unreachable(document.body)
    errors = [Problem(each.path, each.reason, each.name) for each in never if each.behind]
    warnings = [*_warnings(document.body, never)]
    warnings += _refusing(document, targets or document.body.example_targets)
    warnings += never_had(document.body, labels)
    warnings += () if headers is None else never_seen(document, headers)
    warnings += _never_approved(document.body)
    if targets:
        warnings += _unknown_places(document.body, targets)
        errors += _catalogue_errors(document, targets)
    elif document.body.example_targets:
        errors += _closed(document, document.body.example_targets, "every example target")
    else:
        # A catalogue may have targets that the examples lack.
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


def _unknown_places(body: PolicyBody, targets: tuple[TargetFacts, ...]) -> Iterator[Problem]:
    """Providers and jurisdictions that no target has: perhaps future ones, perhaps misspelt."""
    known: dict[str, set[str]] = {
        "providers": {target.provider for target in targets},
        "jurisdictions": {target.jurisdiction for target in targets},
    }
    for path, rule, kind, name in _named_places(body):
        if name not in known[kind]:
            message = f"no target of the catalogue has {shown(name)}"
            yield Problem(path, message + suggestion(name, known[kind]), rule)


def _never_approved(body: PolicyBody) -> Iterator[Problem]:
    """Rules whose approval is not a valid label: they would refuse everybody for ever."""
    for place, rule in enumerate(body.constraints):
        if rule.require_approval is None:
            continue
        alone, below = approval_of(rule.name), approval_of(body.name + SEPARATOR + rule.name)
        path, why = f"constraints[{place}]", "a label is one word without blanks and commas"
        if not is_label(alone):
            message = f"never approved: no key can carry {shown(alone)}; {why}"
            yield Problem(f"{path}.name", message, rule.name)
        elif not is_label(below):
            message = (
                f"never approved where a level above has a rule of this name: it is called by the "
                f"document's name then, and no key can carry {shown(below)}; {why}"
            )
            yield Problem("name", message, rule.name)


def _named_places(body: PolicyBody) -> Iterator[tuple[str, str, str, str]]:
    """Path, rule, kind and name of every provider and jurisdiction that a constraint names."""
    for place, constraint in enumerate(body.constraints):
        for key in ("allow_only", "forbid"):
            selector: Selector = getattr(constraint, key) or Selector()
            path = f"constraints[{place}].{key}"
            for name in selector.providers:
                yield f"{path}.providers", constraint.name, "providers", name
            for name in selector.jurisdictions:
                yield f"{path}.jurisdictions", constraint.name, "jurisdictions", name


def _closed(
    document: PolicyDocument, targets: tuple[TargetFacts, ...], which: str
) -> Iterator[Problem]:
    """Constraints that leave every request without any of these targets."""
    search = Search()
    used: dict[str, ConstraintStep] = {}
    for target in targets:
        closing = [step for step in document.constraints if _closes(step, target)]
        always = [step for step in closing if constant_verdict(step.constraint.when)]
        if not always and search.could((), [step.constraint.when for step in closing]):
            return
        used |= {step.name: step for step in always or closing}
    rules = [step for step in document.constraints if step.name in used]
    message = f"{which} is closed for every request by: {', '.join(step.name for step in rules)}"
    yield Problem(_path_of(document, rules[0]), message, rules[0].name)


def _path_of(document: PolicyDocument, step: ConstraintStep) -> str:
    return f"constraints[{document.constraints.index(step)}]"


def _refusing(document: PolicyDocument, targets: tuple[TargetFacts, ...]) -> Iterator[Problem]:
    """Rules that leave no target when they match, and documents that refuse everybody."""
    for step in document.constraints:
        is_rare = constant_verdict(step.constraint.when) is None
        if is_rare and targets and all(_closes(step, target) for target in targets):
            message = "closes every target whenever it matches; `deny` would say why"
            yield Problem(_path_of(document, step), message, step.name)
    denying = [step for step in document.constraints if step.constraint.deny is not None]
    if denying and not Search().could((), [step.constraint.when for step in denying]):
        rules = ", ".join(step.name for step in denying)
        message = f"every request is refused by: {rules}"
        yield Problem(_path_of(document, denying[0]), message, denying[0].name)


def _closes(step: ConstraintStep, target: TargetFacts) -> bool:
    return any(closure.closes(target) for closure in step.closures)


def _named_targets(body: PolicyBody) -> Iterator[tuple[str, str, str]]:
    """Path, rule and name of every target that a rule names."""
    for place, constraint in enumerate(body.constraints):
        for key, selector in (
            ("allow_only", constraint.allow_only),
            ("forbid", constraint.forbid),
        ):
            for name in (selector or Selector()).targets:
                yield f"constraints[{place}].{key}.targets", constraint.name, name
    for place, preference in enumerate(body.preferences):
        path = f"preferences[{place}]"
        for name in preference.targets:
            yield f"{path}.targets", preference.name, name
        for name in preference.weights:
            yield f"{path}.weights", preference.name, name
        if preference.canary is not None:
            yield f"{path}.canary", preference.name, preference.canary.target


def _warnings(body: PolicyBody, found: tuple[Unreachable, ...]) -> Iterator[Problem]:
    never = {each.path: each.reason for each in found if not each.behind}
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
