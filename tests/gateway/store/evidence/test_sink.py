"""The projection of the audit log in both databases."""

import asyncio
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from pyarrow import parquet
from sqlalchemy import event, func, select

from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.export import export_records
from gateway.audit.projecting.parquet import write_parquet
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.audit.projecting.projector import Projector
from gateway.audit.reckoning import OpenIntent, closing, refused
from gateway.audit.segments import segment_path
from gateway.oversight.exporting import as_spans
from gateway.oversight.homes import BY_LABEL
from gateway.oversight.otlp_resource import Source
from gateway.store.engine import Database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.schema.audit import audit_records
from gateway.types import Attempt, AuditRecord, Usage
from tests.gateway.audit.samples import journeys, running
from tests.gateway.audit.test_reckoning import away


pytestmark = pytest.mark.anyio
NOW_US = 1_800_000_000_000_000
End = Callable[[OpenIntent, int], AuditRecord]


@pytest.fixture
def sink(database: Database) -> DatabaseAuditSink:
    return DatabaseAuditSink(database)


def projected(worker: str, offset_bytes: int, record: AuditRecord) -> ProjectedRecord:
    raw = entry_bytes(encode_record(record)[1])
    return ProjectedRecord(worker, 1, offset_bytes, raw)


def outcome(number: int, organisation: str = "acme") -> AuditRecord:
    return AuditRecord(
        stage="outcome",
        request_id=f"r{number}",
        organisation=organisation,
        utc_us=NOW_US + number,
        key_id="abc",
        target="small",
        status="ok",
        cost_microusd=7,
        usage=Usage(input_tokens=3, output_tokens=4),
    )


def batch_of(worker: str, records: Sequence[AuditRecord], start: int = 0) -> list[ProjectedRecord]:
    return [projected(worker, start + 100 * i, record) for i, record in enumerate(records)]


async def all_of(sink: DatabaseAuditSink, query: AuditQuery) -> list[tuple[int, str]]:
    return [(row.sequence, row.projected.record.request_id) async for row in sink.records(query)]


async def test_what_is_stored_comes_back_byte_for_byte(sink: DatabaseAuditSink) -> None:
    batch = batch_of("w1", [outcome(1), outcome(2)])
    assert await sink.store(batch, "w1", START, (1, 200))
    rows = [row async for row in sink.records(AuditQuery())]
    assert [row.projected for row in rows] == batch
    assert [row.sequence for row in rows] == [1, 2]
    assert await sink.positions() == {"w1": (1, 200)}


async def test_beside_the_segments_sqlite_keeps_no_copy_and_reads_them_there(
    database: Database, tmp_path: Path
) -> None:
    sink = DatabaseAuditSink(database, tmp_path)
    async with running(tmp_path) as log:
        receipts = await journeys(log, 0, 300)
        await Projector(tmp_path, sink, recent=log.recent).catch_up()
    async with database.reading() as connection:
        count = select(func.count()).where(audit_records.c.raw.is_not(None))
        copies = (await connection.execute(count)).scalar_one()
    assert copies == (0 if database.kind == "sqlite" else 600)
    rows = [row async for row in sink.records(AuditQuery())]
    rows.sort(key=lambda row: row.projected.offset_bytes)
    assert [row.projected.leaf_hash for row in rows] == [each.leaf_hash for each in receipts]
    newest = await sink.newest(AuditQuery(stage="outcome"), 1)
    assert newest[0].projected.record.request_id == "req_299"


async def test_numbers_are_dense_in_each_organisation(sink: DatabaseAuditSink) -> None:
    first = [outcome(1), outcome(2, "other"), outcome(3)]
    assert await sink.store(batch_of("w1", first), "w1", START, (1, 300))
    second = [outcome(4), outcome(5, "other")]
    assert await sink.store(batch_of("w2", second), "w2", START, (1, 200))
    assert await all_of(sink, AuditQuery()) == [
        (1, "r1"),
        (2, "r3"),
        (3, "r4"),
        (1, "r2"),
        (2, "r5"),
    ]


def of_line(number: int) -> AuditRecord:
    return structs.replace(outcome(number), detail={"batch": "batch_1", "line": "1"})


