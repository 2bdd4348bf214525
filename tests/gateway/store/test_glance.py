"""One look at the database tells a worker whether anything waits for it."""

from typing import Any

import pytest
from sqlalchemy import delete, update

from gateway.clock import StoppedClock
from gateway.store.checkups import CLAIM_WITHIN_US, CheckupTable
from gateway.store.engine import Database
from gateway.store.glance import Waiting, is_read_only, question
from gateway.store.revisions import current
from gateway.store.schema.audit import audit_awaited_workers
from gateway.store.schema.batches import batches
from gateway.store.schema.parcels import parcels
from gateway.store.schema.policies import policy_schedules
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio


class Looking:
    """A worker that looks when it is told to."""

    def __init__(self, database: Database) -> None:
        self.database, self.clock = database, StoppedClock()
        self.waiting = Waiting(self.clock)

    async def look(self) -> int:
        (row,) = await self.database.peek(question(self.database, "w0"))
        return self.waiting.see(row)

    async def write(self, statement: Any) -> None:
        async with self.database.writing() as connection:
            await connection.execute(statement)
        await self.look()


async def test_a_look_tells_the_revision_and_that_nothing_waits(database: Database) -> None:
    looking = Looking(database)
    waiting = looking.waiting
    assert waiting.batches(), "nothing is known yet"
    assert waiting.schedules(), "nothing is known yet"
    assert waiting.checkups(), "nothing is known yet"
    assert await looking.look() == await current(database)
    assert not any((waiting.batches(), waiting.schedules(), waiting.checkups()))


async def test_a_batch_is_seen_until_it_is_over(database: Database) -> None:
    looking = Looking(database)
    await looking.write(filled(batches, id="b", state="in_progress"))
    looking.clock.advance(100.0)
    assert looking.waiting.batches()
    await looking.look()
    await looking.write(update(batches).values(state="ended"))
    assert not looking.waiting.batches()
    assert looking.waiting.batches_lately(10.0)
    looking.clock.advance(10.0)
    assert not looking.waiting.batches_lately(10.0)


async def test_a_test_of_a_connection_is_seen_until_it_is_taken_or_too_old(
    database: Database,
) -> None:
    looking = Looking(database)
    table = CheckupTable(database, looking.clock)
    await table.ask("t1", "home", "", "ann")
    await looking.look()
    assert looking.waiting.checkups()
    looking.clock.advance(CLAIM_WITHIN_US / 1_000_000)
    assert not looking.waiting.checkups()
    await table.ask("t2", "home", "", "ann")
    await looking.look()
    assert looking.waiting.checkups()
    await table.claim("w1", ["home"])
    await looking.look()
    assert not looking.waiting.checkups()


async def test_a_schedule_is_seen_when_its_time_has_come(database: Database) -> None:
    looking = Looking(database)
    soon_us = looking.clock.utc_us() + 5_000_000
    await looking.write(filled(policy_schedules, id="s", state="waiting", at_us=soon_us))
    assert not looking.waiting.schedules()
    looking.clock.advance(5.0)
    assert looking.waiting.schedules()
    await looking.write(delete(policy_schedules))
    assert not looking.waiting.schedules()


async def test_a_parcel_is_led_until_its_vendor_has_forgotten_it(database: Database) -> None:
    looking = Looking(database)
    assert looking.waiting.parcels(), "before the first look everything may wait"
    await looking.look()
    assert not looking.waiting.parcels()
    await looking.write(filled(batches, id="batch_1", state="in_progress"))
    assert looking.waiting.parcels()
    await looking.write(filled(parcels, id="gwp-1", batch_id="batch_1", state="collected"))
    await looking.write(update(batches).values(state="completed"))
    looking.clock.advance(3600)
    await looking.look()
    assert not looking.waiting.batches()
    assert looking.waiting.parcels()
    await looking.write(delete(parcels))
    assert not looking.waiting.parcels()


async def test_a_look_tells_a_server_that_takes_no_writes(database: Database) -> None:
    looking = Looking(database)
    await looking.look()
    assert looking.waiting.problem() == ""
    assert not await is_read_only(database)
    looking.waiting.see((1, False, False, None, None, True, False))
    assert "no writes" in looking.waiting.problem()
    await looking.look()
    assert looking.waiting.problem() == ""


async def test_a_worker_sees_that_a_database_that_was_put_back_waits_for_it(
    database: Database,
) -> None:
    looking = Looking(database)
    mine = update(audit_awaited_workers).where(audit_awaited_workers.c.worker == "w0")
    seen = []
    for statement in (
        filled(audit_awaited_workers, worker="w1"),
        filled(audit_awaited_workers, worker="w0"),
        mine.values(told_us=1),
        mine.values(told_us=0, lost_us=1),
    ):
        await looking.write(statement)
        seen.append(looking.waiting.is_awaited)
    assert seen == [False, True, False, False]
