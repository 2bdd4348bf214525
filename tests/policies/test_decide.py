"""The decision, case by case: which target, which refusal, which words."""

from collections.abc import Mapping

import msgspec
import pytest

from policies.decide import decide
from policies.decision import Decision, Exclusion, Obligations
from policies.examples import EXAMPLE_TARGETS
from policies.facts import TargetFacts
from tests.policies.worlds import document, request, target


HOME_ONLY = {"allow_only": {"in_house": True}}
SENSITIVE = {"name": "stays-home", "when": 'data_class >= "S3"', **HOME_ONLY}


def _with(name: str, **fields: object) -> tuple[TargetFacts, ...]:
    """The example targets, one of them changed."""
    return tuple(target(name, **fields) if each.name == name else each for each in EXAMPLE_TARGETS)


def _decide(
    *rules: Mapping[str, object],
    targets: tuple[TargetFacts, ...] = EXAMPLE_TARGETS,
    preferences: tuple[Mapping[str, object], ...] = (),
    defaults: Mapping[str, object] | None = None,
    asked: Mapping[str, object] | None = None,
    **fields: object,
) -> Decision:
    policy = document(*rules, preferences=preferences, defaults=defaults or {})
    return decide(
        policy, msgspec.structs.replace(request(**fields, **(asked or {})), targets=targets)
    )


def test_without_rules_the_cheapest_target_comes_first() -> None:
    decision = _decide()
    assert decision.candidates == ("in-house", "managed-cheap", "managed-mid", "managed-frontier")
    assert decision.reason == "Sent to the in-house engine by the default order."
    assert decision.obligations == Obligations(jurisdictions=("in-house", "us"))
    assert decision.matched_preference is None


@pytest.mark.parametrize(
    ("preference", "candidates"),
    [
        ({"order": ["frontier", "mid"]}, "managed-frontier managed-mid in-house managed-cheap"),
        ({"order": ["mid"]}, "managed-mid in-house managed-cheap managed-frontier"),
        (
            {"order": ["frontier", "in_house_first", "cheapest"]},
            "managed-frontier in-house managed-cheap managed-mid",
        ),
        ({"order": "in_house_first"}, "in-house managed-cheap managed-mid managed-frontier"),
        (
            {"targets": ["managed-mid", "nobody", "managed-cheap"]},
            "managed-mid managed-cheap in-house managed-frontier",
        ),
        (
            {"targets": ["managed-frontier"], "order": ["mid"]},
            "managed-frontier managed-mid in-house managed-cheap",
        ),
    ],
)
def test_a_preference_orders_what_is_left(preference: dict[str, object], candidates: str) -> None:
    decision = _decide(preferences=(preference,))
    assert decision.candidates == tuple(candidates.split())
    assert decision.matched_preference == "p0"


def test_the_price_weighs_input_and_output_as_the_request_has_them() -> None:
    reader = target("managed-cheap", name="reader", input_price_microusd_per_mtok=1)
    writer = target("managed-cheap", name="writer", output_price_microusd_per_mtok=1)
    both = (writer, reader)
    long_input = _decide(targets=both, input_tokens_estimate=50_000, max_output_tokens=10)
    assert long_input.candidates == ("reader", "writer")
    long_output = _decide(targets=both, input_tokens_estimate=10, max_output_tokens=50_000)
    assert long_output.candidates == ("writer", "reader")


def test_the_limit_of_the_request_counts_where_it_names_one() -> None:
    reader = target("managed-cheap", name="reader", input_price_microusd_per_mtok=1)
    writer = target("managed-cheap", name="writer", output_price_microusd_per_mtok=1)
    both = (writer, reader)
    short = _decide(targets=both, input_tokens_estimate=2000, max_output_tokens=100)
    assert short.candidates == ("reader", "writer")
    unsaid = _decide(targets=both, input_tokens_estimate=2000)
    assert unsaid.candidates == ("writer", "reader"), "a thousand tokens are assumed"


def test_the_house_comes_first_where_that_is_asked_for_also_when_it_is_dearer() -> None:
    dear = _with("in-house", output_price_microusd_per_mtok=900_000_000)
    preference = {"order": ["in_house_first", "cheapest"]}
    assert _decide(targets=dear).candidates[-1] == "in-house"
    first = _decide(targets=dear, preferences=(preference,))
    assert first.candidates == ("in-house", "managed-cheap", "managed-mid", "managed-frontier")


