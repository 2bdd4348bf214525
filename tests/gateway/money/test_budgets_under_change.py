"""Limits that change, costs above what was reserved, and midnight, in any interleaving of workers.

What `test_budgets_properties` leaves out: there no cost is above its reservation, and limits and
the clock stand still.
"""

import asyncio
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted
from gateway.money.budgets import BudgetKey, Limit, window_end_us
from gateway.store.engine import open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.types import Reservation


Move = Literal["reserve", "settle", "release", "flush", "limit", "midnight"]
ACCOUNTS = ("org:acme", "ws:acme/0")
KEYS = (
    BudgetKey("org:acme", "total"),
    BudgetKey("org:acme", "day"),
    BudgetKey("ws:acme/0", "total"),
)
WORKERS = 2
BEFORE_MIDNIGHT_S = 20.0
"""Leases taken before it are still held after it: they live for a minute."""


class Step(Struct, frozen=True):
    move: Move
    worker: int
    amount: int
    percent: int
    """Of what was reserved, for a settlement."""
    key: int
    """Whose limit is set to `amount`."""


steps = st.builds(
    Step,
    st.sampled_from(["reserve"] * 5 + ["settle"] * 3 + ["release", "flush", "limit", "midnight"]),
    st.integers(0, WORKERS - 1),
    st.integers(0, 90),
    st.sampled_from([0, 50, 100, 100, 180, 900]),
    st.integers(0, len(KEYS) - 1),
)


class Promise(Struct):
    """A reservation, and whether midnight has come since."""

    reservation: Reservation
    is_of_yesterday: bool = False


class House:
    """Workers on one database, and beside them what is true in plain sums."""

    def __init__(self, table: LeaseTable, clock: StoppedClock, slice_microusd: int) -> None:
        self.table, self.clock, self.slice_microusd = table, clock, slice_microusd
        self.limits: dict[BudgetKey, int] = {}
        self.spent = dict.fromkeys(KEYS, 0)
        self.overrun = dict.fromkeys(KEYS, 0)
        self.open: list[list[Promise]] = [[] for _ in range(WORKERS)]
        self.ledgers: list[LeasedLedger] = []
        self.has_midnight_come = False

    async def start(self, limits: Sequence[int]) -> None:
        for key, limit in zip(KEYS, limits, strict=True):
            await self.limit(key, limit)
        for number in range(WORKERS):
            ledger = LeasedLedger(
                self.table,
                self.clock,
                f"w{number}",
                slice_microusd=self.slice_microusd,
                flush_every_s=3600.0,
                patience_s=0.0,
            )
            await ledger.start()
            self.ledgers.append(ledger)

    async def limit(self, key: BudgetKey, limit_microusd: int) -> None:
        """As an administrator sets one, and all workers hear of it."""
        await self.table.set_limit(Limit(key.account, limit_microusd, key.window))
        self.limits[key] = limit_microusd
        for ledger in self.ledgers:
            await ledger.refresh()

    async def take(self, step: Step) -> None:
        ledger, mine = self.ledgers[step.worker], self.open[step.worker]
        if step.move == "reserve":
            with suppress(BudgetExhausted):
                mine.append(Promise(await ledger.reserve(ACCOUNTS, step.amount)))
                self.check_admission(step.amount)
        elif step.move in {"settle", "release"} and mine:
            self.end_one(ledger, mine.pop(step.amount % len(mine)), step)
        elif step.move == "flush":
            await ledger.flush()
        elif step.move == "limit":
            await self.limit(KEYS[step.key], step.amount)
        elif step.move == "midnight" and not self.has_midnight_come:
            self.clock.advance(2 * BEFORE_MIDNIGHT_S)
            self.has_midnight_come = True
            self.spent[KEYS[1]] = self.overrun[KEYS[1]] = 0
            for promise in [each for some in self.open for each in some]:
                promise.is_of_yesterday = True

    def end_one(self, ledger: LeasedLedger, promise: Promise, step: Step) -> None:
        held = promise.reservation.amount_microusd
        cost = held * step.percent // 100 if step.move == "settle" else 0
        ledger.settle(promise.reservation, cost)
        for key in KEYS:
            if key.window == "total" or not promise.is_of_yesterday:
                self.spent[key] += cost
                self.overrun[key] += max(cost - held, 0)

    def check_admission(self, amount: int) -> None:
        """Nothing is let in above a limit, but what nobody could know when it was let in."""
        for key, limit in self.limits.items() if amount else ():
            reserved = sum(
                promise.reservation.amount_microusd
                for some in self.open
                for promise in some
                if key.window == "total" or not promise.is_of_yesterday
            )
            assert self.spent[key] + reserved - self.overrun[key] <= limit, key

    async def end(self) -> None:
        for ledger, mine in zip(self.ledgers, self.open, strict=True):
            for promise in mine:
                ledger.release(promise.reservation)
            await ledger.close()
        for budget in await self.table.budgets():
            assert budget.leased_microusd == 0
            assert budget.spent_microusd == self.spent[budget.limit.key]
            assert budget.limit.limit_microusd == self.limits[budget.limit.key]


@pytest.mark.anyio
async def test_a_lowered_limit_lets_nobody_in_on_what_was_leased_before(
    database_url: str,
) -> None:
    clock, database = StoppedClock(), open_database(database_url)
    house = House(LeaseTable(database, clock), clock, 0)
    await house.start((100, 100, 100))
    first, second = house.ledgers
    kept = await second.reserve(ACCOUNTS, 14)
    given_back = await first.reserve(ACCOUNTS, 29)
    await house.limit(KEYS[0], 20)

    first.release(given_back)

    with pytest.raises(BudgetExhausted):
        await first.reserve(ACCOUNTS, 8)
    small = await first.reserve(ACCOUNTS, 6)
    second.release(kept)
    await second.flush()
    later = await first.reserve(ACCOUNTS, 14)
    for ledger, reservation in ((first, small), (first, later)):
        ledger.release(reservation)
    await house.end()
    await database.close()


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(steps, max_size=40),
    st.lists(st.integers(0, 300), min_size=len(KEYS), max_size=len(KEYS)),
    st.sampled_from([0, 7, 50]),
)
def test_no_change_of_limits_overrun_or_midnight_lets_in_too_much_or_loses_money(
    tmp_path: Path,
    sqlite_template: Path,
    moves: list[Step],
    limits: list[int],
    slice_microusd: int,
) -> None:
    path = tmp_path / "ledger.db"
    for leftover in tmp_path.glob("ledger.db*"):
        leftover.unlink()
    shutil.copyfile(sqlite_template, path)

    async def play() -> None:
        now_us = StoppedClock().utc_us()
        wait_s = (window_end_us("day", now_us) - now_us) / 1e6 - BEFORE_MIDNIGHT_S
        clock = StoppedClock(now_us + round(wait_s * 1e6))
        database = open_database(f"sqlite+aiosqlite:///{path}")
        house = House(LeaseTable(database, clock), clock, slice_microusd)
        await house.start(limits)
        for step in moves:
            await house.take(step)
        await house.end()
        await database.close()

    asyncio.run(play())
