"""Builds audit records from a request's journey. Pure: it decides what is written, not where.

It never copies content: only types, counts, digests, names and amounts. Content is stored
separately, as encrypted bytes that the audit log keeps beside the record.
"""

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from classifiers.pii.labels import DataClass
from gateway.admission.unread import unread
from gateway.admission.withholding import WITHHELD, holds_data
from gateway.clock import HOUR_US
from gateway.dispatch.attempts import Extra
from gateway.errors import GatewrightError
from gateway.passage import Arrival, Passage
from gateway.recording.recall import hour_of, record_facts
from gateway.routing.planning import Denial, Ruling, decision_digest
from gateway.types import (
    Attempt,
    AuditRecord,
    ChatRequest,
    Inspection,
    OutcomeStatus,
    Principal,
    Reservation,
    Target,
    Usage,
)


UNKNOWN_ORGANISATION = "-"
"""The log for refusals of callers without a valid key."""
_NOBODY = Principal("", "", UNKNOWN_ORGANISATION, "", "", (), None, ())
_NOT_INSPECTED = Inspection(
    data_class="",
    findings={},
    complete=True,
    incomplete_reasons=(),
    complexity=0.0,
    complexity_tier="cheap",
    classifier_version="",
    duration_us=0,
)

PPM = 1_000_000
UNKNOWN_COST = "unknown"
"""In the detail of an outcome that is recorded at no cost, although its upstream answered."""


class Ending(Struct, frozen=True):
    """How a request that was let through ended."""

    status: OutcomeStatus
    http_status: int
    target: Target | None
    attempts: tuple[Attempt, ...]
    usage: Usage | None
    cost_microusd: int
    error: str = ""
    dropped: tuple[str, ...] = ()
    cascade: Mapping[str, str] = {}
    repeats: Mapping[str, str] = {}
    """For a repeated answer: when it was first given, and to which request."""
    stop_reason: str = ""
    """For an answer that was refused or cut."""
    counted: str = ""
    """For a count of tokens: who counted."""
    extra: tuple[Extra, ...] = ()
    """Attempts beyond the first; only counted, because the attempts themselves are recorded."""


def intent(
    principal: Principal,
    request: ChatRequest,
    inspection: Inspection,
    ruling: Ruling,
    reservation: Reservation,
    *,
    arrival: Arrival,
    decided_us: int,
) -> AuditRecord:
    """What is about to be done and why; durable before a byte goes upstream.

    Its time is that of the budget windows that are charged, after it may have waited for money.
    """
    plan, utc_us = ruling.plan, reservation.admitted_us
    has_struck = decided_us // HOUR_US != utc_us // HOUR_US
    first = plan.candidates[0].target
    return AuditRecord(
        stage="intent",
        request_id=request.request_id,
        organisation=principal.organisation,
        utc_us=utc_us,
        workspace=principal.workspace,
        project=principal.project,
        key_id=principal.key_id,
        endpoint=arrival.endpoint,
        dialect=request.dialect,
        model_requested=request.model,
        target=first.name,
        provider=first.provider,
        jurisdiction=first.jurisdiction,
        decision=plan.decision_digest,
        decision_reason=plan.decision_reason,
        policy_digest=ruling.decision.document_digest,
        snapshot=arrival.snapshot.digest,
        data_class=inspection.data_class,
        findings=inspection.findings,
        inspection_complete=inspection.complete,
        complexity_ppm=round(inspection.complexity * PPM),
        classifier=inspection.classifier_version,
        complexity_parts_ppm=_in_ppm(inspection.complexity_parts),
        calibration=inspection.calibration,
        candidates=tuple([candidate.target.name for candidate in plan.candidates]),
        clearance=tuple(sorted(plan.clearance)),
        reserved_microusd=reservation.amount_microusd,
        subject=request.end_user,
        facts=record_facts(
            ruling.facts,
            arrival.snapshot.board.digest,
            principal.models,
            decided_us if has_struck else 0,
        ),
        detail=arrival.detail if inspection.complete else _seen(arrival, inspection),
    )


def _seen(arrival: Arrival, inspection: Inspection) -> dict[str, str]:
    """What is known at the decision about a request not read in full, and is no fact of a rule."""
    return {**arrival.detail, "unread": unread(inspection.incomplete_reasons)}


@lru_cache(maxsize=1024)
def _in_ppm(parts: tuple[tuple[str, float], ...]) -> Mapping[str, int]:
    """Millionths of each part; a prompt that was scored before has the same ones."""
    return {name: round(value * PPM) for name, value in parts}


