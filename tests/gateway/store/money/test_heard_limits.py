"""Whenever workers hear of limits and of midnight, and by whatever clocks: budgets are explained.

Histories of several workers on one real database. Limits are set, removed and set anew while
requests are open; each worker hears of them when it looks, by a clock that is seconds off, and
midnight comes to each at another moment. Intents and outcomes are as requests leave them. In the
end every budget says what its outcomes add up to, and nothing is excused.
"""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from gateway.clock import StoppedClock
from gateway.money.budgets import WINDOWS, Limit, window_end_us
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database, open_database
from gateway.store.money.late_bookings import LateBookings, LateCost
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.spending import Difference, SpendingReader
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.schema.tables import budget_hearings
from gateway.types import Reservation
from tests.gateway.store.money.conftest import Opened
from tests.gateway.store.money.ledgers import ledger_on
from tests.gateway.store.rows import filled


OFF_S = (0.0, -14.0, 12.0)
"""How far each worker's clock is from that of whoever sets limits: leases bear half a minute."""
PLENTY = 10**9
KEY = "k" * 12
ACCOUNTS = ("org:acme", f"key:{KEY}", "user:acme/*")
PATH = ("org:acme", f"key:{KEY}", "user:acme/ann")
BEFORE_MIDNIGHT_S = 40.0
WORKER = st.integers(0, len(OFF_S) - 1)
LIMIT = st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(WINDOWS))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), LIMIT),
        st.tuples(st.just("remove"), LIMIT),
        st.tuples(st.just("anew"), LIMIT),
        st.tuples(st.just("hear"), WORKER),
        st.tuples(st.just("report"), WORKER),
        st.tuples(st.just("restart"), WORKER),
        st.tuples(st.just("reserve"), WORKER),
        st.tuples(st.just("reserve"), WORKER),
        st.tuples(st.just("settle"), st.integers(0, 20)),
        st.tuples(st.just("late"), st.just(0)),
        st.tuples(st.just("wait"), st.sampled_from([0.3, 5.0, 30.0])),
    ),
    min_size=8,
    max_size=24,
)


class ClockApart(StoppedClock):
    """A clock that is so far from another one."""

    def __init__(self, right: StoppedClock, off_s: float) -> None:
        super().__init__()
        self._right, self._off_us = right, round(off_s * 1e6)

    def utc_us(self) -> int:
        return self._right.utc_us() + self._off_us

    def monotonic_s(self) -> float:
        return self._right.monotonic_s()


