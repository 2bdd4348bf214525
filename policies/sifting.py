"""Applies the matching constraints to a set of targets, and remembers the result.

Requests of one kind meet the same rules and the same targets again and again. Whatever follows from
the matched rules and the targets alone is worked out once; whether a request fits a context window
is checked each time. Forgetting it all changes no decision, only its cost.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from policies.decision import Decision, Exclusion, ExclusionKind, Obligations
from policies.document import AuditContent, OutputScanning
from policies.facts import BARE_TEXT, CONTINUES_TEXT, Facts, TargetFacts
from policies.labels import approval_of
from policies.ordering import Ordering, Prepared
from policies.program import ConstraintStep, PolicyDocument


MATCHES_KEPT: Final = 512
BOARDS_KEPT: Final = 32

_NOT_CLEARED: Final[frozenset[ExclusionKind]] = frozenset({"policy", "scope"})
_BEFORE_CONTEXT: Final[frozenset[ExclusionKind]] = frozenset({"policy", "scope", "capability"})


class Sieve:
    """Targets after the constraints: usable ones, each other's first exclusion, clearance."""

    __slots__ = (
        "as_chat",
        "decisions",
        "excluded",
        "obligations",
        "orders",
        "refused",
        "roomy_below",
        "targets",
        "usable",
    )

    def __init__(self, matched: "Matched", facts: Facts) -> None:
        self.targets = facts.targets
        needed = capabilities_needed(facts)
        usable: list[TargetFacts] = []
        excluded: list[Exclusion] = []
        as_chat: dict[str, Exclusion | None] = {}
        jurisdictions: set[str] = set()
        windows: list[int] = []
        for target in facts.targets:
            exclusion = next(exclusions(target, matched.closing, facts, needed), None)
            if exclusion is None:
                usable.append(target)
            else:
                excluded.append(exclusion)
            kind = None if exclusion is None else exclusion.kind
            if kind == "capability" and CONTINUES_TEXT in needed:
                rest = [each for each in needed if each != CONTINUES_TEXT]
                other = next(exclusions(target, matched.closing, facts, rest), None)
                as_chat[target.name] = other
                kind = None if other is None else other.kind
            if kind not in _BEFORE_CONTEXT:
                windows.append(target.context_window_tokens)
            if kind not in _NOT_CLEARED:
                jurisdictions.add(target.jurisdiction)
        self.usable = tuple(usable)
        self.excluded = tuple(excluded)
        self.as_chat = as_chat
        """Targets that do not continue bare text, and any other exclusion of each: a caller who
        names one may have it answer as a chat."""
        self.roomy_below = min(windows, default=facts.window_tokens + 1)
        self.obligations = matched.obligations(tuple(sorted(jurisdictions)))
        self.refused = matched.obligations(())
        self.orders: dict[str, Prepared] = {}
        self.decisions: dict[str, Decision] = {}
        """By requested model, only for requests that named a model and got it."""

    def ordered(self, ordering: Ordering, facts: Facts) -> tuple[TargetFacts, ...]:
        """The usable targets in the order of a preference."""
        if len(self.usable) == 1:
            return self.usable
        prepared = self.orders.get(ordering.name)
        if prepared is None:
            prepared = self.orders[ordering.name] = ordering.prepare(self.usable)
        return ordering.sort(prepared, facts)


