"""Tables say the same as the conditions they were made of, for any document and any request."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.expressions import compile_expression
from policies.facts import Facts
from policies.guards import atom_of, make_guard
from policies.language.parser import parse
from policies.limits import REMEMBERED_MASKS_MAX, REMEMBERED_TEXTS_MAX
from tests.policies.worlds import CONDITIONS, request, requests


ATOMS = (
    'data_class >= "S3"',
    '"S2" > data_class',
    'data_class != "S0"',
    'data_class in ["S1", "S3"]',
    'complexity_tier in ["cheap", "mid"]',
    "has_tools",
    "not stream",
    "stream == false",
    "has_images != true",
    'dialect == "openai_chat"',
    'model_requested in ["auto", "nobody"]',
    'startswith(model_requested, "auto")',
    'endswith(model_requested, "quality")',
    'contains(organisation, "a")',
    'matches(model_requested, "^managed-(mid|frontier)$")',
    '"restricted" in labels',
    '"b" in labels',
    "complexity > 0.5",
    "0.25 <= complexity",
    "hour_utc in [0, 1, 2, 23]",
    "hour_utc == 7",
    "hour_utc in [7, 23]",
    "weekday >= 5",
    "max_output_tokens > 1000",
    "budget_left_microusd < 5000",
    "budget_left_microusd == 9007199254740993",
    "findings.aadhaar > 0",
    "findings.pan <= 1",
    "findings.email == 2",
)
OTHERS = (
    "hour_utc != 7",
    "budget_left_microusd != 0",
    "findings.pan != 1",
    '"email" in findings',
    "has_tools or stream",
    "has_tools == stream",
    "not (has_tools and stream)",
    'not startswith(model_requested, "auto")',
    'dialect != "openai_chat"',
    "startswith(model_requested, dialect)",
    'headers.x_team == "red"',
    "max_output_tokens >= input_tokens_estimate",
    "true",
    "size(labels) > 1",
)


def naive(conditions: list[str | None], facts: Facts) -> int:
    """Every rule asked by itself."""
    return sum(
        1 << place
        for place, when in enumerate(conditions)
        if when is None or compile_expression(when).holds(facts)
    )


@pytest.mark.parametrize("text", ATOMS)
def test_what_a_table_can_say_is_no_condition_any_more(text: str) -> None:
    assert atom_of(parse(text)) is not None
    assert not make_guard([text]).rests


@pytest.mark.parametrize("text", OTHERS)
def test_everything_else_is_still_asked(text: str) -> None:
    assert atom_of(parse(text)) is None
    assert make_guard([text]).rests


CONJUNCTIONS = st.lists(
    st.sampled_from([*ATOMS, *OTHERS, *CONDITIONS]), min_size=1, max_size=4
).map(lambda parts: " and ".join(f"({part})" for part in parts))


@settings(max_examples=60)
@given(
    conditions=st.lists(st.none() | CONJUNCTIONS, max_size=12),
    asked=st.lists(requests(), min_size=1, max_size=4),
)
def test_tables_and_conditions_agree(conditions: list[str | None], asked: list[Facts]) -> None:
    guard = make_guard(conditions)
    for facts in [*asked, *asked]:
        expected = naive(conditions, facts)
        assert guard.matching(facts) == expected
        assert guard.first(facts) == expected & -expected


def test_several_questions_about_one_fact_are_one_table() -> None:
    conditions: list[str | None] = [
        'model_requested == "auto" and startswith(model_requested, "a")',
        'model_requested == "auto" and startswith(model_requested, "b")',
        'model_requested in ["auto", "b"] and model_requested in ["b", "c"]',
        "hour_utc >= 9 and hour_utc < 17 and hour_utc in [8, 9, 17]",
        "hour_utc > 9 and hour_utc < 9",
    ]
    guard = make_guard(conditions)
    assert not guard.rests
    for model in ("auto", "b", "c", "x"):
        for hour in range(24):
            facts = request(model_requested=model, hour_utc=hour)
            assert guard.matching(facts) == naive(conditions, facts)


def test_a_part_of_a_text_is_looked_for_where_it_has_to_stand_and_is_no_pattern() -> None:
    functions = ("startswith", "endswith", "contains")
    conditions: list[str | None] = [f'{each}(project, "a.b")' for each in functions]
    guard = make_guard(conditions)
    assert not guard.rests
    for project, holds in (("a.b", 7), ("a.bc", 5), ("ca.b", 6), ("ca.bc", 4), ("aXb", 0)):
        facts = request(project=project)
        assert guard.matching(facts) == naive(conditions, facts) == holds


PAIRS = [f"{one} and {other}" for one in ATOMS for other in ATOMS]
PAIRS_GUARD = make_guard(PAIRS)


@settings(max_examples=40)
@given(requests())
def test_any_two_questions_of_one_rule_must_both_hold(asked: Facts) -> None:
    holding = {text for text in ATOMS if compile_expression(text).holds(asked)}
    expected = [one in holding and other in holding for one in ATOMS for other in ATOMS]
    mask = PAIRS_GUARD.matching(asked)
    assert [bool(mask >> place & 1) for place in range(len(PAIRS))] == expected


def test_numbers_beyond_a_floats_digits_stay_apart() -> None:
    conditions: list[str | None] = [
        "budget_left_microusd == 9007199254740993",
        "budget_left_microusd > 9007199254740992",
    ]
    guard = make_guard(conditions)
    for value in (9007199254740992, 9007199254740993, 9007199254740994, None):
        facts = msgspec.structs.replace(request(), budget_left_microusd=value)
        assert guard.matching(facts) == naive(conditions, facts)


def test_what_is_no_number_is_like_no_number() -> None:
    conditions: list[str | None] = ["complexity > 0.5", "complexity <= 0.5", "complexity != 0.5"]
    facts = msgspec.structs.replace(request(), complexity=float("nan"))
    assert make_guard(conditions).matching(facts) == naive(conditions, facts) == 0b100


def test_what_was_found_in_texts_is_remembered_within_bounds() -> None:
    conditions: list[str | None] = ['matches(model_requested, "7$")', 'model_requested == "m-7"']
    guard = make_guard(conditions)
    for number in range(REMEMBERED_TEXTS_MAX + 9):
        facts = request(model_requested=f"m-{number}")
        assert guard.matching(facts) == naive(conditions, facts)
    facts = request(model_requested="x" * 1_000 + "7")
    assert guard.matching(facts) == guard.matching(facts) == 0b01


@pytest.mark.parametrize("first", [False, True])
def test_what_was_let_through_is_remembered_by_all_that_it_hangs_on(first: bool) -> None:
    conditions: list[str | None] = [*ATOMS]
    guard = make_guard(conditions)
    seen = [request(inspection_complete=each, data_class="S1") for each in (first, not first)]
    assert [guard.matching(facts) for facts in seen] == [naive(conditions, facts) for facts in seen]


def test_what_was_let_through_is_remembered_within_bounds() -> None:
    guard = make_guard(['workspace == "w-7"'])
    for number in range(REMEMBERED_MASKS_MAX + 9):
        guard.matching(request(workspace=f"w-{number}"))
        assert len(guard.known) <= REMEMBERED_MASKS_MAX
    assert guard.matching(request(workspace="w-7")) == 0b1


def test_of_rules_that_no_table_can_tell_apart_the_first_that_holds_is_found() -> None:
    guard = make_guard(["size(labels) > 3", "size(labels) > 0", None])
    assert guard.first(request(labels=["a"])) == 0b10
    assert guard.first(request()) == 0b100
    assert make_guard(["size(labels) > 3"]).first(request()) == 0