class History:
    """Workers, their requests, and what these leave in the audit log."""

    def __init__(self, url: str) -> None:
        self.database: Database = open_database(url)
        now_us = StoppedClock().utc_us()
        wait_us = window_end_us("month", now_us) - now_us - round(BEFORE_MIDNIGHT_S * 1e6)
        self.clock = StoppedClock(now_us + wait_us)
        self.table = LeaseTable(self.database, self.clock)
        self.clocks = [ClockApart(self.clock, off_s) for off_s in OFF_S]
        self.ledgers: list[LeasedLedger] = []
        self.open: list[tuple[int, Reservation]] = []
        self.numbers = itertools.count(1)

    async def start(self, number: int) -> LeasedLedger:
        clock = self.clocks[number]
        ledger = ledger_on(LeaseTable(self.database, clock), clock, f"w{number}", 40)
        await ledger.start()
        assert ledger._flusher is not None
        ledger._flusher.cancel()  # It reports when it is told to.
        await asyncio.wait([ledger._flusher])
        return ledger

    async def run(self, steps: list[tuple[str, Any]]) -> list[Difference]:
        self.ledgers = [await self.start(number) for number in range(len(OFF_S))]
        for step, about in steps:
            self.clock.advance(0.001)
            await getattr(self, step)(about)
        while self.open:
            await self.settle(0)
        self.clock.advance(0.001)
        for number in range(len(OFF_S)):
            await self.hear(number)
            await self.ledgers[number].close()
        return await SpendingReader(self.database, BY_LABEL).differences(end_users=True)

    async def set(self, about: tuple[str, Any]) -> None:
        await self.table.set_limit(Limit(about[0], PLENTY, about[1]))

    async def remove(self, about: tuple[str, Any]) -> None:
        await self.table.remove_limit(*about)

    async def anew(self, about: tuple[str, Any]) -> None:
        await self.remove(about)
        await self.set(about)

    async def hear(self, number: int) -> None:
        await self.ledgers[number].refresh()

    async def report(self, number: int) -> None:
        await self.ledgers[number].flush()

    async def restart(self, number: int) -> None:
        """In good order."""
        for place in reversed(range(len(self.open))):
            if self.open[place][0] == number:
                await self.settle(place)
        await self.ledgers[number].close()
        self.ledgers[number] = await self.start(number)

    async def reserve(self, number: int) -> None:
        reservation = await self.ledgers[number].reserve(PATH, 50)
        await self.write(reservation, number, stage="intent", utc_us=reservation.admitted_us)
        self.open.append((number, reservation))

    async def settle(self, which: int) -> None:
        if not self.open:
            return
        number, reservation = self.open.pop(which % len(self.open))
        cost = 1 + which % 50
        self.ledgers[number].settle(reservation, cost)
        await self.end(number, reservation, cost)

    async def late(self, number: int) -> None:
        """Its reservation is given up by one run, and its cost booked by itself.

        Of no end user: one who was not seen since the limit was set shares that of the others. And
        by the clock of who sets limits: of those, too, it is compared with.
        """
        ledger, path = self.ledgers[number], PATH[:2]
        reservation = await ledger.reserve(path, 50)
        await self.write(reservation, number, stage="intent", utc_us=reservation.admitted_us)
        ledger.release(reservation)
        await ledger.flush()
        cost = LateCost(reservation.reservation_id, path, 33, reservation.admitted_us)
        assert await LateBookings(self.database, self.clocks[number]).book(cost)
        await self.end(number, reservation, 33)

    async def end(self, number: int, reservation: Reservation, cost: int) -> None:
        now_us = self.clocks[number].utc_us()
        await self.write(
            *(reservation, number),
            stage="outcome",
            utc_us=now_us,
            duration_us=max(now_us - reservation.admitted_us, 0),
            cost_microusd=cost,
        )

    async def write(self, reservation: Reservation, number: int, **said: object) -> None:
        sequence = next(self.numbers)
        row = filled(
            audit_records,
            organisation="acme",
            sequence=sequence,
            worker=f"w{number}",
            request_id=reservation.reservation_id,
            key_id=KEY,
            subject="ann" if PATH[2] in reservation.accounts else "",
            **said,
        )
        async with self.database.writing() as connection:
            if sequence == 1:
                await connection.execute(filled(audit_sequences, organisation="acme"))
            await connection.execute(row)

    async def wait(self, seconds: float) -> None:
        for _ in range(max(round(seconds / 15.0), 1)):
            self.clock.advance(min(seconds, 15.0))
            for ledger in self.ledgers:
                await ledger.flush()
            await self.table.hearings.forget_over()


@pytest.mark.timeout(600)
def test_whenever_limits_and_midnights_are_heard_of_budgets_say_what_outcomes_add_up_to(
    opening: Callable[[], Opened], request: pytest.FixtureRequest
) -> None:
    on_sqlite = request.node.callspec.params["opening"] == "sqlite"

    @settings(
        max_examples=16 if on_sqlite else 5,
        phases=[Phase.explicit, Phase.generate],  # The histories are short.
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps=STEPS)
    def explained(steps: list[tuple[str, Any]]) -> None:
        url, close_database = opening()
        try:
            found = asyncio.run(_differences(url, steps))
        finally:
            close_database()
        assert [each for each in found if each.difference_microusd or each.unheard_microusd] == []

    explained()


def test_a_day_that_another_began_is_charged_the_evening_before(
    opening: Callable[[], Opened],
) -> None:
    """Whose clock is behind asks for money, and there is none of a day that is over."""
    steps: list[tuple[str, Any]] = [
        ("set", ("org:acme", "day")),
        *(("hear", number) for number in range(len(OFF_S))),
        *(("wait", seconds) for seconds in (30.0, 5.0, 5.0, 0.3)),
        *(("reserve", 0), ("reserve", 1), ("reserve", 1)),
        *(("settle", 2), ("settle", 1)),
    ]
    url, close_database = opening()
    try:
        (found,) = asyncio.run(_differences(url, steps))
    finally:
        close_database()

    assert (found.account, found.ledger_microusd > 0) == ("org:acme", True)
    assert (found.difference_microusd, found.unheard_microusd) == (0, 0)


