"""What accounts are charged with, read once for all of them: as each alone would find it."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Insert, func, select

from gateway.store.engine import Database
from gateway.store.money import charged
from gateway.store.money.charged import Charged, spent_of
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.schema.tables import late_bookings
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio
DRAWS = 4
SECOND_US = 1_000_000
SPAN_US = 600 * SECOND_US
START_US = 1_800_000_000_000_000
WORKERS = ("w0", "w1", "w2")
Asked = list[tuple[str, Charged]]


class Counted:
    """A connection that counts the rows which it gives."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.rows = 0

    async def execute(self, query: Any) -> Sequence[Any]:
        found: Sequence[Any] = (await self._connection.execute(query)).all()
        self.rows += len(found)
        return found


def row(number: int, stage: str, utc_us: int, **changed: Any) -> Insert:
    found: Insert = filled(
        audit_records,
        organisation="acme",
        sequence=number,
        offset_bytes=number,
        stage=stage,
        utc_us=utc_us,
        **changed,
    )
    return found


async def written(database: Database, rows: Sequence[Insert]) -> None:
    """Nothing but these."""
    log = filled(audit_sequences, organisation="acme")
    async with database.writing() as connection:
        for table in (audit_records, audit_sequences, late_bookings):
            await connection.execute(table.delete())
        for each in (log, *rows):
            await connection.execute(each)


def drawn(draw: random.Random, count: int) -> list[Insert]:
    """Requests of every kind, and that the cost of some was booked late."""
    rows: list[Insert] = []
    late = []
    for request in range(count):
        at_us = START_US + draw.randrange(SPAN_US // SECOND_US) * SECOND_US
        duration_us = draw.choice([0, 1, 5, 90]) * SECOND_US
        names = {
            "request_id": f"req_{request}",
            "workspace": draw.choice(["lab", "shop"]),
            "project": draw.choice(["p0", "p1"]),
            "key_id": draw.choice(["k0", "k1"]),
            "subject": draw.choice(["", "ann", "bob/x"]),
        }
        for _ in range(draw.choice([0, 1, 1, 1, 2])):
            moment_us = at_us + draw.randrange(-2, 3) * SECOND_US
            by = draw.choice(WORKERS)
            rows.append(row(len(rows) + 1, "intent", moment_us, worker=by, **names))
        ended = {"worker": draw.choice(WORKERS), "duration_us": duration_us}
        cost = {"cost_microusd": 1 << (request % 40)}
        rows.append(row(len(rows) + 1, "outcome", at_us + duration_us, **ended, **cost, **names))
        if draw.random() < 0.1:
            late.append(filled(late_bookings, request_id=f"req_{request}"))
    return [*rows, *late]


def accounts(draw: random.Random) -> Asked:
    """Limits of each kind, set at any moment or before all, and heard of sooner or later."""
    names = ["org:acme", "ws:acme/lab", "proj:acme/shop/p1", "key:k0", "key:k1"]
    names += ["user:acme/ann", "user:acme/bob/x", "user:acme/*", "org:none"]
    asked: Asked = []
    for name in draw.sample(names, draw.randrange(1, len(names))):
        begun_us = START_US + draw.choice([-700, *range(0, 600, 50)]) * SECOND_US
        heard = {
            worker: begun_us + draw.randrange(-15, 30) * SECOND_US
            for worker in WORKERS
            if draw.random() < 0.5
        }
        for since_us in (begun_us, begun_us + 60 * SECOND_US):
            asked.append((name, Charged(since_us, heard, draw.choice([None, begun_us]))))
    return asked


async def alone(connection: Any, account: str, since: Charged) -> int:
    """What one account is charged with, by the words that say it of one."""
    columns = audit_records.c
    kind, _, rest = account.partition(":")
    if kind == "key":
        own = [columns.key_id == rest]
    else:
        second = [columns.subject] if kind == "user" else [columns.workspace, columns.project]
        parts = rest.split("/", len(second))
        own = [
            column == part
            for column, part in zip([columns.organisation, *second], parts, strict=False)
        ]
    query = select(func.sum(columns.cost_microusd)).where(
        *own, columns.stage == "outcome", *since.outcomes()
    )
    return int((await connection.execute(query)).scalar_one() or 0)


@pytest.mark.parametrize("spans_max", [2, 1000])
async def test_all_are_charged_at_once_with_what_each_alone_would_be(
    database: Database, monkeypatch: pytest.MonkeyPatch, spans_max: int
) -> None:
    monkeypatch.setattr(charged, "_SPANS_MAX", spans_max)
    for seed in range(DRAWS):
        draw = random.Random(seed)
        await written(database, drawn(draw, 80))
        asked = accounts(draw)
        async with database.reading() as connection:
            found = await spent_of(connection, asked)
            assert found == [await alone(connection, *each) for each in asked], seed


@pytest.mark.either
async def test_what_others_spent_while_a_limit_was_set_is_added_up_not_read_one_by_one(
    database: Database,
) -> None:
    """Limits set minutes apart under dense traffic had all of it read with its intents."""
    keys, each_s = 20, 3
    rows = [
        row(
            number + 1,
            "outcome",
            START_US + number // keys * each_s * SECOND_US + SECOND_US,
            request_id=f"req_{number}",
            key_id=f"k{number % keys}",
            worker="w0",
            duration_us=SECOND_US // 2,
            cost_microusd=1,
        )
        for number in range(keys * 120)
    ]
    asked = [
        (f"key:k{key}", Charged(START_US + (key * 61 + late_s) * SECOND_US, {}, None))
        for key in range(5)
        for late_s in (0, 60)
    ]
    asked += [(name, Charged(us.since_us, {}, us.since_us - 60 * SECOND_US)) for name, us in asked]
    await written(database, rows)
    async with database.reading() as connection:
        counted = Counted(connection)
        found = await spent_of(counted, asked)
        assert found == [await alone(connection, *each) for each in asked]
    assert counted.rows < len(rows) / 4