async def test_a_second_outcome_of_a_line_is_numbered_and_counts_nowhere(
    database: Database, sink: DatabaseAuditSink
) -> None:
    """Whichever worker's it is, in one batch with the first or after it; others' are no concern."""
    first, other = of_line(1), structs.replace(of_line(2), stage="intent")
    late = structs.replace(first, status="failed", cost_microusd=11)
    assert await sink.store(batch_of("w1", [other, first, first]), "w1", START, (1, 300))
    assert await sink.store(batch_of("w2", [late, of_line(2)]), "w2", START, (1, 200))
    assert [number for number, _ in await all_of(sink, AuditQuery())] == [1, 2, 3, 4, 5]
    assert await all_of(sink, AuditQuery(stage="again")) == [(3, "r1"), (4, "r1")]
    assert await all_of(sink, AuditQuery(stage="outcome")) == [(2, "r1"), (5, "r2")]
    assert await sink.outcome("acme", "r1") == first
    (total,) = await SpendingReader(database, BY_LABEL).totals(
        Period(0, 2 * NOW_US), ["organisation"]
    )
    assert (total.requests, total.cost_microusd) == (2, 14)


async def test_the_intent_of_a_parked_line_is_the_newest_of_its_own(
    sink: DatabaseAuditSink,
) -> None:
    line = {"batch": "batch_1", "line": "1", "path": "native_batch"}
    details = [
        *(line, line, line | {"line": "11"}, line | {"batch": "batch_2"}),
        {"batch": "batch_1", "line": "1"},
    ]
    begun = [
        structs.replace(outcome(number), stage="intent", detail=detail)
        for number, detail in enumerate(details, 1)
    ]
    theirs = structs.replace(begun[0], request_id="r9", organisation="other")
    stored = batch_of("w1", [*begun, theirs, structs.replace(begun[1], stage="outcome")])
    assert await sink.store(stored, "w1", START, (1, 700))
    assert await sink.parked("acme", "batch_1", 1) == OpenIntent(begun[1], stored[1].leaf_hash)
    assert await sink.parked("acme", "batch_1", 2) is None
    assert await sink.parked("acme", "batch_3", 1) is None


@pytest.mark.parametrize("end", [closing, refused])
@pytest.mark.parametrize("is_apart", [True, False])
async def test_a_second_end_of_what_was_left_open_counts_nowhere_either(
    database: Database, sink: DatabaseAuditSink, end: End, *, is_apart: bool
) -> None:
    """A disk that hung wrote it after all: what was set aside would be in every sum twice."""
    begun = structs.replace(outcome(1), stage="intent", reserved_microusd=70)
    late = end(OpenIntent(begun, "ab" * 32), NOW_US)
    first = [begun, outcome(2), late, late]
    batches = [first[:3], first[3:]] if is_apart else [first]
    position = START
    for number, batch in enumerate(batches, start=1):
        stored = batch_of("w1", batch, 400 * number)
        assert await sink.store(stored, "w1", position, (number, 300))
        position = (number, 300)
    assert await all_of(sink, AuditQuery(stage="again")) == [(4, "r1")]
    (total,) = await SpendingReader(database, BY_LABEL).totals(
        Period(0, 2 * NOW_US), ["organisation"]
    )
    assert total.cost_microusd == outcome(2).cost_microusd + late.cost_microusd


async def test_what_ended_is_not_ended_by_who_thought_it_open(sink: DatabaseAuditSink) -> None:
    begun = structs.replace(outcome(1), stage="intent")
    late = closing(OpenIntent(begun, "ab" * 32), NOW_US)
    assert await sink.store(batch_of("w1", [begun, outcome(1), late]), "w1", START, (1, 300))
    assert await all_of(sink, AuditQuery(stage="again")) == [(3, "r1")]
    assert await sink.outcome("acme", "r1") == outcome(1)


