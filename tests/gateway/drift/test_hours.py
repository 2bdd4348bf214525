"""Unusual hours: found where an hour costs far more than the same hour of the weeks before."""

import random
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import HOUR_US
from gateway.drift.hours import DAYS, SAMPLES_MIN, Judged, explains, hours_before, judged


DOLLAR = 1_000_000
FLOOR = 5 * DOLLAR
costs = st.integers(0, 10**12)
spent = st.integers(1, 10**12)
pasts = st.lists(costs, max_size=15)
full = st.lists(spent, min_size=SAMPLES_MIN, max_size=15)
zones = st.sampled_from(
    ["UTC", "Asia/Kolkata", "Europe/Berlin", "America/St_Johns", "Pacific/Apia"]
)
moments = st.integers(1_500_000_000 // 3600, 2_500_000_000 // 3600).map(lambda n: n * HOUR_US)


def test_a_dear_hour_is_told_with_the_figures_it_was_judged_by() -> None:
    before = [cost * DOLLAR for cost in (9, 10, 11, 10, 8, 12, 10, 9, 10, 11, 10, 10, 9, 10, 11)]
    found = judged(48 * DOLLAR, before, FLOOR)
    assert found is not None
    assert (found.usual_microusd, found.spread_microusd, found.samples) == (
        *(10 * DOLLAR, DOLLAR, 15),
    )
    assert found.bound_microusd == 22 * DOLLAR, "twice the second largest"
    assert found.excess_microusd == 38 * DOLLAR


@pytest.mark.parametrize(
    ("before", "bound"),
    [
        ([1, 1, 1, 1, 1], 6),  # the floor
        ([10, 10, 40, 10, 10, 10], 20),  # one odd day decides nothing
        ([10, 10, 40, 40, 10, 10, 10], 80),  # two are usual
        ([4, 8, 12, 16, 20], 12 + 5 * 1.4826 * 4),  # spread
        ([0, 0, 7, 0, 0, 0, 0, 0], 5),
        ([0, 1, 1, 1, 1], 6),  # four days are enough
    ],
)
def test_each_of_the_rules_has_its_say(before: list[int], bound: float) -> None:
    past, least = [cost * DOLLAR for cost in before], round(bound * DOLLAR)
    assert judged(least, past, FLOOR) is None, "the bound itself is not unusual yet"
    found = judged(least + 1, past, FLOOR)
    assert found is not None
    assert found.bound_microusd == least


@given(costs, st.lists(costs, max_size=SAMPLES_MIN - 1), st.integers(0, 12))
def test_little_history_never_makes_an_hour_unusual(cost: int, known: list[int], gap: int) -> None:
    """Days before a group cost anything are no history of it."""
    assert judged(cost, [0] * gap + [1, *known][: SAMPLES_MIN - 1], FLOOR) is None
    assert judged(cost, [0] * 15, FLOOR) is None


@given(costs, pasts, st.integers(1, 10**9))
def test_what_is_unusual_is_dearer_by_the_floor_and_twice_all_but_one_of_its_past(
    cost: int, past: list[int], floor: int
) -> None:
    found = judged(cost, past, floor)
    if found is not None:
        assert cost - found.usual_microusd >= floor - 1
        assert sum(2 * each >= cost for each in past) <= 1
        assert found.samples >= SAMPLES_MIN
        assert cost > found.bound_microusd - 1


@given(costs, full, costs)
def test_what_costs_more_than_an_unusual_hour_is_unusual_too(
    cost: int, past: list[int], more: int
) -> None:
    if judged(cost, past, FLOOR) is not None:
        assert judged(cost + more, past, FLOOR) is not None


@given(costs, full, st.randoms(), st.integers(2, 1_000))
def test_neither_the_order_of_days_nor_the_unit_of_money_matters(
    cost: int, past: list[int], draw: object, times: int
) -> None:
    mixed = list(past)
    draw.shuffle(mixed)  # type: ignore[attr-defined]
    first = judged(cost, past, FLOOR)
    assert judged(cost, mixed, FLOOR) == first
    scaled = judged(cost * times, [each * times for each in past], FLOOR * times)
    assert (scaled is None) is (first is None)


@given(st.integers(10 * DOLLAR, 10**9), costs, st.integers(0, 14))
def test_one_odd_day_in_the_past_hides_nothing_and_makes_nothing(
    usual: int, odd: int, place: int
) -> None:
    past = [usual] * 15
    past[place] = odd + 1
    assert judged(usual, past, FLOOR) is None
    assert judged(3 * usual, past, FLOOR) is not None


@given(moments, zones)
def test_an_hour_is_compared_with_the_same_hour_of_the_same_kind_of_days(
    hour_us: int, name: str
) -> None:
    zone = ZoneInfo(name)
    local = datetime.fromtimestamp(hour_us / 1e6, zone)
    before = hours_before(hour_us, zone)
    days = [datetime.fromtimestamp(each / 1e6, zone) for each in before]
    assert len(before) in ((6,) if local.weekday() >= 5 else (15,))
    assert before == tuple(sorted(set(before)))
    assert all(each % HOUR_US == 0 for each in before)
    assert hour_us - before[0] <= (DAYS * 24 + 25) * HOUR_US
    assert {each.weekday() >= 5 for each in days} == {local.weekday() >= 5}
    apart = {(each.hour - local.hour) % 24 for each in days}
    # The hour that summer time leaves out is told as the one beside it.
    assert apart <= {0, 1, 23}


def test_across_a_change_of_summer_time_the_clock_on_the_wall_says_which_hour_is_the_same() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    monday = datetime(2026, 3, 30, 9, tzinfo=berlin)  # summer time began on Sunday
    before = hours_before(int(monday.timestamp()) * 1_000_000, berlin)
    told = [datetime.fromtimestamp(each / 1e6, berlin).strftime("%H:%M") for each in before]
    assert set(told) == {"09:00"}
    assert {datetime.fromtimestamp(each / 1e6, UTC).hour for each in before} == {8}
    assert monday.astimezone(UTC).hour == 7


def test_a_part_explains_a_whole_where_it_makes_half_of_what_was_too_much() -> None:
    def hour(cost: int) -> Judged:
        return Judged(cost, 10, 1, 20, 15)

    assert explains(hour(60), hour(110))
    assert not explains(hour(59), hour(110))


def share_found(scatter: float, *, times: float = 1, asks: float = 1, count: int = 4_000) -> float:
    """Of made-up hours of 20 dollars, a quarter of it at weekends: the share that is unusual."""
    draw, found = random.Random(f"{scatter} {times} {asks}"), 0

    def cost(day: int) -> int:
        if draw.random() >= asks:
            return 0
        usual = 20 * DOLLAR * (0.25 if day % 7 >= 5 else 1)
        return round(usual * draw.lognormvariate(0, scatter))

    for number in range(count):
        today = DAYS + number % 7
        is_weekend = today % 7 >= 5
        days = [day for day in range(today - DAYS, today) if (day % 7 >= 5) == is_weekend]
        past = [cost(day) for day in days]
        found += judged(round(cost(today) * times), past, FLOOR) is not None
    return found / count


@pytest.mark.parametrize(
    ("scatter", "ordinary", "four_times", "ten_times"),
    [(0.2, 0.001, 0.95, 0.99), (0.4, 0.01, 0.6, 0.98), (0.7, 0.04, 0.38, 0.78)],
)
def test_ordinary_hours_are_rarely_found_and_hours_many_times_as_dear_mostly(
    scatter: float, ordinary: float, four_times: float, ten_times: float
) -> None:
    assert share_found(scatter) <= ordinary
    assert share_found(scatter, times=4) >= four_times
    assert share_found(scatter, times=10) >= ten_times
    assert share_found(0.4, asks=1 / 3) <= 0.05
