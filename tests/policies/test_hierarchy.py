"""Several levels decide as one document, and a level can only narrow what is above it."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.decide import decide
from policies.facts import Facts
from policies.hierarchy import compose, rule_names
from policies.program import PolicyDocument
from tests.policies.worlds import document, documents, request, requests


LEVELS = st.lists(documents(), min_size=2, max_size=3)
BOUNDED = settings(max_examples=50)


@BOUNDED
@given(levels=LEVELS, facts=requests())
def test_no_level_permits_what_a_level_above_it_closed(
    levels: list[PolicyDocument], facts: Facts
) -> None:
    # A request by name may be substituted; through `auto` the permitted sets can be compared.
    facts = msgspec.structs.replace(facts, model_requested="auto")
    whole = decide(compose(levels), facts)
    for above in (*levels, compose(levels[:-1])):
        alone = decide(above, facts)
        assert set(whole.candidates) <= set(alone.candidates)
        assert set(whole.obligations.jurisdictions) <= set(alone.obligations.jurisdictions)
        assert alone.effect == "allow" or whole.effect == "deny"
        for flag in ("no_cache", "pseudonymise", "redact"):
            assert getattr(whole.obligations, flag) >= getattr(alone.obligations, flag)
        cap, outer = whole.obligations.output_tokens_cap, alone.obligations.output_tokens_cap
        assert outer is None or (cap is not None and cap <= outer)


@BOUNDED
@given(levels=LEVELS, facts=requests())
def test_a_model_requested_by_name_is_never_opened_by_a_lower_level(
    levels: list[PolicyDocument], facts: Facts
) -> None:
    whole = decide(compose(levels), facts)
    for level in levels:
        auto = msgspec.structs.replace(facts, model_requested="auto")
        permitted = set(decide(level, auto).candidates)
        conditional = any("model_requested" in (c.when or "") for c in level.body.constraints)
        assert conditional or set(whole.candidates) <= permitted


def test_the_nearest_level_orders_and_the_stricter_defaults_count() -> None:
    above = document(
        {"when": "stream", "no_cache": True},
        preferences=({"order": ["frontier"]},),
        defaults={"output_tokens_max": 100, "order": ["cheapest"]},
    )
    below = document(
        {"when": "stream", "pseudonymise": True},
        preferences=({"when": "stream", "targets": ["managed-mid"]},),
        defaults={"output_tokens_max": 500, "when_requested_model_closed": "refuse"},
    )
    whole = compose([above, below])

    assert whole.body.defaults.output_tokens_max == 100
    assert whole.body.defaults.when_requested_model_closed == "refuse"
    assert [step.name for step in whole.constraints] == ["c0", "test/c0"]
    assert decide(whole, request(stream=True)).candidates[0] == "managed-mid"
    assert decide(whole, request()).candidates[0] == "managed-frontier"
    obligations = decide(whole, request(stream=True)).obligations
    assert (obligations.no_cache, obligations.pseudonymise) == (True, True)
    assert compose([above]) is above
    assert compose([above, below]).digest == whole.digest != above.digest


def test_names_stay_apart_however_often_they_are_used() -> None:
    same = document({"no_cache": True})
    names = [step.name for step in compose([same, same, same]).constraints]
    assert names == ["c0", "test/c0", "test/test/c0"]
    ordering = document(preferences=({"order": ["mid"]},))
    nearest_first = [step.name for step in compose([ordering, ordering]).preferences]
    assert nearest_first == ["test/p0", "p0"]


def test_no_rule_is_called_as_another_of_its_level_is() -> None:
    outer = document({"name": "a", "no_cache": True}, {"name": "x/a", "no_cache": True}, name="x")
    inner = document(
        {"name": "a", "require_approval": "Ask legal."},
        {"name": "x/a", "require_approval": "Ask finance."},
        {"name": "x/x/a", "no_cache": True},
        name="x",
    )

    whole = compose([outer, inner])
    names = [step.name for step in whole.constraints]

    assert names == ["a", "x/a", "x/x/x/a", "x/x/x/x/a", "x/x/a"]
    assert list(rule_names([outer.body, inner.body]).values()) == names[2:]
    for approved in (names[2:3], names[3:4]):
        labels = [f"approved:{name}" for name in approved]
        assert decide(whole, request(labels=labels)).refusal == "approval_required"
    both = [f"approved:{name}" for name in names[2:4]]
    assert decide(whole, request(labels=both)).effect == "allow"


def test_a_level_that_says_no_order_leaves_the_one_above_it() -> None:
    outer = document(defaults={"order": ["frontier"]})
    silent = document({"cap_output_tokens": 500})
    named = document(preferences=({"when": "stream", "targets": ["managed-mid"]},))
    inner = document(
        defaults={"order": ["mid"]}, preferences=({"when": "has_tools", "order": ["mid"]},)
    )

    assert decide(compose([outer, silent]), request()).candidates[0] == "managed-frontier"
    assert compose([outer, inner]).body.defaults.order == ("mid",)
    assert compose([outer, inner, silent]).body.defaults.order == ("mid",)
    assert compose([silent, named]).body.defaults == silent.body.defaults
    # What is said below changes no preference of a level above.
    (rule,) = compose([outer, named, inner]).body.preferences[1:]
    assert rule.order == ("frontier",)


def test_answers_are_given_again_no_longer_than_the_levels_above_let_them_be() -> None:
    outer = document(name="outer", defaults={"cache_s": 60}, preferences=({"order": ["mid"]},))
    inner = document(
        name="inner",
        defaults={"cache_s": 600},
        preferences=(
            {"order": ["cheap"], "cache_s": 600},
            {"order": ["mid"], "cache_s": 0, "when": "stream"},
        ),
    )

    whole = compose([outer, inner]).body

    assert whole.defaults.cache_s == 60
    assert [rule.cache_s for rule in whole.preferences] == [60, 0, None]
    loose = document(
        defaults={"cache_like_percent": 90.0},
        preferences=({"order": ["mid"], "cache_like_percent": 80.0},),
    )
    strict = document(name="strict", defaults={"cache_like_percent": 97.5})
    both = compose([strict, loose]).body
    assert both.defaults.cache_like_percent == 97.5
    assert [rule.cache_like_percent for rule in both.preferences] == [97.5]
    alone = compose([document(name="silent"), loose]).body
    assert [rule.cache_like_percent for rule in alone.preferences] == [80.0]
    # A preference that says nothing of the cache has what all levels together say.
    (rule,) = compose([strict, outer, document(preferences=({"order": ["mid"]},))]).preferences[:1]
    assert (rule.preference.cache_s, rule.preference.cache_like_percent) == (None, None)
    assert compose([document(name="silent"), inner]).body.preferences[0].cache_s == 600