async def test_what_leaves_the_log_says_which_outcomes_count(sink: DatabaseAuditSink) -> None:
    """A sum of what was exported counted a line twice that two workers had ended."""
    records = [of_line(1), outcome(2), of_line(1)]
    assert await sink.store(batch_of("w1", records), "w1", START, (1, 300))
    lines = [line async for line in export_records(sink.records(AuditQuery()))]
    assert [each.get("ended_again", False) for each in lines] == [False, False, True]
    (resource,) = json.loads(as_spans(lines, {}, Source("w0")))["resourceSpans"]
    spans = resource["scopeSpans"][0]["spans"]
    assert len(spans) == 2
    file = io.BytesIO()
    await write_parquet(export_records(sink.records(AuditQuery())), file)
    table = parquet.ParquetFile(io.BytesIO(file.getvalue())).read()
    assert table.column("ended_again").to_pylist() == [False, False, True]


async def test_of_two_workers_that_store_an_outcome_of_one_line_at_once_one_counts(
    database: Database,
) -> None:
    sinks = [DatabaseAuditSink(database) for _ in range(4)]
    batches = [batch_of(f"w{n}", [of_line(1), of_line(2)]) for n in range(4)]
    await asyncio.gather(
        *(
            sink.store(batch, f"w{n}", START, (1, 200))
            for n, (sink, batch) in enumerate(zip(sinks, batches, strict=True))
        )
    )
    found = [row async for row in sinks[0].records(AuditQuery(stage="outcome"))]
    assert sorted(row.projected.record.request_id for row in found) == ["r1", "r2"]
    assert len(await all_of(sinks[0], AuditQuery(stage="again"))) == 6


async def test_a_batch_from_another_position_is_refused_and_leaves_nothing(
    sink: DatabaseAuditSink,
) -> None:
    assert await sink.store(batch_of("w1", [outcome(1)]), "w1", START, (1, 100))
    late = batch_of("w1", [outcome(2)], start=100)
    assert not await sink.store(late, "w1", START, (1, 200))
    assert not await sink.store(late, "w1", (1, 50), (1, 200))
    assert not await sink.store(batch_of("w2", [outcome(3)]), "w2", (2, 50), (2, 200))
    assert await sink.store(late, "w1", (1, 100), (1, 200))
    assert await all_of(sink, AuditQuery()) == [(1, "r1"), (2, "r2")]


async def test_of_several_that_store_the_same_batch_one_succeeds(
    sink: DatabaseAuditSink,
) -> None:
    batch = batch_of("w1", [outcome(number) for number in range(20)])
    stored = await asyncio.gather(*(sink.store(batch, "w1", START, (1, 2000)) for _ in range(4)))
    assert sorted(stored) == [False, False, False, True]
    assert [sequence for sequence, _ in await all_of(sink, AuditQuery())] == list(range(1, 21))


async def test_workers_that_store_at_once_share_the_numbers_without_a_gap(
    sink: DatabaseAuditSink,
) -> None:
    async def project(worker: str) -> None:
        here = START
        for number in range(10):
            records = [outcome(number), outcome(number, "other")]
            there = (1, 200 * (number + 1))
            batch = batch_of(worker, records, start=200 * number)
            assert await sink.store(batch, worker, here, there)
            here = there

    await asyncio.gather(*(project(f"w{number}") for number in range(4)))
    for organisation in ("acme", "other"):
        found = await all_of(sink, AuditQuery(organisation=organisation))
        assert [sequence for sequence, _ in found] == list(range(1, 41))


async def test_a_record_that_fits_no_column_is_stored_all_the_same(
    sink: DatabaseAuditSink,
) -> None:
    odd = AuditRecord(
        stage="outcome",
        request_id="r\x00" + "x" * 1000,
        organisation="o" * 500,
        utc_us=2**63,
        target="t" * 900,
        http_status=2**40,
        cost_microusd=2**64 - 1,
        usage=Usage(input_tokens=2**64 - 1),
    )
    batch = batch_of("w1", [odd])
    assert await sink.store(batch, "w1", START, (1, 100))
    assert [row.projected async for row in sink.records(AuditQuery())] == batch


async def test_a_nul_where_no_other_text_has_one_is_stored_all_the_same(
    sink: DatabaseAuditSink,
) -> None:
    odd = [
        AuditRecord("outcome", "r1", "acme", NOW_US, findings={"e\x00": 1}),
        AuditRecord("outcome", "r2", "acme", NOW_US, policy_digest="d\x00"),
        AuditRecord("admin", "r3", "acme", NOW_US, detail={"organisation": "o\x00"}),
        AuditRecord("outcome", "r4", "acme", NOW_US, attempts=(Attempt("t", 1, "", 1, 2**64),)),
    ]
    batch = batch_of("w1", odd)
    assert await sink.store(batch, "w1", START, (1, 400))
    assert [row.projected async for row in sink.records(AuditQuery())] == batch