def test_equal_targets_are_ordered_by_name() -> None:
    twins = (target("managed-mid", name="b"), target("managed-mid", name="a"))
    assert _decide(targets=twins).candidates == ("a", "b")


def test_the_first_matching_preference_decides() -> None:
    preferences = (
        {"when": "stream", "order": ["frontier"]},
        {"when": "has_tools", "order": ["mid"]},
        {"order": ["cheap"]},
    )
    assert _decide(preferences=preferences, has_tools=True).matched_preference == "p1"
    assert _decide(preferences=preferences, has_tools=True, stream=True).matched_preference == "p0"
    plain = _decide(preferences=preferences)
    assert plain.matched_preference == "p2"
    assert plain.reason == "Sent to the in-house engine because *p2* applies to every request."


def test_a_route_uses_its_own_preferences_and_then_the_general_ones() -> None:
    preferences = (
        {"order": ["cheap"]},
        {"route": "best", "when": "stream", "order": ["frontier"]},
        {"route": "other", "order": ["mid"]},
    )
    best = _decide(preferences=preferences, model_requested="auto:best", stream=True)
    assert best.matched_preference == "p1"
    assert _decide(preferences=preferences, model_requested="auto:best").matched_preference == "p0"
    assert _decide(preferences=preferences, model_requested="auto").matched_preference == "p0"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("auto:nowhere", "no route is named nowhere"),
        ("auto:", "no route is named "),
        ("nobody", "no target is named nobody"),
    ],
)
def test_an_unknown_model_or_route_is_denied(model: str, words: str) -> None:
    decision = _decide(model_requested=model, preferences=({"order": ["mid"]},))
    assert (decision.effect, decision.refusal) == ("deny", "denied")
    assert decision.reason == f"Refused because {words}."


def test_the_sentence_names_the_rule_and_what_it_saw() -> None:
    decision = _decide(SENSITIVE, data_class="S3", findings={"aadhaar": 2})
    assert decision.reason == (
        "Sent to the in-house engine because *stays-home* matched "
        "(data_class = S3; findings: aadhaar)."
    )
    assert decision.candidates == ("in-house",)
    assert decision.excluded[0] == Exclusion(
        target="managed-cheap", kind="policy", rule="stays-home", reason="allows only: in-house"
    )


def test_the_sentence_names_the_order_where_there_is_one() -> None:
    rule = {"forbid": {"tiers": ["frontier"]}}
    decision = _decide(rule, preferences=({"order": ["mid"]},))
    assert decision.reason == (
        "Sent to managed-mid because *c0* applies to every request, in the order of *p0*."
    )


def test_a_requested_model_that_is_permitted_is_the_only_candidate() -> None:
    decision = _decide(model_requested="managed-mid", preferences=({"order": ["cheap"]},))
    assert decision.candidates == ("managed-mid",)
    assert decision.matched_preference is None
    assert decision.reason == "Sent to managed-mid as requested."


def test_a_closed_model_is_substituted_or_refused_as_the_document_says() -> None:
    asked: dict[str, object] = {"model_requested": "managed-mid", "data_class": "S4"}
    substituted = _decide(SENSITIVE, asked=asked)
    assert substituted.candidates == ("in-house",)
    assert substituted.reason == (
        "Sent to the in-house engine instead of managed-mid because *stays-home* matched "
        "(data_class = S4)."
    )
    refused = _decide(SENSITIVE, defaults={"when_requested_model_closed": "refuse"}, asked=asked)
    assert (refused.candidates, refused.refusal) == ((), "closed_by_policy")
    assert refused.reason == (
        "Refused because *stays-home* matched (data_class = S4) and no permitted target is left."
    )
    assert refused.obligations.jurisdictions == ()


