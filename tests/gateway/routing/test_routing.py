"""Facts are gathered whole, decisions become plans, and every denial has its own error."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.clock import DAY_US
from gateway.configuration.settings import Limits
from gateway.dialects.registry import DIALECTS
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
from gateway.identity import accounts_of
from gateway.routing.board import Scope, TargetBoard
from gateway.routing.planning import (
    HEADER_CHARACTERS_MAX,
    Ruling,
    check_model,
    decision_digest,
    gather,
    rule,
    service_tier,
    visible_headers,
)
from gateway.routing.warmth import Warm
from gateway.types import Candidate, ChatRequest, Inspection, Principal, Purpose, Target
from policies.decide import decide
from policies.facts import Facts, TargetFacts
from policies.program import PolicyDocument
from tests.gateway.providers.samples import make_target
from tests.policies import worlds
from tests.policies.worlds import document


def target(name: str, **changes: object) -> Target:
    return structs.replace(make_target(name), **{"context_window_tokens": 10_000, **changes})


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


def test_facts_know_every_day_of_the_week() -> None:
    board = TargetBoard({"house": HOUSE}, {})
    days = [
        gather(request(), PRINCIPAL, INSPECTION, None, THURSDAY_NOON_US + day * DAY_US, board)
        for day in range(8)
    ]
    assert [facts.weekday for facts in days] == [3, 4, 5, 6, 0, 1, 2, 3]


@pytest.mark.parametrize("moment", ["2026-11-29 23:59", "2027-02-28 00:00", "2028-02-29 17:30"])
def test_facts_have_the_hour_and_the_weekday_of_a_calendar(moment: str) -> None:
    at = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    board = TargetBoard({"house": HOUSE}, {})
    now_us = int(at.timestamp()) * 1_000_000
    facts = gather(request(), PRINCIPAL, INSPECTION, None, now_us, board)
    assert (facts.hour_utc, facts.weekday) == (at.hour, at.weekday())


def test_facts_hold_what_comes_with_a_request_and_whose_turn_it_is() -> None:
    board = TargetBoard({"house": HOUSE}, {})
    late = structs.replace(PRINCIPAL, labels=("tier:batch",))
    facts = gather(
        *(request(), late, INSPECTION, None, THURSDAY_NOON_US, board), headers={"x_team": "red"}
    )
    assert (facts.headers, facts.service_tier) == ({"x_team": "red"}, "batch")
    assert rule(document(), facts, request(), board, Limits()).plan.service_tier == "batch"


def test_a_target_whose_first_token_nobody_measured_has_no_time_of_it() -> None:
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, {}, {"cloud": 250})
    times = {each.name: each.first_token_ms for each in board.facts_for(None)}
    assert times == {"house": 0, "cloud": 250}


def test_a_board_says_of_a_target_all_that_policy_may_look_at() -> None:
    known = target(
        *("house",),
        in_house=True,
        capabilities=frozenset({"embeddings"}),
        assurances=frozenset({"no_training"}),
        seals="anthropic_messages",
    )
    board = TargetBoard({"house": known}, {"house": "It is down."}, {"house": 120})
    (seen,) = board.facts_for(frozenset({"house"}))
    (unseen,) = board.facts_for(frozenset({"another"}))

    names = set(TargetFacts.__struct_fields__) & set(Target.__struct_fields__)
    assert {each: getattr(seen, each) for each in names} == {n: getattr(known, n) for n in names}
    assert {each: getattr(seen, each) for each in set(TargetFacts.__struct_fields__) - names} == {
        "input_price_microusd_per_mtok": known.price.input_microusd_per_mtok,
        "output_price_microusd_per_mtok": known.price.output_microusd_per_mtok,
        "cache_read_price_microusd_per_mtok": known.price.cache_read_microusd_per_mtok,
        "available": False,
        "unavailable_reason": "It is down.",
        "permitted_to_key": True,
        "first_token_ms": 120,
        "vectors": known.model,
    }
    assert not unseen.permitted_to_key


@pytest.mark.parametrize("flag", ["stream", "has_tools", "has_images", "has_documents"])
def test_facts_have_each_value_under_its_own_name(flag: str) -> None:
    flags = {"stream": False, "has_tools": False, "has_images": False, "has_documents": False}
    figures = {"input_tokens_estimate": 11, "max_output_tokens": 12, "longest_tokens_estimate": 9}
    thought = {"role": "assistant", "content": [{"type": "thinking", "signature": "s"}]}
    sealed = {"dialect": "anthropic_messages", "tree": {"messages": [thought]}}
    asked = structs.replace(request(), **flags | {flag: True}, **figures, **sealed)
    inspection = structs.replace(
        *(INSPECTION,),
        complexity=0.25,
        complexity_tier="mid",
        injection=0.75,
        injection_suspected=True,
    )
    board = TargetBoard({"house": HOUSE}, {})
    warm = Warm("house", 5)
    facts = gather(asked, PRINCIPAL, inspection, 13, THURSDAY_NOON_US, board, warm=warm)

    names = {"model": "model_requested", "complete": "inspection_complete"}
    for noun in (PRINCIPAL, asked, inspection):
        said = {names.get(each, each): getattr(noun, each) for each in noun.__struct_fields__}
        shared = said.keys() & set(Facts.__struct_fields__)
        assert {each: getattr(facts, each) for each in shared} == {n: said[n] for n in shared}
    assert (facts.warm_target, facts.warm_tokens) == ("house", 5)
    assert (facts.sealed, facts.budget_left_microusd) == ("anthropic_messages", 13)


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


def test_a_decision_has_the_name_that_earlier_records_have_of_it() -> None:
    """As of 2026-11; else no request of before an upgrade is shown to have been decided so."""
    refused, allowed = decide(DENY, worlds.request()), decide(document(), worlds.request())

    assert decision_digest(refused) == "0f262417e1fcd30ebeccfea28e029d40"
    assert decision_digest(allowed) == "fdb6803e6f238bfb3a1633987cc77bb2"


DENY = document({"name": "no", "deny": "Not today."})
DENIALS: list[tuple[dict[str, object], type[GatewrightError]]] = [
    ({"policy": DENY}, PolicyDenied),
    ({"principal": structs.replace(PRINCIPAL, models=frozenset())}, ClosedByPolicy),
    ({"unavailable": {"house": "down", "cloud": "no credential"}}, NoTargetAvailable),
    ({"unavailable": {"house": "down", "cloud": "no credential now"}}, NoTargetAvailable),
    ({"unavailable": dict.fromkeys(("house", "cloud"), "no credential")}, NoTargetConfigured),
    (
        {
            "unavailable": {"house": "down"},
            "inspection": structs.replace(INSPECTION, data_class="S3"),
        },
        NoTargetAvailable,
    ),
    (
        {
            "unavailable": {"house": "no credential"},
            "inspection": structs.replace(INSPECTION, data_class="S3"),
        },
        NoTargetConfigured,
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


def candidate(asked: ChatRequest, *constraints: dict[str, object], **changes: object) -> Candidate:
    """What one target may answer: a token in costs 1, one kept for an hour 2, a token out 5."""
    board = TargetBoard({"house": target("house", **changes)}, {})
    facts = gather(asked, PRINCIPAL, INSPECTION, None, THURSDAY_NOON_US, board)
    return rule(document(*constraints), facts, asked, board, Limits()).plan.candidates[0]


@pytest.mark.parametrize(("field", "answers"), [("n", 8), ("best_of", 8), ("best_of", 1)])
def test_every_answer_that_is_made_is_reserved_for_also_those_nobody_gets_to_see(
    field: str, answers: int
) -> None:
    one = candidate(request(max_tokens=100)).worst_cost_microusd
    several = candidate(request(max_tokens=100, **{field: answers})).worst_cost_microusd

    assert several - one in range((answers - 1) * 500, (answers - 1) * 500 + 50)


def test_the_larger_of_both_counts_of_answers_is_reserved_for() -> None:
    both = [request(max_tokens=100, n=n, best_of=12 - n) for n in (3, 9)]
    costs = [candidate(asked).worst_cost_microusd for asked in both]

    assert min(costs) >= 9 * 500
    assert max(costs) < 10 * 500


@pytest.mark.parametrize(
    "spelling", ["1h", "\\u0031h", "1\\u0068", "\\u0031\\u0068", "12h", "1\\u0032h", "5m"]
)
def test_a_long_life_in_the_cache_is_reserved_for_however_json_spells_it(spelling: str) -> None:
    text = '{"type": "text", "text": "' + "word " * 2000 + '", "cache_control": {"ttl": "%s"}}'
    raw = '{"model": "auto", "max_tokens": 1, "messages": [{"role": "user", "content": [%s]}]}'
    body = (raw % (text % spelling)).encode()
    asked = DIALECTS["anthropic_messages"].decode_request(body, "req_1")

    cost = candidate(asked).worst_cost_microusd

    per_token = 1.25 if spelling == "5m" else 2.0
    assert cost == pytest.approx(asked.input_tokens_most * per_token + 5, abs=2)


@pytest.mark.parametrize(
    ("tier", "percent"),
    [("priority", 250), ("fast", 250), ("flex", 100), ("batch", 100), ("scale", 100), (None, 100)],
)
def test_a_dearer_tier_is_reserved_for_and_a_cheaper_one_only_booked_when_it_served(
    tier: str | None, percent: int
) -> None:
    price = structs.replace(HOUSE.price, priority_percent=250, flex_percent=50)
    plain = candidate(request(max_tokens=100), price=price).worst_cost_microusd
    asked = structs.replace(request(max_tokens=100), tree={"service_tier": tier})

    assert candidate(asked, price=price).worst_cost_microusd == -(-plain * percent // 100)


def test_every_search_that_a_vendor_may_make_is_reserved_for() -> None:
    plain = structs.replace(request(max_tokens=100), has_tools=True)
    tools = [{"type": "web_search", "max_uses": 3}]
    asked = structs.replace(plain, tree={**plain.tree, "tools": tools})
    price = structs.replace(HOUSE.price, web_search_microusd=10_000)
    able = {"price": price, "capabilities": frozenset({"tools"})}
    costs = [candidate(each, **able).worst_cost_microusd for each in (plain, asked)]
    assert costs[1] - costs[0] == 30_000


def test_of_texts_that_are_read_one_by_one_the_longest_has_to_leave_room() -> None:
    texts = structs.replace(
        request(max_tokens=500), input_tokens_estimate=90_000, longest_tokens_estimate=40
    )
    assert candidate(texts, context_window_tokens=60).output_tokens_cap == 20


def test_what_input_takes_at_most_is_reserved_for_not_what_it_probably_takes() -> None:
    asked = structs.replace(request(), input_tokens_estimate=10, input_tokens_most=5000)

    assert candidate(asked).worst_cost_microusd >= 5000
    fewer = structs.replace(asked, input_tokens_most=0, input_tokens_estimate=4000)
    assert candidate(fewer).worst_cost_microusd >= 4000


@pytest.mark.parametrize(
    ("limits", "cap"), [((20, 100, 10_000), 20), ((200, 100, 10_000), 100), ((200, 100, 60), 50)]
)
def test_the_lowest_of_policy_model_and_window_caps_an_answer(
    limits: tuple[int, int, int], cap: int
) -> None:
    obliged, model, window = limits
    asked = structs.replace(request(max_tokens=500), input_tokens_estimate=10)
    rule_of_policy: dict[str, object] = {"name": "short", "cap_output_tokens": obliged}

    found = candidate(asked, rule_of_policy, output_tokens_max=model, context_window_tokens=window)

    assert found.output_tokens_cap == cap


def test_a_plan_carries_what_the_decision_obliges_to() -> None:
    hedged = ({"name": "p", "order": ["cheapest"], "hedge_after_ms": 1500},)
    doubted = ({"name": "p", "order": ["cheapest"], "cascade_above_percent": 40},)
    silent = {"name": "quiet", "audit_content": "none"}

    plain = ruled().plan
    assert (plain.hedge_after_s, plain.cascade_above) == (None, None)
    assert (plain.audit_content, plain.tenant, plain.data_class) == ("encrypted", "acme", "S0")
    assert ruled(policy=document(preferences=hedged)).plan.hedge_after_s == 1.5
    assert ruled(policy=document(preferences=doubted)).plan.cascade_above == 0.4
    assert ruled(policy=document(silent)).plan.audit_content == "none"


TIERS_OF_LABELS: list[tuple[object, tuple[str, ...], str]] = [
    (None, (), "standard"),
    (None, ("tier:priority",), "priority"),
    (None, ("tier:batch",), "batch"),
    (None, ("tier:priority", "tier:batch"), "batch"),
    ("priority", (), "standard"),
    ("priority", ("tier:batch",), "batch"),
    ("priority", ("tier:priority",), "priority"),
    ("flex", ("tier:priority",), "batch"),
    ("batch", (), "batch"),
    ("default", ("tier:priority",), "standard"),
    ("standard_only", ("tier:priority",), "standard"),
    ("standard", ("tier:priority",), "standard"),
    ("auto", ("tier:priority",), "priority"),
    ("default", ("tier:batch",), "batch"),
    (["priority"], (), "standard"),
    ({}, ("tier:batch",), "batch"),
]


@pytest.mark.parametrize(("asked", "labels", "tier"), TIERS_OF_LABELS)
def test_anybody_may_ask_for_a_lower_tier_and_only_labelled_keys_have_the_highest(
    asked: object, labels: tuple[str, ...], tier: str
) -> None:
    assert service_tier(asked, labels) == tier


@pytest.mark.parametrize("model", ["auto", "house", "cloud"])
def test_names_that_are_configured_are_known(model: str) -> None:
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, {"cloud": "down"})

    check_model(request(model=model), board, document())

    assert model in {"auto", *board.targets}


SMALL = target("small", model="vectors-small", capabilities=frozenset({"embeddings"}))
COPY = structs.replace(SMALL, name="copy")
LARGE = structs.replace(SMALL, name="large", model="vectors-large")


@pytest.mark.parametrize(
    ("served", "scope", "error"),
    [
        ((HOUSE,), None, FeatureUnsupported),
        ((HOUSE, SMALL), None, None),
        ((SMALL, COPY), None, None),
        ((SMALL, LARGE), None, RequestInvalid),
        ((SMALL, LARGE), frozenset({"small", "large"}), RequestInvalid),
        ((SMALL, LARGE), frozenset({"small"}), None),
    ],
)
def test_vectors_are_chosen_only_where_all_that_a_key_may_use_can_be_compared(
    served: tuple[Target, ...], scope: Scope, error: type[GatewrightError] | None
) -> None:
    asked = structs.replace(request(), purpose="embedding")
    board = TargetBoard({each.name: each for each in served}, {})
    if error is None:
        check_model(asked, board, document(), scope)
        return
    with pytest.raises(error) as refused:
        check_model(asked, board, document(), scope)
    assert refused.value.parameter == "model"
    assert error is FeatureUnsupported or "`small`, `large`" in refused.value.message


@pytest.mark.parametrize(
    ("model", "purpose", "seen"),
    [
        ("large", "embedding", {"large"}),
        ("small", "embedding", {"small", "copy"}),
        ("auto", "embedding", {"small", "copy", "large"}),
        ("house", "answer", {"house"}),
        ("small", "answer", {"house"}),
    ],
)
def test_of_vectors_policy_sees_only_targets_that_make_those_of_the_model_named(
    model: str, purpose: Purpose, seen: set[str]
) -> None:
    """A substitute that makes others would spoil an index, and nobody could see it."""
    asked = structs.replace(request(model=model), purpose=purpose)
    board = TargetBoard({each.name: each for each in (HOUSE, SMALL, COPY, LARGE)}, {})
    for scope in (None, frozenset({"small"}), None):
        facts = board.facts_asked(scope, asked)
        assert {each.name for each in facts} == seen
        assert {each.name for each in facts if each.permitted_to_key} == (
            seen if scope is None else seen & scope
        )


@pytest.mark.parametrize(("model", "purpose"), [("small", "answer"), ("house", "embedding")])
def test_a_model_that_is_for_something_else_is_refused_before_any_rule_is_asked(
    model: str, purpose: Purpose
) -> None:
    asked = structs.replace(request(model=model), purpose=purpose)
    with pytest.raises(FeatureUnsupported, match="it is for") as refused:
        check_model(asked, TargetBoard({"house": HOUSE, "small": SMALL}, {}), document())
    assert refused.value.parameter == "model"


def test_of_headers_policies_see_those_that_are_set_short_and_without_anybodys_data() -> None:
    """Also what one without them finds: a header twice has its first value, as it came first."""
    wanted = {b"x-team": "x_team", b"x-card": "x_card", b"x-long": "x_long"}
    came = [
        *((b"x-team", b"caf\xe9"), (b"x-team", b"other"), (b"authorization", b"Bearer mine")),
        *((b"x-card", b"4111 1111 1111 1111"), (b"x-long", b"word " * HEADER_CHARACTERS_MAX)),
    ]
    assert visible_headers(came, wanted) == {
        "x_team": "caf\xe9",
        "x_card": "[withheld]",
        "x_long": ("word " * HEADER_CHARACTERS_MAX)[:HEADER_CHARACTERS_MAX],
    }
    assert visible_headers(came, {}) == {}


@pytest.mark.parametrize("model", ["nope", "auto:nope", "auto:", "AUTO", "auto ", "house/"])
def test_names_that_are_not_are_unknown(model: str) -> None:
    with pytest.raises(ModelUnknown) as unknown:
        check_model(request(model=model), TargetBoard({"house": HOUSE}, {}), document())

    assert unknown.value.parameter == "model"


@pytest.mark.parametrize(
    ("model", "scope", "hint"),
    [
        ("vendor/house", None, " Did you mean `house`?"),
        ("CLOUD", None, " Did you mean `cloud`?"),
        ("AUTO", None, " Did you mean `auto`?"),
        ("CLOUD", frozenset({"house"}), ""),
        ("nope", None, ""),
    ],
)
def test_who_writes_a_name_in_another_way_is_told_it_where_the_key_may_use_it(
    model: str, scope: Scope, hint: str
) -> None:
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, {})
    with pytest.raises(ModelUnknown) as unknown:
        check_model(request(model=model), board, document(), scope)

    told = f"There is no model `{model}` here.{hint} `GET /v1/models` lists what this key may use."
    assert str(unknown.value) == told


@pytest.mark.parametrize(
    ("preferences", "told"),
    [
        (({"route": "quality", "order": "cheapest"},), "It has `auto:quality`;"),
        ((), "It has none;"),
    ],
)
def test_who_asks_for_a_route_that_is_none_is_told_which_there_are(
    preferences: tuple[dict[str, object], ...], told: str
) -> None:
    policy = document(preferences=preferences)
    with pytest.raises(ModelUnknown) as unknown:
        check_model(request(model="auto:nope"), TargetBoard({"house": HOUSE}, {}), policy)
    for known in policy.routes:
        check_model(request(model=f"auto:{known}"), TargetBoard({"house": HOUSE}, {}), policy)

    said = f"The policy has no route `auto:nope`. {told} with `auto` it chooses itself."
    assert str(unknown.value) == said


def test_a_scope_is_looked_up_once_and_never_shared_between_scopes() -> None:
    board = TargetBoard({"house": HOUSE, "cloud": CLOUD}, {})

    assert board.facts_for(None) is board.facts_for(None)
    scoped = {each.name: each.permitted_to_key for each in board.facts_for(frozenset({"house"}))}
    assert scoped == {"house": True, "cloud": False}
