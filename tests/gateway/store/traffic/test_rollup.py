"""The rollup: every outcome counted once, in the right hour and day, whoever adds and how often."""

import random
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import anyio
import msgspec
import pytest
from sqlalchemy import delete, update

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.clock import StoppedClock
from gateway.errors import RequestInvalid
from gateway.identity import Peppers
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, Place
from gateway.store.money.leases import LeaseTable
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.schema.rollup import COUNTERS
from gateway.store.traffic.figures import Sums, TrafficFigures
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
    figures, spending = TrafficFigures(log.database), SpendingReader(log.database, BY_LABEL)
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
        await small_tables_are_right(figures, organisation, own)
        await days_end_where_they_do(figures, organisation, own, ZoneInfo(zone))
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


def added(every: Iterable[Sums]) -> dict[tuple[object, ...], tuple[int, ...]]:
    """Sums by group, of rows that may repeat it."""
    found: dict[tuple[object, ...], tuple[int, ...]] = {}
    for each in every:
        *counters, last_us = (getattr(each, name) for name in (*COUNTERS, "last_us"))
        known = found.setdefault(each.group, (0,) * (len(COUNTERS) + 1))
        sums = (one + more for one, more in zip(known, counters, strict=False))
        found[each.group] = (*sums, max(known[-1], last_us))
    return found


async def small_tables_are_right(
    figures: TrafficFigures, organisation: str, own: Sequence[AuditRecord]
) -> None:
    """What is read of smaller tables is what the largest adds up to, in every column."""
    days = ("2000-01-01", "2100-01-01")
    of_day = ["day", "workspace", "project", "target", "provider", "jurisdiction", "policy_digest"]
    of_hour = ["hour_us", "target", "provider", "jurisdiction"]
    for quick, slow in (
        (
            await figures.by_day(organisation, *days, of_day),
            await figures.by_day(organisation, *days, [*of_day, "key_id"]),
        ),
        (
            await figures.by_hour([organisation], 0, of_hour),
            await figures.by_hour([organisation], 0, [*of_hour, "key_id"]),
        ),
        (
            await figures.by_day(organisation, *days, ["day", "key_id"]),
            await figures.by_day(organisation, *days, ["day", "key_id", "target"]),
        ),
    ):
        merged = (msgspec.structs.replace(each, group=each.group[:-1]) for each in slow)
        assert added(quick) == added(merged)
    for by in (["key_id"], ["workspace", "project"], ["day"]):
        found, count, total = await figures.dearest(organisation, days, by, (0, 1000))
        assert count == len(found)
        assert total.requests == len(own) == sum(each.requests for each in found)
        assert total.cost_microusd == sum(each.cost_microusd for each in own)
        assert total.cost_microusd == sum(each.cost_microusd for each in found)
        assert total.input_tokens == sum(each.usage.input_tokens for each in own if each.usage)
        assert total.output_tokens == sum(each.output_tokens for each in found)
        assert [each.cost_microusd for each in found] == sorted(
            (each.cost_microusd for each in found), reverse=True
        )
    for dimension in ("", "target", "key_id"):
        dear = await figures.dear_days(organisation, days, dimension, 1, 1000)
        names = {each.group[0] for each in dear}
        costs = await figures.cost_on(organisation, names, dimension)
        assert sum(costs.values()) == sum(each.cost_microusd for each in own)
        assert {
            ("".join(row.group[:1]), "".join(row.group[1:])): row.cost_microusd for row in dear
        } == {group: cost for group, cost in costs.items() if cost}


async def days_end_where_they_do(
    figures: TrafficFigures, organisation: str, own: Sequence[AuditRecord], zone: ZoneInfo
) -> None:
    """What is read of one day is what its records cost, whichever table it is read of."""
    costs: dict[str, int] = {}
    for record in own:
        at = datetime.fromtimestamp(record.utc_us // 1_000_000, UTC).astimezone(zone)
        costs[str(at.date())] = costs.get(str(at.date()), 0) + record.cost_microusd
    for day, cost in costs.items():
        for by in (["key_id"], ["target"], ["key_id", "target"]):
            rows = await figures.by_day(organisation, day, day, by)
            _, _, total = await figures.dearest(organisation, (day, day), by, (0, 1))
            assert sum(row.cost_microusd for row in rows) == total.cost_microusd == cost
        for dimension in ("", "target", "key_id"):
            dear = await figures.dear_days(organisation, (day, day), dimension, 0, 1000)
            assert sum(row.cost_microusd for row in dear) == cost
            assert sum((await figures.cost_on(organisation, [day], dimension)).values()) == cost


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
    zones = ("Asia/Kathmandu", "America/New_York")
    midnights = [datetime(2026, 11, 2, tzinfo=ZoneInfo(zone)).timestamp() for zone in zones]
    ends = [round(at * 1e6) + beside for at in midnights for beside in (-1, 0, 1)]
    await log.store(*(outcome(n, stage="outcome", utc_us=at) for n, at in enumerate(ends, 100)))
    await rollup.catch_up()
    for zone in zones:
        await budgets.set_time_zone("acme", zone)
        await rollup.catch_up()
        await sums_are_right(log)


async def test_sums_are_made_anew_of_a_projection_that_was(log: Log) -> None:
    rollup = Rollup(log.database, StoppedClock(START_US))
    await log.store(*(outcome(number) for number in range(80)))
    await rollup.catch_up()
    counts = Counter(record.organisation for record in log.records[:50])
    async with log.database.writing() as connection:
        for name, count in counts.items():
            mine = audit_records.c.organisation == name
            await connection.execute(
                delete(audit_records).where(mine, audit_records.c.sequence > count)
            )
            change = update(audit_sequences).where(audit_sequences.c.organisation == name)
            await connection.execute(change.values(next_sequence=count + 1))
    del log.records[50:]
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

    for by in ([], ["key_id"]):
        assert sum(sums.requests for sums in await figures.by_hour(None, 0, by)) == 0
    days = await figures.by_day("acme", "2000-01-01", "2100-01-01", ["day"])
    assert (
        date.fromisoformat(days[0].group[0]) == datetime.fromtimestamp(START_US / 1e6, UTC).date()
    )


@pytest.mark.parametrize("by", [["hour_us"], ["day", "day"], ["password"]])
async def test_groups_that_are_none_are_refused(log: Log, by: list[str]) -> None:
    with pytest.raises(RequestInvalid):
        await TrafficFigures(log.database).by_day("acme", "2026-01-01", "2026-02-01", by)