@pytest.mark.parametrize(
    ("changed", "asked", "refusal", "kind", "words"),
    [
        (
            {"available": False, "unavailable_reason": "no credential"},
            {},
            "no_target_available",
            "unavailable",
            "no permitted target is available: managed-mid (no credential)",
        ),
        (
            {"available": False},
            {},
            "no_target_available",
            "unavailable",
            "no permitted target is available: managed-mid (not available)",
        ),
        (
            {"permitted_to_key": False},
            {},
            "closed_by_policy",
            "scope",
            "the key's scope includes no target for it",
        ),
        (
            {"capabilities": frozenset({"tools"})},
            {"has_tools": True, "has_images": True, "has_documents": True, "stream": True},
            "capability_missing",
            "capability",
            "no permitted target can serve it: managed-mid (it lacks images)",
        ),
        (
            {"context_window_tokens": 500},
            {"input_tokens_estimate": 500},
            "context_too_long",
            "context",
            (
                "about 500 input tokens fit no permitted target: "
                "managed-mid (its window has 500 tokens)"
            ),
        ),
    ],
)
def test_a_requested_model_that_cannot_answer_is_refused_with_its_own_kind(
    changed: dict[str, object], asked: dict[str, object], refusal: str, kind: str, words: str
) -> None:
    decision = _decide(
        targets=_with("managed-mid", **changed), model_requested="managed-mid", asked=asked
    )
    assert (decision.effect, decision.refusal) == ("deny", refusal)
    assert decision.excluded[0].kind == kind
    assert decision.reason == f"Refused because {words}."


def test_a_long_request_after_a_short_one_is_measured_by_itself() -> None:
    policy = document()
    short = request()
    long = msgspec.structs.replace(short, input_tokens_estimate=10**6)
    assert decide(policy, short).effect == "allow"
    assert decide(policy, long).refusal == "context_too_long"
    assert decide(policy, short).effect == "allow"


@pytest.mark.parametrize(
    ("asked", "capability"),
    [
        ({"has_tools": True}, "tools"),
        ({"has_images": True}, "images"),
        ({"has_documents": True}, "documents"),
        ({"stream": True}, "streaming"),
        ({"dialect": "openai_completions"}, "completions"),
    ],
)
def test_each_thing_that_is_asked_for_needs_its_own_ability(
    asked: dict[str, object], capability: str
) -> None:
    every = frozenset({"tools", "images", "documents", "streaming", "completions"})
    able = target("managed-mid", capabilities=frozenset({capability}))
    lacking = target("in-house", capabilities=every - {capability})
    decision = _decide(targets=(lacking, able), asked=asked)
    assert decision.candidates == ("managed-mid",)
    assert [each.reason for each in decision.excluded] == [f"it lacks {capability}"]


BARE = {"dialect": "openai_completions"}


def test_only_who_names_a_chat_model_has_bare_text_put_into_a_chat() -> None:
    able = _with("in-house", capabilities=frozenset({"completions"}))
    assert _decide(targets=able, asked=BARE).candidates == ("in-house",)

    named = _decide(targets=able, asked=BARE, model_requested="managed-mid")
    assert named.candidates == ("managed-mid",)
    assert named.reason == "Sent to managed-mid as requested."
    assert {each.target for each in named.excluded} == {"managed-cheap", "managed-frontier"}

    # A substitute is a choice of ours, and ours continue bare text.
    fallen = _decide(SENSITIVE, targets=able, asked=BARE, model_requested="managed-mid")
    assert fallen.candidates == ("managed-mid",)
    fallen = _decide(
        SENSITIVE,
        targets=able,
        asked=BARE,
        model_requested="managed-mid",
        data_class="S4",
        defaults={"when_requested_model_closed": "substitute"},
    )
    assert fallen.candidates == ("in-house",)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"available": False, "unavailable_reason": "down"}, "no_target_available"),
        ({"context_window_tokens": 10}, "context_too_long"),
        ({"capabilities": frozenset({"tools"})}, "capability_missing"),
        ({"permitted_to_key": False}, "closed_by_policy"),
    ],
)
def test_a_chat_model_named_for_bare_text_is_refused_for_what_else_it_lacks(
    fields: dict[str, object], refusal: str
) -> None:
    targets = _with("managed-mid", **fields)
    decision = _decide(
        targets=targets, asked=BARE | {"stream": True}, model_requested="managed-mid"
    )
    assert (decision.effect, decision.refusal) == ("deny", refusal)
    assert "it lacks completions" not in decision.reason
    assert "managed-mid" in {each.target for each in decision.excluded}


