"""The watch over hours: what is unusually dear is found once, told once, and by the right name."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.clock import StoppedClock
from gateway.drift.hours import Judged
from gateway.identity import Peppers
from gateway.money.alerting import CLAIM_US, Alerting, hour_message
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.traffic.unusual_hours import UnusualHours
from gateway.types import AuditRecord, Usage
from gateway.worker.dear_hours import HourWatch, hour_watch


pytestmark = pytest.mark.anyio
HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
WEDNESDAY_US = 1_794_492_000_000_000
"""Noon and twenty minutes in UTC."""
DOLLAR = 1_000_000
FLOOR = 5 * DOLLAR


class Hook:
    """A web hook that refuses as often as it is told to."""

    def __init__(self) -> None:
        self.refuses = 0
        self.told: list[dict[str, Any]] = []
        self.about: list[str] = []

    async def post(self, body: bytes, about: str = "") -> bool:
        self.about.append(about)
        if self.refuses:
            self.refuses -= 1
            return False
        self.told.append(msgspec.json.decode(body))
        return True


class World:
    """A database with recorded requests, and a worker that watches hours."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = StoppedClock(WEDNESDAY_US)
        self.hook = Hook()
        self.found = UnusualHours(database, self.clock)
        self.watch = self.worker()
        self._sink = DatabaseAuditSink(database)
        self._stored = 0

    def worker(self, floor_microusd: int = FLOOR) -> HourWatch:
        alerting = Alerting(self.found, self.hook, hour_message)
        return HourWatch(self.database, self.clock, floor_microusd, alerting)

    async def key(self, name: str, workspace: str = "research") -> str:
        store = KeyStore(self.database, Peppers({1: b"p" * 32}), self.clock)
        issued = await store.issue(NewKey(Place("acme", workspace, "bot"), name, "ann"))
        return issued.key_id

    async def spend(self, key: str, dollars: float, *days_ago: int, hours_ago: int = 0) -> None:
        """So much in this hour of the day, on each of these days."""
        records = [
            AuditRecord(
                stage="outcome",
                request_id=f"req_{self._stored + number}",
                organisation="acme",
                utc_us=self.clock.utc_us() - ago * DAY_US - hours_ago * HOUR_US,
                workspace="research",
                project="bot",
                key_id=key,
                target="claude",
                status="ok",
                usage=Usage(10, 10),
                cost_microusd=round(dollars * DOLLAR),
            )
            for number, ago in enumerate(days_ago)
        ]
        batch = [
            ProjectedRecord(
                "w0", 1, self._stored + number, b"{}", known_record=each, known_leaf="0" * 64
            )
            for number, each in enumerate(records)
        ]
        end = self._stored + len(batch)
        assert await self._sink.store(batch, "w0", (1, self._stored), (1, end))
        self._stored = end

    async def names(self) -> list[tuple[str, str, int]]:
        rows = await self.found.found(None, 0, 1 << 62, 100)
        return [(each.kind, each.value, each.cost_microusd // DOLLAR) for each in rows]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    yield World(database)
    await database.close()


async def test_a_dear_hour_of_a_key_is_found_and_told_once_with_its_figures(world: World) -> None:
    steady, wild = await world.key("steady"), await world.key("wild")
    await world.spend(steady, 40, *range(22))
    await world.spend(wild, 10, *range(1, 22))
    await world.watch.tend()
    assert await world.names() == []
    await world.spend(wild, 31, 0)
    with capture_logs() as lines:
        await world.watch.tend()
        await world.worker().tend()
    assert await world.names() == [("key", wild, 31)]
    assert [line["event"] for line in lines if "hour" in line["event"]] == ["cost:hour_unusual"]
    assert world.hook.told == [
        {
            "event": "cost.unusual_hour",
            "organisation": "acme",
            "account": f"key:{wild}",
            "level": "key",
            "hour_us": WEDNESDAY_US // HOUR_US * HOUR_US,
            "cost_microusd": 31 * DOLLAR,
            "usual_microusd": 10 * DOLLAR,
            "bound_microusd": 20 * DOLLAR,
            "samples": 15,
        }
    ]
    # The hour goes on: its cost is kept up, and nobody is told twice.
    await world.spend(wild, 9, 0)
    world.clock.advance(300)
    await world.watch.tend()
    assert await world.names() == [("key", wild, 40)]
    assert len(world.hook.told) == 1


async def test_a_team_is_named_where_none_of_its_keys_alone_says_why(world: World) -> None:
    keys = [await world.key(f"key {number}") for number in range(4)]
    for key in keys:
        await world.spend(key, 10, *range(1, 22))
        await world.spend(key, 24, 0)
    other = await world.key("other", "support")
    await world.spend(other, 30, *range(22))
    await world.worker(15 * DOLLAR).tend()
    assert await world.names() == [("team", "research", 96)]
    assert [each["account"] for each in world.hook.told] == ["ws:acme/research"]


async def test_a_key_of_the_hour_before_does_not_say_why_a_team_is_dear_now(world: World) -> None:
    wild, keys = await world.key("wild"), [await world.key(f"key {n}") for n in range(4)]
    for key in keys:
        await world.spend(key, 10, *range(1, 22))
        await world.spend(key, 24, 0)
    await world.spend(wild, 1, *range(1, 22), hours_ago=1)
    await world.spend(wild, 900, 0, hours_ago=1)
    await world.worker(15 * DOLLAR).tend()

    assert sorted(await world.names()) == [("key", wild, 900), ("team", "research", 96)]


async def test_the_two_hours_before_are_looked_at_again_and_none_before_them(world: World) -> None:
    late, over = await world.key("late", "a"), await world.key("over", "b")
    for key, hours_ago in ((late, 2), (over, 3)):
        await world.spend(key, 1, *range(1, 22), hours_ago=hours_ago)
        await world.spend(key, 90, 0, hours_ago=hours_ago)
    await world.watch.tend()

    assert await world.names() == [("key", late, 90)]


async def test_a_web_hook_that_did_not_take_it_is_told_again_after_a_minute(world: World) -> None:
    key = await world.key("wild")
    await world.spend(key, 1, *range(1, 22))
    await world.spend(key, 50, 0)
    world.hook.refuses = 1
    await world.watch.tend()
    await world.watch.tend()
    assert world.hook.told == []
    world.clock.advance(CLAIM_US / 1e6 + 1)
    await world.watch.tend()
    await world.watch.tend()
    assert len(world.hook.told) == 1
    (about,) = set(world.hook.about)
    assert (about.split()[0], len(world.hook.about)) == ("cost.unusual_hour", 2)


async def test_a_web_hook_that_is_new_hears_of_no_old_hours(world: World) -> None:
    key = await world.key("wild")
    await world.spend(key, 1, *range(1, 22))
    await world.spend(key, 50, 0)
    world.hook.refuses = 1
    await world.watch.tend()
    world.clock.advance(2 * 86_400.0)
    await world.watch.tend()
    assert (len(await world.names()), world.hook.told) == (1, [])


async def test_cents_little_history_and_hours_long_over_alarm_nobody(world: World) -> None:
    cents = await world.key("cents")
    young, past = await world.key("young", "new"), await world.key("past")
    await world.spend(cents, 0.01, *range(1, 22))
    await world.spend(cents, 4.9, 0)
    await world.spend(young, 1, 1, 2, 5)
    await world.spend(young, 90, 0)
    await world.spend(past, 1, *range(1, 22), hours_ago=5)
    await world.spend(past, 90, 0, hours_ago=5)
    await world.worker(6 * DOLLAR).tend()
    assert await world.names() == []


async def test_a_floor_of_nothing_watches_nothing(world: World) -> None:
    assert hour_watch(0, world.database, world.clock, None) == ()
    assert len(hour_watch(FLOOR, world.database, world.clock, None)) == 1


async def test_what_was_found_is_kept_for_more_than_a_year_and_then_forgotten(world: World) -> None:
    key = await world.key("wild")
    await world.spend(key, 1, *range(1, 22))
    await world.spend(key, 50, 0)
    await world.watch.tend()
    world.clock.advance(366 * 24 * 3600)
    await world.watch.tend()
    assert len(await world.names()) == 1
    world.clock.advance(40 * 24 * 3600)
    await world.watch.tend()
    assert await world.names() == []


async def test_two_workers_before_a_slow_web_hook_tell_of_each_hour_once(world: World) -> None:
    """What one had claimed was given up after a minute, while it still waited for its turn."""
    now_us = world.clock.utc_us()
    judged = Judged(9, 1, 1, 2, 4)
    for number in range(12):
        await world.found.put("acme", now_us, "team", f"team{number:02d}", judged)

    class Slow(Hook):
        async def post(self, body: bytes, about: str = "") -> bool:
            world.clock.advance(10.0)
            await Alerting(world.found, world.hook, hour_message).perform()
            return await world.hook.post(body, about)

    await Alerting(world.found, Slow(), hour_message).perform()
    assert sorted(each["account"] for each in world.hook.told) == [
        f"ws:acme/team{number:02d}" for number in range(12)
    ]
