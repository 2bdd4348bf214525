"""Combines request, principal, inspection and money, asks policy, and makes a plan. Pure.

Gather → decide → plan: all that a decision needs is in `Facts` before `policies.decide` is asked,
so that recorded facts give the recorded decision again.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter

import msgspec
from msgspec import Struct

from classifiers.pii.labels import DataClass
from gateway.admission.bounds import answers_of
from gateway.admission.compactions import compactions_at_most
from gateway.admission.hosted_tools import searches_at_most
from gateway.admission.sealing import sealed_in
from gateway.admission.withholding import WITHHELD, holds_data
from gateway.clock import HOUR_US
from gateway.configuration.settings import Limits
from gateway.errors import (
    ClosedByPolicy,
    ContextTooLong,
    FeatureUnsupported,
    GatewrightError,
    ModelUnknown,
    NoTargetAvailable,
    NoTargetConfigured,
    PolicyDenied,
    RequestInvalid,
)
from gateway.money.catalogue import worst_cost
from gateway.price import TIERS_ASKED, Price, paid_tier
from gateway.routing.board import NO_CREDENTIAL, Scope, TargetBoard
from gateway.routing.decided_rules import DECIDED_RULES
from gateway.routing.mistyped import meant
from gateway.routing.warmth import COLD, Warm
from gateway.types import Candidate, ChatRequest, Inspection, Plan, Principal, Purpose, Target
from policies.decide import decide
from policies.decision import Decision
from policies.facts import (
    AUTO,
    DATA_CLASSES,
    ROUTE_PREFIX,
    SERVICE_TIERS,
    Facts,
    data_class_rank,
)
from policies.program import PolicyDocument


HOURS_PER_DAY = 24
EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday (Monday is 0)."""
PRIORITY, STANDARD, BATCH = SERVICE_TIERS
_TIER_LABELS = frozenset({f"tier:{PRIORITY}", f"tier:{BATCH}"})
NO_HEADERS: Mapping[str, str] = {}
HEADER_CHARACTERS_MAX = 128
PERCENT = 100
NAMES_TOLD_MAX = 10
_FOR_LONG = re.compile(
    rb'"(?:(?:1|\\u0031)(?:2|\\u0032)?|(?:2|\\u0032)(?:4|\\u0034))(?:h|\\u0068)"'
)
"""A long cache lifetime, of 1, 12 or 24 hours, in every way that JSON can spell it."""


# In the order of the first fields of `Facts`: each name that is given costs a search for its field.
_OF_PRINCIPAL: Callable[[Principal], tuple[str, str, str, str, tuple[str, ...]]] = attrgetter(
    *("organisation", "workspace", "project", "key_id", "labels"),
)
_OF_REQUEST: Callable[[ChatRequest], tuple[str, str, bool, bool, bool, bool, int, int | None]] = (
    attrgetter(
        *("dialect", "model", "stream", "has_tools", "has_images", "has_documents"),
        *("input_tokens_estimate", "max_output_tokens"),
    )
)
_OF_INSPECTION: Callable[[Inspection], tuple[str, bool, Mapping[str, int], float, str]] = (
    attrgetter(
        *("data_class", "complete", "findings", "complexity", "complexity_tier"),
    )
)


class Ruling(Struct, frozen=True):
    """A decision that allows, with the plan that carries it out."""

    facts: Facts
    decision: Decision
    plan: Plan


class Denial(Struct, frozen=True):
    """A decision that refuses, and the facts it was made on."""

    facts: Facts
    decision: Decision


def gather(
    request: ChatRequest,
    principal: Principal,
    inspection: Inspection,
    budget_left_microusd: int | None,
    utc_us: int,
    board: TargetBoard,
    *,
    headers: Mapping[str, str] = NO_HEADERS,
    warm: Warm = COLD,
) -> Facts:
    """Everything that a rule may look at, at one moment."""
    hours = utc_us // HOUR_US
    first = (*_OF_PRINCIPAL(principal), *_OF_REQUEST(request), *_OF_INSPECTION(inspection))
    return Facts(
        *first,
        budget_left_microusd=budget_left_microusd,
        hour_utc=hours % HOURS_PER_DAY,
        weekday=weekday_of(hours),
        targets=board.facts_asked(principal.models, request),
        service_tier=service_tier(request.tree.get("service_tier"), principal.labels),
        headers=headers,
        warm_target=warm.target,
        warm_tokens=warm.tokens,
        injection=inspection.injection,
        injection_suspected=inspection.injection_suspected,
        sealed=sealed_in(request),
        longest_tokens_estimate=request.longest_tokens_estimate,
    )


