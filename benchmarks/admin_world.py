"""Data for the benchmark of the admin lists: requests as workers record them, and keys.

Each request leaves an intent and an outcome, encoded and laid out in columns by the projection's
own code, so rows are as wide as they are in service (on SQLite, which reads records from the
segments, only the newest keep their bytes). Generated from one seed: every fill is the same.
"""

import random
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import func, insert, select, text

from gateway.assembly.configured_policy import load_policy
from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import ProjectedRecord
from gateway.batches import ID_BYTES, Batch
from gateway.clock import SystemClock
from gateway.configuration.settings import Settings
from gateway.money.budgets import Limit
from gateway.oversight.deeds import OPERATORS
from gateway.projects import Project
from gateway.recorded_facts import RecordedFacts
from gateway.recording.recall import record_facts
from gateway.routing.board import TargetBoard
from gateway.secrets.credentials import master_key
from gateway.store.batching.batches import BatchStore
from gateway.store.engine import Database
from gateway.store.evidence.rows import COLUMNS, NOTHING_KNOWN, rows_of
from gateway.store.money.leases import LeaseTable
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.schema.batches import batch_lines
from gateway.store.schema.tables import projects, virtual_keys, workspaces
from gateway.store.traffic.rollup import Rollup
from gateway.types import Attempt, AuditRecord, Usage
from gateway.worker.pricing import configured_targets
from policies.examples import facts_from_example


ORGANISATION: Final = "acme"
GAP_US: Final = 400_000
KEYS: Final = 10_000
BUSY_KEYS: Final = 40
DEEDS: Final = 20_000
BATCH: Final = 20_000
WITH_BYTES: Final = 10_000
"""How many of the newest rows hold their bytes on SQLite: as many as any page reads."""
MODELS: Final = (
    "auto",
    "claude-sonnet-5",
    "claude-haiku-5",
    "gpt-6.2-sol",
    "house",
    "gpt-6.2-mini",
)
PROJECTS: Final = 12
BATCH_ID: Final = "batch_" + "00" * ID_BYTES
BATCH_LINES: Final = 50_000
"""Every second of the newest requests is a line of one batch, up to this number."""
DIGEST: Final = "0123456789abcdef" * 4


class LateClock(SystemClock):
    """The machine's clock, set back so that it begins where an earlier filled database ends."""

    __slots__ = ("_behind_us",)

    def __init__(self, newest_us: int) -> None:
        self._behind_us = max(0, super().utc_us() - newest_us)

    def utc_us(self) -> int:
        return super().utc_us() - self._behind_us


def request_id(number: int, utc_us: int) -> str:
    return f"req_{utc_us // 1000:012x}{number:016x}"


def key_id(number: int) -> str:
    return "rare" if number == KEYS - 1 else f"k{number:02}"


def outcomes(requests: int, now_us: int, board: str) -> Iterator[AuditRecord]:
    """The records of each request, oldest first."""
    draw = random.Random(1)
    for number in range(requests):
        utc_us = now_us - (requests - number) * GAP_US
        left, is_other = divmod(requests - number, 2)
        line = left if left <= BATCH_LINES and not is_other else 0
        yield from _request(draw, number, utc_us, board, line)


