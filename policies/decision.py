"""The types of a decision: ordered targets, their obligations, and why others were excluded."""

from typing import Literal, TypeAlias

import msgspec

from policies.document import AuditContent, Effect, OutputScanning, Refusal


# In the order of checking: a target closed by policy is never "unavailable".
ExclusionKind: TypeAlias = Literal["policy", "scope", "capability", "context", "unavailable"]


class Exclusion(msgspec.Struct, frozen=True):
    """Why a target may not or cannot answer; `rule` is the constraint of kind "policy"."""

    target: str
    kind: ExclusionKind
    rule: str | None
    reason: str


class Obligations(msgspec.Struct, frozen=True):
    """What must be observed when acting on the decision; None means that no rule asks for it.

    `jurisdictions` is the clearance that the egress checks again: those of every target that
    policy and the key's scope permit, available or not. It is empty in a refusal.
    """

    output_tokens_cap: int | None = None
    input_tokens_cap: int | None = None
    jurisdictions: tuple[str, ...] = ()
    no_cache: bool = False
    audit_content: AuditContent | None = None
    pseudonymise: bool = False
    redact: bool = False
    scan_output: OutputScanning | None = None
    """Whether to count what the answer contains, or to mask it as well."""


class Decision(msgspec.Struct, frozen=True, cache_hash=True):
    """Allow with candidates in order, or deny with a kind of refusal; always with a reason.

    Records name a decision by a digest of these fields, in this order. If a field were removed,
    deciding a recorded request again would give another digest than the recorded one.
    """

    effect: Effect
    refusal: Refusal | None
    reason: str
    candidates: tuple[str, ...]
    obligations: Obligations
    matched_constraints: tuple[str, ...]
    matched_preference: str | None
    excluded: tuple[Exclusion, ...]
    document_name: str
    document_version: int
    document_digest: str
    hedge_after_ms: int | None = None
    cascade_above_percent: float | None = None