async def test_organisations_of_any_name_are_numbered_each_for_itself(
    sink: DatabaseAuditSink,
) -> None:
    names = ['say "x"', "back\\slash", "12", "1.0", "null", "ä\x00", "ä\ufffd"]
    records = [outcome(number, name) for number, name in enumerate(names)]
    assert await sink.store(batch_of("w1", records), "w1", START, (1, 700))
    assert await sink.store(batch_of("w1", records, 700), "w1", (1, 700), (1, 1400))
    for number, name in enumerate(names[:5]):
        found = await all_of(sink, AuditQuery(organisation=name))
        assert found == [(1, f"r{number}"), (2, f"r{number}")]
    # The database keeps no NUL, so these two are one organisation in it.
    found = await all_of(sink, AuditQuery(organisation="ä\ufffd"))
    assert found == [(1, "r5"), (2, "r6"), (3, "r5"), (4, "r6")]


async def test_what_is_no_record_is_refused_and_leaves_nothing(sink: DatabaseAuditSink) -> None:
    batch = batch_of("w1", [outcome(1)])
    strange = structs.replace(batch[0], offset_bytes=100, raw_json=b'{"record":{"a":1}}')
    with pytest.raises(msgspec.MsgspecError):
        await sink.store([*batch, strange], "w1", START, (1, 200))
    assert await sink.positions() == {}
    assert await all_of(sink, AuditQuery()) == []


async def test_records_are_found_by_what_they_hold(sink: DatabaseAuditSink) -> None:
    records = [
        outcome(1),
        outcome(2, "other"),
        AuditRecord("admin", "r3", "acme", NOW_US + 3, actor="ada", action="key.revoke"),
        outcome(4),
    ]
    await sink.store(batch_of("w1", records), "w1", START, (1, 400))
    assert await all_of(sink, AuditQuery(organisation="acme")) == [(1, "r1"), (2, "r3"), (3, "r4")]
    assert await all_of(sink, AuditQuery(organisation="nobody")) == []
    assert await all_of(sink, AuditQuery(request_id="r2")) == [(1, "r2")]
    assert await all_of(sink, AuditQuery(stage="admin", actor="ada")) == [(2, "r3")]
    between = AuditQuery(since_us=NOW_US + 2, until_us=NOW_US + 4)
    assert await all_of(sink, between) == [(2, "r3"), (1, "r2")]
    of_one = structs.replace(between, organisation="acme")
    assert await all_of(sink, of_one) == [(2, "r3")]
    assert [row.sequence async for row in sink.records(of_one, after=2)] == []
    newest = await sink.newest(AuditQuery(), limit=2)
    assert [row.projected.record.request_id for row in newest] == ["r4", "r3"]
    later = [row.sequence async for row in sink.records(AuditQuery(organisation="acme"), after=1)]
    assert later == [2, 3]


async def test_an_export_longer_than_a_page_is_whole(sink: DatabaseAuditSink) -> None:
    count = 1100
    records = [outcome(number) for number in range(count)]
    await sink.store(batch_of("w1", records), "w1", START, (1, 100 * count))
    found = await all_of(sink, AuditQuery(key_id="abc", status="ok", target="small"))
    assert [sequence for sequence, _ in found] == list(range(1, count + 1))