def test_a_chat_model_that_a_long_prompt_did_not_fit_answers_a_short_one() -> None:
    policy = document()
    targets = _with("managed-mid", context_window_tokens=1000)
    asked = request(input_tokens_estimate=1000, model_requested="managed-mid", **BARE)
    long = msgspec.structs.replace(asked, targets=targets)
    short = msgspec.structs.replace(long, input_tokens_estimate=999)
    assert decide(policy, short).effect == "allow"
    assert decide(policy, long).refusal == "context_too_long"
    assert decide(policy, short).effect == "allow"


def test_of_several_texts_the_longest_has_to_fit_and_not_all_of_them_together() -> None:
    policy = document()
    targets = _with("managed-mid", context_window_tokens=1000)
    several = request(input_tokens_estimate=5000, longest_tokens_estimate=999)
    several = msgspec.structs.replace(several, targets=targets)
    assert "managed-mid" in decide(policy, several).candidates
    longer = msgspec.structs.replace(several, longest_tokens_estimate=1000)
    assert "managed-mid" not in decide(policy, longer).candidates
    assert "managed-mid" in decide(policy, several).candidates


def test_a_short_request_after_a_long_one_is_measured_by_itself() -> None:
    policy = document()
    long = request(input_tokens_estimate=10**6)
    assert decide(policy, long).refusal == "context_too_long"
    assert decide(policy, msgspec.structs.replace(long, input_tokens_estimate=9)).effect == "allow"


def test_a_request_of_middle_length_after_a_short_one_goes_only_where_it_fits() -> None:
    policy = document()
    targets = _with("managed-mid", context_window_tokens=1000)
    short = msgspec.structs.replace(request(input_tokens_estimate=999), targets=targets)
    assert "managed-mid" in decide(policy, short).candidates
    middle = msgspec.structs.replace(short, input_tokens_estimate=1000)
    assert "managed-mid" not in decide(policy, middle).candidates
    assert "managed-mid" in decide(policy, short).candidates


def test_answers_are_scanned_as_thoroughly_as_any_rule_asks() -> None:
    count, mask = {"scan_output": "count"}, {"scan_output": "mask"}
    assert _decide().obligations.scan_output is None
    assert _decide(count, {"no_cache": True}).obligations.scan_output == "count"
    for rules in ((count, mask), (mask, count), (mask,)):
        assert _decide(*rules).obligations.scan_output == "mask"


def test_a_fitting_request_is_not_too_long() -> None:
    targets = _with("managed-mid", context_window_tokens=501)
    decision = _decide(targets=targets, model_requested="managed-mid", input_tokens_estimate=500)
    assert decision.candidates == ("managed-mid",)


def test_an_unavailable_home_is_a_503_and_never_a_managed_target() -> None:
    targets = _with("in-house", available=False, unavailable_reason="engine starting")
    for model in ("auto", "in-house", "managed-frontier"):
        decision = _decide(SENSITIVE, targets=targets, data_class="S3", model_requested=model)
        assert (decision.refusal, decision.candidates) == ("no_target_available", ())
        assert "in-house (engine starting)" in decision.reason


def test_policy_comes_before_every_other_reason_against_a_target() -> None:
    targets = (target("managed-mid", available=False, permitted_to_key=False),)
    decision = _decide(HOME_ONLY, targets=targets)
    assert decision.refusal == "closed_by_policy"
    assert [each.kind for each in decision.excluded] == ["policy"]
    assert decision.reason == (
        "Refused because *c0* applies to every request and no permitted target is left."
    )


