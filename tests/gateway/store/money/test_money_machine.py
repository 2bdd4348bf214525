"""Reserved, leased, parked, settled, written off: whatever comes in whatever order, it adds up.

A state machine over runs of several workers on one real database. They reserve, settle (also above
what was reserved), report, lose answers, sleep past their leases, crash and come back; lines wait
for a vendor, and change hands. After each step the tables are read beside what is true:

- what is leased of a budget is what its leases say, to the micro-dollar;
- nothing that was spent, or is reserved, is missing, but for costs above a reservation;
- nothing is counted that was neither spent nor lost in a lease that was written off.
"""

import asyncio
import itertools
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import Struct
from sqlalchemy import and_, func, select

from gateway.batching.owed import Purse
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parts import stake_of
from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted, NotReady
from gateway.money.budgets import BudgetKey, Limit, Pot, window_end_us
from gateway.store.engine import Database, open_database
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.parked_money import ParkedMoney
from gateway.store.money.slices import HeldSlice
from gateway.store.schema.tables import budget_leases, budgets, parked_money
from gateway.types import AuditRecord, Reservation
from tests.gateway.store.money.ledgers import LossyTable, ledger_on


PATH = ("org:acme", "ws:acme/0", "key:unlimited")
KEYS = (
    BudgetKey("org:acme", "total"),
    BudgetKey("org:acme", "day"),
    BudgetKey("ws:acme/0", "total"),
)
WORKERS = 3
LEASE_S = 60.0
BEFORE_MIDNIGHT_S = 400.0
Cut = Literal["settle", "report", "record", "forget"]
"""Where the end of a line is broken off by a crash."""


class Run(Struct):
    """One process of a worker."""

    ledger: LeasedLedger
    lines: ParkedReservations
    parked: ParkedMoney
    open: list[Reservation]
    is_asleep: bool = False


class Line(Struct):
    """A line that waits for a vendor; `ticket` and `row` are what its reservations read of it."""

    ticket: Any
    row: Any
    leader: int
    cost: int = -1
    """What its vendor asks for it; below zero until it has answered."""
    is_settled: bool = False
    """Its cost was booked by a run that could not write so down."""


class LeaseRow(Struct, frozen=True):
    key: BudgetKey
    worker: str
    incarnation: str
    window_start_us: int
    outstanding: int
    spent: int
    parked: int
    """What lines hold of it that are not about to end."""


async def _nothing(_organisation: str, _request_id: str) -> AuditRecord | None:
    return None


async def _away(_request_ids: object) -> None:
    raise NotReady("away for a moment")


