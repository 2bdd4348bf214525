"""Reserved, leased, parked, settled, written off: whatever comes in whatever order, it adds up.

A state machine over runs of several workers on one real database. They reserve for two keys and an
end user, settle (also above what was reserved), report, lose answers, sleep past their leases,
crash and come back; lines wait for a vendor, and change hands; limits are set, removed and set
anew, midnight comes, and clocks are set. After each step the tables are read beside what is true:

- what is leased of a budget is what its leases say, to the micro-dollar;
- what is spent of it is what its leases say, and what those said that are gone;
- no lease says more than was spent of it, nor less once it was reported;
- nothing that was spent, or is reserved, is missing, but for costs above a reservation;
- nobody is let in for whom there is no room, nor refused for whom there is.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Literal

import pytest
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

from gateway.batching.owed import Purse
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parts import stake_of
from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted, NotReady
from gateway.money.budgets import BudgetKey, Limit, ReservationEndedError, window_end_us
from gateway.store.engine import Database, open_database
from gateway.store.money.late_bookings import LateBookings, LateCost
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.parked_money import ParkedMoney
from gateway.types import AuditRecord, Reservation
from tests.gateway.store.money.conftest import Opened
from tests.gateway.store.money.ledgers import ledger_on
from tests.gateway.store.money.money_books import Books, WatchedTable


ANN = "user:acme/ann"
PATHS = (
    ("org:acme", "ws:acme/0", "key:unlimited"),
    ("org:acme", "ws:acme/1", "key:k1"),
    ("org:acme", "ws:acme/0", "key:unlimited", ANN),
)
LIMITS = {
    BudgetKey("org:acme", "total"): 900,
    BudgetKey("org:acme", "day"): 700,
    BudgetKey("ws:acme/0", "total"): 500,
    BudgetKey("key:k1", "day"): 400,
    BudgetKey(ANN, "day"): 300,
}
KEYS = tuple(LIMITS)
WORKERS = 3
EXAMPLES = {"sqlite": 40, "postgresql": 10}
"""The ledger is the same on both; what a transaction is, and what waits for it, is not."""
LEASE_S = 60.0
BEFORE_MIDNIGHT_S = 400.0
PERCENT = st.sampled_from([0, 30, 100, 100, 250])
"""Of what was reserved: what a request costs."""
LIMIT = st.one_of(st.integers(0, 60), st.integers(0, 1000))
Cut = Literal["settle", "report", "record", "end"]
"""Where the end of a line is broken off by a crash."""
ENDS = st.tuples(
    st.sampled_from([0, 30, 100]),
    st.sampled_from(["settle", "report", "record", "end", None, None, None]),
    st.booleans(),
)
"""What a line costs, where its end is broken off, and whether its former leader hears of it."""


class Run(Struct):
    """One process of a worker."""

    ledger: LeasedLedger
    lines: ParkedReservations
    parked: ParkedMoney
    late: LateBookings
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


async def _nothing(_organisation: str, _request_id: str) -> AuditRecord | None:
    return None


async def _away(_request_ids: object) -> None:
    raise NotReady("away for a moment")


def _account_of(key: BudgetKey) -> str:
    """Whom its limit is set for: an end user's is that of all of them."""
    return "user:acme/*" if key.account == ANN else key.account