class Matched:
    """The constraints that match a request, and everything that follows from them alone."""

    __slots__ = (
        "audit_content",
        "closing",
        "deny",
        "flags",
        "input_cap",
        "input_cap_step",
        "names",
        "needing_approval",
        "output_cap",
        "scan_output",
        "sieves",
        "steps",
    )

    def __init__(self, document: PolicyDocument, steps: tuple[ConstraintStep, ...]) -> None:
        rules = [step.constraint for step in steps]
        self.steps = steps
        self.names = tuple(step.name for step in steps)
        self.closing = tuple(step for step in steps if step.closures)
        self.deny = next((step for step in steps if step.constraint.deny is not None), None)
        self.needing_approval = tuple(
            step for step in steps if step.constraint.require_approval is not None
        )
        caps = [cap for rule in rules if (cap := rule.cap_output_tokens) is not None]
        if document.body.defaults.output_tokens_max is not None:
            caps.append(document.body.defaults.output_tokens_max)
        self.output_cap = min(caps, default=None)
        capping = [step for step in steps if step.constraint.cap_input_tokens is not None]
        self.input_cap_step = min(
            capping, key=lambda step: step.constraint.cap_input_tokens or 0, default=None
        )
        capped = self.input_cap_step
        self.input_cap = None if capped is None else capped.constraint.cap_input_tokens
        asked = {rule.audit_content for rule in rules}
        levels: tuple[AuditContent, ...] = ("none", "redacted", "encrypted")
        # The strictest of what the rules ask for.
        self.audit_content = next((level for level in levels if level in asked), None)
        scans = {rule.scan_output for rule in rules}
        self.scan_output: OutputScanning | None = None
        if "mask" in scans:
            self.scan_output = "mask"
        elif "count" in scans:
            self.scan_output = "count"
        self.flags = {
            "no_cache": any(rule.no_cache for rule in rules),
            "pseudonymise": any(rule.pseudonymise for rule in rules),
            "redact": any(rule.redact for rule in rules),
        }
        self.sieves: dict[tuple[int, int], Sieve] = {}

    def obligations(self, jurisdictions: tuple[str, ...]) -> Obligations:
        return Obligations(
            output_tokens_cap=self.output_cap,
            input_tokens_cap=self.input_cap,
            jurisdictions=jurisdictions,
            audit_content=self.audit_content,
            scan_output=self.scan_output,
            **self.flags,
        )

    def sieve(self, facts: Facts) -> Sieve:
        """What is left of the request's targets."""
        needs = facts.has_tools | facts.has_images << 1 | facts.has_documents << 2
        needs |= facts.stream << 3 | (facts.dialect == BARE_TEXT) << 4
        key = (id(facts.targets), needs)
        known = self.sieves.get(key)
        # The sieve keeps its targets alive, so that no other object can get their id meanwhile.
        if known is not None:
            if facts.window_tokens < known.roomy_below:
                return known
            return Sieve(self, facts)
        made = Sieve(self, facts)
        if facts.window_tokens < made.roomy_below:
            if len(self.sieves) >= BOARDS_KEPT:
                self.sieves.clear()
            self.sieves[key] = made
        return made

    def unapproved(self, facts: Facts) -> ConstraintStep | None:
        """The first rule whose approval the key lacks."""
        for step in self.needing_approval:
            if approval_of(step.name) not in facts.labels:
                return step
        return None


def matching(document: PolicyDocument, facts: Facts) -> Matched:
    """The constraints that hold for a request."""
    mask = document.guard.matching(facts)
    known: Matched | None = document.memory.get(mask)
    if known is None:
        if len(document.memory) >= MATCHES_KEPT:
            document.memory.clear()
        steps = tuple(step for place, step in enumerate(document.constraints) if mask >> place & 1)
        known = document.memory[mask] = Matched(document, steps)
    return known


def capabilities_needed(facts: Facts) -> list[str]:
    """What a target must be able to do to answer this request."""
    needed = ["tools"] if facts.has_tools else []
    if facts.has_images:
        needed.append("images")
    if facts.has_documents:
        needed.append("documents")
    if facts.stream:
        needed.append("streaming")
    if facts.dialect == BARE_TEXT:
        needed.append(CONTINUES_TEXT)
    return needed


def exclusions(
    target: TargetFacts, matched: Sequence[ConstraintStep], facts: Facts, needed: Sequence[str]
) -> Iterator[Exclusion]:
    """Every reason against a target, policy first; a decision uses only the first one."""
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
    if facts.window_tokens >= target.context_window_tokens:
        reason = f"its window has {target.context_window_tokens} tokens"
        yield Exclusion(target.name, "context", None, reason)
    if not target.available:
        reason = target.unavailable_reason or "not available"
        yield Exclusion(target.name, "unavailable", None, reason)
