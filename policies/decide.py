"""The decision: pure, total, and the same for live traffic, simulation and replay.

    facts ─▶ constraints (all that match) ─▶ permitted ─▶ usable ─▶ preference (first) ─▶ order
                     │                          │           │
                     └ obligations, denial      └ excluded ─┘   each with kind, rule and reason

A constraint can only remove targets, lower a cap or deny; nothing later gives a target back.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from policies.decision import Decision, Exclusion, ExclusionKind, Obligations
from policies.document import AuditContent, Refusal
from policies.facts import AUTO, ROUTE_PREFIX, Facts, TargetFacts
from policies.program import (
    ConstraintStep,
    PolicyDocument,
    PreferenceStep,
    Rank,
    price_order,
)
from policies.reasons import Choice, sentence


# What could be cured without asking for something else comes first: a later try may succeed.
_REFUSALS: Final[tuple[tuple[ExclusionKind, Refusal], ...]] = (
    ("unavailable", "no_target_available"),
    ("context", "context_too_long"),
    ("capability", "capability_missing"),
    ("policy", "closed_by_policy"),
    ("scope", "closed_by_policy"),
)
_REFUSAL_OF: Final = dict(_REFUSALS)
_NOT_CLEARED: Final = frozenset({"policy", "scope"})


def decide(document: PolicyDocument, facts: Facts) -> Decision:
    """Which targets may answer, in which order, under which obligations, and why."""
    matched = [step for step in document.constraints if step.applies(facts)]
    usable, excluded, jurisdictions = _sift(matched, facts)
    output_cap, input_cap = _caps(document, matched)
    choice = _denial(matched, facts, input_cap) or _choose(document, facts, usable, excluded)
    refused = choice.refusal is not None
    return Decision(
        effect="deny" if refused else "allow",
        refusal=choice.refusal,
        reason=sentence(choice, facts, matched),
        candidates=tuple([target.name for target in choice.targets]),
        obligations=Obligations(
            output_tokens_cap=output_cap,
            input_tokens_cap=input_cap,
            jurisdictions=() if refused else tuple(sorted(jurisdictions)),
            no_cache=any(step.constraint.no_cache for step in matched),
            audit_content=_audit_content(matched),
        ),
        matched_constraints=tuple([step.name for step in matched]),
        matched_preference=choice.preference.name if choice.preference is not None else None,
        excluded=tuple(excluded),
        document_name=document.body.name,
        document_version=document.body.version,
        document_digest=document.digest,
    )


def capabilities_needed(facts: Facts) -> list[str]:
    """What a target must be able to do to answer this request."""
    needed = ["tools"] if facts.has_tools else []
    if facts.has_images:
        needed.append("images")
    if facts.has_documents:
        needed.append("documents")
    if facts.stream:
        needed.append("streaming")
    return needed


def exclusions(
    target: TargetFacts, matched: Sequence[ConstraintStep], facts: Facts, needed: Sequence[str]
) -> Iterator[Exclusion]:
    """Every reason against a target, policy first; `decide` looks at the first one only."""
    for step in matched:
        for closure in step.closures:
            if closure.closes(target):
                yield Exclusion(target.name, "policy", step.name, closure.reason)
    if not target.permitted_to_key:
        yield Exclusion(target.name, "scope", None, "the key may not use it")
    for capability in needed:
        if capability not in target.capabilities:
            yield Exclusion(target.name, "capability", None, f"it lacks {capability}")
    # An answer needs room for at least one token.
    if facts.input_tokens_estimate >= target.context_window_tokens:
        reason = f"its window has {target.context_window_tokens} tokens"
        yield Exclusion(target.name, "context", None, reason)
    if not target.available:
        reason = target.unavailable_reason or "not available"
        yield Exclusion(target.name, "unavailable", None, reason)


def preferences_asked(document: PolicyDocument, facts: Facts) -> Sequence[PreferenceStep]:
    """The preferences that are looked at: those of the requested route, then the general ones."""
    route = facts.model_requested.removeprefix(ROUTE_PREFIX)
    if route == facts.model_requested or not route:
        route = ""
    return document.preferences_by_route.get(route, ())


def matching_preference(document: PolicyDocument, facts: Facts) -> PreferenceStep | None:
    """The first of the preferences looked at that matches."""
    for step in preferences_asked(document, facts):
        if step.applies(facts):
            return step
    return None


def _sift(
    matched: Sequence[ConstraintStep], facts: Facts
) -> tuple[list[TargetFacts], list[Exclusion], set[str]]:
    """Usable targets, the first exclusion of every other, and the cleared jurisdictions."""
    needed = capabilities_needed(facts)
    closing = [step for step in matched if step.closures]
    usable: list[TargetFacts] = []
    excluded: list[Exclusion] = []
    jurisdictions: set[str] = set()
    for target in facts.targets:
        exclusion = next(exclusions(target, closing, facts, needed), None)
        if exclusion is None:
            usable.append(target)
        else:
            excluded.append(exclusion)
            if exclusion.kind in _NOT_CLEARED:
                continue
        jurisdictions.add(target.jurisdiction)
    return usable, excluded, jurisdictions


def _caps(
    document: PolicyDocument, matched: Sequence[ConstraintStep]
) -> tuple[int | None, int | None]:
    """The lowest cap on output and on input tokens."""
    output_cap, input_cap = document.body.defaults.output_tokens_max, None
    for step in matched:
        cap = step.constraint.cap_output_tokens
        if cap is not None and (output_cap is None or cap < output_cap):
            output_cap = cap
        cap = step.constraint.cap_input_tokens
        if cap is not None and (input_cap is None or cap < input_cap):
            input_cap = cap
    return output_cap, input_cap


def _audit_content(matched: Sequence[ConstraintStep]) -> AuditContent | None:
    """The most reticent of what the rules ask for: no content before encrypted content."""
    asked = {step.constraint.audit_content for step in matched}
    if "none" in asked:
        return "none"
    return "encrypted" if "encrypted" in asked else None


def _denial(
    matched: Sequence[ConstraintStep], facts: Facts, input_cap: int | None
) -> Choice | None:
    for step in matched:
        if step.constraint.deny is not None:
            return Choice(refusal="denied", rule=step)
    if input_cap is None or facts.input_tokens_estimate <= input_cap:
        return None
    rule = next(step for step in matched if step.constraint.cap_input_tokens == input_cap)
    return Choice(refusal="denied", rule=rule)


def _choose(
    document: PolicyDocument,
    facts: Facts,
    usable: list[TargetFacts],
    excluded: list[Exclusion],
) -> Choice:
    requested = facts.model_requested
    if requested == AUTO:
        return _ordered(document, facts, usable, excluded, None)
    if requested.startswith(ROUTE_PREFIX):
        if requested.removeprefix(ROUTE_PREFIX) not in document.routes:
            return Choice(refusal="denied")
        return _ordered(document, facts, usable, excluded, None)
    for target in usable:
        if target.name == requested:
            return Choice(targets=(target,))
    fallen = next((each for each in excluded if each.target == requested), None)
    if fallen is None:
        return Choice(refusal="denied")
    if fallen.kind != "policy":
        return Choice(refusal=_REFUSAL_OF[fallen.kind], excluded=(fallen,))
    if document.body.defaults.when_requested_model_closed == "refuse":
        return Choice(refusal="closed_by_policy", excluded=(fallen,))
    return _ordered(document, facts, usable, excluded, fallen)


def _ordered(
    document: PolicyDocument,
    facts: Facts,
    usable: list[TargetFacts],
    excluded: list[Exclusion],
    closed: Exclusion | None,
) -> Choice:
    """What is left, ordered by the first preference that matches; a refusal if nothing is."""
    if not usable:
        kinds = {exclusion.kind for exclusion in excluded}
        refusals = [refusal for kind, refusal in _REFUSALS if kind in kinds]
        refusal = refusals[0] if refusals else "no_target_available"
        return Choice(refusal=refusal, excluded=excluded)
    preference = matching_preference(document, facts)
    ranks = document.default_ranks if preference is None else preference.ranks
    return Choice(
        targets=_sorted(usable, ranks, facts),
        preference=preference,
        excluded=excluded if closed is None else (closed,),
        is_substitute=closed is not None,
    )


def _sorted(usable: list[TargetFacts], ranks: Sequence[Rank], facts: Facts) -> list[TargetFacts]:
    if len(usable) == 1:
        return usable
    keys = [
        ([rank(facts, target) for rank in ranks], price_order(facts, target), target.name)
        for target in usable
    ]
    # Names are unique, so the places never decide.
    places = sorted(range(len(usable)), key=keys.__getitem__)
    return [usable[place] for place in places]