def test_what_a_later_try_could_cure_is_reported_first() -> None:
    lacking = target("in-house", name="blind", capabilities=frozenset())
    short = target("in-house", name="short", context_window_tokens=1)
    absent = target("in-house", name="absent", available=False, unavailable_reason="down")
    foreign = target("managed-mid")
    scoped = target("in-house", name="scoped", permitted_to_key=False)
    ladder: list[tuple[tuple[TargetFacts, ...], str]] = [
        ((foreign, scoped, lacking, short, absent), "no_target_available"),
        ((foreign, scoped, lacking, short), "context_too_long"),
        ((foreign, scoped, lacking), "capability_missing"),
        ((foreign, scoped), "closed_by_policy"),
        ((scoped,), "closed_by_policy"),
        ((), "no_target_available"),
    ]
    for targets, refusal in ladder:
        decision = _decide(HOME_ONLY, targets=targets, has_images=True)
        assert decision.refusal == refusal
    assert _decide(HOME_ONLY, targets=ladder[0][0], has_images=True).reason.startswith(
        "Refused because no permitted target is available: absent (down); "
        "unable to serve it: blind (it lacks images), short (its window has 1 tokens)"
    )
    nothing = _decide(HOME_ONLY, targets=())
    assert nothing.reason == "Refused because no permitted target is available."


def test_the_clearance_covers_what_policy_permits_even_while_it_is_down() -> None:
    targets = (
        target("in-house"),
        target("managed-mid", jurisdiction="eu", available=False),
        target("managed-cheap", jurisdiction="us", permitted_to_key=False),
        target("managed-frontier", jurisdiction="mars"),
    )
    decision = _decide({"forbid": {"jurisdictions": ["mars"]}}, targets=targets)
    assert decision.obligations.jurisdictions == ("eu", "in-house")


def test_a_denial_says_what_the_author_wrote() -> None:
    rule = {"when": "findings.pan > 0", "deny": "Card numbers are not processed here."}
    decision = _decide(rule, {"deny": "Later."}, findings={"pan": 3})
    assert (decision.refusal, decision.candidates) == ("denied", ())
    assert decision.reason == (
        "Refused because *c0* matched (findings.pan = 3): Card numbers are not processed here."
    )


def test_the_lowest_cap_wins() -> None:
    rules: list[dict[str, object]] = [
        {"cap_output_tokens": cap, "cap_input_tokens": cap * 2} for cap in (900, 300, 600)
    ]
    defaults = {"output_tokens_max": 500}
    decision = _decide(*rules, defaults=defaults, input_tokens_estimate=600)
    assert decision.effect == "allow", "at the cap it still fits"
    assert decision.obligations.output_tokens_cap == 300
    assert decision.obligations.input_tokens_cap == 600
    assert _decide(defaults=defaults).obligations.output_tokens_cap == 500
    uncapped: dict[str, object] = {"no_cache": True}
    for around in ([uncapped, *rules], [*rules, uncapped]):
        beside = _decide(*around, input_tokens_estimate=601)
        assert (beside.refusal, beside.obligations.input_tokens_cap) == ("denied", 600)
    refused = _decide(*rules, input_tokens_estimate=601)
    assert refused.refusal == "denied"
    nothing = [{"cap_input_tokens": 1}, {"cap_input_tokens": 0}]
    assert _decide(*nothing, input_tokens_estimate=1).refusal == "denied"
    assert refused.reason == (
        "Refused because *c1* caps the input at 600 tokens and the request has about 601."
    )


def test_the_most_reticent_audit_and_any_refusal_to_cache_win() -> None:
    encrypted, none = {"audit_content": "encrypted"}, {"audit_content": "none"}
    assert _decide(encrypted).obligations.audit_content == "encrypted"
    assert _decide(encrypted, none, encrypted).obligations.audit_content == "none"
    redacted = {"audit_content": "redacted"}
    assert _decide(encrypted, redacted).obligations.audit_content == "redacted"
    assert _decide(redacted, none).obligations.audit_content == "none"
    assert _decide(encrypted).obligations.no_cache is False
    assert _decide(encrypted, {"no_cache": True}).obligations.no_cache is True


EVERYBODY = " ".join(each.name for each in EXAMPLE_TARGETS)


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({"in_house": False}, "managed-cheap managed-mid managed-frontier"),
        ({"jurisdictions": ["in-house", "eu"]}, "in-house"),
        ({"targets": ["managed-mid"]}, "managed-mid"),
        ({"tiers": ["mid", "frontier"]}, "managed-mid managed-frontier"),
        ({"providers": ["somebody"]}, ""),
        (
            {"capabilities": ["tools", "images"]},
            EVERYBODY,
        ),
        ({"capabilities": ["tools", "audio"]}, ""),
        ({"capabilities": sorted(EXAMPLE_TARGETS[0].capabilities)}, EVERYBODY),
        ({"tiers": ["cheap"], "jurisdictions": ["us"]}, "managed-cheap"),
    ],
)
def test_a_selector_opens_or_closes_the_targets_that_fit_all_of_it(
    selector: dict[str, object], names: str
) -> None:
    chosen = set(names.split())
    assert set(_decide({"allow_only": selector}).candidates) == chosen
    everyone = {each.name for each in EXAMPLE_TARGETS}
    assert set(_decide({"forbid": selector}).candidates) == everyone - chosen


