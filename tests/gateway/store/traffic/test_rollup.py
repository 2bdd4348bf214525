"""The rollup: every outcome counted once, in the right hour and day, whoever adds and how often."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime

import anyio
import pytest

from gateway.audit.projection import ProjectedRecord
from gateway.clock import StoppedClock
from gateway.errors import RequestInvalid
from gateway.identity import Peppers
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, Place
from gateway.store.money.leases import LeaseTable
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.traffic.figures import TrafficFigures
from gateway.store.traffic.rollup import BATCH_RECORDS, HOURS_KEPT, Rollup
from gateway.types import AuditRecord, Usage


pytestmark = pytest.mark.anyio
HOUR_US = 3_600_000_000
START_US = 1_793_500_000_000_000


def outcome(number: int, **changes: object) -> AuditRecord:
    draw = random.Random(number)
    fields: dict[str, object] = {
        "stage": draw.choice(["intent", "outcome", "outcome"]),
        "request_id": f"req_{number}",
        "organisation": draw.choice(["acme", "globex"]),
        "utc_us": START_US + draw.randrange(60 * HOUR_US),
        "workspace": "research",
        "project": draw.choice(["bot", "mail"]),
        "key_id": draw.choice(["key1", "key2"]),
        "target": draw.choice(["house", "claude"]),
        "provider": "engine",
        "jurisdiction": draw.choice(["in-house", "us"]),
        "findings": draw.choice([{}, {"email": 2}]),
        "policy_digest": draw.choice(["", "a1" * 32, "b2" * 32]),
        "status": draw.choice(["ok", "ok", "failed", "refused"]),
        "cost_microusd": draw.choice([0, 7, 1_000_003]),
        "usage": Usage(input_tokens=draw.randrange(50), output_tokens=draw.randrange(9)),
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


class Log:
    """Records in the database as the projector stores them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._sink = DatabaseAuditSink(database)
        self._offset = 0
        self.records: list[AuditRecord] = []

    async def store(self, *records: AuditRecord) -> None:
        end = self._offset + len(records)
        batch = [
            ProjectedRecord(
                "w0", 1, self._offset + index, b"{}", known_record=record, known_leaf="0" * 64
            )
            for index, record in enumerate(records)
        ]
        assert await self._sink.store(batch, "w0", (1, self._offset), (1, end))
        self._offset = end
        self.records += records


@pytest.fixture
async def log(database_url: str) -> AsyncIterator[Log]:
    database = open_database(database_url)
    yield Log(database)
    await database.close()


