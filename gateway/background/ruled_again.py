"""Checks a ruling again once its request has waited: policy may only have narrowed it. Pure.

The request that was let through is on record, with its money. So where policy or targets have
changed since, it may go to fewer places; if something else would have to be done to it, it has
failed, and its caller may ask anew.
"""

from msgspec import structs

from gateway.errors import NoTargetAvailable, PolicyDenied
from gateway.routing.planning import Ruling
from gateway.types import Candidate, Plan
from policies.decision import Obligations


def narrowed(then: Ruling, now: Ruling) -> Plan:
    """The plan by which it may be sent: what both leave open.

    Raises:
        PolicyDenied: policy asks for something now that was not done to it.
        NoTargetAvailable: none of its targets is left.
    """
    if now.plan.audit_content != then.plan.audit_content or not _covers(
        then.decision.obligations, now.decision.obligations
    ):
        raise PolicyDenied("Policy has changed while this waited for its turn: ask again.")
    before = {each.target.name: each for each in then.plan.candidates}
    candidates = tuple(
        _at_most(before[each.target.name], each)
        for each in now.plan.candidates
        if each.target.name in before
    )
    if not candidates:
        raise NoTargetAvailable("None of its targets is left after it waited: ask again.")
    clearance = then.plan.clearance & now.plan.clearance
    return structs.replace(then.plan, candidates=candidates, clearance=clearance)


def _at_most(then: Candidate, now: Candidate) -> Candidate:
    """A target as it is now, at the price for which money was reserved."""
    return structs.replace(
        now,
        target=structs.replace(now.target, price=then.target.price),
        output_tokens_cap=min(then.output_tokens_cap, now.output_tokens_cap),
        worst_cost_microusd=then.worst_cost_microusd,
    )


def _covers(done: Obligations, wanted: Obligations) -> bool:
    """Whether what is required now was done when it was let through."""
    return (
        (done.redact or not wanted.redact)
        and (done.redact or done.pseudonymise or not wanted.pseudonymise)
        and (done.no_cache or not wanted.no_cache)
        and wanted.scan_output in {None, done.scan_output, "count" if done.scan_output else None}
    )
