"""The pool's router against round robin, as `benchmarks.replicas` runs them: no clock, no lots."""

import pytest

from benchmarks.replicas import WORKLOADS, BlindPolicy, PoolPolicy, busy_trace, ceiling, simulate


@pytest.mark.parametrize("seed", [1, 2])
def test_prefixes_are_found_three_times_as_often_and_answers_begin_early(seed: int) -> None:
    trace = busy_trace(next(iter(WORKLOADS.values())), 4_000, seed)
    ours, blind = (simulate(each, trace) for each in (PoolPolicy(), BlindPolicy("round robin")))

    assert 0.69 < blind.busy < 0.71
    assert 3.0 * blind.hit_share <= ours.hit_share <= ceiling(trace)
    assert ours.hit_share >= 0.984 * ceiling(trace)
    assert ours.p90_first_s <= 0.3 * blind.p90_first_s
    assert ours.busiest <= 1.25
    assert ours.refused <= blind.refused == 0
    assert simulate(PoolPolicy(), trace) == ours