def test_who_crashed_before_it_wrote_down_what_it_heard_heard_nothing_when_it_is_back(
    opening: Callable[[], Opened],
) -> None:
    """What it let through is booked, with all it held, and may have been let through unheard."""
    url, close_database = opening()
    try:
        found = asyncio.run(_crashed(url))
    finally:
        close_database()

    assert {each.account for each in found} == {*PATH[:1], PATH[2]}
    for each in found:
        assert each.ledger_microusd > each.audit_microusd == each.unheard_microusd == 50


async def _crashed(url: str) -> list[Difference]:
    history = History(url)
    try:
        history.ledgers = [await history.start(0)]
        for account in ("org:acme", "user:acme/*"):
            await history.set((account, "total"))
        await history.hear(0)
        history.clock.advance(1.0)
        reservation = await history.ledgers[0].reserve(PATH, 90)
        await history.write(reservation, 0, stage="intent", utc_us=reservation.admitted_us)
        history.ledgers[0].settle(reservation, 50)
        await history.end(0, reservation, 50)
        history.ledgers[0]._held.hearings.clear()
        await history.ledgers[0].flush()
        history.clock.advance(5.0)
        again = await history.start(0)
        await again.flush()
        await again.close()
        return await SpendingReader(history.database, BY_LABEL).differences(end_users=True)
    finally:
        await history.database.close()


def test_what_was_heard_is_kept_while_it_says_something_of_a_window(
    opening: Callable[[], Opened],
) -> None:
    url, close_database = opening()
    try:
        found = asyncio.run(_kept(url))
    finally:
        close_database()

    workers, key = len(OFF_S), f"key:{KEY}"
    assert found == [
        {("org:acme", "day"): workers, ("org:acme", "total"): workers, (key, "total"): workers},
        {("org:acme", "day"): workers, ("org:acme", "total"): workers},
        {("org:acme", "total"): workers},
    ]


async def _kept(url: str) -> list[dict[tuple[str, str], int]]:
    """How many are kept of each limit: at first, of one that is gone, and on the next day."""
    history, found = History(url), list[dict[tuple[str, str], int]]()
    history.clock.jump(-60.0)  # What is set in the last minute of a day is of the next one too.
    try:
        history.ledgers = [await history.start(number) for number in range(len(OFF_S))]
        for account, window in (
            ("org:acme", "day"),
            ("org:acme", "total"),
            (f"key:{KEY}", "total"),
        ):
            await history.set((account, window))
        for number in range(len(OFF_S)):
            await history.hear(number)
        await history.wait(0.3)
        found.append(await _counts(history.database))
        late = await _rows(history.database)
        await history.remove((f"key:{KEY}", "total"))
        async with history.database.writing() as connection:  # Somebody heard of it before.
            gone = [each for each in late if each["account"] == f"key:{KEY}"]
            await connection.execute(insert(budget_hearings), gone)
        await history.wait(0.3)
        found.append(await _counts(history.database))
        await history.wait(120.0)
        history.ledgers[0].release(await history.ledgers[0].reserve(PATH, 50))
        await history.wait(0.3)
        found.append(await _counts(history.database))
    finally:
        for ledger in history.ledgers:
            await ledger.close()
        await history.database.close()
    return found


async def _rows(database: Database) -> list[dict[str, Any]]:
    async with database.reading() as connection:
        found = await connection.execute(select(budget_hearings))
        return [dict(row) for row in found.mappings()]


async def _counts(database: Database) -> dict[tuple[str, str], int]:
    return Counter((row["account"], row["window_kind"]) for row in await _rows(database))


async def _differences(url: str, steps: list[tuple[str, Any]]) -> list[Difference]:
    history = History(url)
    try:
        return await history.run(steps)
    finally:
        await history.database.close()