async def plan_of(
    database: Database, sink: DatabaseAuditSink, query: AuditQuery, after: int
) -> str:
    """How the database finds the page of what matches that begins behind a number."""
    asked: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        asked.append((statement, values))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    async for _ in sink.records(query, after):
        break
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    statement, values = next(each for each in asked if "LIMIT" in each[0])
    async with database.reading() as connection:
        rows = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        return str(rows.all())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_each_page_of_a_batch_or_a_time_is_found_where_it_begins(
    database: Database, sink: DatabaseAuditSink
) -> None:
    """Else all that matches is gone through for each page, and for long ones that is for hours."""
    lines = [
        structs.replace(outcome(at), stage="intent", detail={"batch": "b", "line": f"{at}"})
        for at in range(1200)
    ]
    await sink.store(batch_of("w1", lines), "w1", START, (1, 9))
    batch = AuditQuery(organisation="acme", stage="intent", batch="b")
    time = AuditQuery(organisation="acme", since_us=NOW_US + 300, until_us=NOW_US + 1100)

    assert "ix_audit_records_batch (organisation=? AND batch=? AND stage=? AND sequence>? AND" in (
        await plan_of(database, sink, batch, 700)
    )
    assert "autoindex_audit_records_1 (organisation=? AND sequence>? AND sequence<?" in (
        await plan_of(database, sink, time, 700)
    )
    assert [number for number, _ in await all_of(sink, batch)] == list(range(1, 1201))
    assert [number for number, _ in await all_of(sink, time)] == list(range(301, 1101))
    later = structs.replace(time, since_us=NOW_US + 5000, until_us=None)
    assert await all_of(sink, later) == []
    assert [number for number, _ in await all_of(sink, structs.replace(time, since_us=None))] == (
        list(range(1, 1101))
    )


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_the_numbers_of_a_time_are_looked_for_in_that_time_alone(
    database: Database, sink: DatabaseAuditSink
) -> None:
    """And not from the beginning of the log on, however long that is."""
    await sink.store(batch_of("w1", list(map(outcome, range(5000)))), "w1", START, (1, 9))
    asked: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        asked.append((statement, values))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    found = await sink.span("acme", NOW_US + 4000, NOW_US + 4500)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    statement, values = next(each for each in asked if "FROM audit_records" in each[0])
    async with database.writing() as connection:
        await connection.exec_driver_sql("ANALYZE audit_records")
        await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        rows = await connection.exec_driver_sql(f"EXPLAIN (ANALYZE) {statement}", values)
        said = "\n".join(row[0] for row in rows)

    assert found == (4001, 4500)
    assert "Rows Removed by Filter" not in said


async def test_the_newest_deed_of_a_kind_is_found_by_the_index_of_deeds(
    database: Database, sink: DatabaseAuditSink
) -> None:
    deeds = [
        AuditRecord(
            stage="admin",
            request_id=f"adm_{number}",
            organisation="-operators",
            utc_us=NOW_US + number,
            action=("key.issued", "integrity.checked", "")[number % 3],
            detail={"organisation": ("acme", "globex")[number % 2]},
        )
        for number in range(30)
    ]
    await sink.store(batch_of("w0", deeds), "w0", START, (1, 9))
    query = AuditQuery(organisation="-operators", action="integrity.checked", about="globex")
    asked: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        asked.append((statement, values))

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    found = await sink.newest(query, 1)
    event.remove(database.engine.sync_engine, "before_cursor_execute", note)
    statement, values = next(each for each in asked if "FROM audit_records" in each[0])
    plan = "EXPLAIN QUERY PLAN" if database.kind == "sqlite" else "EXPLAIN"
    async with database.reading() as connection:
        if database.kind == "postgresql":
            await connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        said = str((await connection.exec_driver_sql(f"{plan} {statement}", values)).all())

    assert [row.projected.record.request_id for row in found] == ["adm_25"]
    assert "ix_audit_records_deeds" in said


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_who_acts_on_what_is_missing_is_told_what_cannot_be_read(
    tmp_path: Path, database: Database
) -> None:
    """An export for people goes on without it; a check of the log, or an erasure, must not."""
    async with running(tmp_path) as log:
        await journeys(log, 1, 2)
    sink = DatabaseAuditSink(database, tmp_path)
    await Projector(tmp_path, sink).catch_up()

    async def read(*, strict: bool) -> list[bool]:
        rows = sink.records(AuditQuery(), strict=strict)
        return [bool(row.projected.raw_json) async for row in rows]

    segment = segment_path(tmp_path / "w0", 1)
    with away(segment):
        assert await read(strict=False) == [False] * 4
        with pytest.raises(IsADirectoryError):
            await read(strict=True)
    assert await read(strict=True) == [True] * 4
    segment.unlink()
    assert await read(strict=True) == [False] * 4