def _request(
    draw: random.Random, number: int, utc_us: int, board: str, line: int
) -> Iterator[AuditRecord]:
    is_home, end, found = draw.random() < 0.6, draw.random(), draw.random()
    status = "ok" if end < 0.96 else "refused" if end < 0.98 else "failed"
    findings = {"PRIVATE_KEY": 1} if found < 0.00005 else {"EMAIL": 2} if found < 0.08 else {}
    chosen = draw.random()
    key = draw.randrange(BUSY_KEYS) if chosen < 0.97 else draw.randrange(BUSY_KEYS, KEYS - 1)
    tokens, is_refused = draw.randrange(4000), status == "refused"
    begun = AuditRecord(
        stage="outcome" if is_refused else "intent",
        request_id=request_id(number, utc_us),
        organisation=ORGANISATION,
        utc_us=utc_us,
        workspace="lab",
        project=f"p{number % PROJECTS}",
        key_id=key_id(7) if line else "rare" if chosen < 0.00005 else key_id(key),
        detail={"batch": BATCH_ID, "line": str(line)} if line else {},
        endpoint="/v1/chat/completions",
        dialect="openai_chat",
        model_requested=draw.choice(MODELS),
        target="" if is_refused else "house" if is_home else "claude",
        provider="" if is_refused else "engine" if is_home else "managed",
        jurisdiction="" if is_refused else "in-house" if is_home else "us",
        decision=DIGEST[:32],
        decision_reason="nothing was closed; the cheapest comes first",
        policy_digest=DIGEST,
        snapshot=DIGEST[:32],
        data_class=f"S{draw.randrange(4)}",
        findings=findings,
        complexity_ppm=draw.randrange(1_000_000),
        candidates=("house", "claude"),
        clearance=("us",),
        reserved_microusd=1234,
        facts=_facts(board, tokens, draw.random()),
    )
    if is_refused:
        yield _changed(begun, status=status, http_status=403, error="policy_refused")
        return
    yield begun
    error = "" if status == "ok" else "upstream_timeout" if end > 0.9999 else "upstream_failed"
    took_us, first_us = draw.randrange(4_000_000), draw.randrange(900_000)
    yield _changed(
        begun,
        stage="outcome",
        utc_us=utc_us + 900_000,
        facts=None,
        candidates=(),
        clearance=(),
        reserved_microusd=0,
        decision_reason="",
        intent=DIGEST,
        status=status,
        http_status=200 if status == "ok" else 502,
        error=error,
        attempts=(Attempt(begun.target, 200, "", took_us, first_us),),
        usage=Usage(input_tokens=tokens, output_tokens=draw.randrange(900)),
        cost_microusd=draw.randrange(60_000) if draw.random() < 0.99 else 90_000,
        price_as_of="2026-01-01",
        duration_us=took_us,
    )


def deeds(now_us: int) -> Iterator[AuditRecord]:
    """The changes of thirty people in the control plane, oldest first."""
    draw = random.Random(2)
    actions = ("key.issued", "policy.published", "traffic.exported", "limit.set")
    for number in range(DEEDS):
        utc_us = now_us - (DEEDS - number) * 20_000_000
        yield AuditRecord(
            stage="admin",
            request_id=f"adm_{number:016x}",
            organisation=OPERATORS,
            utc_us=utc_us,
            actor=f"person{draw.randrange(30)}",
            action=draw.choice(actions),
            status="ok",
            detail={"organisation": ORGANISATION, "after": f'{{"name":"n{number}"}}'},
        )


def _facts(board: str, tokens: int, complexity: float) -> RecordedFacts:
    tier = ("cheap", "mid", "frontier")[int(complexity * 3)]
    example = {"input_tokens_estimate": tokens, "complexity": complexity, "complexity_tier": tier}
    return record_facts(facts_from_example(example), board, None)


def _changed(record: AuditRecord, **changes: Any) -> AuditRecord:
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    return AuditRecord(**fields | changes)


async def fill(database: Database, settings: Settings, requests: int) -> None:
    """Fill in everything in bulk, with the statistics and sums that a running installation has."""
    now_us = SystemClock().utc_us()
    await _keys(database, now_us)
    await _batch(database, settings, now_us)
    board = TargetBoard({each.name: each for each in configured_targets(settings)}, {})
    store = PolicyStore(database, SystemClock())
    await store.keep(load_policy(settings))
    await store.boards.keep(board.digest, board.facts_for(None))
    await _records(database, outcomes(requests, now_us, board.digest), requests * 2)
    await _records(database, deeds(now_us), DEEDS)
    leases = LeaseTable(database, SystemClock())
    for account in (f"org:{ORGANISATION}", *(f"key:{key_id(n)}" for n in range(BUSY_KEYS))):
        await leases.set_limit(Limit(account, 5_000_000_000, "month"))
    await Rollup(database, SystemClock()).catch_up()
    if database.kind == "postgresql":
        # As autovacuum does; it also says which pages everybody may see.
        async with database.engine.connect() as connection:
            apart = await connection.execution_options(isolation_level="AUTOCOMMIT")
            await apart.execute(text("VACUUM ANALYZE"))
    else:
        async with database.writing() as connection:
            await connection.execute(text("ANALYZE"))