class Money(RuleBasedStateMachine):
    """`opened` gives an empty database at the newest schema."""

    opened: Callable[[], Opened]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        url, self.close_database = self.opened()
        now_us = StoppedClock().utc_us()
        wait_us = window_end_us("day", now_us) - now_us - round(BEFORE_MIDNIGHT_S * 1e6)
        self.clock = StoppedClock(now_us + wait_us)
        self.runs: list[Run] = []
        self.waiting: list[Line] = []
        self.numbers = itertools.count(1)
        self.database: Database
        self.table: WatchedTable
        self.books: Books
        self.runner.run(self.begin(url))

    async def begin(self, url: str) -> None:
        self.database = open_database(url)
        self.table = WatchedTable(self.database, self.clock, lease_s=LEASE_S)
        self.books = Books(self.database, self.table)
        for key, limit in LIMITS.items():
            await self._limit(key, limit)
        for number in range(WORKERS):
            self.runs.append(await self.new_run(number))

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
        lines = ParkedReservations(ledger, purse, self.clock, _nothing)
        return Run(ledger, lines, parked, late, [])

    def does(self, work: Any) -> None:
        """One step, and what it did to the tables."""

        async def step() -> None:
            with suppress(NotReady, BudgetExhausted):
                await work
            await self.books.look()

        self.runner.run(step())

    def reserved(self, runs: Sequence[Run]) -> dict[BudgetKey, int]:
        """By these runs; of lines only what their leases still hold."""
        total = dict.fromkeys(KEYS, 0)
        for run in runs:
            for reservation in run.open:
                for pot in self.books.pots(reservation):
                    if run.ledger.book.pots(reservation):  # Else its time was over.
                        total[pot.limit.key] += reservation.amount_microusd
            for reservation in run.lines._held.values():
                for pot in self.books.pots(reservation):
                    # Of one that was written off it went back, and is held anew as the line ends.
                    is_here = run.ledger._held.by_key.get(pot.limit.key) is pot
                    if is_here and self.books.lease_of(run.ledger, pot) is not None:
                        total[pot.limit.key] += reservation.amount_microusd
        return total

    def awake(self, number: int) -> Run | None:
        run = self.runs[number]
        return None if run.is_asleep else run

    # Requests

    @rule(
        number=st.integers(0, WORKERS - 1),
        path=st.sampled_from(PATHS),
        amount=st.integers(1, 120),
    )
    def reserve(self, number: int, path: tuple[str, ...], amount: int) -> None:
        if run := self.awake(number):
            self.does(self._reserve(run, path, amount))

    async def _reserve(
        self, run: Run, path: tuple[str, ...], amount: int, lease_s: float = 0.0
    ) -> Reservation:
        try:
            reservation = await run.ledger.reserve(path, amount, lease_s)
        except BudgetExhausted:
            await self.books.look()
            reserved = self.reserved([run])
            assert not self.books.fits(run.ledger, path, amount, reserved), (path, amount)
            raise
        await self.books.look()
        self.books.reserves(run.ledger, reservation)
        if not lease_s:
            run.open.append(reservation)
        now = self.reserved(self.runs)
        for key in self.books.expected(path):
            due = self.books.true[key] - self.books.above[key] + now[key]
            due += amount if lease_s else 0
            assert due <= self.books.limits[key], key
        return reservation

    @rule(which=st.integers(0, 50), percent=PERCENT)
    def settle(self, which: int, percent: int) -> None:
        open_ones = [
            (run, place) for run in self.runs if not run.is_asleep for place in range(len(run.open))
        ]
        if open_ones:
            run, place = open_ones[which % len(open_ones)]
            self._settle(run, run.open.pop(place), percent)

    def _settle(self, run: Run, reservation: Reservation, percent: int) -> None:
        cost = reservation.amount_microusd * percent // 100
        with suppress(ReservationEndedError):  # Its time was over twice.
            run.ledger.settle(reservation, cost)
            self.books.settles(reservation, cost)

    @rule(
        number=st.integers(0, WORKERS - 1),
        path=st.sampled_from(PATHS),
        amount=st.integers(1, 120),
        percent=PERCENT,
        reports=st.booleans(),
    )
    def spend(
        self, number: int, path: tuple[str, ...], amount: int, percent: int, *, reports: bool
    ) -> None:
        """One request from its beginning to its end."""
        if run := self.awake(number):
            self.does(self._spend(run, path, amount, percent, reports))

    async def _spend(
        self, run: Run, path: tuple[str, ...], amount: int, percent: int, reports: bool
    ) -> None:
        await self._reserve(run, path, amount)
        self._settle(run, run.open.pop(), percent)
        if reports:
            await self._report(run)

    @rule(
        number=st.integers(0, WORKERS - 1),
        rounds=st.sampled_from([1, 1, 12]),
        loses=st.booleans(),
    )
    def report(self, number: int, rounds: int, *, loses: bool) -> None:
        """So often that idle money goes back; perhaps without hearing of it, before a request."""
        if run := self.awake(number):
            self.table.losses = rounds if loses else 0
            for _ in range(rounds):
                self.does(self._report(run))
            self.table.losses = 0
            if loses:
                self.does(self._reserve(run, PATHS[0], 20))

    async def _report(self, run: Run) -> None:
        await run.ledger.flush()
        await self.books.look()
        self.books.check_reported(run.ledger, is_all=True)

    @rule()
    def lose_an_answer(self) -> None:
        self.table.losses = 1

    @rule(number=st.integers(0, WORKERS - 1))
    def crash(self, number: int) -> None:
        self.does(self._crash(number))

    async def _crash(self, number: int) -> None:
        await self.books.look()
        run = self.runs[number]
        for reservation in run.open:
            if run.ledger.book.pots(reservation):
                self.books.crashes(reservation)
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
                        await run.lines.drop_ended(self)  # type: ignore[arg-type]
                await self.books.look()

    @rule(
        number=st.integers(0, WORKERS - 1),
        other=st.integers(0, WORKERS - 1),
        path=st.sampled_from(PATHS),
        amounts=st.tuples(st.integers(1, 400), st.integers(1, 60)),
        loses=st.booleans(),
    )
    def stand_still(
        self,
        number: int,
        other: int,
        path: tuple[str, ...],
        amounts: tuple[int, int],
        *,
        loses: bool,
    ) -> None:
        """A worker is paused until its lease is over and taken, and wakes up in a request."""
        if number == other:
            return
        self.runs[number].is_asleep, self.runs[other].is_asleep = True, False
        self.does(self._pass_time(8))
        self.does(self._reserve(self.runs[other], path, amounts[0]))
        self.runs[number].is_asleep = False
        self.table.losses = int(loses)
        for _ in range(1 + loses):
            self.does(self._reserve(self.runs[number], path, amounts[1]))

    @rule(seconds=st.sampled_from([-500.0, -50.0, 50.0, 500.0]))
    def set_the_clock(self, seconds: float) -> None:
        self.clock.jump(seconds)

    # Limits

    @rule(key=st.sampled_from(KEYS), limit=LIMIT)
    def limit(self, key: BudgetKey, limit: int) -> None:
        self.wake_all()
        self.does(self._limit(key, limit))

    async def _limit(self, key: BudgetKey, limit_microusd: int) -> None:
        await self.table.set_limit(Limit(_account_of(key), limit_microusd, key.window))
        self.books.limit(key, limit_microusd)
        await self._refresh()

    @rule(key=st.sampled_from(KEYS), limit=st.one_of(st.none(), LIMIT))
    def remove_limit(self, key: BudgetKey, limit: int | None) -> None:
        """And perhaps set another one before anybody hears of it."""
        if key in self.books.limits:
            self.wake_all()
            self.does(self._remove_limit(key, limit))

    async def _remove_limit(self, key: BudgetKey, limit: int | None) -> None:
        await self.table.remove_limit(_account_of(key), key.window)
        self.books.unlimit(key)
        if limit is None:
            await self._refresh()
        else:
            await self._limit(key, limit)

    def wake_all(self) -> None:
        """And each hears what is changed."""
        self.table.losses = 0
        for run in self.runs:
            run.is_asleep = False

    async def _refresh(self) -> None:
        for run in self.runs:
            await run.ledger.refresh()

    @rule(path=st.sampled_from(PATHS), cost=st.integers(1, 90), twice=st.booleans())
    def book_late(self, path: tuple[str, ...], cost: int, *, twice: bool) -> None:
        self.does(self._book_late(self.runs[0], f"late-{next(self.numbers)}", path, cost, twice))

    async def _book_late(
        self, run: Run, name: str, path: tuple[str, ...], cost: int, twice: bool
    ) -> None:
        now_us = self.clock.utc_us()
        for is_first in (True, False)[: 1 + twice]:
            assert await run.late.book(LateCost(name, path, cost, now_us)) == is_first
        await self.books.look()
        self.books.books_late(path, cost, now_us)

    # Lines that wait for a vendor

    @rule(
        number=st.integers(0, WORKERS - 1),
        path=st.sampled_from(PATHS),
        amount=st.integers(1, 120),
    )
    def park(self, number: int, path: tuple[str, ...], amount: int) -> None:
        if run := self.awake(number):
            self.does(self._park(run, number, path, amount))

    async def _park(self, run: Run, number: int, path: tuple[str, ...], amount: int) -> None:
        reservation = await self._reserve(run, path, amount, 100_000.0)
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
    @rule(number=st.integers(0, WORKERS - 1), which=st.integers(0, 50), end=ENDS)
    def end_line(self, number: int, which: int, end: tuple[int, Cut | None, bool]) -> None:
        self.ends_line(number, self.waiting[which % len(self.waiting)], *end)

    @rule(
        number=st.integers(0, WORKERS - 1),
        ender=st.integers(0, WORKERS - 1),
        path=st.sampled_from(PATHS),
        amount=st.integers(1, 120),
        end=ENDS,
        limits=st.one_of(st.none(), st.tuples(st.sampled_from(KEYS[:3]), LIMIT, LIMIT)),
    )
    def park_and_end(
        self,
        number: int,
        ender: int,
        path: tuple[str, ...],
        amount: int,
        end: tuple[int, Cut | None, bool],
        limits: tuple[BudgetKey, int, int] | None,
    ) -> None:
        """One line from its beginning to its end, perhaps by another worker.

        And perhaps by one that has no room for it any more, and crashes.
        """
        count = len(self.waiting)
        self.park(number, path, amount)
        if len(self.waiting) == count:
            return
        line, (percent, cut, hears) = self.waiting[-1], end
        if limits is not None:
            key, first, second = limits
            self.crash(number)
            self.limit(key, first)
            self.ends_line(ender, line, percent, cut, hears)
            self.limit(key, second)
            cut = None
        if line in self.waiting:
            self.ends_line(ender, line, percent, cut, hears)
        self.does(self._pass_time(1))

    def ends_line(
        self, number: int, line: Line, percent: int, cut: Cut | None, hears: bool
    ) -> None:
        if run := self.awake(number):
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
        await self.books.look()
        self.books.holds(run.ledger, reservation, line.ticket.reservation)
        if line.cost < 0:
            line.cost = line.ticket.reservation.amount_microusd * percent // 100
        await self._settle_line(run, line, reservation)
        if cut == "report":
            await run.ledger.flush()
        if cut in {"report", "record"}:
            await self._crash(number)
            return
        self.waiting.remove(line)
        await run.lines.forget([name])
        if cut == "end":
            await self._crash(number)

    async def _settle_line(self, run: Run, line: Line, reservation: Reservation) -> None:
        """As `Conclusion` does."""
        book = run.lines.booking(line.ticket)
        run.lines.hand_over(line.ticket.request_id)
        if book is None:
            run.ledger.settle(reservation, line.cost)
            if not line.is_settled:
                self.books.settles(reservation, line.cost)
        else:
            run.ledger.release(reservation)
            await book(line.cost)
            await self.books.look()
            if not line.is_settled:
                kept = line.ticket.reservation
                self.books.books_late(kept.accounts, line.cost, kept.admitted_us)
        line.is_settled = True

    async def states(self, _batch_id: str, numbers: Sequence[int]) -> dict[int, str]:
        """What their rows say."""
        waiting = {line.row.line.number for line in self.waiting}
        return {each: "parked" if each in waiting else "succeeded" for each in numbers}

    # What holds after each step

    @invariant()
    def adds_up(self) -> None:
        self.books.check(self.reserved(self.runs))
        for run in self.runs:
            self.books.check_reported(run.ledger, is_all=False)
            for note in self.books.notes:
                is_own = note.place[2] == run.ledger.holder.incarnation
                assert not is_own or note.request_id in run.lines._held, note

    def teardown(self) -> None:
        try:
            self.runner.run(self._end())
        finally:
            self.runner.run(self.database.close())
            self.runner.close()
            self.close_database()

    async def _end(self) -> None:
        self.table.losses = 0
        for run in self.runs:
            for reservation in run.open:
                with suppress(ReservationEndedError):
                    run.ledger.release(reservation)
            run.open.clear()
            await run.lines.let_go()
            await run.ledger.close()
            await self.books.look()
        self.adds_up()
        assert not any(lease.outstanding for lease in self.books.leases.values())


def test_whatever_happens_in_whatever_order_money_adds_up(
    opening: Callable[[], Opened], request: pytest.FixtureRequest
) -> None:
    class Here(Money):
        opened = staticmethod(opening)

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=EXAMPLES[request.node.callspec.params["opening"]],
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
