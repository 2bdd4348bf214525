"""The weekly report of reveals: every week, once, whoever makes it and whatever fails meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gateway.audit.memory import MemoryAuditLog
from gateway.audit.projecting.projection import ProjectedRecord
from gateway.clock import StoppedClock
from gateway.errors import AuditUnavailable
from gateway.money.alerting import Alerting
from gateway.oversight.deeds import Deeds
from gateway.store.custody.orders import Custody
from gateway.store.custody.reveal_reports import RevealReports, weeks_before
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.schema.tables import organisations
from gateway.types import AuditRecord, Receipt
from gateway.worker.reporting import ACTION, RevealReporting, report_message


pytestmark = pytest.mark.anyio
DAY_S = 86_400.0
WEEK_S = 7 * DAY_S
# A Wednesday, ten in the morning in London.
BEGIN_US = int(datetime(2027, 1, 13, 10, tzinfo=UTC).timestamp()) * 1_000_000


class Hook:
    """A web hook that refuses as often as it is told to."""

    def __init__(self) -> None:
        self.refuses = 0
        self.told: list[dict[str, Any]] = []

    async def post(self, body: bytes, about: str = "") -> bool:
        await asyncio.sleep(0)
        if self.refuses:
            self.refuses -= 1
            return False
        self.told.append(msgspec.json.decode(body))
        return True


class ProjectedLog(MemoryAuditLog):
    """A log whose records are in the database at once; it may be full, or die after a record."""

    def __init__(self, sink: DatabaseAuditSink, worker: str) -> None:
        super().__init__()
        self._sink, self._worker, self._at = sink, worker, 0
        self.is_full = self.dies_after = False

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        if self.is_full:
            raise AuditUnavailable("full")
        receipt = await super().append(record, content)
        raw = b'{"record":%b}' % msgspec.json.encode(record)
        row = ProjectedRecord(self._worker, 1, self._at, raw, record)
        places = (1, self._at), (1, self._at + 1)
        assert await self._sink.store([row], self._worker, *places)
        self._at += 1
        if self.dies_after:
            raise ConnectionResetError("the worker is gone")
        return receipt


class World:
    """Two workers of one installation."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.clock = StoppedClock(BEGIN_US)
        self.sink = DatabaseAuditSink(database)
        self.hook = Hook()
        self.logs = [ProjectedLog(self.sink, f"w{number}") for number in range(2)]
        self.workers = [
            RevealReporting(database, self.sink, Deeds(log, self.clock), self.clock, self.hook)
            for log in self.logs
        ]
        self.custody = Custody(database, self.logs[0], self.clock)
        self.reports = RevealReports(database, self.clock)

    async def tend(self) -> None:
        await asyncio.gather(*(worker.tend() for worker in self.workers))

    async def reveal(self, ticket: str) -> None:
        asked = await self.custody.ask_reveal(
            "ann", "acme", "", reason="a complaint", ticket=ticket, minutes=30
        )
        await self.custody.approve_reveal("bob", asked.id)
        await self.custody.use_reveal("ann", asked.id)
        self.clock.advance(1.0)

    async def move(self, time_zone: str) -> None:
        """The organisation is elsewhere from now on."""
        async with self.database.writing() as connection:
            change = organisations.update().where(organisations.c.name == "acme")
            await connection.execute(change.values(time_zone=time_zone))

    def recorded(self) -> list[AuditRecord]:
        """Reports in the logs of both, of acme."""
        every = [record for log in self.logs for record in log.records if record.action == ACTION]
        return [each for each in every if each.detail["organisation"] == "acme"]

    def told(self) -> list[dict[str, Any]]:
        return [each for each in self.hook.told if each["organisation"] == "acme"]


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    world = World(database)
    for log in world.logs:
        await log.start()
    async with database.writing() as connection:
        row = {"name": "acme", "title": "", "created_us": BEGIN_US - 1, "time_zone": "UTC"}
        await connection.execute(organisations.insert(), row)
    yield world
    await database.close()