async def sums_are_right(log: Log) -> None:
    """By day and by hour as the plain sums over all records are."""
    figures, spending = TrafficFigures(log.database), SpendingReader(log.database)
    for organisation in ("acme", "globex"):
        own = [r for r in log.records if r.organisation == organisation and r.stage == "outcome"]
        zone = await spending.zone_of(organisation)
        by = ["project", "day", "target"]
        plain = await spending.totals(Period(0, 1 << 62, organisation), by)
        found = await figures.by_day(organisation, "2000-01-01", "2100-01-01", by)
        assert {(*r.group, r.requests, r.input_tokens, r.cost_microusd) for r in plain} == {
            (*s.group, s.requests, s.input_tokens, s.cost_microusd) for s in found
        }, zone
        by_policy = await figures.by_day(
            organisation, "2000-01-01", "2100-01-01", ["policy_digest"]
        )
        assert {row.group[0]: row.cost_microusd for row in by_policy} == {
            row.group[0]: row.cost_microusd
            for row in await spending.totals(Period(0, 1 << 62, organisation), ["policy"])
        }
        hours = await figures.by_hour([organisation], 0, ["hour_us", "key_id"])
        expected: dict[tuple[object, ...], list[int]] = {}
        for record in own:
            group = (record.utc_us // HOUR_US * HOUR_US, record.key_id)
            numbers = expected.setdefault(group, [0, 0, 0, 0, 0, 0])
            is_ok = record.status == "ok"
            for index, is_one in enumerate(
                (
                    *(True, record.status == "failed", record.status == "refused"),
                    *(bool(record.findings), is_ok and not record.cost_microusd),
                )
            ):
                numbers[index] += is_one
            numbers[5] = max(numbers[5], record.utc_us)
        assert {
            s.group: [s.requests, s.failed, s.refused, s.found, s.unpriced, s.last_us]
            for s in hours
        } == expected


async def test_each_outcome_counts_once_however_often_and_by_whomever_it_is_added(log: Log) -> None:
    clock = StoppedClock(START_US)
    first, second = Rollup(log.database, clock), Rollup(log.database, clock)
    for start in (0, 40, 41, 200):
        await log.store(*(outcome(number) for number in range(start, start + 40)))
        async with anyio.create_task_group() as both:
            both.start_soon(first.catch_up)
            both.start_soon(second.catch_up)
        assert await first.catch_up() == 0
        await sums_are_right(log)


async def test_days_are_those_of_the_organisation_also_when_its_time_zone_changes(log: Log) -> None:
    clock = StoppedClock(START_US)
    await KeyStore(log.database, Peppers({1: b"x" * 32}), clock).ensure_place(
        Place("acme", "research", "bot")
    )
    budgets, rollup = LeaseTable(log.database, clock), Rollup(log.database, clock)
    await log.store(*(outcome(number) for number in range(100)))
    await rollup.catch_up()
    for zone in ("Asia/Kathmandu", "America/New_York"):
        await budgets.set_time_zone("acme", zone)
        await rollup.catch_up()
        await sums_are_right(log)


async def test_a_batch_at_a_time_says_how_much_is_left(log: Log) -> None:
    count = BATCH_RECORDS + 10
    records = [outcome(n, organisation="acme", stage="outcome") for n in range(count)]
    await log.store(*records)
    rollup = Rollup(log.database, StoppedClock(START_US))

    assert await rollup.catch_up(batches_max=0) == count
    assert await rollup.catch_up(batches_max=1) == 10
    assert await rollup.catch_up() == 0
    await sums_are_right(log)


async def test_a_key_was_used_when_it_was_and_in_the_last_hour_as_often_as_it_was(log: Log) -> None:
    await log.store(
        outcome(1, organisation="acme", stage="outcome", key_id="k", utc_us=START_US),
        outcome(2, organisation="acme", stage="outcome", key_id="k", utc_us=START_US + 5),
        outcome(3, organisation="acme", stage="intent", key_id="k", utc_us=START_US + 9),
        outcome(4, organisation="globex", stage="outcome", key_id="k", utc_us=START_US + 9),
    )
    await Rollup(log.database, StoppedClock(START_US)).catch_up()
    figures = TrafficFigures(log.database)

    assert await figures.last_used("acme", ["k"]) == {"k": START_US + 5}
    assert await figures.asked_since("acme", "k", START_US + 1) == 1
    assert await figures.asked_since("acme", "k", START_US) == 2
    assert await figures.asked_since("acme", "k", START_US, count_max=1) == 1


async def test_old_hours_are_forgotten_and_their_days_stay(log: Log) -> None:
    await log.store(*(outcome(number) for number in range(50)))
    clock = StoppedClock(START_US + (HOURS_KEPT + 100) * HOUR_US)
    rollup = Rollup(log.database, clock)
    await rollup.catch_up()
    await rollup.tidy()
    figures = TrafficFigures(log.database)

    assert [sums.requests for sums in await figures.by_hour(None, 0, [])] == [0]
    days = await figures.by_day("acme", "2000-01-01", "2100-01-01", ["day"])
    assert (
        date.fromisoformat(days[0].group[0]) == datetime.fromtimestamp(START_US / 1e6, UTC).date()
    )


@pytest.mark.parametrize("by", [["hour_us"], ["day", "day"], ["password"]])
async def test_groups_that_are_none_are_refused(log: Log, by: list[str]) -> None:
    with pytest.raises(RequestInvalid):
        await TrafficFigures(log.database).by_day("acme", "2026-01-01", "2026-02-01", by)
