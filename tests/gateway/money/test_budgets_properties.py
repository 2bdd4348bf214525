"""Any interleaving of workers on one database keeps every limit and loses no money.

Each step is one move of one worker: reserve, settle, release, report, crash and come back, or lose
the answer of its next exchange. What is true is kept beside the ledgers, in plain sums.
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
from gateway.errors import BudgetExhausted, NotReady
from gateway.money.budgets import Limit
from gateway.store.engine import open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Claim, Grant, LeaseHolder
from gateway.types import Reservation


Move = Literal["reserve", "settle", "release", "flush", "crash", "lose"]
WORKERS = 3
WORKSPACES = 2


class Step(Struct, frozen=True):
    move: Move
    worker: int
    workspace: int
    amount: int
    share: int


steps = st.builds(
    Step,
    st.sampled_from(["reserve"] * 5 + ["settle"] * 3 + ["release", "flush", "crash", "lose"]),
    st.integers(0, WORKERS - 1),
    st.integers(0, WORKSPACES - 1),
    st.integers(0, 60),
    st.integers(0, 100),
)


class LossyTable(LeaseTable):
    loses_next = False

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        grants = await super().exchange(holder, claims)
        if self.loses_next:
            self.loses_next = False
            raise NotReady("the database does not answer")
        return grants


class Truth:
    """What was really spent and is really reserved, per account and kind of window."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self.limits = {limit.key: limit.limit_microusd for limit in limits}
        self.spent = dict.fromkeys(self.limits, 0)
        self.open: list[list[Reservation]] = [[] for _ in range(WORKERS)]

    def reserved(self, account: str) -> int:
        return sum(
            reservation.amount_microusd
            for mine in self.open
            for reservation in mine
            if account in reservation.accounts
        )

    def check_admission(self) -> None:
        for key, limit in self.limits.items():
            assert self.spent[key] + self.reserved(key.account) <= limit


class World:
    def __init__(self, table: LossyTable, limits: Sequence[Limit], slice_microusd: int) -> None:
        self.table, self.clock, self.slice_microusd = table, StoppedClock(), slice_microusd
        self.truth = Truth(limits)
        self.has_crashed = False
        self.ledgers: list[LeasedLedger] = []

    async def start(self) -> None:
        for (account, window), limit in self.truth.limits.items():
            await self.table.set_limit(Limit(account, limit, window))
        for number in range(WORKERS):
            self.ledgers.append(await self.new_ledger(number))

    async def new_ledger(self, number: int) -> LeasedLedger:
        ledger = LeasedLedger(
            self.table,
            self.clock,
            f"w{number}",
            slice_microusd=self.slice_microusd,
            flush_every_s=3600.0,
            patience_s=0.0,
        )
        self.table.loses_next = False
        await ledger.start()
        return ledger

    async def take(self, step: Step) -> None:
        ledger, mine = self.ledgers[step.worker], self.truth.open[step.worker]
        if step.move == "reserve":
            await self.reserve(ledger, step, mine)
        elif step.move in ("settle", "release") and mine:
            self.end_one(ledger, step, mine)
        elif step.move == "lose":
            self.table.loses_next = True
        elif step.move == "flush":
            with suppress(NotReady):
                await ledger.flush()
        elif step.move == "crash":
            await self.abandon(ledger)
            mine.clear()
            self.has_crashed = True
            self.ledgers[step.worker] = await self.new_ledger(step.worker)

    async def reserve(self, ledger: LeasedLedger, step: Step, mine: list[Reservation]) -> None:
        accounts = ("org:acme", f"ws:acme/{step.workspace}", "key:unlimited")
        with suppress(BudgetExhausted, NotReady):
            mine.append(await ledger.reserve(accounts, step.amount))
            self.truth.check_admission()

    def end_one(self, ledger: LeasedLedger, step: Step, mine: list[Reservation]) -> None:
        reservation = mine.pop(step.amount % len(mine))
        if step.move == "release":
            ledger.release(reservation)
            return
        cost = reservation.amount_microusd * step.share // 100
        ledger.settle(reservation, cost)
        for key in self.truth.spent:
            if key.account in reservation.accounts:
                self.truth.spent[key] += cost

    async def abandon(self, ledger: LeasedLedger) -> None:
        assert ledger._flusher is not None
        ledger._flusher.cancel()
        await asyncio.wait([ledger._flusher])

    async def check_books(self) -> None:
        """What the database counts is never less than the truth, and splits without a rest."""
        leases = dict.fromkeys(self.truth.limits, 0)
        for ledger in self.ledgers:
            for key, part in ledger._held.by_key.items():
                assert part.free + part.reserved == part.amount - part.spent
                leases[key] += part.spent - part.booked
        for budget in await self.table.budgets():
            key = budget.limit.key
            counted = budget.spent_microusd + budget.leased_microusd
            assert counted + budget.left_microusd == budget.limit.limit_microusd
            assert budget.left_microusd >= 0
            assert counted >= self.truth.spent[key] + self.truth.reserved(key.account)
            assert budget.leased_microusd >= leases[key]

    async def end(self) -> None:
        for ledger, mine in zip(self.ledgers, self.truth.open, strict=True):
            for reservation in mine:
                ledger.release(reservation)
            self.table.loses_next = False
            await ledger.close()
        for budget in await self.table.budgets():
            assert budget.leased_microusd == 0
            truly = self.truth.spent[budget.limit.key]
            assert budget.spent_microusd >= truly
            assert self.has_crashed or budget.spent_microusd == truly


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(steps, max_size=40),
    st.integers(0, 300),
    st.integers(0, 300),
    st.integers(0, 300),
    st.sampled_from([0, 7, 50]),
)
def test_no_interleaving_of_workers_breaks_a_limit_or_loses_money(
    tmp_path: Path,
    sqlite_template: Path,
    moves: list[Step],
    of_organisation: int,
    of_its_day: int,
    of_workspace: int,
    slice_microusd: int,
) -> None:
    limits = [
        Limit("org:acme", of_organisation),
        Limit("org:acme", of_its_day, "day"),
        Limit("ws:acme/0", of_workspace),
    ]
    path = tmp_path / "ledger.db"
    for leftover in tmp_path.glob("ledger.db*"):
        leftover.unlink()
    shutil.copyfile(sqlite_template, path)

    async def play() -> None:
        database = open_database(f"sqlite+aiosqlite:///{path}")
        world = World(LossyTable(database, StoppedClock()), limits, slice_microusd)
        await world.start()
        for step in moves:
            await world.take(step)
            await world.check_books()
        await world.end()
        await database.close()

    asyncio.run(play())


@pytest.mark.anyio
async def test_the_same_moves_hold_on_either_database(database_url: str) -> None:
    database = open_database(database_url)
    limits = [
        Limit("org:acme", 200),
        Limit("org:acme", 170, "month"),
        Limit("ws:acme/0", 90, "day"),
    ]
    world = World(LossyTable(database, StoppedClock()), limits, 7)
    await world.start()
    moves: list[Move] = ["reserve", "reserve", "settle", "lose", "reserve", "flush", "release"]
    for number in range(120):
        move: Move = "crash" if number % 40 == 39 else moves[number % len(moves)]
        await world.take(Step(move, number % WORKERS, number % 2, number % 31, number % 101))
        await world.check_books()
    await world.end()
    await database.close()
