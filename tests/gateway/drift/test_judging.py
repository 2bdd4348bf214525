"""Drift: chance and habit raise no alarm, a true change does, and says what moved."""

import random
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.clock import DAY_US, HOUR_US
from gateway.configuration.sections import WINDOW_LEAST
from gateway.drift.judging import (
    DAYS,
    REFERENCE_LEAST,
    WINDOWS_LEAST,
    Z_LEAST,
    Rules,
    Verdict,
    judge,
    reference_hours,
)
from gateway.drift.profiles import FEATURES, Profile, added


LAWS: Mapping[str, Sequence[float]] = {
    "tokens": (0.10, 0.20, 0.20, 0.20, 0.16, 0.10, 0.03, 0.01, 0.0),
    "class": (0.50, 0.30, 0.15, 0.04, 0.01),
}
RULES = Rules()
MONTH_HOURS = 30 * 24


def sample(
    draw: random.Random, count: int, laws: Mapping[str, Sequence[float]] = LAWS, together: int = 1
) -> Profile:
    """Requests by these laws; `together` of them are one conversation, alike in all."""
    profile = Profile(count)
    for feature, law in laws.items():
        for number in draw.choices(range(len(law)), law, k=-(-count // together)):
            name = str(number) if feature == "tokens" else f"S{number}"
            for _ in range(together):
                profile.mark(feature, name)
    return profile


def moved_by(share: float, at: int, feature: str = "tokens") -> Mapping[str, Sequence[float]]:
    """The laws, with so much of one taken evenly from all bins and put into one."""
    law = [part * (1 - share) for part in LAWS[feature]]
    law[at] += share
    return {**LAWS, feature: law}


def looked_at(now: Profile, windows: Sequence[Profile]) -> Verdict:
    return judge("prompts", now, windows, RULES)


def test_a_change_is_told_in_words_and_shares() -> None:
    draw = random.Random(1)
    windows = [sample(draw, 400) for _ in range(DAYS)]
    verdict = looked_at(sample(draw, 400, moved_by(0.28, at=6)), windows)

    assert verdict.state == "drifted"
    assert [shift.feature for shift in verdict.shifts if shift.is_drift] == ["tokens"]
    assert verdict.said.startswith("prompts over 8,000 tokens: 3")
    assert "% instead of " in verdict.said
    assert verdict.said.count("instead of") == 1


def test_words_are_told_by_the_one_that_moved_most() -> None:
    draw = random.Random(2)
    windows = [sample(draw, 400) for _ in range(DAYS)]
    verdict = looked_at(sample(draw, 400, moved_by(0.2, at=4, feature="class")), windows)

    assert verdict.said.startswith("prompts of class S4: ")


def month(seed: int, *, together: int = 1, volume: int = 250) -> int:
    """Alarms, each two looks in a row, in a month of hourly looks at traffic that stays the same.

    Week-ends are other than weekdays, and days are of a mood of their own.
    """
    draw = random.Random(seed)
    hours: dict[int, Profile] = {}
    laws: Mapping[str, Sequence[float]] = LAWS
    for hour in range(DAYS * 24 + MONTH_HOURS):
        day = hour // 24
        if hour % 24 == 0:
            mood = draw.uniform(0, 0.06) + (0.1 if day % 7 > 4 else 0.0)
            laws = moved_by(mood, at=draw.randrange(7))
        hours[hour] = sample(draw, round(volume * draw.uniform(0.8, 1.2)), laws, together)
    alarms = row = 0
    for hour in range(DAYS * 24, DAYS * 24 + MONTH_HOURS):
        windows = [hours[hour - 24 * day] for day in range(1, DAYS + 1)]
        is_drift = looked_at(hours[hour], windows).state == "drifted"
        row = row + 1 if is_drift else 0
        alarms += row == 2
    return alarms


def test_traffic_that_stays_the_same_alarms_at_most_once_a_month() -> None:
    """`benchmarks/drift.py` asks the same of more months and more kinds of traffic."""
    found = [month(seed, together=together) for seed, together in ((1, 1), (2, 5))]

    assert max(found) <= 1
    assert sum(found) <= 1


@pytest.mark.parametrize(("volume", "together", "share"), [(250, 1, 0.25), (1_200, 3, 0.2)])
def test_a_shift_of_a_quarter_is_found_in_an_hour_and_a_smaller_one_in_more(
    volume: int, together: int, share: float
) -> None:
    found = 0
    for seed in range(20):
        draw = random.Random(seed)
        windows = [sample(draw, volume, together=together) for _ in range(DAYS)]
        now = sample(draw, volume, moved_by(share, at=6), together=together)
        found += looked_at(now, windows).state == "drifted"

    assert found >= 19


def test_what_was_seen_on_some_day_before_is_no_news() -> None:
    draw = random.Random(3)
    strange = moved_by(0.3, at=6)
    windows = [sample(draw, 400, strange if day == 9 else LAWS) for day in range(DAYS)]

    assert looked_at(sample(draw, 400, moved_by(0.2, at=6)), windows).state == "steady"
    assert looked_at(sample(draw, 400, moved_by(0.6, at=6)), windows).state == "drifted"


def test_few_requests_or_few_days_say_nothing() -> None:
    draw = random.Random(4)
    windows = [sample(draw, 400) for _ in range(DAYS)]
    strange = moved_by(0.9, at=6)

    assert looked_at(sample(draw, RULES.count_least - 1, strange), windows).state == "quiet"
    few = windows[: WINDOWS_LEAST - 1]
    assert looked_at(sample(draw, 400, strange), few).state == "learning"
    small = [sample(draw, 60) for _ in range(WINDOWS_LEAST)]
    assert added(small).count < REFERENCE_LEAST
    assert looked_at(sample(draw, 400, strange), small).state == "learning"


profiles = st.builds(
    Profile,
    st.integers(0, 5_000),
    st.dictionaries(
        st.sampled_from([feature.name for feature in FEATURES["prompts"]]),
        st.dictionaries(
            st.sampled_from([*map(str, range(9)), "other", "EMAIL"]), st.integers(1, 2_000)
        ),
    ),
)


@given(profiles, st.lists(profiles, max_size=DAYS))
def test_any_counts_have_a_verdict_and_no_index_is_negative(
    now: Profile, windows: list[Profile]
) -> None:
    verdict = looked_at(now, windows)

    assert all(shift.index >= 0 and shift.usual >= 0 for shift in verdict.shifts)
    assert (verdict.state == "drifted") == any(shift.is_drift for shift in verdict.shifts)


@given(profiles, st.lists(profiles, min_size=WINDOWS_LEAST, max_size=12))
def test_the_order_of_days_and_of_bins_does_not_matter(
    now: Profile, windows: list[Profile]
) -> None:
    def turned(profile: Profile) -> Profile:
        bins = {name: dict(reversed(found.items())) for name, found in profile.bins.items()}
        return Profile(profile.count, dict(reversed(bins.items())))

    one, other = looked_at(now, windows), looked_at(turned(now), [*map(turned, windows[::-1])])
    assert one.state == other.state
    for mine, theirs in zip(one.shifts, other.shifts, strict=True):
        assert (mine.feature, mine.is_drift) == (theirs.feature, theirs.is_drift)
        assert mine.index == pytest.approx(theirs.index, abs=2e-4)


@given(profiles)
def test_a_profile_does_not_drift_from_itself(profile: Profile) -> None:
    assert looked_at(profile, [profile] * WINDOWS_LEAST).state != "drifted"


NOW_US = 100 * DAY_US + 13 * HOUR_US


def test_a_reference_is_the_same_hours_of_four_weeks() -> None:
    windows = reference_hours(NOW_US, 6, until_us=NOW_US)

    assert len(windows) == DAYS
    assert windows[0] == tuple(NOW_US - DAY_US + hour * HOUR_US for hour in range(-6, 0))
    assert {window[0] % DAY_US for window in windows} == {7 * HOUR_US}


def test_a_reference_ends_where_a_drift_began_and_starts_where_one_was_accepted() -> None:
    began_us = NOW_US - 3 * DAY_US - 2 * HOUR_US
    windows = reference_hours(NOW_US, 1, until_us=began_us, since_us=NOW_US - 20 * DAY_US)

    assert max(window[-1] for window in windows) + HOUR_US <= began_us
    assert min(window[0] for window in windows) >= NOW_US - 20 * DAY_US
    assert len(windows) == 16


def test_times_of_other_drifts_are_left_out() -> None:
    gone = (NOW_US - 5 * DAY_US - HOUR_US // 2, NOW_US - 4 * DAY_US)
    windows = reference_hours(NOW_US, 1, until_us=NOW_US, without=[gone])

    assert len(windows) == DAYS - 2
    touched = {NOW_US - day * DAY_US - HOUR_US for day in (4, 5)}
    assert touched.isdisjoint(window[0] for window in windows)


def exact(scale: int, **shares: float) -> Profile:
    """So many requests, by class."""
    bins = {name: round(scale * share) for name, share in shares.items() if share}
    return Profile(scale, {"class": bins})


def test_a_difference_beyond_chance_that_is_small_is_no_drift() -> None:
    windows = [exact(20_000, S0=0.5, S1=0.5) for _ in range(DAYS)]
    verdict = looked_at(exact(20_000, S0=0.56, S1=0.44), windows)
    (shift,) = verdict.shifts
    assert shift.z > Z_LEAST
    assert shift.index > shift.usual
    assert (verdict.state, shift.index < RULES.index_least) == ("steady", True)


def test_what_days_differ_by_among_each_other_is_habit() -> None:
    moods = (0.25, 0.75)
    windows = [exact(2_000, S0=moods[day % 2], S1=1 - moods[day % 2]) for day in range(DAYS)]
    verdict = looked_at(exact(2_000, S0=0.8, S1=0.2), windows)
    (shift,) = verdict.shifts
    assert shift.index > max(shift.usual, RULES.index_least)
    assert (verdict.state, shift.z < Z_LEAST) == ("steady", True)


def test_a_handful_beyond_a_tail_is_put_together_with_its_neighbours() -> None:
    windows = [Profile(400, {"tokens": {"0": 200, "1": 200}}) for _ in range(DAYS)]
    now = Profile(400, {"tokens": {"0": 200, "1": 188, "8": 12}})
    assert looked_at(now, windows).state == "steady"
    many = Profile(400, {"tokens": {"0": 200, "1": 0, "8": 200}})
    assert looked_at(many, windows).said.startswith("prompts over")


def test_what_drifted_comes_first_and_then_what_moved_more() -> None:
    laws = {"class": ("S0", "S1"), "dialect": ("a", "b"), "domain": ("x", "y")}

    def split(**shares: float) -> Profile:
        bins = {
            name: {one: round(1_000 * shares[name]), other: 1_000 - round(1_000 * shares[name])}
            for name, (one, other) in laws.items()
        }
        return Profile(1_000, bins)

    windows = [split(**{"class": 0.5}, dialect=0.5, domain=0.5) for _ in range(DAYS)]
    verdict = looked_at(split(**{"class": 0.8}, dialect=0.9, domain=0.52), windows)
    found = [(shift.feature, shift.is_drift) for shift in verdict.shifts]
    assert found == [("dialect", True), ("class", True), ("domain", False)]


def test_days_with_few_requests_are_no_part_of_a_reference() -> None:
    full = [exact(WINDOW_LEAST * 4, S0=0.5, S1=0.5) for _ in range(WINDOWS_LEAST)]
    thin = [exact(WINDOW_LEAST - 1, S0=1.0) for _ in range(5)]
    verdict = looked_at(exact(400, S0=0.5, S1=0.5), [*thin, *full])
    assert (verdict.state, verdict.days, verdict.reference) == ("steady", WINDOWS_LEAST, 1_400)


def test_a_drift_that_ended_as_a_window_began_does_not_touch_it() -> None:
    start_us = NOW_US - 5 * DAY_US - HOUR_US
    for gone in ((start_us - HOUR_US, start_us), (start_us + HOUR_US, start_us + 2 * HOUR_US)):
        assert len(reference_hours(NOW_US, 1, until_us=NOW_US, without=[gone])) == DAYS