class Money(RuleBasedStateMachine):
    """`template` is an empty database at the newest schema."""

    template: Path

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp())
        shutil.copyfile(self.template, self.folder / "money.db")
        now_us = StoppedClock().utc_us()
        wait_us = window_end_us("day", now_us) - now_us - round(BEFORE_MIDNIGHT_S * 1e6)
        self.clock = StoppedClock(now_us + wait_us)
        self.limits = dict.fromkeys(KEYS, 0)
        self.true = dict.fromkeys(KEYS, 0)
        """What was spent in the present window."""
        self.above = dict.fromkeys(KEYS, 0)
        """How much of it was more than had been set aside for it."""
        self.under_way = dict.fromkeys(KEYS, 0)
        """What was reserved when its run crashed: nobody knows what became of it."""
        self.lost = dict.fromkeys(KEYS, 0)
        """What write-offs counted as spent, without what of it had been spent."""
        self.window = dict.fromkeys(KEYS, 0)
        self.runs: list[Run] = []
        self.dead: list[Run] = []
        self.waiting: list[Line] = []
        self.numbers = itertools.count(1)
        self.leases: dict[tuple[BudgetKey, str, str, int], LeaseRow] = {}
        self.database: Database
        self.table: LossyTable
        self.runner.run(self.begin())

    async def begin(self) -> None:
        self.database = open_database(f"sqlite+aiosqlite:///{self.folder / 'money.db'}")
        self.table = LossyTable(self.database, self.clock, lease_s=LEASE_S)
        for key, limit in zip(KEYS, (900, 700, 500), strict=True):
            await self.limited(key, limit)
        for number in range(WORKERS):
            self.runs.append(await self.new_run(number))

    async def limited(self, key: BudgetKey, limit_microusd: int) -> None:
        await self.table.set_limit(Limit(key.account, limit_microusd, key.window))
        self.limits[key] = limit_microusd
        for run in self.runs:
            await run.ledger.refresh()

    async def new_run(self, number: int) -> Run:
        ledger = ledger_on(self.table, self.clock, f"w{number}", (0, 40, 150)[number])
        self.table.losses = 0
        await ledger.start()
        assert ledger._flusher is not None
        ledger._flusher.cancel()  # It reports when it is told to.
        await asyncio.wait([ledger._flusher])
        parked = ParkedMoney(self.database, self.clock, ledger.holder)
        late = LateBookings(self.database, self.clock)
        purse = Purse(late, parked, lambda name, held: stake_of(ledger, name, held))
        return Run(ledger, ParkedReservations(ledger, purse, self.clock, _nothing), parked, [])

    def does(self, work: Any) -> None:
        """One step, and what it did to the leases."""

        async def step() -> None:
            with suppress(NotReady, BudgetExhausted):
                await work
            await self.note_losses()

        self.runner.run(step())

    # What is true, beside the tables

    def pots(self, run: Run, reservation: Reservation) -> list[HeldSlice]:
        """Where it is set aside in the present windows."""
        found: list[Pot] = list(run.ledger.book.pots(reservation))
        slices = [each for each in found if isinstance(each, HeldSlice)]
        return [
            each for each in slices if each.window_start_us == self.window.get(each.limit.key, 0)
        ]

    def settles(self, run: Run, reservation: Reservation, cost: int, *, is_news: bool) -> None:
        keys = {each.limit.key for each in self.pots(run, reservation)}
        run.ledger.settle(reservation, cost)
        for key in keys if is_news else ():
            self.true[key] += cost
            self.above[key] += max(cost - reservation.amount_microusd, 0)

    def reserved(self, key: BudgetKey) -> int:
        """By runs that are alive; of lines only what their leases still hold."""
        total = 0
        for run in self.runs:
            for reservation in run.open:
                if any(pot.limit.key == key for pot in self.pots(run, reservation)):
                    total += reservation.amount_microusd
            for reservation in run.lines._held.values():
                for pot in self.pots(run, reservation):
                    if pot.limit.key == key and self.has_lease(run, pot):
                        total += reservation.amount_microusd
        return total

    def has_lease(self, run: Run, pot: HeldSlice) -> bool:
        holder = run.ledger.holder
        place = (pot.limit.key, holder.worker, holder.incarnation, pot.window_start_us)
        return place in self.leases

    async def read_leases(self) -> dict[tuple[BudgetKey, str, str, int], LeaseRow]:
        now_us = self.clock.utc_us()
        lease, held = budget_leases.c, parked_money.c
        of_lease = and_(
            held.account == lease.account,
            held.window_kind == lease.window_kind,
            held.worker == lease.worker,
            held.incarnation == lease.incarnation,
            held.window_start_us == lease.window_start_us,
            held.is_ending == 0,
            held.until_us > now_us,
        )
        sums = func.coalesce(func.sum(held.amount_microusd), 0)
        query = select(budget_leases, select(sums).where(of_lease).scalar_subquery())
        async with self.database.reading() as connection:
            rows = (await connection.execute(query)).all()
        found = {}
        for row in rows:
            known = row._mapping
            key = BudgetKey(known["account"], known["window_kind"])
            spent = known["spent_microusd"]
            left = max(known["amount_microusd"] - spent, 0)
            each = LeaseRow(
                key,
                known["worker"],
                known["incarnation"],
                known["window_start_us"],
                left,
                spent,
                row[-1],
            )
            found[key, each.worker, each.incarnation, each.window_start_us] = each
        return found

    async def note_losses(self) -> None:
        """What became of leases that are gone, and that their run did not give back itself."""
        before, self.leases = self.leases, await self.read_leases()
        async with self.database.reading() as connection:
            rows = (await connection.execute(select(budgets))).mappings().all()
        for row in rows:
            key = BudgetKey(row["account"], row["window_kind"])
            if row["window_start_us"] != self.window[key]:
                self.window[key] = row["window_start_us"]
                self.true[key] = self.above[key] = self.lost[key] = self.under_way[key] = 0
        for place, lease in before.items():
            if place in self.leases or lease.window_start_us != self.window[lease.key]:
                continue
            run = next(
                each
                for each in (*self.runs, *self.dead)
                if each.ledger.holder.incarnation == lease.incarnation
            )
            self.lost[lease.key] += max(lease.outstanding - lease.parked, 0)
            part = run.ledger._held.by_key.get(lease.key)
            if part is not None and part.window_start_us == lease.window_start_us:
                self.lost[lease.key] -= min(part.spent - lease.spent, lease.outstanding)

    # Steps

    def awake(self, number: int) -> Run | None:
        run = self.runs[number]
        return None if run.is_asleep else run

    @rule(number=st.integers(0, WORKERS - 1), amount=st.integers(1, 120))
    def reserve(self, number: int, amount: int) -> None:
        if run := self.awake(number):
            self.does(self._reserve(run, amount))

    async def _reserve(self, run: Run, amount: int) -> None:
        reservation = await run.ledger.reserve(PATH, amount)
        run.open.append(reservation)
        await self.note_losses()
        for key, limit in self.limits.items():
            assert self.true[key] + self.reserved(key) - self.above[key] <= limit, key

    @rule(
        number=st.integers(0, WORKERS - 1),
        which=st.integers(0, 50),
        percent=st.sampled_from([0, 30, 100, 100, 250]),
    )
    def settle(self, number: int, which: int, percent: int) -> None:
        run = self.awake(number)
        if run and run.open:
            reservation = run.open.pop(which % len(run.open))
            cost = reservation.amount_microusd * percent // 100
            self.settles(run, reservation, cost, is_news=True)

    @rule(number=st.integers(0, WORKERS - 1))
    def report(self, number: int) -> None:
        if run := self.awake(number):
            self.does(run.ledger.flush())

    @rule()
    def lose_an_answer(self) -> None:
        self.table.losses = 1

    @rule(number=st.integers(0, WORKERS - 1))
    def crash(self, number: int) -> None:
        self.does(self._crash(number))

    async def _crash(self, number: int) -> None:
        await self.note_losses()
        run = self.runs[number]
        self.dead.append(run)
        for reservation in run.open:
            for pot in self.pots(run, reservation):
                self.under_way[pot.limit.key] += reservation.amount_microusd
        run.open.clear()
        self.runs[number] = await self.new_run(number)

    @rule(number=st.integers(0, WORKERS - 1))
    def sleep_or_wake(self, number: int) -> None:
        self.runs[number].is_asleep ^= True

    @rule(periods=st.integers(1, 8))
    def pass_time(self, periods: int) -> None:
        self.does(self._pass_time(periods))

    async def _pass_time(self, periods: int) -> None:
        """Whoever is awake goes on reporting."""
        for _ in range(periods):
            self.clock.advance(15.0)
            for run in self.runs:
                if not run.is_asleep:
                    with suppress(NotReady):
                        await run.ledger.flush()
                await self.note_losses()

    @precondition(lambda self: not any(run.is_asleep for run in self.runs))
    @rule(key=st.sampled_from(KEYS), limit=st.integers(0, 1000))
    def limit(self, key: BudgetKey, limit: int) -> None:
        self.table.losses = 0
        self.does(self.limited(key, limit))

    # Lines that wait for a vendor

    @rule(number=st.integers(0, WORKERS - 1), amount=st.integers(1, 120))
    def park(self, number: int, amount: int) -> None:
        if run := self.awake(number):
            self.does(self._park(run, number, amount))

    async def _park(self, run: Run, number: int, amount: int) -> None:
        reservation = await run.ledger.reserve(PATH, amount, 100_000.0)
        place = next(self.numbers)
        ticket = SimpleNamespace(
            request_id=f"r{place}",
            reservation=reservation,
            principal=SimpleNamespace(organisation="acme"),
        )
        row = SimpleNamespace(line=SimpleNamespace(number=place))
        noting: Any = run.lines.noting(ticket)  # type: ignore[arg-type]
        async with self.database.writing() as connection:
            await noting(connection)
        run.lines.keep(ticket, reservation, "b", place)  # type: ignore[arg-type]
        self.waiting.append(Line(ticket, row, number))

    @precondition(lambda self: self.waiting)
    @rule(
        number=st.integers(0, WORKERS - 1),
        which=st.integers(0, 50),
        percent=st.sampled_from([0, 30, 100]),
        cut=st.sampled_from(["settle", "report", "record", "forget", None, None, None]),
        hears=st.booleans(),
    )
    def end_line(
        self, number: int, which: int, percent: int, cut: Cut | None, *, hears: bool
    ) -> None:
        run, line = self.awake(number), self.waiting[which % len(self.waiting)]
        if run:
            self.does(self._end_line(run, number, line, percent, cut))
            if cut is None and line.leader != number:
                self.does(self.left(self.runs[line.leader], line, hears=hears))
            line.leader = number

    async def left(self, former: Run, line: Line, *, hears: bool) -> None:
        """Who led a line hears that its term is over; or the database is away just then."""
        if former.is_asleep:
            return
        leave = former.parked.leave
        if not hears:
            former.parked.leave = _away  # type: ignore[method-assign,assignment]
        try:
            await former.lines.drop([line.ticket.request_id])
        finally:
            former.parked.leave = leave  # type: ignore[method-assign]

    async def _end_line(
        self, run: Run, number: int, line: Line, percent: int, cut: Cut | None
    ) -> None:
        """As `ParkedLines.end` does."""
        name = line.ticket.request_id
        await run.lines.hold("b", [(line.row, line.ticket)])
        paid = await run.parked.begin_ending([name])
        await run.lines.hold_nothing(paid)
        if cut == "settle":
            await self._crash(number)
            return
        reservation = run.lines.of(name)
        run.lines.hand_over(name)
        if line.cost < 0:
            line.cost = line.ticket.reservation.amount_microusd * percent // 100
        # Of one for which nothing could be set aside nothing is noted: a crash before its outcome
        # charges it twice.
        is_news = not line.is_settled or not reservation.amount_microusd
        self.settles(run, reservation, line.cost, is_news=is_news)
        line.is_settled = True
        if cut == "report":
            await run.ledger.flush()
        if cut in {"report", "record"}:
            await self._crash(number)
            return
        self.waiting.remove(line)
        if cut == "forget":
            await self._crash(number)
            return
        await run.lines.forget([name])

    # What holds after each step

    @invariant()
    def adds_up(self) -> None:
        self.runner.run(self._adds_up())

    async def _adds_up(self) -> None:
        async with self.database.reading() as connection:
            rows = (await connection.execute(select(budgets))).mappings().all()
        for row in rows:
            key = BudgetKey(row["account"], row["window_kind"])
            leased, spent = row["leased_microusd"], row["spent_microusd"]
            held = [
                each.outstanding
                for each in self.leases.values()
                if each.key == key and each.window_start_us == row["window_start_us"]
            ]
            assert leased == sum(held), (key, leased, held)
            due = self.true[key] + self.reserved(key) + self.under_way[key] - self.above[key]
            assert spent + leased >= due, (key, spent, leased, due)
            assert spent <= self.true[key] + self.lost[key], (key, spent, self.true, self.lost)

    def teardown(self) -> None:
        try:
            self.runner.run(self._end())
        finally:
            self.runner.run(self.database.close())
            self.runner.close()
            shutil.rmtree(self.folder)

    async def _end(self) -> None:
        self.table.losses = 0
        for run in self.runs:
            for reservation in run.open:
                run.ledger.release(reservation)
            run.open.clear()
            await run.lines.let_go()
            await run.ledger.close()
            await self.note_losses()
        await self._adds_up()
        assert not any(lease.outstanding for lease in self.leases.values())


def test_whatever_happens_in_whatever_order_money_adds_up(sqlite_template: Path) -> None:
    class Here(Money):
        template = sqlite_template

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=15,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