def test_what_must_not_be_learnt_from_goes_where_that_was_promised() -> None:
    policy = document({"allow_only": {"assurances": ["no_training", "no_retention"]}})
    careful = target("managed-mid", assurances=frozenset({"no_training", "no_retention"}))
    half = target("managed-cheap", assurances=frozenset({"no_training"}))
    facts = msgspec.structs.replace(request(), targets=(careful, half))
    decision = decide(policy, facts)
    assert decision.candidates == ("managed-mid",)
    assert [each.reason for each in decision.excluded] == [
        "allows only: assurance no_retention and no_training"
    ]


def test_an_exclusion_describes_the_selector_in_words() -> None:
    selector = {
        "in_house": False,
        "jurisdictions": ["us", "eu"],
        "capabilities": ["tools", "images"],
    }
    decision = _decide({"forbid": selector})
    assert decision.excluded[0].reason == (
        "forbids: managed, jurisdiction eu or us, capability images and tools"
    )


def test_a_decision_names_its_document() -> None:
    policy = document({"no_cache": True})
    decision = decide(policy, request())
    assert (decision.document_name, decision.document_version) == ("test", 1)
    assert decision.document_digest == policy.digest


@pytest.mark.parametrize(
    ("when", "fields", "words"),
    [
        ("size(labels) > 0", {"labels": ["a", "b"]}, "labels = a, b"),
        ("size(labels) == 0", {}, "labels = none"),
        ("not has(max_output_tokens)", {}, "max_output_tokens = absent"),
        ("stream", {"stream": True}, "stream = true"),
        ("not stream", {}, "stream = false"),
        ("complexity < 1", {"complexity": 0.25}, "complexity = 0.25"),
        (
            "size(findings) > 8",
            {"findings": dict.fromkeys("jihgfedcba", 1)},
            "a, b, c, d, e, f, g, h and 2 more",
        ),
        (
            'data_class == "S4"',
            {"inspection_complete": False},
            "data_class = S4 (inspection incomplete)",
        ),
        (
            'contains(organisation, "x")',
            {"organisation": "x\n" * 80},
            "organisation = " + "x?" * 31 + "x…",
        ),
    ],
)
def test_evidence_is_short_and_printable(when: str, fields: dict[str, object], words: str) -> None:
    decision = _decide({"when": when, **HOME_ONLY}, asked=fields)
    assert words in decision.reason


def test_findings_stand_beside_a_data_class_once() -> None:
    when = 'data_class == "S3" and size(findings) > 0'
    decision = _decide(
        {"when": when, **HOME_ONLY}, asked={"data_class": "S3", "findings": {"pan": 1}}
    )
    assert decision.reason.count("findings: pan") == 1


def test_what_was_decided_for_a_named_model_holds_only_while_nothing_else_speaks_against_it() -> (
    None
):
    capped = {"name": "short-questions", "cap_input_tokens": 1000}
    policy = document(capped, preferences=(), defaults={})
    asked = msgspec.structs.replace(
        request(model_requested="managed-mid", input_tokens_estimate=900), targets=EXAMPLE_TARGETS
    )
    changed = _with("managed-mid", available=False)
    first = decide(policy, asked)

    assert first.candidates == ("managed-mid",)
    assert decide(policy, msgspec.structs.replace(asked, complexity=0.9)) is first
    assert decide(policy, msgspec.structs.replace(asked, input_tokens_estimate=1001)).refusal
    assert decide(policy, msgspec.structs.replace(asked, targets=changed)).refusal
    assert decide(policy, msgspec.structs.replace(asked, model_requested="nobody")).refusal
    assert decide(policy, msgspec.structs.replace(asked, model_requested="auto")).reason != (
        first.reason
    )
