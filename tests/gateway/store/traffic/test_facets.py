"""Counts that the database makes, against the same rows counted one by one, in both databases."""

import random
from collections import Counter

import pytest
from sqlalchemy import text

from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.oversight.homes import BY_LABEL
from gateway.oversight.searching import parse
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic import lists as traffic
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.facets import COUNTED, Bucket, Counts
from gateway.store.traffic.lists import Row, TrafficReader
from gateway.types import AuditRecord


pytestmark = pytest.mark.anyio
NOW_US = 1_795_000_000_000_000
SECOND_US = 1_000_000
FIELDS = (*COUNTED, "kind", "actor", "action")
WORDS = (
    "",
    "pii:*",
    "pii:EMAIL",
    "status:error",
    "-status:ok",
    "model:*a*",
    "since:1d",
    "class:s2",
)
ERRORS = ("upstream_failed", "policy_refused", "upstream_timeout", "")
NAMES = ("", "alpha", "Alpha", "beta", "Ünit", "zeta", "100%", "a b", "x'y", "Zeta", "0", "é")


def drawn(seed: int, count: int, over_us: int) -> list[AuditRecord]:
    """Outcomes with any combination of values, in a span of time, not evenly."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        status = draw.choice(["ok", "ok", "ok", "refused", "failed", "cancelled"])
        labels = draw.sample(["EMAIL", "PAN", "PERSON", "IN_PAN"], draw.choice([0, 0, 1, 2]))
        found.append(
            AuditRecord(
                stage="outcome",
                request_id=f"req_{seed}_{number}",
                organisation="acme",
                utc_us=NOW_US - round(over_us * draw.random() ** 3),
                project=draw.choice(NAMES),
                key_id=draw.choice(NAMES),
                model_requested=draw.choice(NAMES),
                target=draw.choice(["", "house", "managed-mid"]),
                jurisdiction=draw.choice(["", "in-house", "us"]),
                data_class=draw.choice(["", "S1", "S2"]),
                findings={label: draw.randrange(1, 4) for label in labels},
                status=status,
                error="" if status == "ok" else draw.choice(ERRORS),
            )
        )
    return found


async def stored(database: Database, records: list[AuditRecord]) -> None:
    batch = [
        ProjectedRecord("w1", 1, 100 * i, entry_bytes(encode_record(record)[1]))
        for i, record in enumerate(records)
    ]
    await DatabaseAuditSink(database).store(batch, "w1", START, (1, 10**9))


def asking(words: str) -> Search:
    return Search(Source("acme", "outcome"), parse(words), NOW_US)


def naive(rows: list[Row], limit: int) -> Counts:
    """The newest rows, each looked at."""
    own = {"model": "model_requested", "class": "data_class", "key": "key_id", "kind": "stage"}
    newest = rows[:limit]
    of = {}
    for field in FIELDS:
        values: Counter[str] = Counter()
        for row in newest:
            said = [label for label, _ in row.findings] if field == "pii" else None
            values.update(said if said is not None else [getattr(row, own.get(field, field))])
        del values[""]
        named = sorted(values.items(), key=lambda each: (-each[1], each[0]))
        of[field] = tuple(named[:8])
    times = [row.utc_us for row in newest]
    steps = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600, 43200, 86400)
    widths = [*(step * SECOND_US for step in steps), *(n * 86400 * SECOND_US for n in range(2, 99))]
    span = max(times) - min(times) if times else 0
    width = next(each for each in widths if span // each < 60)
    buckets = []
    if times:
        for start in range(min(times) // width * width, max(times) + 1, width):
            within = [row for row in newest if start <= row.utc_us < start + width]
            ok = sum(row.status == "ok" for row in within)
            buckets.append(Bucket(start, ok, len(within) - ok))
    return Counts(len(newest), len(rows) < limit, of, tuple(buckets), width)


@pytest.mark.parametrize(
    ("seed", "over_us"),
    [(1, 30 * SECOND_US), (2, 7 * 86400 * SECOND_US), (3, 200 * 86400 * SECOND_US), (4, 1)],
)
async def test_counts_equal_those_of_every_row_looked_at(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int, over_us: int
) -> None:
    await stored(database, drawn(seed, 400, over_us))
    reader = TrafficReader(database, BY_LABEL)
    for words in WORDS:
        rows = [row async for row in reader.rows(asking(words))]
        for limit in (10_000, 37):
            monkeypatch.setattr(traffic, "COUNTED_ROWS", limit)
            assert await reader.counts(asking(words), FIELDS) == naive(rows, limit), words


async def test_nothing_found_is_counted_as_nothing(database: Database) -> None:
    counts = await TrafficReader(database, BY_LABEL).counts(asking(""), FIELDS)
    assert (counts.rows, counts.is_all, counts.buckets) == (0, True, ())
    assert not any(counts.of.values())


async def test_a_record_of_any_length_is_projected_and_found_by_its_beginning(
    database: Database,
) -> None:
    draw = random.Random(7)
    wild = {
        name: "".join(
            chr(draw.choice([0x1F600, 0x4E00, 0x61]) + draw.randrange(60)) for _ in range(900)
        )
        for name in ("model_requested", "target", "provider", "error", "project", "key_id")
    }
    findings = {f"LABEL_{number:03}": number + 10 for number in range(200)}
    record = AuditRecord(
        stage="outcome",
        request_id="req_wild",
        organisation="acme",
        utc_us=NOW_US,
        status="failed",
        findings=findings,
        actor="\x00" + "y" * 4000,
        **wild,  # type: ignore[arg-type]
    )
    await stored(database, [record, *drawn(5, 3, SECOND_US)])
    rows = [
        row
        async for row in TrafficReader(database, BY_LABEL).rows(
            asking(f"model:{wild['model_requested'][:9]}*")
        )
    ]
    assert [row.request_id for row in rows] == ["req_wild"]
    assert wild["model_requested"].startswith(rows[0].model_requested)
    assert len(rows[0].model_requested.encode()) <= 100
    assert rows[0].findings
    assert all(findings[label] == count for label, count in rows[0].findings)


async def test_lists_are_answered_from_an_index_alone(database_url: str) -> None:
    database = open_database(database_url)
    columns = "utc_us, sequence, status, model_requested, findings, cost_microusd"
    asked = {
        "ix_audit_records_listed": "stage = 'outcome' AND model_requested LIKE '%x%'",
        "ix_audit_records_found": "stage = 'outcome' AND (findings <> '')",
        "ix_audit_records_not_ok": "stage = 'outcome' AND (status <> 'ok')",
        "ix_audit_records_others": "(stage <> 'intent' AND stage <> 'outcome') AND stage = 'admin'",
    }
    plan = "EXPLAIN QUERY PLAN" if database.kind == "sqlite" else "EXPLAIN"
    async with database.reading() as connection:
        if database.kind == "postgresql":
            await connection.execute(traffic._ALONG_INDEXES)
        for name, where in asked.items():
            query = f"{plan} SELECT {columns} FROM audit_records WHERE organisation = 'acme' AND {where} ORDER BY utc_us DESC, sequence DESC LIMIT 51"  # noqa: S608, E501 - ours
            said = str((await connection.execute(text(query))).all())
            assert name in said, said
            assert "COVERING" in said or "Index Only" in said, said
            assert "Sort" not in said, said
            assert "TEMP B-TREE" not in said, said
    await database.close()