async def test_a_week_is_reported_once_by_two_workers(world: World) -> None:
    await world.reveal("T-1")
    await world.reveal("T-2")
    world.clock.advance(5 * DAY_S - 10.1 * 3_600.0)  # Monday, before one
    await world.tend()
    assert not world.recorded()  # What was approved before midnight may be open still.
    world.clock.advance(10.0 * 3_600.0)
    await world.reveal("T-3")  # of the next week
    for _ in range(3):
        await world.tend()
        world.clock.advance(61.0)

    (record,) = world.recorded()
    assert record.actor == "gateway"
    assert record.detail["week"] == "2027-01-11"
    named = ("asked", "approved", "readings", "people")
    assert [record.detail[name] for name in named] == ["2", "2", "2", "1"]
    listed = msgspec.json.decode(record.detail["after"])
    assert [each["ticket"] for each in listed] == ["T-1", "T-2"]
    (message,) = world.told()
    assert (message["event"], message["asked"]) == ("reveals.reported", 2)
    assert message["until_us"] - message["since_us"] == round(WEEK_S * 1e6)
    (report,) = await world.reports.of("acme")
    assert (report.asked, report.readings) == (2, 2)
    assert 0 < report.made_us <= report.sent_us


async def test_what_was_read_after_its_week_is_in_the_report_of_the_next(world: World) -> None:
    """Asked on Sunday before midnight, agreed to and read on Monday."""
    world.clock.advance(4 * DAY_S + 13.9 * 3_600.0)
    late = await world.custody.ask_reveal(
        "ann", "acme", "", reason="a complaint", ticket="T-1", minutes=60
    )
    open_still = await world.custody.ask_reveal(
        "ann", "acme", "", reason="a complaint", ticket="T-2", minutes=60
    )
    await world.custody.approve_reveal("bob", open_still.id)
    world.clock.advance(0.2 * 3_600.0)  # Monday
    await world.tend()
    await world.custody.use_reveal("ann", open_still.id)
    world.clock.advance(1.1 * 3_600.0)
    await world.tend()
    await world.custody.approve_reveal("bob", late.id)
    for _ in range(3):
        await world.custody.use_reveal("ann", late.id)
    world.clock.advance(2 * WEEK_S)
    await world.tend()

    first, second, third = sorted(world.recorded(), key=lambda each: each.detail["week"])
    named = ("asked", "approved", "readings", "people")
    assert [first.detail[name] for name in named] == ["2", "1", "1", "1"]
    assert [second.detail[name] for name in named] == ["0", "1", "3", "1"]
    assert [third.detail[name] for name in named] == ["0", "0", "0", "0"]
    assert [each["ticket"] for each in msgspec.json.decode(second.detail["after"])] == ["T-1"]
    seen = await world.reports.since(0, None)
    assert [each.readings for each in seen] == [3, 1]


