"""Facts are gathered whole, decisions become plans, and every denial has its own error."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
from gateway.errors import (
    ClosedByPolicy,
    ContextTooLong,
    FeatureUnsupported,
    GatewrightError,
    ModelUnknown,
    NoTargetAvailable,
    PolicyDenied,
)
from gateway.identity import accounts_of
from gateway.routing import Ruling, TargetBoard, check_model, gather, rule
from gateway.types import ChatRequest, Inspection, Principal, Target
from policies.program import PolicyDocument
from tests.gateway.providers.samples import make_target
from tests.policies.worlds import document


def target(name: str, **changes: object) -> Target:
    return structs.replace(make_target(name), context_window_tokens=10_000, **changes)


HOUSE = target("house", jurisdiction="in-house", in_house=True)
CLOUD = target("cloud", jurisdiction="us")
HOME_ONLY = {"name": "home", "when": 'data_class >= "S3"', "allow_only": {"in_house": True}}
PRINCIPAL = Principal(
    "k1", "test", "acme", "research", "x", (), None, accounts_of("acme", "research", "x", "k1")
)
INSPECTION = Inspection("S0", {}, True, (), 0.5, "mid", "v1", 10)
THURSDAY_NOON_US = 12 * 3_600_000_000


def request(**fields: object) -> ChatRequest:
    body = {"model": "auto", "messages": [{"role": "user", "content": "hello"}]} | fields
    return DIALECTS["openai_chat"].decode_request(msgspec.json.encode(body), "req_1")


def ruled(
    asked: ChatRequest | None = None,
    *,
    inspection: Inspection = INSPECTION,
    principal: Principal = PRINCIPAL,
    unavailable: dict[str, str] | None = None,
    policy: PolicyDocument | None = None,
) -> Ruling:
    asked = asked or request()
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, unavailable or {})
    facts = gather(asked, principal, inspection, None, THURSDAY_NOON_US, board)
    return rule(policy or document(HOME_ONLY), facts, asked, board, Limits())


def names(ruling: Ruling) -> set[str]:
    return {candidate.target.name for candidate in ruling.plan.candidates}


def test_facts_hold_the_moment_and_all_that_is_known() -> None:
    facts = ruled(request(stream=True, max_tokens=77)).facts

    assert (facts.hour_utc, facts.weekday) == (12, 3)
    assert (facts.organisation, facts.stream, facts.max_output_tokens) == ("acme", True, 77)
    assert {each.name for each in facts.targets} == {"house", "cloud"}


def test_sensitive_data_leaves_no_managed_candidate_and_no_clearance() -> None:
    secret = structs.replace(INSPECTION, data_class="S4")

    assert names(ruled()) == {"house", "cloud"}
    assert names(ruled(inspection=secret)) == {"house"}
    assert ruled(inspection=secret).plan.clearance == {"in-house"}


def test_the_same_facts_have_the_same_decision_and_others_another() -> None:
    first, again = ruled(), ruled()
    other = ruled(inspection=structs.replace(INSPECTION, data_class="S3"))

    assert first.plan.decision_digest == again.plan.decision_digest
    assert first.plan.decision_digest != other.plan.decision_digest


DENY = document({"name": "no", "deny": "Not today."})
DENIALS: list[tuple[dict[str, object], type[GatewrightError]]] = [
    ({"policy": DENY}, PolicyDenied),
    ({"principal": structs.replace(PRINCIPAL, models=frozenset())}, ClosedByPolicy),
    ({"unavailable": {"house": "down", "cloud": "no credential"}}, NoTargetAvailable),
    (
        {
            "unavailable": {"house": "down"},
            "inspection": structs.replace(INSPECTION, data_class="S3"),
        },
        NoTargetAvailable,
    ),
    (
        {
            "asked": request(
                tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]
            )
        },
        FeatureUnsupported,
    ),
    (
        {"asked": request(messages=[{"role": "user", "content": "word " * 20_000}])},
        ContextTooLong,
    ),
]


@pytest.mark.parametrize(("world", "error"), DENIALS)
def test_every_denial_has_its_own_error_with_a_reason(
    world: dict[str, object], error: type[GatewrightError]
) -> None:
    with pytest.raises(GatewrightError) as denied:
        ruled(**world)  # type: ignore[arg-type]

    assert type(denied.value) is error
    assert denied.value.message


@given(asked=st.integers(1, 10**6) | st.none(), choices=st.integers(1, 100))
def test_a_candidate_never_answers_more_than_any_limit_and_costs_it_at_worst(
    asked: int | None, choices: int
) -> None:
    ruling = ruled(request(max_tokens=asked, n=choices))

    for candidate in ruling.plan.candidates:
        cap = candidate.output_tokens_cap
        assert 1 <= cap <= min(asked or cap, candidate.target.output_tokens_max)
        price = candidate.target.price.output_microusd_per_mtok
        assert candidate.worst_cost_microusd >= cap * choices * price // 10**6


@pytest.mark.parametrize("model", ["auto", "house", "cloud"])
def test_names_that_are_configured_are_known(model: str) -> None:
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, {"cloud": "down"})

    check_model(request(model=model), board, document())

    assert model in {"auto", *board.targets}


@pytest.mark.parametrize("model", ["nope", "auto:nope", "auto:", "AUTO", "auto ", "house/"])
def test_names_that_are_not_are_unknown(model: str) -> None:
    with pytest.raises(ModelUnknown) as unknown:
        check_model(request(model=model), TargetBoard({"house": HOUSE}, {}), document())

    assert unknown.value.parameter == "model"


def test_a_scope_is_looked_up_once_and_never_shared_between_scopes() -> None:
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, {})

    assert board.facts_for(None) is board.facts_for(None)
    scoped = {each.name: each.permitted_to_key for each in board.facts_for(frozenset({"house"}))}
    assert scoped == {"house": True, "cloud": False}
