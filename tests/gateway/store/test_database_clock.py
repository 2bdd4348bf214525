"""A worker's idea of the database's clock: whatever its own says, and however that is set."""

from collections.abc import Sequence
from typing import Any

import pytest

from gateway.clock import StoppedClock, SystemClock
from gateway.store.database_clock import FRESH_S, SLOW_S, DatabaseClock
from gateway.store.engine import Database


pytestmark = pytest.mark.anyio


class Answering:
    """A database whose clock stands where it was put; an answer takes its time."""

    kind = "postgresql"

    def __init__(self, clock: StoppedClock) -> None:
        self.now_us = 5_000_000_000
        self.takes_s = 0.0
        self.asked = 0
        self._clock = clock

    async def peek(self, _: str) -> Sequence[Sequence[Any]]:
        self.asked += 1
        self._clock.advance(self.takes_s)
        return [[self.now_us]]


@pytest.mark.parametrize("off_s", [600.0, -600.0, 0.0])
async def test_workers_with_any_clocks_agree_about_now(database: Database, off_s: float) -> None:
    class Off(SystemClock):
        def utc_us(self) -> int:
            return super().utc_us() + round(off_s * 1e6)

    clock = DatabaseClock(database, Off())
    assert abs(clock.utc_us() - Off().utc_us()) < 1_000_000  # Before it was asked.
    await clock.follow()
    assert abs(clock.utc_us() - SystemClock().utc_us()) < 1_000_000


async def test_between_two_questions_time_passes_and_no_clock_that_is_set_back_undoes_it() -> None:
    own = StoppedClock()
    database: Any = Answering(own)
    clock = DatabaseClock(database, own)
    await clock.follow()
    assert clock.utc_us() == database.now_us
    own.advance(0.5)
    assert clock.utc_us() == database.now_us + 500_000
    own.jump(-3600.0)
    assert clock.utc_us() == database.now_us + 500_000
    assert clock.monotonic_s() == own.monotonic_s()


async def test_a_machine_that_slept_knows_by_its_wall_clock_that_time_has_passed() -> None:
    """Its other clock stood meanwhile; the next question tells how much it was."""
    own = StoppedClock()
    database: Any = Answering(own)
    clock = DatabaseClock(database, own)
    await clock.follow()
    own.jump(90.0)
    assert clock.utc_us() == database.now_us + 90_000_000
    await clock.follow()
    assert (clock.utc_us(), database.asked) == (database.now_us, 2)


async def test_it_is_asked_again_when_it_was_heard_a_while_ago() -> None:
    own = StoppedClock()
    database: Any = Answering(own)
    clock = DatabaseClock(database, own)
    for seconds, asked in ((0.0, 1), (FRESH_S / 2, 1), (FRESH_S / 2, 2)):
        own.advance(seconds)
        await clock.follow()
        assert database.asked == asked


async def test_half_of_what_an_answer_took_has_passed_since_and_a_slow_one_says_nothing() -> None:
    own = StoppedClock()
    database: Any = Answering(own)
    clock = DatabaseClock(database, own)
    database.takes_s = SLOW_S + 2.0
    await clock.follow()  # Better than nothing.
    assert clock.utc_us() == database.now_us + round(database.takes_s * 500_000)
    database.takes_s = 0.5
    own.advance(FRESH_S)
    await clock.follow()
    known_us = clock.utc_us()
    assert known_us == database.now_us + 250_000
    database.now_us, database.takes_s = 0, SLOW_S + 0.5
    own.advance(FRESH_S)
    await clock.follow()
    assert clock.utc_us() == known_us + round((FRESH_S + SLOW_S + 0.5) * 1e6)