async def test_every_week_follows_also_one_without_reveals_and_those_that_were_missed(
    world: World,
) -> None:
    world.clock.advance(5 * DAY_S)
    await world.tend()
    world.clock.advance(3 * WEEK_S)  # Nobody ran.
    await world.tend()
    weeks = sorted(record.detail["week"] for record in world.recorded())
    assert weeks == ["2027-01-11", "2027-01-18", "2027-01-25", "2027-02-01"]
    assert {record.detail["asked"] for record in world.recorded()} == {"0"}
    assert len(world.told()) == 4
    assert not await world.reports.since(0, None)  # Nothing in them that somebody must see.


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Asia/Kolkata", "America/New_York"),
        ("America/New_York", "Asia/Kolkata"),
        ("Pacific/Kiritimati", "Pacific/Pago_Pago"),
        ("Pacific/Pago_Pago", "Pacific/Kiritimati"),
    ],
)
async def test_an_organisation_that_moves_has_each_moment_in_one_report(
    world: World, before: str, after: str
) -> None:
    """Westwards the week that was reported begins again; eastwards the next one before its end."""
    await world.move(before)
    world.clock.advance(6 * DAY_S)
    await world.tend()
    await world.move(after)
    for _ in range(6 * 4):
        await world.reveal("T")
        world.clock.advance(DAY_S / 4 - 1.0)
        await world.tend()
    world.clock.advance(2 * WEEK_S + DAY_S)
    await world.tend()

    told = sorted(world.recorded(), key=lambda each: int(each.detail["since_us"]))
    spans = [(int(each.detail["since_us"]), int(each.detail["until_us"])) for each in told]
    assert all(earlier[1] == later[0] for earlier, later in pairwise(spans))
    assert [each.detail["week"] for each in told] == [
        "2027-01-11",
        "2027-01-18",
        "2027-01-25",
        "2027-02-01",
    ]
    assert sum(int(each.detail["asked"]) for each in told) == 24
    days = [(until_us - since_us) / (DAY_S * 1e6) for since_us, until_us in spans]
    assert all(5.5 < each < 8.5 for each in days)
    last = datetime.fromtimestamp(spans[-1][1] / 1e6, ZoneInfo(after))
    assert (last.weekday(), last.hour) == (0, 0)


async def test_a_report_that_was_begun_in_another_zone_keeps_its_span(world: World) -> None:
    world.clock.advance(6 * DAY_S)
    world.logs[0].is_full = True
    with pytest.raises(AuditUnavailable):
        await world.workers[0].tend()
    world.logs[0].is_full = False
    await world.move("America/New_York")
    world.clock.advance(61.0)
    await world.tend()
    (record,) = world.recorded()
    (report,) = await world.reports.of("acme")
    assert record.detail["until_us"] == str(report.until_us)
    assert report.until_us - report.since_us == round(WEEK_S * 1e6)


async def test_weeks_that_a_clock_ahead_reported_are_reported_when_they_are_over(
    world: World,
) -> None:
    world.clock.advance(4.7 * DAY_S)  # Monday, before three
    await world.tend()
    world.clock.jump(2 * WEEK_S + DAY_S / 4)
    await world.tend()
    world.clock.jump(-2 * WEEK_S - DAY_S / 4)
    for _ in range(3):
        await world.reveal("T")
        world.clock.advance(WEEK_S)
        await world.tend()
        await world.tend()

    weeks = [(each.detail["week"], each.detail["asked"]) for each in world.recorded()]
    assert sorted(weeks) == [
        ("2027-01-11", "0"),
        ("2027-01-18", "0"),  # by the clock that was ahead
        ("2027-01-18", "1"),
        ("2027-01-25", "0"),
        ("2027-01-25", "1"),
        ("2027-02-01", "1"),
    ]
    counted = {each.since_us: each.asked for each in await world.reports.of("acme")}
    assert sorted(counted.values()) == [0, 1, 1, 1]


async def test_what_a_worker_left_half_done_is_done_once_by_another(world: World) -> None:
    await world.reveal("T-1")
    world.clock.advance(5 * DAY_S)
    first, second = world.workers
    world.logs[0].dies_after = True
    with pytest.raises(ConnectionResetError):
        await first.tend()
    await second.tend()  # Claimed a moment ago by somebody who may yet be at it.
    assert not world.told()
    world.clock.advance(61.0)
    await second.tend()
    assert len(world.recorded()) == 1
    assert len(world.told()) == 1


async def test_while_somebody_is_at_a_week_the_next_one_waits(world: World) -> None:
    world.clock.advance(5 * DAY_S)
    first, second = world.workers
    await second.tend()
    world.clock.advance(2 * WEEK_S)
    world.logs[0].is_full = True
    with pytest.raises(AuditUnavailable):
        await first.tend()
    await second.tend()
    assert len(world.recorded()) == 1
    world.clock.advance(61.0)
    await second.tend()

    weeks = [each.detail["week"] for each in world.recorded()]
    assert weeks == ["2027-01-11", "2027-01-18", "2027-01-25"]


