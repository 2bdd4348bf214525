"""Searches of the projection, in both databases, against the same rows searched in memory."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import pytest
from sqlalchemy import text

from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.oversight.homes import BY_LABEL
from gateway.oversight.searching import parse
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.facets import COUNTED
from gateway.store.traffic.lists import Place, Row, TrafficReader
from gateway.types import Attempt, AuditRecord, Usage


pytestmark = pytest.mark.anyio
NOW_US = 1_795_000_000_000_000
COUNT = 240


@dataclass
class World:
    database: Database
    reader: TrafficReader


def outcome(number: int, organisation: str = "acme") -> AuditRecord:
    """Every field takes turns; the newest is the last."""
    at_us = NOW_US - (COUNT - number) * 60_000_000
    is_home = number % 3 == 0
    status = ("ok", "ok", "ok", "refused", "failed", "cancelled")[number % 6]
    return AuditRecord(
        stage="outcome",
        request_id=f"req_{at_us // 1000:012x}{number:016x}",
        organisation=organisation,
        utc_us=at_us,
        workspace="lab",
        project="bot" if number % 2 else "100%_sure",
        key_id=f"key{number % 4}",
        model_requested=("auto", "claude-opus", "Claude-Haiku", "")[number % 4],
        target="" if status == "refused" else ("house" if is_home else "managed-mid"),
        jurisdiction="" if status == "refused" else ("in-house" if is_home else "us"),
        data_class=f"S{number % 5}",
        findings={"EMAIL": 2, "IN_PAN": 1}
        if number % 10 == 0
        else {"URL": 1}
        if number % 7 == 0
        else {},
        detail={"sent": "surrogates" if number % 20 else "blackened"} if number % 10 == 0 else {},
        subject=f"{number % 4:032x}",
        status=status,
        http_status=200 if status == "ok" else 403,
        error="" if status == "ok" else f"{status}_code",
        cost_microusd=number * 1000,
        duration_us=number * 10_000,
        usage=Usage(input_tokens=number, output_tokens=1),
        attempts=(Attempt("t", 200, "", 5, number * 500),),
    )


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    records = [outcome(number) for number in range(COUNT)]
    records += [outcome(number, "umbrella") for number in range(5)]
    for number in range(3):
        detail = {"organisation": ("acme", "umbrella", "")[number], "after": "{}"}
        records.append(
            AuditRecord(
                stage="admin",
                request_id=f"adm_{number}",
                organisation="-operators",
                utc_us=NOW_US + number,
                actor=f"person{number}",
                action="key.issued",
                status="ok",
                detail=detail,
            )
        )
    batch = [
        ProjectedRecord("w1", 1, 100 * i, entry_bytes(encode_record(record)[1]))
        for i, record in enumerate(records)
    ]
    await DatabaseAuditSink(database).store(batch, "w1", START, (1, 10**6))
    yield World(database, TrafficReader(database, BY_LABEL))
    await database.close()


def asking(words: str, source: Source | None = None) -> Search:
    return Search(source or Source("acme", "outcome"), parse(words), NOW_US)


async def found(world: World, words: str) -> list[Row]:
    return [row async for row in world.reader.rows(asking(words))]


Rule = Callable[[Row], bool]
_CASES: dict[str, Rule] = {
    "": lambda _: True,
    "route:in-house": lambda row: row.status != "refused" and row.jurisdiction == "in-house",
    "route:managed": lambda row: row.status != "refused" and row.jurisdiction == "us",
    "route:refused,in-house": lambda row: row.route in ("refused", "in-house"),
    "-route:managed": lambda row: row.route != "managed",
    "status:error": lambda row: row.status != "ok",
    "status:failed,cancelled": lambda row: row.status in ("failed", "cancelled"),
    "model:claude*": lambda row: row.model_requested.lower().startswith("claude"),
    "model:auto,*haiku": lambda row: row.model_requested in ("auto", "Claude-Haiku"),
    "-model:auto": lambda row: row.model_requested != "auto",
    "pii:in_pan": lambda row: "IN_PAN" in dict(row.findings),
    "pii:PAN": lambda _: False,
    "pii:*": lambda row: bool(row.findings),
    "pii:none": lambda row: not row.findings,
    "-pii:URL": lambda row: "URL" not in dict(row.findings),
    "sent:surrogates": lambda row: row.cost_microusd // 1000 % 20 == 10,
    "sent:Blackened pii:in_pan": lambda row: row.cost_microusd // 1000 % 20 == 0,
    "-sent:surrogates,blackened": lambda row: row.cost_microusd // 1000 % 10 != 0,
    "class:s3": lambda row: row.data_class == "S3",
    "key:key2": lambda row: row.key_id == "key2",
    'project:"100%_*"': lambda row: row.project == "100%_sure",
    "project:100%*b": lambda _: False,
    "cost:>0.1": lambda row: row.cost_microusd > 100_000,
    "cost:<=0.1": lambda row: row.cost_microusd <= 100_000,
    "tokens:>=200 tokens:<220": lambda row: 200 <= row.input_tokens + row.output_tokens < 220,
    "ttft:<10ms": lambda row: row.first_byte_us < 10_000,
    "duration:2s": lambda row: row.duration_us == 2_000_000,
    "http:403": lambda row: row.http_status == 403,
    "http:999999999999999": lambda _: False,
    "error:failed_code": lambda row: row.error == "failed_code",
    "since:2h": lambda row: row.utc_us >= NOW_US - 7200 * 10**6,
    "since:3h until:1h pii:*": lambda row: (
        NOW_US - 3 * 3600 * 10**6 <= row.utc_us < NOW_US - 3600 * 10**6 and bool(row.findings)
    ),
    "actor:nobody": lambda _: False,
    f"user:{3:032x}": lambda row: row.key_id == "key3",
    "user:000000*": lambda _: True,
}


@pytest.mark.parametrize("words", _CASES)
async def test_a_filter_finds_exactly_what_it_says_newest_first(world: World, words: str) -> None:
    everything = await found(world, "")
    assert len(everything) == COUNT
    assert [row.utc_us for row in everything] == sorted(
        (r.utc_us for r in everything), reverse=True
    )
    assert await found(world, words) == [row for row in everything if _CASES[words](row)]


async def test_a_request_is_found_by_how_its_id_begins(world: World) -> None:
    one = outcome(100).request_id
    assert [row.request_id for row in await found(world, one)] == [one]
    near = await found(world, one[:13])
    assert one in [row.request_id for row in near]
    assert all(row.request_id.startswith(one[:13]) for row in near)
    assert len(await found(world, "req_")) == COUNT
    assert await found(world, "req_zz") == []


async def test_pages_follow_each_other_without_a_gap_or_a_repetition(world: World) -> None:
    seen: list[Row] = []
    before: Place | None = None
    while True:
        page = await world.reader.page(asking("status:error"), before, limit=7)
        seen += page.rows
        if not page.is_more:
            break
        before = Place(page.rows[-1].utc_us, page.rows[-1].sequence)
    assert seen == await found(world, "status:error")


async def test_looking_is_bounded_says_so_and_goes_on_from_there(world: World) -> None:
    reader = TrafficReader(world.database, BY_LABEL, looked_at=20)
    wanted = await found(world, "key:key2")
    page = await reader.page(asking("key:key2"))
    assert page.looked_back_us is not None
    assert 0 < len(page.rows) < len(wanted)
    assert all(row.utc_us >= page.looked_back_us for row in page.rows)
    assert [row async for row in reader.rows(asking("key:key2"))] == wanted
    assert (await reader.page(asking("since:1d"))).looked_back_us is None


async def test_counts_are_those_of_what_was_found(world: World) -> None:
    counts = await world.reader.counts(asking("pii:*"))
    rows = await found(world, "pii:*")
    assert (counts.rows, counts.is_all) == (len(rows), True)
    assert dict(counts.of["pii"])["IN_PAN"] == COUNT // 10
    assert sum(count for _, count in counts.of["route"]) == len([r for r in rows if r.route])
    assert sum(bucket.ok + bucket.others for bucket in counts.buckets) == len(rows)
    assert len(counts.buckets) <= 60
    starts = [bucket.utc_us for bucket in counts.buckets]
    assert starts == list(range(starts[0], starts[-1] + 1, counts.width_us))
    assert (await world.reader.counts(asking("actor:x"))).buckets == ()


@pytest.mark.parametrize("words", ["pii:*", "class:s3", "status:cancelled", "actor:x", "until:3h"])
async def test_counts_of_a_page_that_is_all_are_those_of_a_search(world: World, words: str) -> None:
    page = await world.reader.page(asking(words), limit=1000)
    fields = (*COUNTED, "kind", "actor", "action")
    counted = await world.reader.counts(asking(words), fields)
    assert await world.reader.counts(asking(words), fields, page) == counted


async def test_deeds_are_found_by_whom_they_are_about(world: World) -> None:
    page = await world.reader.page(asking("", Source("-operators", "admin", "acme")))
    assert [row.actor for row in page.rows] == ["person0"]
    page = await world.reader.page(asking("actor:person1", Source("-operators", "admin")))
    assert [(row.about, row.action) for row in page.rows] == [("umbrella", "key.issued")]


async def test_few_among_many_are_found_along_an_index_of_their_own(sqlite_url: str) -> None:
    database = open_database(sqlite_url)
    plans = []
    for where in ("findings <> ''", "status <> 'ok'"):
        query = f"EXPLAIN QUERY PLAN SELECT 1 FROM audit_records WHERE organisation = 'acme' AND stage = 'outcome' AND ({where}) ORDER BY utc_us DESC"  # noqa: S608, E501 - ours
        async with database.reading() as connection:
            plans.append(str((await connection.execute(text(query))).all()))
    await database.close()
    assert "ix_audit_records_found" in plans[0]
    assert "ix_audit_records_not_ok" in plans[1]
