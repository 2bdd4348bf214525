"""Costs by what else a record says: end users, labels, findings, hours; filtered by any of it."""

import random
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.clock import StoppedClock
from gateway.errors import RequestInvalid
from gateway.identity import Peppers
from gateway.money.costs import CostRow, total_of
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.money.dimensions import DIMENSIONS, read_only
from gateway.store.money.leases import LeaseTable
from gateway.store.money.spending import Period, SpendingReader
from gateway.types import AuditRecord, Usage


pytestmark = pytest.mark.anyio
HOUR_US = 3_600_000_000
CLOCKS_BACK_US = 1_793_509_200_000_000  # 2026-11-01T01:00:00-04:00, and an hour later -05:00
OWN = Period(0, 1 << 62, "acme")


async def store(database: Database, *records: AuditRecord) -> None:
    batch = [
        ProjectedRecord("w0", 1, place, b"{}", known_record=each, known_leaf="0" * 64)
        for place, each in enumerate(records)
    ]
    assert await DatabaseAuditSink(database).store(batch, "w0", (1, 0), (1, len(records)))


def outcome(number: int, **changes: object) -> AuditRecord:
    fields: dict[str, object] = {
        "stage": "outcome",
        "request_id": f"req_{number}",
        "organisation": "acme",
        "utc_us": CLOCKS_BACK_US,
        "workspace": "research",
        "project": "bot",
        "target": "claude",
        "jurisdiction": "us",
        "status": "ok",
        "usage": Usage(10, 1),
        "cost_microusd": 1,
    }
    return AuditRecord(**(fields | changes))  # type: ignore[arg-type]


async def costs(database: Database, *by: str, **only: str) -> dict[str, int]:
    asked: Mapping[str, set[str]] = {name: {value} for name, value in only.items()}
    rows = await SpendingReader(database, BY_LABEL).totals(OWN, by, asked)
    return {" ".join(row.group): row.cost_microusd for row in rows}


async def test_a_record_says_its_end_user_tier_cache_batch_model_and_route(
    database: Database,
) -> None:
    await store(
        database,
        outcome(1, subject="5e" * 16, model_requested="=auto"),
        outcome(2, usage=Usage(10, 1, service_tier="flex"), cost_microusd=2),
        outcome(3, usage=Usage(10, 1, service_tier="default"), cost_microusd=4),
        outcome(4, detail={"cache": "hit", "cache_of": "req_1"}, usage=None, cost_microusd=0),
        outcome(5, detail={"batch": "batch_1", "line": "0"}, cost_microusd=8),
        outcome(6, jurisdiction="in-house", cost_microusd=16),
        outcome(7, status="refused", target="", cost_microusd=0),
        outcome(8, findings={"email": 2, "card": 1}, cost_microusd=32),
        outcome(9, findings={"email": 1}, cost_microusd=64),
    )

    assert await costs(database, "end_user") == {"": 126, "5e" * 16: 1}
    assert await costs(database, "tier") == {"": 125, "flex": 2}
    assert await costs(database, "cache") == {"": 127, "hit": 0}
    assert await costs(database, "batch") == {"": 119, "batch_1": 8}
    assert await costs(database, "model") == {"": 126, "=auto": 1}
    assert await costs(database, "route") == {"managed": 111, "in-house": 16, "refused": 0}
    assert await costs(database, "finding") == {"": 31, "card email": 32, "email": 64}
    assert await costs(database, "status", finding="email") == {"ok": 96}
    assert await costs(database, "status", finding="email", route="managed") == {"ok": 96}
    assert await costs(database, finding="") == {"": 31}


async def test_a_label_is_one_of_the_keys_as_it_has_them_now(database: Database) -> None:
    keys = KeyStore(database, Peppers({1: b"x" * 32}), StoppedClock())
    place = Place("acme", "research", "bot")
    made = [
        (await keys.issue(NewKey(place, "a key", "ann", labels))).key_id
        for labels in (("cost:42", "alpha"), ("cost:42",), ())
    ]
    await store(
        database, *(outcome(n, key_id=name, cost_microusd=4**n) for n, name in enumerate(made))
    )

    assert await costs(database, "label") == {"alpha cost:42": 1, "cost:42": 4, "": 16}
    assert await costs(database, label="cost:42") == {"": 5}
    assert await costs(database, "key", label="alpha") == {made[0]: 1}


async def test_the_hour_that_comes_twice_is_told_apart_and_its_day_has_25(
    database: Database,
) -> None:
    keys = KeyStore(database, Peppers({1: b"x" * 32}), StoppedClock())
    await keys.ensure_place(Place("acme", "research", "bot"))
    await LeaseTable(database, StoppedClock()).set_time_zone("acme", "America/New_York")
    await store(
        database,
        *(outcome(n, utc_us=CLOCKS_BACK_US + (n - 1) * HOUR_US + n) for n in range(25)),
    )
    hours = await costs(database, "hour")

    assert len(hours) == 25
    assert {"2026-11-01T01:00-04:00", "2026-11-01T01:00-05:00"} <= set(hours)
    assert await costs(database, "day") == {"2026-11-01": 25}
    assert await costs(database, "day", hour="2026-11-01T01:00-05:00") == {"2026-11-01": 1}


async def test_groups_and_filters_of_any_dimensions_add_up_to_all_of_it(
    database: Database,
) -> None:
    draw = random.Random(7)
    records = [
        outcome(
            n,
            utc_us=CLOCKS_BACK_US + draw.randrange(80) * HOUR_US,
            project=draw.choice(["bot", "mail"]),
            subject=draw.choice(["", "5e" * 16]),
            findings=draw.choice([{}, {"card": 1}, {"card": 1, "email": 1}]),
            target=draw.choice(["claude", "house"]),
            cost_microusd=draw.randrange(100),
        )
        for n in range(120)
    ]
    await store(database, *records)
    reader = SpendingReader(database, BY_LABEL)
    whole = CostRow((), 120, 1200, 120, sum(each.cost_microusd for each in records))

    for name in DIMENSIONS:
        other = draw.choice([each for each in DIMENSIONS if each != name])
        rows = await reader.totals(OWN, [name, other])
        assert total_of(rows) == whole
        values = {row.group[0] for row in rows}
        apart = [await reader.totals(OWN, [other], {name: {value}}) for value in values]
        if name not in ("finding", "label"):
            assert total_of(row for each in apart for row in each) == whole
        together = await reader.totals(OWN, (), {name: values})
        assert total_of(together) == whole
    for each in ("shoe_size=1", "project"):
        with pytest.raises(RequestInvalid):
            read_only([each])
    with pytest.raises(RequestInvalid):
        await reader.totals(OWN, ["hour"], groups_max=3)
    first_us = min(each.utc_us for each in records)
    assert datetime.fromtimestamp(first_us / 1e6, UTC).minute == 0
