"""The types of a policy document, its canonical form and its digest.

    constraints   every one that matches applies: closes targets, adds obligations, denies
    preferences   the first that matches orders what the constraints left
    tests         example requests with the decision they must get

The form is append-only: new keys have defaults, and a key at its default is left out of the
canonical form, so that today's documents keep their digest.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from policies.facts import TargetFacts
from policies.selectors import Selector


SCHEMA_VERSION: Final = 1

WhenClosed: TypeAlias = Literal["substitute", "refuse"]
AuditContent: TypeAlias = Literal["none", "redacted", "encrypted"]
OutputScanning: TypeAlias = Literal["count", "mask"]
Effect: TypeAlias = Literal["allow", "deny"]
Sticky: TypeAlias = Literal["key", "project", "workspace"]
Refusal: TypeAlias = Literal[
    "closed_by_policy",
    "no_target_available",
    "denied",
    "approval_required",
    "context_too_long",
    "capability_missing",
]


class Defaults(msgspec.Struct, frozen=True, omit_defaults=True):
    """Defaults for when no rule says otherwise; `output_tokens_max` caps every request.

    An answer may be given again, from the cache, for `cache_s` seconds.
    """

    output_tokens_max: int | None = None
    when_requested_model_closed: WhenClosed = "substitute"
    order: tuple[str, ...] = ("cheapest",)
    cache_s: int | None = None
    cache_like_percent: float | None = None


class Constraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that can only narrow; without `when` it applies to every request.

    `when` is the canonical text of an expression. `require_approval` refuses, with this reason,
    unless the key carries the label `approved:` followed by the rule's name.
    """

    name: str
    when: str | None = None
    allow_only: Selector | None = None
    forbid: Selector | None = None
    deny: str | None = None
    cap_output_tokens: int | None = None
    cap_input_tokens: int | None = None
    no_cache: bool = False
    audit_content: AuditContent | None = None
    require_approval: str | None = None
    pseudonymise: bool = False
    redact: bool = False
    scan_output: OutputScanning | None = None


class Canary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A target that gets a share of the askers, and is the last resort of the others.

    Its errors, latency and cost are compared with those of what the others get, and so is the
    number of its answers that fail the `checks` (`ANSWER_CHECKS`).
    """

    target: str
    percent: float
    checks: tuple[str, ...] = ()


ANSWER_CHECKS: Final = ("answered", "complete", "no_refusal", "format")
"""An answer or a tool call; not cut at the limit; not refused; the JSON that was requested."""


class Preference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule that orders targets; one with a `route` is requested as the model `auto:<route>`.

    `weights` share the askers among targets, `sticky` says who counts as the same asker, and after
    `hedge_after_ms` without an answer the next candidate is asked as well. With
    `cascade_above_percent`, an answer more likely than that to fail leads one tier up.
    """

    name: str
    route: str | None = None
    when: str | None = None
    targets: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    weights: Mapping[str, int] = {}
    canary: Canary | None = None
    sticky: Sticky = "key"
    hedge_after_ms: int | None = None
    cascade_above_percent: float | None = None
    stay_warm: bool = False
    """Stay with the target that has the conversation in its prompt cache, while that is cheaper."""
    cache_s: int | None = None
    """Replaces the default's `cache_s`."""
    cache_like_percent: float | None = None
    """Also give the answer to a question at least this similar, by the cosine of their vectors."""


class Expectation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a test case demands of the decision; fields left out are not checked."""

    effect: Effect | None = None
    refusal: Refusal | None = None
    first: str | None = None
    candidates: tuple[str, ...] | None = None
    excluded: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    preference: str | None = None
    output_tokens_cap: int | None = None
    obligations: tuple[str, ...] = ()


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """One example inside the document; `facts` as written, completed when the test runs."""

    name: str
    facts: Mapping[str, object]
    expect: Expectation


class PolicyBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything the author wrote, checked."""

    name: str
    version: int
    description: str = ""
    defaults: Defaults = Defaults()
    constraints: tuple[Constraint, ...] = ()
    preferences: tuple[Preference, ...] = ()
    example_targets: tuple[TargetFacts, ...] = ()
    tests: tuple[Case, ...] = ()


OBLIGATIONS: Final = ("pseudonymise", "redact", "no_cache", "scan_output")
"""Obligations that are either present or not; a test case may expect them by name."""


def canonical_json(body: PolicyBody) -> bytes:
    """The one JSON form of a document; loading it gives the same document again."""
    return _ENCODER.encode(body)


def digest_of(body: PolicyBody) -> str:
    """SHA-256 of the canonical form, in hexadecimal."""
    return hashlib.sha256(canonical_json(body)).hexdigest()


_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
