"""Unusual days: found where a weekday costs far more than its own past, and never without one."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.drift.anomalies import (
    EXCESS_MIN_MICROUSD,
    SAMPLES_MIN,
    WEEKS,
    unusual,
    weeks_before,
)


TUESDAY = date(2026, 11, 17)
DOLLAR = 1_000_000
costs = st.integers(0, 10**12)
spent = st.integers(1, 10**12)
pasts = st.lists(costs, max_size=WEEKS)


def test_a_dear_tuesday_is_told_in_words_beside_what_a_tuesday_costs() -> None:
    before = [90, 100, 110, 95, 105, 100, 98, 102]
    found = unusual(TUESDAY, 320 * DOLLAR, [cost * DOLLAR for cost in before])
    assert found is not None
    assert found.words == "3.2 times what a Tuesday costs"
    assert found.usual_microusd == 100 * DOLLAR
    assert found.samples == len(before)


@pytest.mark.parametrize(
    ("before", "bound"),
    [
        ([1, 1, 1, 1, 1], 6),  # the least excess
        ([100, 100, 100, 100], 150),  # noticeably more
        ([40, 80, 120, 160, 200], 120 + 4 * 1.4826 * 40),  # spread
        ([0, 0, 0, 40, 40, 40, 40, 400], 60),  # one odd day decides nothing
    ],
)
def test_each_of_the_rules_of_a_day_has_its_say(before: list[int], bound: float) -> None:
    past, least = [cost * DOLLAR for cost in before], round(bound * DOLLAR)
    assert unusual(TUESDAY, least, past) is None, "the bound itself is not unusual yet"
    found = unusual(TUESDAY, least + 1, past)
    assert found is not None
    assert found.bound_microusd == least


def test_every_weekday_has_its_name_and_four_of_them_are_enough() -> None:
    found = [unusual(TUESDAY + timedelta(days), 320 * DOLLAR, [DOLLAR] * 4) for days in range(7)]
    words = [each.words.rpartition(" a ")[2] for each in found if each is not None]
    assert " ".join(words) == (
        "Tuesday costs Wednesday costs Thursday costs Friday costs Saturday costs Sunday costs"
        " Monday costs"
    )


def test_where_a_weekday_usually_costs_nothing_that_is_said() -> None:
    found = unusual(TUESDAY, 60 * DOLLAR, [DOLLAR, 0, 0, 0, 0, 0, 0, 0])
    assert found is not None
    assert (found.usual_microusd, found.times) == (0, 0.0)
    assert found.words == "a Tuesday usually costs nothing"


@given(st.dates(date(2020, 1, 1), date(2040, 1, 1)))
def test_a_day_is_compared_with_its_own_weekday_of_the_weeks_before(day: date) -> None:
    before = weeks_before(day)
    assert len(before) == WEEKS
    assert {each.weekday() for each in before} == {day.weekday()}
    assert before == tuple(sorted(before))
    assert day - before[-1] == timedelta(weeks=1)


@given(costs, st.lists(costs, max_size=SAMPLES_MIN - 1), st.integers(0, WEEKS))
def test_little_history_never_makes_a_day_unusual(cost: int, known: list[int], gap: int) -> None:
    """Weeks before a group cost anything are no history of it."""
    assert unusual(TUESDAY, cost, [0] * gap + known) is None or len(known) >= SAMPLES_MIN
    assert unusual(TUESDAY, cost, [0] * WEEKS) is None


@given(costs, pasts)
def test_what_is_unusual_is_dearer_by_the_floor_by_half_and_than_half_of_its_past(
    cost: int, past: list[int]
) -> None:
    found = unusual(TUESDAY, cost, past)
    if found is not None:
        assert cost - found.usual_microusd >= EXCESS_MIN_MICROUSD - 1
        assert cost >= 1.5 * found.usual_microusd - 1
        assert 2 * sum(each < cost for each in past) >= found.samples


@given(costs, st.lists(spent, min_size=SAMPLES_MIN, max_size=WEEKS), costs)
def test_what_costs_more_than_an_unusual_day_is_unusual_too(
    cost: int, past: list[int], more: int
) -> None:
    if unusual(TUESDAY, cost, past) is not None:
        assert unusual(TUESDAY, cost + more, past) is not None


@given(costs, st.lists(spent, min_size=SAMPLES_MIN, max_size=WEEKS), st.randoms())
def test_the_order_of_the_weeks_does_not_matter(cost: int, past: list[int], draw: object) -> None:
    mixed = list(past)
    draw.shuffle(mixed)  # type: ignore[attr-defined]
    assert unusual(TUESDAY, cost, mixed) == unusual(TUESDAY, cost, past)


@given(st.integers(10 * DOLLAR, 10**9), costs, st.integers(0, WEEKS - 1))
def test_one_odd_day_in_the_past_hides_nothing_and_makes_nothing(
    usual: int, odd: int, place: int
) -> None:
    past = [usual] * WEEKS
    past[place] = odd + 1
    assert unusual(TUESDAY, usual, past) is None
    assert unusual(TUESDAY, 3 * usual, past) is not None


@pytest.mark.parametrize(
    ("cost", "is_found"), [(14_999_999, False), (15_000_000, False), (15_000_001, True)]
)
def test_the_bound_itself_is_not_unusual_yet(cost: int, is_found: bool) -> None:
    assert (unusual(TUESDAY, cost, [10 * DOLLAR] * 4) is not None) is is_found