def weekday_of(hours: int) -> int:
    """Day of the week, Monday is 0; `hours` are counted since the epoch."""
    return (hours // HOURS_PER_DAY + EPOCH_WEEKDAY) % 7


def service_tier(asked: object, labels: Sequence[str]) -> str:
    """The service tier that the request asks for, as far as its key is entitled to it.

    A label `tier:priority` or `tier:batch` sets the key's default. Anybody may ask for less;
    `priority` is for keys that have the label.
    """
    if asked is None and _TIER_LABELS.isdisjoint(labels):
        return STANDARD
    entitled = STANDARD
    for tier in (PRIORITY, BATCH):
        if f"tier:{tier}" in labels:
            entitled = tier
    if not isinstance(asked, str):  # Not every dialect says what it may be.
        return entitled
    if asked in {"flex", BATCH}:
        return BATCH
    if asked in {"default", "standard_only", STANDARD} and entitled == PRIORITY:
        return STANDARD
    return entitled


def check_model(
    request: ChatRequest, board: TargetBoard, document: PolicyDocument, scope: Scope = None
) -> None:
    """Refuse a model or route name that nobody configured, before any rule is asked.

    Raises:
        ModelUnknown
        FeatureUnsupported: the model is for something else, or no model is for this.
        RequestInvalid: the request has to say which model's vectors it wants.
    """
    model = request.model
    route = model.removeprefix(ROUTE_PREFIX) if model.startswith(ROUTE_PREFIX) else None
    purpose = board.purposes.get(model)
    if purpose is None and model != AUTO and route not in document.routes:
        able = [t.name for t in board.facts_for(scope, request.purpose) if t.permitted_to_key]
        raise ModelUnknown(_unknown(model, route, document, able), parameter="model")
    if purpose is not None and purpose != request.purpose:
        raise FeatureUnsupported(
            f"The model `{model}` does not do this: it is for {_PURPOSES[purpose]}.",
            parameter="model",
        )
    if purpose is None:
        _check_choice(request.purpose, board, scope)


def _unknown(model: str, route: str | None, document: PolicyDocument, able: list[str]) -> str:
    """What to ask for instead."""
    if route is None:
        close = meant(model, (AUTO, *able))
        hint = f" Did you mean `{close}`?" if close else ""
        there = "`GET /v1/models` lists what this key may use."
        return f"There is no model `{model}` here.{hint} {there}"
    routes = ", ".join(f"`{ROUTE_PREFIX}{each}`" for each in document.routes[:NAMES_TOLD_MAX])
    others = f"It has {routes}" if routes else "It has none"
    return f"The policy has no route `{model}`. {others}; with `{AUTO}` it chooses itself."


def _check_choice(purpose: Purpose, board: TargetBoard, scope: Scope) -> None:
    """Refuse to choose if there is nothing to choose from, or no choice can be right."""
    if purpose not in board.served:
        raise FeatureUnsupported(
            f"No model here makes {_PURPOSES[purpose]}, so there is nothing to choose from. An "
            "administrator has to add a target that does.",
            parameter="model",
        )
    if purpose == "answer":
        return
    able = [each for each in board.facts_for(scope, purpose) if each.permitted_to_key]
    if len({each.vectors for each in able}) > 1:
        names = ", ".join(f"`{each.name}`" for each in able[:NAMES_TOLD_MAX])
        raise RequestInvalid(
            "Vectors of different models cannot be compared, so nothing is chosen between them "
            f"here. Set `model` to one of {names}, the same for all texts of an index.",
            parameter="model",
        )


_PURPOSES: Mapping[Purpose, str] = {"answer": "answers", "embedding": "embeddings"}


def rule(
    document: PolicyDocument,
    facts: Facts,
    request: ChatRequest,
    board: TargetBoard,
    limits: Limits,
) -> Ruling:
    """Decide and plan.

    Raises:
        PolicyDenied, ClosedByPolicy, NoTargetAvailable, ContextTooLong, FeatureUnsupported.
    """
    decision = decide(document, facts)
    if decision.effect != "allow":
        error = refusal(decision)
        error.denial = Denial(facts, decision)
        raise error
    candidates = tuple(
        [
            _candidate(board.targets[name], decision, request, limits.output_tokens_default)
            for name in decision.candidates
        ]
    )
    plan = _plan(decision, candidates, limits.request_deadline_s, facts)
    return Ruling(facts, decision, plan)


def _candidate(
    target: Target, decision: Decision, request: ChatRequest, output_tokens_default: int
) -> Candidate:
    """A target with its output cap and its worst price.

    A request without a limit gets a moderate one: the model's own would reserve money for a book.
    """
    longest = request.longest_tokens_estimate or request.input_tokens_estimate
    asked = request.max_output_tokens
    cap = min(
        output_tokens_default if asked is None else asked,
        target.output_tokens_max,
        max(target.context_window_tokens - longest, 1),
    )
    obliged = decision.obligations.output_tokens_cap
    if obliged is not None and obliged < cap:
        cap = obliged
    price = target.price
    is_1h_dearer = price.cache_write_1h_microusd_per_mtok > price.cache_write_microusd_per_mtok
    writes_for_1h = is_1h_dearer and _FOR_LONG.search(request.raw) is not None
    most = max(request.input_tokens_most, request.input_tokens_estimate)
    searches = searches_at_most(request) if price.web_search_microusd else 0
    turns = 1 + compactions_at_most(request)
    written = cap * answers_of(request) * turns
    worst = worst_cost(price, most * turns, written, writes_for_1h=writes_for_1h, searches=searches)
    if not TIERS_ASKED.isdisjoint(request.tree):
        worst = _as_asked(worst, price, request.tree)
    return Candidate(target, cap, worst)


def _as_asked(worst_microusd: int, price: Price, tree: Mapping[str, object]) -> int:
    """Reserve more if the request names a service tier or a place that costs more than usual."""
    tier, place = tree.get("service_tier"), tree.get("inference_geo")
    percents = (
        price.percent_of(paid_tier(tier)) if isinstance(tier, str) else 0,
        price.percent_in(place) if isinstance(place, str) else 0,
    )
    for percent in percents:
        worst_microusd = -(-worst_microusd * max(percent, PERCENT) // PERCENT)
    return worst_microusd


def _plan(
    decision: Decision, candidates: tuple[Candidate, ...], deadline_s: float, facts: Facts
) -> Plan:
    obligations = decision.obligations
    return Plan(
        candidates=candidates,
        clearance=frozenset(obligations.jurisdictions),
        deadline_s=deadline_s,
        decision_digest=decision_digest(decision),
        decision_reason=decision.reason,
        audit_content=obligations.audit_content or "encrypted",
        cascade_above=None
        if decision.cascade_above_percent is None
        else decision.cascade_above_percent / 100,
        hedge_after_s=None if decision.hedge_after_ms is None else decision.hedge_after_ms / 1000,
        service_tier=facts.service_tier,
        tenant=facts.organisation,
        data_class=DATA_CLASSES[data_class_rank(facts)],
    )


@lru_cache(maxsize=1024)
def decision_digest(decision: Decision) -> str:
    """A decision's digest: the same facts under the same document give the same one."""
    digest = hashlib.sha256(msgspec.msgpack.encode(decision)).hexdigest()[:32]
    DECIDED_RULES.note(digest, decision)
    return digest


def visible_headers(
    headers: Sequence[tuple[bytes, bytes]], wanted: Mapping[bytes, str]
) -> Mapping[str, str]:
    """The headers that the settings let policies see, shortened; a repeated one counts once.

    What policies see is recorded, and nothing else inspects headers: restricted data is withheld.
    """
    if not wanted:
        return NO_HEADERS
    found = {wanted[name]: value for name, value in reversed(headers) if name in wanted}
    texts = {name: value.decode("latin-1")[:HEADER_CHARACTERS_MAX] for name, value in found.items()}
    return {
        name: WITHHELD if holds_data(text, DataClass.S3) else text for name, text in texts.items()
    }


_REFUSALS: Mapping[str, type[GatewrightError]] = {
    "denied": PolicyDenied,
    "approval_required": PolicyDenied,
    "closed_by_policy": ClosedByPolicy,
    "no_target_available": NoTargetAvailable,
    "context_too_long": ContextTooLong,
    "capability_missing": FeatureUnsupported,
}


def refusal(decision: Decision) -> GatewrightError:
    """The typed error of a decision that denies; its message is the decision's reason."""
    kind = _REFUSALS.get(decision.refusal or "", ClosedByPolicy)
    if kind is NoTargetAvailable and _heals_by_nobody(decision):
        kind = NoTargetConfigured
    return kind(decision.reason)


def _heals_by_nobody(decision: Decision) -> bool:
    """Whether the reasons why targets are unavailable stay the same until somebody acts."""
    missing = [each.reason for each in decision.excluded if each.kind == "unavailable"]
    return all(reason == NO_CREDENTIAL for reason in missing)
