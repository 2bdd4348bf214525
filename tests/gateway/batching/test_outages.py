"""When failures are an upstream's and not the lines', and for how long that is believed."""

import pytest

from gateway.batching import outages
from gateway.batching.outages import IN_A_ROW, PATIENCE_S, WELL_S, Outages
from gateway.clock import StoppedClock


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def seen(clock: StoppedClock) -> Outages:
    return Outages(clock)


def fails(seen: Outages, *, batch: str = "b", target: str = "t", again: bool = False) -> bool:
    return seen.is_out(batch, target, is_first_try=not again)


def test_line_after_line_is_an_outage_until_one_is_answered(seen: Outages) -> None:
    assert [fails(seen) for _ in range(IN_A_ROW + 1)] == [*[False] * (IN_A_ROW - 1), True, True]
    assert fails(seen, again=True), "it waits like the others"
    seen.went_well("b", "t")
    assert not fails(seen)


def test_lines_that_fail_again_and_again_are_none(seen: Outages) -> None:
    """They stand behind all others, so nothing is answered between them at the end."""
    assert not any(fails(seen, again=at > 2) for at in range(9))


def test_neither_another_target_nor_another_batch_is_out(seen: Outages) -> None:
    for _ in range(IN_A_ROW):
        fails(seen)
    assert not fails(seen, target="other")
    assert not fails(seen, batch="other")
    seen.went_well("b", "other")
    assert fails(seen)


def test_a_batch_of_nothing_else_ends_in_the_end(seen: Outages, clock: StoppedClock) -> None:
    for _ in range(IN_A_ROW):
        fails(seen)
    clock.advance(PATIENCE_S - 1)
    assert fails(seen)
    clock.advance(1)
    assert not fails(seen)
    seen.went_well("b", "t")
    assert [fails(seen) for _ in range(IN_A_ROW)][-1]


def test_a_batch_rests_where_nothing_of_it_is_answered_elsewhere(
    seen: Outages, clock: StoppedClock
) -> None:
    seen.went_well("b", "other")
    assert seen.is_all_out("b"), "that was before"
    fails(seen)
    for _ in range(2):
        seen.went_well("b", "other")
        assert not seen.is_all_out("b")
        clock.advance(WELL_S)
        assert seen.is_all_out("b")
    assert seen.is_all_out("another")


def test_what_nobody_asks_for_any_more_is_forgotten(seen: Outages, clock: StoppedClock) -> None:
    fails(seen)
    seen.went_well("b", "other")
    clock.advance(outages._KEPT_S)
    fails(seen, batch="new")
    assert (list(seen._rows), seen._well_s) == ([("new", "t")], {})
