"""Rests that end together: at moments of one grid, each near to where it would have ended."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pacing.moments import EVERY_S, rung, until_moment_s


times = st.floats(0.0, 10_000_000.0)
rests = st.floats(EVERY_S, 10_000.0)


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time is whatever it is told."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s


def ends_s(now_s: float, rest_s: float) -> float:
    """When a rest ends that begins at this time."""

    async def asked() -> float:
        return until_moment_s(rest_s)

    loop = Clock()
    loop.now_s = now_s
    try:
        return now_s + loop.run_until_complete(asked())
    finally:
        loop.close()


@given(times, rests)
def test_a_rest_ends_near_to_where_it_would_have(now_s: float, rest_s: float) -> None:
    ended_s = ends_s(now_s, rest_s)

    assert abs(ended_s - (now_s + rest_s)) <= EVERY_S / 2 + 1e-6
    assert ended_s > now_s


@given(times, rests, times, rests)
def test_all_rests_end_at_moments_of_one_grid(
    one_s: float, first_s: float, other_s: float, second_s: float
) -> None:
    apart = (ends_s(one_s, first_s) - ends_s(other_s, second_s)) / EVERY_S

    assert abs(apart - round(apart)) < 1e-5


@given(times, st.floats(0.0, EVERY_S, exclude_max=True))
def test_a_rest_shorter_than_the_grid_stays_as_it_is(now_s: float, rest_s: float) -> None:
    assert ends_s(now_s, rest_s) == pytest.approx(now_s + rest_s)


def test_a_duty_that_takes_no_time_keeps_its_rhythm() -> None:
    now_s, seen = 1_000.0, []
    for _ in range(40):
        now_s = ends_s(now_s, 1.0)
        seen.append(now_s)

    assert [round(later - before, 6) for before, later in pairwise(seen)] == [1.0] * 39


@pytest.mark.anyio
async def test_a_bell_rings_at_the_end_of_a_rest_if_nobody_rings_it() -> None:
    bell = asyncio.Event()

    await rung(bell, 0.01)

    assert bell.is_set()


@pytest.mark.anyio
async def test_a_bell_that_somebody_rings_is_not_rung_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or the next rest of whoever cleared it would be cut short."""
    bell, timers = asyncio.Event(), list[asyncio.TimerHandle]()
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(*given: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*given))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted, raising=False)
    loop.call_soon(bell.set)

    await rung(bell, 3600.0)

    assert [each.cancelled() for each in timers] == [True]