async def test_what_was_agreed_to_in_another_week_counts_there_also_where_nobody_ran(
    world: World,
) -> None:
    world.clock.advance(5 * DAY_S)
    await world.tend()
    world.clock.advance(6 * DAY_S)  # Sunday
    asked = await world.custody.ask_reveal(
        "ann", "acme", "", reason="a complaint", ticket="T-1", minutes=60
    )
    world.clock.advance(0.6 * DAY_S - 60.0)
    await world.custody.approve_reveal("bob", asked.id)
    await world.custody.use_reveal("ann", asked.id)
    world.clock.advance(2 * WEEK_S)
    await world.tend()

    _, first, second = sorted(world.recorded(), key=lambda each: each.detail["week"])[:3]
    named = ("asked", "approved", "readings")
    assert [first.detail[name] for name in named] == ["1", "0", "0"]
    assert [second.detail[name] for name in named] == ["0", "1", "1"]


async def test_a_full_log_and_a_hook_that_refuses_only_delay_it(world: World) -> None:
    world.clock.advance(5 * DAY_S)
    first = world.workers[0]
    world.logs[0].is_full = True
    with pytest.raises(AuditUnavailable):
        await first.tend()
    world.logs[0].is_full = False
    world.hook.refuses = 10
    world.clock.advance(61.0)
    await first.tend()
    assert (len(world.recorded()), world.told()) == (1, [])
    world.hook.refuses = 0
    await first.tend()
    assert not world.told()
    world.clock.advance(61.0)
    await world.tend()
    assert (len(world.recorded()), len(world.told())) == (1, 1)


async def test_a_web_hook_that_is_new_hears_of_no_old_weeks(world: World) -> None:
    world.clock.advance(5 * DAY_S)
    world.hook.refuses = 10
    await world.workers[0].tend()
    assert world.recorded()
    world.hook.refuses = 0
    world.clock.advance(6 * DAY_S)
    assert [each.organisation for each in await world.reports.due()] == ["acme"]
    world.clock.advance(1.5 * DAY_S)
    assert await world.reports.due() == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York", "Europe/London"])
def test_weeks_begin_on_monday_at_midnight_where_the_organisation_is(zone: str) -> None:
    now = datetime(2027, 4, 7, 12, tzinfo=ZoneInfo(zone))
    weeks = weeks_before("acme", int(now.timestamp()) * 1_000_000, zone, 4)
    assert [week.day for week in weeks] == ["2027-03-08", "2027-03-15", "2027-03-22", "2027-03-29"]
    for earlier, later in pairwise(weeks):
        assert earlier.until_us == later.since_us
    for week in weeks:
        start = datetime.fromtimestamp(week.since_us / 1e6, ZoneInfo(zone))
        assert (start.weekday(), start.hour, start.minute) == (0, 0, 0)


async def test_two_workers_before_a_slow_web_hook_send_each_report_once(world: World) -> None:
    """What one had claimed was given up after a minute, while it still waited for its turn."""
    names = [f"org{number:02d}" for number in range(12)]
    async with world.database.writing() as connection:
        rows = [
            {"name": name, "title": "", "created_us": BEGIN_US, "time_zone": "UTC"}
            for name in names
        ]
        await connection.execute(organisations.insert(), rows)
    world.clock.advance(5 * DAY_S)
    log = world.logs[0]
    await RevealReporting(world.database, world.sink, Deeds(log, world.clock), world.clock).tend()

    class Slow(Hook):
        async def post(self, body: bytes, about: str = "") -> bool:
            world.clock.advance(10.0)
            await Alerting(world.reports, world.hook, report_message).perform()
            return await world.hook.post(body, about)

    await Alerting(world.reports, Slow(), report_message).perform()
    assert sorted(each["organisation"] for each in world.hook.told) == ["acme", *names]