async def _records(database: Database, source: Iterator[AuditRecord], about: int) -> None:
    following: dict[str, int] = {ORGANISATION: 1, OPERATORS: 1}
    insert_row = (
        f"INSERT INTO audit_records ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"  # noqa: S608 - our own names
    )
    done, name = 0, ORGANISATION
    while batch := [each for each, _ in zip(source, range(BATCH), strict=False)]:
        keeps = database.kind == "postgresql" or done > about - WITH_BYTES - 2 * BATCH
        name = batch[0].organisation
        projected = [
            ProjectedRecord("w0", 1, at, entry_bytes(encode_record(each)[1]), known_record=each)
            for at, each in enumerate(batch, done)
        ]
        rows = [
            row if keeps else (*row[:-1], None)
            for row in rows_of(projected, following, NOTHING_KNOWN)
        ]
        done += len(batch)
        async with database.writing() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            if database.kind == "postgresql":
                await driver.copy_records_to_table("audit_records", columns=COLUMNS, records=rows)
            else:
                await driver.executemany(insert_row, rows)
    async with database.writing() as connection:
        row = {"organisation": name, "next_sequence": following[name], "open_tiles": b""}
        await connection.execute(insert(audit_sequences), row)


async def _batch(database: Database, settings: Settings, now_us: int) -> None:
    """A batch of very many lines, all answered, that has not ended yet."""
    store = BatchStore(database, master_key(settings), SystemClock(), lambda size: "0" * 2 * size)
    until_us = now_us + 86_400_000_000
    begun = Batch(
        batch_id="batch_",
        kind="messages",
        project=Project(ORGANISATION, "lab", "p1"),
        key_id=key_id(7),
        endpoint="/v1/messages",
        state="validating",
        created_us=now_us - 40_000_000_000,
        expires_us=until_us,
        keep_until_us=until_us,
    )
    made = await store.make(begun)
    assert made.batch_id == BATCH_ID
    await store.begin(made.batch_id, 1)
    rows = [
        {"batch_id": BATCH_ID, "number": number + 1, "state": "succeeded", "holder": ""}
        | dict.fromkeys(("leased_until_us", "due_us", "claims", "failures"), 0)
        | {"sealed_id": b"id", "sealed_body": b""}
        for number in range(BATCH_LINES)
    ]
    async with database.writing() as connection:
        await connection.execute(insert(batch_lines), rows)


async def _keys(database: Database, now_us: int) -> None:
    place = {"organisation": ORGANISATION, "title": "a benchmark", "created_us": now_us}
    async with database.writing() as connection:
        await connection.execute(
            text("INSERT INTO organisations (name, title, created_us) VALUES (:name, '', 0)"),
            {"name": ORGANISATION},
        )
        await connection.execute(insert(workspaces), place | {"name": "lab"})
        rows = [place | {"workspace": "lab", "name": f"p{n}"} for n in range(PROJECTS)]
        await connection.execute(insert(projects), rows)
        keys = [
            {
                "id": key_id(number),
                "organisation": ORGANISATION,
                "workspace": "lab",
                "project": f"p{number % PROJECTS}",
                "name": f"service {number}",
                "digest": number.to_bytes(32, "big"),
                "pepper_version": 1,
                "labels": ["batch"] if number % 3 else [],
                "created_us": now_us - number * 60_000_000,
                "created_by": f"person{number % 30}",
            }
            for number in range(KEYS)
        ]
        await connection.execute(insert(virtual_keys), keys)


async def filled(database: Database) -> int:
    """The time of the newest request in an already filled database; 0 if it is not filled."""
    newest = select(func.max(audit_records.c.utc_us)).where(
        audit_records.c.organisation == ORGANISATION
    )
    async with database.reading() as connection:
        return int(await connection.scalar(newest) or 0)
