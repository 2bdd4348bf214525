"""How long an answer may be given again is never more than a level above says by itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.decide import decide
from policies.document import Defaults
from policies.facts import Facts
from policies.hierarchy import compose
from policies.program import PolicyDocument
from policies.repeating import repeating
from tests.policies.worlds import document, request


LATELY = {"when": "stream", "order": ["mid"]}
"""Matches as the first one, and says nothing of the cache."""


def said(*levels: PolicyDocument, **fields: object) -> int | None:
    return holding(levels, request(**fields)).cache_s


def holding(levels: tuple[PolicyDocument, ...], facts: Facts) -> Defaults:
    whole = compose(levels)
    return repeating(whole, facts, decide(whole, facts))


def test_a_documents_own_preference_goes_before_its_default() -> None:
    alone = document(
        defaults={"cache_s": 60, "cache_like_percent": 90.0},
        preferences=(
            {"when": "stream", "order": ["mid"], "cache_s": 600, "cache_like_percent": 80.0},
            {"when": "has_tools", "order": ["mid"], "cache_s": 0},
        ),
    )
    assert holding((alone,), request(stream=True)) == Defaults(cache_s=600, cache_like_percent=80.0)
    assert said(alone, has_tools=True) == 0
    assert holding((alone,), request()) == Defaults(cache_s=60, cache_like_percent=90.0)
    assert said(document()) is None


def test_a_level_below_that_wants_no_answer_again_gets_none() -> None:
    outer = document(name="outer", preferences=({"order": ["mid"], "cache_s": 600},))
    assert said(outer, document(defaults={"cache_s": 0})) == 0
    assert said(outer, document(defaults={"cache_s": 60})) == 60
    assert said(outer, document(defaults={"cache_s": 6000})) == 600
    assert said(outer, document({"no_cache": True, "when": "stream"})) == 600


@pytest.mark.parametrize("below", [LATELY, {**LATELY, "cache_s": 900}])
def test_what_a_preference_above_keeps_from_being_given_again_stays_so(
    below: dict[str, object],
) -> None:
    outer = document(
        name="outer",
        defaults={"cache_s": 900},
        preferences=({"when": 'data_class >= "S2"', "order": ["mid"], "cache_s": 0},),
    )
    inner = document(preferences=(below,))

    assert said(outer, data_class="S2") == 0
    assert said(outer, inner, data_class="S2", stream=True) == 0
    assert said(outer, inner, data_class="S1", stream=True) == 900


def test_a_preference_below_that_says_nothing_opens_no_cache() -> None:
    outer = document(name="outer", preferences=({"order": ["mid"], "cache_s": 600},))
    assert said(outer, document(preferences=(LATELY,)), stream=True) is None


def test_a_route_of_one_level_is_looked_at_by_the_others_as_any_request() -> None:
    outer = document(
        name="outer",
        preferences=(
            {"route": "quality", "order": ["frontier"], "cache_s": 30},
            {"order": ["mid"], "cache_s": 60},
        ),
    )
    routed = {"order": ["cheap"], "cache_s": 900}
    fast = document(preferences=({"route": "fast", **routed},))
    quality = document(preferences=({"route": "quality", **routed},))

    assert said(outer, fast, model_requested="auto:fast") == 60
    assert said(outer, quality, model_requested="auto:quality") == 30


def test_questions_in_other_words_are_as_near_as_the_strictest_level_wants_them() -> None:
    outer = document(
        name="outer",
        preferences=({"order": ["mid"], "cache_s": 60, "cache_like_percent": 99.0},),
    )
    loose = {"cache_s": 60, "cache_like_percent": 80.0}
    inner = document(preferences=({"order": ["cheap"], **loose},))
    silent = document(preferences=({"order": ["cheap"], "cache_s": 60},))

    assert holding((outer, inner), request()).cache_like_percent == 99.0
    assert holding((outer, silent), request()).cache_like_percent is None
    strict = document(defaults={"cache_like_percent": 99.5})
    assert holding((outer, strict), request()).cache_like_percent == 99.5


SPANS = st.none() | st.sampled_from([0, 30, 60, 600])
WHENS = st.sampled_from([None, "stream", "has_tools", "not stream and has_tools"])


@st.composite
def keeping(draw: st.DrawFn) -> PolicyDocument:
    rules = []
    for when, span_s in draw(st.lists(st.tuples(WHENS, SPANS), max_size=3)):
        fields = {"when": when, "cache_s": span_s}
        written = {key: value for key, value in fields.items() if value is not None}
        rules.append({"order": ["mid"], **written})
    default = draw(SPANS)
    return document(
        defaults={} if default is None else {"cache_s": default}, preferences=tuple(rules)
    )


@given(
    levels=st.lists(keeping(), min_size=1, max_size=3),
    stream=st.booleans(),
    has_tools=st.booleans(),
)
def test_no_answer_is_given_again_longer_than_each_level_would_by_itself(
    levels: list[PolicyDocument], stream: bool, has_tools: bool
) -> None:
    """Told without guards and composition: the first rule of a level that holds, else its own."""
    holds_of = {
        None: True,
        "stream": stream,
        "has_tools": has_tools,
        "not stream and has_tools": not stream and has_tools,
    }
    bounds = []
    for level in levels:
        body = level.body
        first = next((each for each in body.preferences if holds_of[each.when]), None)
        own = None if first is None else first.cache_s
        bounds.append(body.defaults.cache_s if own is None else own)
    span_s = said(*levels, stream=stream, has_tools=has_tools)

    assert not span_s or all(bound is None or span_s <= bound for bound in bounds)
    assert len(levels) > 1 or span_s == bounds[0]
