"""Makes the decision: pure, total, and the same for live traffic, simulation and replay.

    facts ─▶ constraints (all that match) ─▶ permitted ─▶ usable ─▶ preference (first) ─▶ order
                     │                          │           │
                     └ obligations, denial      └ excluded ─┘   each with kind, rule and reason

A constraint can only remove targets, lower a cap or deny; nothing later gives a target back.
"""

from collections.abc import Sequence
from typing import Final

from policies.decision import Decision, Exclusion, ExclusionKind
from policies.document import Refusal
from policies.facts import AUTO, ROUTE_PREFIX, Facts
from policies.ordering import unsealing_first, warm_first
from policies.program import PolicyDocument, PreferenceStep
from policies.reasons import Choice, sentence
from policies.sifting import Matched, Sieve, matching


# Reasons that can pass without a different request come first: a later try may succeed.
_REFUSALS: Final[tuple[tuple[ExclusionKind, Refusal], ...]] = (
    ("unavailable", "no_target_available"),
    ("context", "context_too_long"),
    ("capability", "capability_missing"),
    ("policy", "closed_by_policy"),
    ("scope", "closed_by_policy"),
)
_REFUSAL_OF: Final = dict(_REFUSALS)


def decide(document: PolicyDocument, facts: Facts) -> Decision:
    """Which targets may answer, in which order, under which obligations, and why."""
    matched = matching(document, facts)
    sieve = matched.sieve(facts)
    denial = _denial(matched, facts)
    if denial is not None:
        return _decision(document, facts, matched, sieve, denial)
    known = sieve.decisions.get(facts.model_requested)
    if known is not None:
        return known
    choice = _choose(document, facts, sieve)
    decision = _decision(document, facts, matched, sieve, choice)
    if choice.is_as_requested:
        sieve.decisions[facts.model_requested] = decision
    return decision


def _decision(
    document: PolicyDocument, facts: Facts, matched: Matched, sieve: Sieve, choice: Choice
) -> Decision:
    """The choice as a decision, with all that it is based on."""
    refusal, preference = choice.refusal, choice.preference
    hedge_after_ms = cascade_above_percent = None
    if preference is not None and len(choice.targets) > 1:
        hedge_after_ms = preference.preference.hedge_after_ms
        cascade_above_percent = preference.preference.cascade_above_percent
    return Decision(
        "allow" if refusal is None else "deny",
        refusal,
        sentence(choice, facts, matched.steps),
        tuple([target.name for target in choice.targets]),
        sieve.obligations if refusal is None else sieve.refused,
        matched.names,
        None if preference is None else preference.name,
        _excluded(facts, sieve, choice),
        document.body.name,
        document.body.version,
        document.digest,
        hedge_after_ms,
        cascade_above_percent,
    )


def _excluded(facts: Facts, sieve: Sieve, choice: Choice) -> tuple[Exclusion, ...]:
    """All exclusions, except that of a chat model asked for by name to continue bare text."""
    if not choice.is_as_requested or facts.model_requested not in sieve.as_chat:
        return sieve.excluded
    return tuple(each for each in sieve.excluded if each.target != facts.model_requested)


def preferences_asked(document: PolicyDocument, facts: Facts) -> Sequence[PreferenceStep]:
    """The preferences to consider: those of the requested route, then the general ones."""
    return document.preferences_by_route.get(route_of(facts), ())


def matching_preference(document: PolicyDocument, facts: Facts) -> PreferenceStep | None:
    """The first matching preference, in the order of `preferences_asked`."""
    route = route_of(facts)
    guard = document.preference_guards.get(route)
    bit = guard.first(facts) if guard is not None else 0
    return document.preferences_by_route[route][bit.bit_length() - 1] if bit else None


def route_of(facts: Facts) -> str:
    """The part of the requested model after `auto:`; empty for any other model."""
    requested = facts.model_requested
    return requested.removeprefix(ROUTE_PREFIX) if requested.startswith(ROUTE_PREFIX) else ""


def _denial(matched: Matched, facts: Facts) -> Choice | None:
    """A refusal that does not depend on the targets."""
    if matched.deny is not None:
        return Choice(refusal="denied", rule=matched.deny)
    unapproved = matched.unapproved(facts) if matched.needing_approval else None
    if unapproved is not None:
        return Choice(refusal="approval_required", rule=unapproved)
    if matched.input_cap is None or facts.input_tokens_estimate <= matched.input_cap:
        return None
    return Choice(refusal="denied", rule=matched.input_cap_step)


def _choose(document: PolicyDocument, facts: Facts, sieve: Sieve) -> Choice:
    requested = facts.model_requested
    if requested == AUTO:
        return _ordered(document, facts, sieve, None)
    if requested.startswith(ROUTE_PREFIX):
        if requested.removeprefix(ROUTE_PREFIX) not in document.routes:
            return Choice(refusal="denied")
        return _ordered(document, facts, sieve, None)
    if requested in sieve.as_chat:
        able, fallen = sieve.targets, sieve.as_chat[requested]
    else:
        able = sieve.usable
        fallen = next((each for each in sieve.excluded if each.target == requested), None)
    for target in able:
        if target.name == requested and fallen is None:
            return Choice(targets=(target,), is_as_requested=True)
    if fallen is None:
        return Choice(refusal="denied")
    if fallen.kind != "policy":
        return Choice(refusal=_REFUSAL_OF[fallen.kind], excluded=(fallen,))
    if document.body.defaults.when_requested_model_closed == "refuse":
        return Choice(refusal="closed_by_policy", excluded=(fallen,))
    return _ordered(document, facts, sieve, fallen)


def _ordered(
    document: PolicyDocument, facts: Facts, sieve: Sieve, closed: Exclusion | None
) -> Choice:
    """The targets that are left, ordered by the first matching preference; or a refusal."""
    if not sieve.usable:
        kinds = {exclusion.kind for exclusion in sieve.excluded}
        refusals = [refusal for kind, refusal in _REFUSALS if kind in kinds]
        refusal = refusals[0] if refusals else "no_target_available"
        return Choice(refusal=refusal, excluded=sieve.excluded)
    preference = matching_preference(document, facts)
    ordering = document.default_ordering if preference is None else preference.ordering
    targets = sieve.ordered(ordering, facts)
    if facts.warm_target and preference is not None and preference.preference.stay_warm:
        targets = warm_first(targets, facts)
    if facts.sealed:
        targets = unsealing_first(targets, facts.sealed)
    return Choice(
        targets=targets,
        preference=preference,
        excluded=sieve.excluded if closed is None else (closed,),
        is_substitute=closed is not None,
    )