def outcome(passage: Passage, ending: Ending, *, utc_us: int, duration_us: int) -> AuditRecord:
    """What happened; durable before the caller sees the end."""
    target, ruling = ending.target, passage.ruling
    principal, request, inspection = passage.principal, passage.request, passage.inspection
    return AuditRecord(
        stage="outcome",
        request_id=request.request_id,
        organisation=principal.organisation,
        utc_us=utc_us,
        workspace=principal.workspace,
        project=principal.project,
        key_id=principal.key_id,
        endpoint=passage.arrival.endpoint,
        dialect=request.dialect,
        model_requested=request.model,
        target=target.name if target else "",
        provider=target.provider if target else "",
        jurisdiction=target.jurisdiction if target else "",
        decision=ruling.plan.decision_digest,
        policy_digest=ruling.decision.document_digest,
        data_class=inspection.data_class,
        findings=inspection.findings,
        inspection_complete=inspection.complete,
        intent=passage.intent.leaf_hash,
        status=ending.status,
        http_status=ending.http_status,
        error=ending.error,
        attempts=ending.attempts,
        usage=ending.usage,
        cost_microusd=ending.cost_microusd,
        price_as_of=target.price.as_of if target else "",
        duration_us=duration_us,
        dropped=ending.dropped,
        subject=passage.subject,
        output_findings=passage.output.found if passage.output is not None else {},
        detail=_detail(passage, target, ending),
    )


def above_reserved(passage: Passage, ending: Ending) -> int:
    """Micro-dollars by which a request cost more than was reserved for it; 0 if it did not."""
    return max(ending.cost_microusd - passage.ruling.plan.worst_cost_microusd, 0)


def _detail(passage: Passage, target: Target | None, ending: Ending) -> dict[str, str]:
    detail = {**passage.arrival.detail, **ending.cascade, **ending.repeats}
    if passage.veil is not None and ending.attempts and passage.inspection.findings:
        is_redacted = passage.ruling.decision.obligations.redact
        detail["sent"] = "blackened" if is_redacted else "surrogates"
    if target and target.digest:
        detail["model_digest"] = target.digest
    if passage.ruled_again:
        detail["ruled_again"] = passage.ruled_again
    if ending.counted:
        detail["counted"] = ending.counted
    if ending.stop_reason:
        detail["stop_reason"] = ending.stop_reason
    if above := above_reserved(passage, ending):
        detail["above_reserved_microusd"] = str(above)
    return detail


class Loss(Struct, frozen=True):
    """What is still known of a request that was let through and cannot be ended normally."""

    intent: str
    """Leaf hash."""
    target: str
    provider: str
    subject: str = ""
    cost_microusd: int = 0
    usage: Usage | None = None
    """As its upstream counted it; None if the cost is what was reserved, or nothing."""

    is_unknown: bool = False
    """Whether it cost something, but nobody can say how much."""

    @property
    def detail(self) -> dict[str, str]:
        if self.is_unknown:
            return {"cost": UNKNOWN_COST}
        return {"cost": "reserved"} if self.cost_microusd and self.usage is None else {}


def lost(
    arrival: Arrival, principal: Principal, loss: Loss, error: GatewrightError, *, utc_us: int
) -> AuditRecord:
    """The outcome of a request that was let through and of which too little is known."""
    return AuditRecord(
        stage="outcome",
        request_id=arrival.request_id,
        organisation=principal.organisation,
        utc_us=utc_us,
        workspace=principal.workspace,
        project=principal.project,
        key_id=principal.key_id,
        endpoint=arrival.endpoint,
        target=loss.target,
        provider=loss.provider,
        decision_reason=error.message,
        intent=loss.intent,
        status="failed",
        http_status=error.http_status,
        error=error.code,
        usage=loss.usage,
        cost_microusd=loss.cost_microusd,
        duration_us=arrival.lasted_us(utc_us),
        subject=loss.subject,
        detail={**arrival.detail, **loss.detail},
    )


def refusal(
    arrival: Arrival,
    principal: Principal | None,
    request: ChatRequest | None,
    inspection: Inspection | None,
    error: GatewrightError,
    *,
    utc_us: int,
    duration_us: int,
) -> AuditRecord:
    """A request that was not let through: it has no intent, and nothing was sent anywhere."""
    asker, seen = principal or _NOBODY, inspection or _NOT_INSPECTED
    model, reason = request.model if request else "", error.message
    if holds_data(model, DataClass.S2):
        model, reason = WITHHELD, reason.replace(model, WITHHELD)
    denial = error.denial if isinstance(error.denial, Denial) else None
    decision = denial.decision if denial is not None else None
    facts = None
    if denial is not None and principal is not None:
        # The decision lies between arrival and now; an hour may have struck in between.
        has_struck = hour_of(utc_us) != denial.facts.hour_utc
        decided_us = utc_us - duration_us if has_struck else 0
        board = arrival.snapshot.board.digest
        facts = record_facts(denial.facts, board, principal.models, decided_us)
    return AuditRecord(
        stage="outcome",
        request_id=arrival.request_id,
        organisation=asker.organisation,
        utc_us=utc_us,
        workspace=asker.workspace,
        project=asker.project,
        key_id=asker.key_id,
        endpoint=arrival.endpoint,
        dialect=request.dialect if request else "",
        model_requested=model,
        decision=decision_digest(decision) if decision else "",
        decision_reason=reason,
        policy_digest=decision.document_digest if decision else "",
        data_class=seen.data_class,
        findings=seen.findings,
        inspection_complete=seen.complete,
        status="refused",
        http_status=error.http_status,
        error=error.code,
        duration_us=duration_us,
        subject=request.end_user if request else "",
        facts=facts,
        detail=arrival.detail if seen.complete else _seen(arrival, seen),
    )
