"""Sums up a decision in one plain sentence."""

from collections.abc import Sequence

import msgspec

from policies.decision import Exclusion, ExclusionKind
from policies.document import Refusal
from policies.evidence import evidence, shortened
from policies.facts import ROUTE_PREFIX, Facts, TargetFacts
from policies.program import ConstraintStep, PreferenceStep


class Choice(msgspec.Struct, frozen=True):
    """The outcome before it is put into words: targets in order, or a refusal.

    `excluded` are the exclusions that caused it: only the requested model's if a model was
    requested by name. `rule` is the constraint that refused by itself.
    """

    targets: Sequence[TargetFacts] = ()
    preference: PreferenceStep | None = None
    refusal: Refusal | None = None
    rule: ConstraintStep | None = None
    excluded: Sequence[Exclusion] = ()
    is_substitute: bool = False
    is_as_requested: bool = False
    """Whether it is the model asked for by name, with nothing more to explain."""


def sentence(choice: Choice, facts: Facts, matched: Sequence[ConstraintStep]) -> str:
    """Why the request goes where it goes, or why it goes nowhere."""
    closed_by = next((each.rule for each in choice.excluded if each.kind == "policy"), None)
    rule = next((step for step in matched if step.name == closed_by), None)
    if choice.refusal is None:
        return f"Sent to {_allowed(choice, facts, rule)}."
    if choice.refusal in {"denied", "approval_required"}:
        return f"Refused because {_denied(choice, facts)}."
    return f"Refused because {_refused(choice, facts, rule)}."


def _allowed(choice: Choice, facts: Facts, rule: ConstraintStep | None) -> str:
    first = choice.targets[0]
    sent = "the in-house engine" if first.in_house else first.name
    if first.name == facts.model_requested:
        return f"{sent} as requested"
    if choice.is_substitute:
        sent += f" instead of {shortened(facts.model_requested)}"
    preference = choice.preference
    stays = preference is not None and preference.preference.stay_warm
    if stays and first.name == facts.warm_target:
        sent += f", which has read {facts.warm_tokens} tokens of it lately,"
    others = any(each.seals != first.seals for each in choice.targets)
    if facts.sealed and first.seals == facts.sealed and others:
        sent += ", which alone can read the reasoning of earlier turns,"
    if rule is not None:
        sent += f" because {_matched(rule, facts)}"
        if preference is not None and len(choice.targets) > 1:
            sent += f", in the order of *{preference.name}*"
        return sent
    if preference is not None:
        return f"{sent} because {_matched(preference, facts)}"
    return f"{sent} by the default order"


def _refused(choice: Choice, facts: Facts, rule: ConstraintStep | None) -> str:
    others = f"; {_matched(rule, facts)} and closed others" if rule is not None else ""
    match choice.refusal:
        case "no_target_available":
            missing = _listed(choice, "unavailable")
            unable = _listed(choice, "context", "capability")
            also = f"; unable to serve it: {unable}" if unable else ""
            named = f"{': ' if missing else ''}{missing}{also}"
            return f"no permitted target is available{named}{others}"
        case "context_too_long":
            too_short = _listed(choice, "context")
            tokens = facts.window_tokens
            return f"about {tokens} input tokens fit no permitted target: {too_short}{others}"
        case "capability_missing":
            unable = _listed(choice, "capability")
            return f"no permitted target can serve it: {unable}{others}"
    if rule is not None:
        return f"{_matched(rule, facts)} and no permitted target {_lacking(facts)}"
    return "the key's scope includes no target for it"


def _lacking(facts: Facts) -> str:
    """What no target offers: others could answer instead, but not make the same vectors."""
    if not any(target.vectors for target in facts.targets):
        return "is left"
    is_named = any(target.name == facts.model_requested for target in facts.targets)
    return f"makes vectors{' of this model' if is_named else ''}"


def _listed(choice: Choice, *kinds: ExclusionKind) -> str:
    fallen = [each for each in choice.excluded if each.kind in kinds]
    return ", ".join(f"{each.target} ({each.reason})" for each in fallen)


def _denied(choice: Choice, facts: Facts) -> str:
    rule = choice.rule
    if rule is None:
        kind = "route" if facts.model_requested.startswith(ROUTE_PREFIX) else "target"
        return f"no {kind} is named {shortened(facts.model_requested.removeprefix(ROUTE_PREFIX))}"
    if rule.constraint.deny is not None:
        return f"{_matched(rule, facts)}: {rule.constraint.deny.rstrip('.')}"
    if rule.constraint.require_approval is not None:
        reason = rule.constraint.require_approval.rstrip(".")
        return f"{_matched(rule, facts)} and asks for an approval: {reason}"
    return (
        f"*{rule.name}* caps the input at {rule.constraint.cap_input_tokens} tokens "
        f"and the request has about {facts.input_tokens_estimate}"
    )


def _matched(step: ConstraintStep | PreferenceStep, facts: Facts) -> str:
    if not step.readings:
        return f"*{step.name}* applies to every request"
    values = "; ".join(map(str, evidence(step.readings, facts)))
    return f"*{step.name}* matched ({values})"
