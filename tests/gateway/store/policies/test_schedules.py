"""Versions left to a time: done once whoever looks, late but surely, and never over a newer one."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.clock import StoppedClock
from gateway.errors import AuditUnavailable, RequestInvalid
from gateway.oversight.deeds import Deeds
from gateway.store.engine import Database, open_database
from gateway.store.policies.documents import PolicyStore
from gateway.store.policies.scheduler import Scheduler
from tests.policies.worlds import document


pytestmark = pytest.mark.anyio

ONE = document({"name": "one", "no_cache": True})
TWO = document({"name": "two", "allow_only": {"in_house": True}})
HOUR_US = 3_600_000_000


class World:
    """A database, its policies, and as many processes as a test wants."""

    def __init__(self, database: Database) -> None:
        self.clock = StoppedClock()
        self.store = PolicyStore(database, self.clock)
        self.log = MemoryAuditLog()
        self._database = database

    def process(self) -> Scheduler:
        deeds = Deeds(self.log, self.clock)
        return Scheduler(self._database, PolicyStore(self._database, self.clock), deeds, self.clock)

    async def approved(self, level: str = "org:acme") -> int:
        number = (await self.store.draft(level, TWO, "Ann")).number
        await self.store.act(level, number, "approve", "Bob")
        return number

    async def at(self, number: int, after_us: int = HOUR_US, action: str = "publish") -> None:
        now_us = self.clock.utc_us()
        percent = 10.0 if action == "canary" else 0.0
        await self.store.schedules.add(
            "org:acme", number, action, now_us + after_us, "Cleo", percent=percent, reason="T-9"
        )

    async def state(self, number: int) -> str:
        return (await self.store.version("org:acme", number)).state

    async def last(self) -> str:
        return (await self.store.schedules.of("org:acme"))[-1].state


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    made = World(database)
    await made.log.start()
    yield made
    await database.close()


async def test_of_several_processes_one_does_it_at_its_time_and_says_who_ordered_it(
    world: World,
) -> None:
    number = await world.approved()
    await world.at(number)
    processes = [world.process() for _ in range(4)]
    await asyncio.gather(*(each.tend() for each in processes))
    assert (await world.state(number), world.log.records) == ("approved", [])
    world.clock.advance(3_600.0)

    await asyncio.gather(*(each.tend() for each in processes))

    assert (await world.state(number), await world.last()) == ("live", "done")
    (record,) = world.log.records
    assert (record.actor, record.action, record.status) == ("schedule", "policy.publish", "ok")
    after = msgspec.json.decode(record.detail["after"])
    assert (after["scheduled_by"], after["approved_by"], after["late_s"]) == ("Cleo", "Bob", 0)
    done = [(each.actor, each.action) for each in await world.store.history("org:acme")]
    assert done[-2:] == [("Cleo", "schedule"), ("schedule", "publish")]
    last = (await world.store.history("org:acme"))[-1].reason
    assert last == "scheduled by Cleo: publish at 2027-01-15T09:00:00Z; T-9"


async def test_what_was_missed_is_done_late_and_says_how_late(world: World) -> None:
    number = await world.approved()
    await world.at(number, action="canary")
    world.clock.advance(3 * 3_600.0 + 90)
    await world.process().tend()

    version = await world.store.version("org:acme", number)
    assert (version.state, version.percent) == ("canary", 10.0)
    assert (await world.store.history("org:acme"))[-1].reason.endswith("late by 2:01:30")
    assert msgspec.json.decode(world.log.records[0].detail["after"])["late_s"] == 7_290
    (schedule,) = await world.store.schedules.of("org:acme")
    assert schedule.late_us == 7_290_000_000


async def test_what_was_published_meanwhile_wins_and_the_refusal_stays_to_be_seen(
    world: World,
) -> None:
    first, second = await world.approved(), await world.approved()
    await world.at(first)
    await world.store.act("org:acme", second, "publish", "Bob")
    (waiting,) = await world.store.schedules.open(0)
    expected = f"version {second} is live now; none was when this was ordered"
    assert await world.store.schedules.conflict(waiting) == expected
    world.clock.advance(3_600.0)
    await world.process().tend()

    assert (await world.state(first), await world.state(second)) == ("approved", "live")
    (refused,) = await world.store.schedules.open(0)
    assert (refused.state, refused.said) == ("refused", expected)
    (record,) = world.log.records
    assert (record.action, record.status, record.error) == ("policy.publish", "failed", "conflict")
    assert (await world.store.history("org:acme"))[-1].action == "schedule_refused"
    # It is over when somebody decides again.
    await world.at(first)
    assert [each.state for each in await world.store.schedules.open(0)] == ["waiting"]


async def test_a_trial_that_began_meanwhile_is_not_ended_by_a_clock(world: World) -> None:
    first, second = await world.approved(), await world.approved()
    await world.at(first)
    await world.store.act("org:acme", second, "canary", "Bob", percent=5.0)
    world.clock.advance(3_600.0)
    await world.process().tend()
    assert (await world.state(second), await world.last()) == ("canary", "refused")


async def test_what_was_done_by_hand_or_undone_or_called_off_waits_for_nothing(
    world: World,
) -> None:
    store = world.store
    published, halted, cancelled = [await world.approved() for _ in range(3)]
    await world.at(published)
    await store.act("org:acme", published, "publish", "Bob")
    await store.act("org:acme", halted, "canary", "Bob", percent=5.0)
    await world.at(halted)
    await store.act("org:acme", halted, "stop", "guard")
    await world.at(cancelled)
    await store.schedules.cancel("org:acme", cancelled, "Dan", "not yet")
    with pytest.raises(RequestInvalid, match="nothing is scheduled"):
        await store.schedules.cancel("org:acme", cancelled, "Dan", "again")

    world.clock.advance(3_600.0)
    await world.process().tend()
    assert world.log.records == []
    found = await store.schedules.of("org:acme")
    assert {each.state for each in found} == {"cancelled"}
    assert [each.said for each in found] == ["publish by Bob", "stop by guard", "not yet"]


async def test_only_what_is_approved_may_wait_and_only_for_a_time_to_come(world: World) -> None:
    draft = (await world.store.draft("org:acme", ONE, "Ann")).number
    with pytest.raises(RequestInvalid, match="is draft: only what is approved"):
        await world.at(draft)
    with pytest.raises(RequestInvalid, match="version 9 is not there"):
        await world.at(9)
    number = await world.approved()
    for after_us in (0, -HOUR_US, 367 * 24 * HOUR_US):
        with pytest.raises(RequestInvalid, match="within a year"):
            await world.at(number, after_us)
    with pytest.raises(RequestInvalid, match="publish, canary"):
        await world.at(number, action="shadow")
    assert await world.store.schedules.of("org:acme") == []


async def test_what_cannot_be_recorded_is_not_done_and_is_tried_again(world: World) -> None:
    number = await world.approved()
    await world.at(number)
    world.clock.advance(3_600.0)
    world.log.failing = True
    with pytest.raises(AuditUnavailable):
        await world.process().tend()
    assert (await world.state(number), await world.last()) == ("approved", "waiting")
    world.log.failing = False
    await world.process().tend()
    assert (await world.state(number), await world.last()) == ("live", "done")
