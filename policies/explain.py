"""Explains a decision in full: every rule with its values, every target with what became of it.

`decide` stays cheap by stopping at the first reason against a target and at the first matching
preference; this looks at everything, and its decision is decide's own.
"""

from typing import Literal, TypeAlias

import msgspec

from policies.decide import decide, matching_preference, preferences_asked
from policies.decision import Decision, Exclusion
from policies.evidence import FactValue, evidence
from policies.facts import Facts
from policies.program import ConstraintStep, PolicyDocument, PreferenceStep
from policies.sifting import capabilities_needed, exclusions


RuleKind: TypeAlias = Literal["constraint", "preference"]


class RuleExplanation(msgspec.Struct, frozen=True):
    """One rule: its condition, the values it saw, whether it held and whether it had effect.

    A preference can match without being applied: if an earlier one matched, another route was
    requested, or a model was requested by name.
    """

    name: str
    kind: RuleKind
    when: str | None
    values: tuple[FactValue, ...]
    matched: bool
    applied: bool
    route: str = ""
    """The route of a preference that is asked only if `auto:` names it; else empty."""


class TargetExplanation(msgspec.Struct, frozen=True):
    """One target: its place among the candidates (0 is first) or everything against it.

    If it has neither, it was permitted and usable, but not what was asked for.
    """

    name: str
    place: int | None
    exclusions: tuple[Exclusion, ...]


class Explanation(msgspec.Struct, frozen=True):
    """A decision with everything that led to it."""

    decision: Decision
    rules: tuple[RuleExplanation, ...]
    targets: tuple[TargetExplanation, ...]


def explain(document: PolicyDocument, facts: Facts) -> Explanation:
    """The decision that `decide` makes, and all its reasons."""
    decision = decide(document, facts)
    matched = [step for step in document.constraints if step.applies(facts)]
    applied = matching_preference(document, facts) if decision.matched_preference else None
    rules = [
        _rule(step, "constraint", step.constraint.when, facts) for step in document.constraints
    ]
    asked = preferences_asked(document, facts)
    for preference in document.preferences:
        rule = _rule(preference, "preference", preference.preference.when, facts)
        # A preference of a route that was not requested is not evaluated, so it cannot match.
        matched_here = rule.matched and any(preference is step for step in asked)
        rules.append(
            msgspec.structs.replace(
                rule,
                matched=matched_here,
                applied=preference is applied,
                route=preference.preference.route or "",
            )
        )
    needed = capabilities_needed(facts)
    places = {name: place for place, name in enumerate(decision.candidates)}
    targets = tuple(
        TargetExplanation(
            name=target.name,
            place=places.get(target.name),
            exclusions=()
            if target.name in places
            else tuple(exclusions(target, matched, facts, needed)),
        )
        for target in facts.targets
    )
    return Explanation(decision=decision, rules=tuple(rules), targets=targets)


def _rule(
    step: ConstraintStep | PreferenceStep, kind: RuleKind, when: str | None, facts: Facts
) -> RuleExplanation:
    matched = step.applies(facts)
    values = evidence(step.readings, facts)
    return RuleExplanation(step.name, kind, when, values, matched=matched, applied=matched)
