"""Somebody sets the clock: it is recorded, order and numbers hold, and no window opens twice."""

import asyncio
from pathlib import Path

import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.audit.projecting.projector import Projector
from gateway.clock import SteadyClock, StoppedClock, UnhurriedClock
from gateway.errors import AuditUnavailable, BudgetExhausted
from gateway.money.budgets import Limit
from gateway.oversight.deeds import OPERATORS, Deeds
from gateway.store.engine import Database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from gateway.types import AuditRecord, Receipt
from gateway.worker.timekeeping import JUMP_S, ClockJumps
from tests.gateway.audit.samples import journeys, running


pytestmark = pytest.mark.anyio
HOUR_S, DAY_S = 3600.0, 86_400.0


async def test_a_clock_jump_is_recorded_from_when_to_when(
    database: Database, tmp_path: Path
) -> None:
    clock = StoppedClock()
    async with running(tmp_path, clock=clock) as log:
        jumps = ClockJumps(Deeds(log, clock), "w0", clock)
        begun_us = clock.utc_us()
        number = 0
        for jump_s in (HOUR_S, -HOUR_S, DAY_S, -2 * DAY_S, 0.0):
            await journeys(log, number, 2)
            clock.advance(0.5)
            clock.jump(jump_s)
            await asyncio.gather(jumps.look(), journeys(log, number + 2, 2))
            number += 4
    sink = DatabaseAuditSink(database, tmp_path)
    await Projector(tmp_path, sink).catch_up()

    rows = [row async for row in sink.records(AuditQuery(organisation=OPERATORS))]
    assert [row.sequence for row in rows] == [1, 2, 3, 4]
    said = [row.projected.record for row in rows]
    assert {each.action for each in said} == {"clock.jumped"}
    assert {each.actor for each in said} == {"worker:w0"}
    moves = [(int(each.detail["from_us"]), int(each.detail["to_us"])) for each in said]
    half_us, hour_us, day_us = 500_000, 3_600_000_000, 86_400_000_000
    assert [(before - begun_us, after - begun_us) for before, after in moves] == [
        (half_us, half_us + hour_us),
        (2 * half_us + hour_us, 2 * half_us),
        (3 * half_us, 3 * half_us + day_us),
        (4 * half_us + day_us, 4 * half_us - day_us),
    ]
    assert [each.utc_us for each in said] == [after for _, after in moves]
    for organisation in ("acme", "globex"):
        rows = [row async for row in sink.records(AuditQuery(organisation=organisation))]
        assert [row.sequence for row in rows] == list(range(1, len(rows) + 1))
        places = [(row.projected.segment, row.projected.offset_bytes) for row in rows]
        assert places == sorted(places)


async def test_a_clock_that_is_kept_leaves_no_record() -> None:
    log, clock = MemoryAuditLog(), StoppedClock()
    await log.start()
    jumps = ClockJumps(Deeds(log, clock), "w0", clock)
    for _ in range(50):
        clock.advance(0.5)
        clock.jump(0.5 * 0.0005)  # slewed as fast as the kernel slews
        await jumps.look()
    clock.jump(JUMP_S)  # at the bound, not beyond
    await jumps.look()
    assert not log.records
    clock.jump(-JUMP_S - 0.001)
    await jumps.look()
    assert len(log.records) == 1


async def test_a_jump_that_could_not_be_recorded_is_found_again() -> None:
    class Full(MemoryAuditLog):
        is_full = True

        async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
            if self.is_full:
                raise AuditUnavailable("full")
            return await super().append(record, content)

    log, clock = Full(), StoppedClock()
    await log.start()
    jumps = ClockJumps(Deeds(log, clock), "w0", clock)
    clock.jump(HOUR_S)
    with pytest.raises(AuditUnavailable):
        await jumps.look()
    clock.advance(7.0)
    log.is_full = False
    await jumps.look()
    await jumps.look()
    (record,) = log.records
    assert record.detail["jump_us"] == "3600000000"
    assert record.detail["noticed_within_us"] == "7000000"


async def test_a_jump_gives_an_end_user_no_second_day(database: Database) -> None:
    """Forward over midnight, where past rows are dropped, and back: what was spent is known."""
    clock = StoppedClock()
    table = LeaseTable(database, clock)
    await table.set_limit(Limit("user:acme/*", 100, "day"))
    accounts = ("org:acme", "user:acme/ann")

    async def spends(amount: int) -> bool:
        ledger = LeasedLedger(table, clock, "w1", flush_every_s=3600.0, patience_s=0.0)
        await ledger.start()
        try:
            ledger.settle(await ledger.reserve(accounts, amount), amount)
        except BudgetExhausted:
            return False
        finally:
            await ledger.close()
        return True

    assert await spends(100)
    clock.jump(DAY_S)
    await table.forget_past_users()
    clock.jump(-DAY_S)
    assert not await spends(1)
    clock.advance(DAY_S)
    assert await table.forget_past_users() == 1
    assert await spends(100)


def test_time_that_no_jump_hurries_passes_all_the_same() -> None:
    clock = StoppedClock()
    unhurried, begun_us = UnhurriedClock(clock), clock.utc_us()
    clock.jump(DAY_S)
    assert unhurried.utc_us() == begun_us
    clock.advance(5.0)
    assert unhurried.utc_us() == begun_us + 5_000_000
    clock.jump(-2 * DAY_S)
    assert unhurried.utc_us() == clock.utc_us()
    clock.advance(5.0)
    assert unhurried.utc_us() == clock.utc_us()


def test_steady_time_passes_wherever_the_clock_is_set_and_follows_one_that_is_slewed() -> None:
    clock = StoppedClock()
    steady, begun_us = SteadyClock(clock), clock.utc_us()
    for jump_s in (DAY_S, -3 * DAY_S, HOUR_S):
        clock.jump(jump_s)
        clock.advance(5.0)
        steady.utc_us()
    assert steady.utc_us() == begun_us + 15_000_000
    clock.jump(2 * DAY_S - HOUR_S)
    assert steady.utc_us() == clock.utc_us() == begun_us + 15_000_000
    for _ in range(20):
        clock.advance(1000.0)
        clock.jump(0.5)
        assert steady.utc_us() == clock.utc_us()


def test_what_the_clock_has_said_for_a_day_is_believed_and_not_sooner() -> None:
    clock = StoppedClock()
    steady = SteadyClock(clock)
    clock.jump(-HOUR_S)
    for _ in range(2):
        # Set right for a moment: the day begins anew.
        assert steady.utc_us() == clock.utc_us() + 3_600_000_000
        clock.advance(DAY_S - 1.0)
        assert steady.utc_us() == clock.utc_us() + 3_600_000_000
        clock.jump(HOUR_S)
        assert steady.utc_us() == clock.utc_us()
        clock.jump(-HOUR_S)
    assert steady.utc_us() == clock.utc_us() + 3_600_000_000
    clock.advance(DAY_S)

    assert steady.utc_us() == clock.utc_us()
