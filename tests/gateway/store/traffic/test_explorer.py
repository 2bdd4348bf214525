"""Several logs in one list, page by page: nothing stands there twice, and nothing is left out."""

from collections.abc import AsyncIterator

import pytest

from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.oversight.homes import BY_LABEL
from gateway.oversight.searching import parse
from gateway.store.engine import open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.explorer import Explorer
from gateway.store.traffic.lists import Place, TrafficReader
from gateway.types import AuditRecord


pytestmark = pytest.mark.anyio
NOW_US = 1_795_000_000_000_000
SEARCHES = [
    Search(Source("acme", "outcome"), parse(""), NOW_US),
    Search(Source("-operators", "admin", "acme"), parse(""), NOW_US),
]


@pytest.fixture
async def explorer(database_url: str) -> AsyncIterator[Explorer]:
    """Two logs of four records each: as many at the same time and number in both of them."""
    database = open_database(database_url)
    records = [
        AuditRecord(
            stage="outcome" if log == "acme" else "admin",
            request_id=f"{log}_{number}",
            organisation=log,
            utc_us=NOW_US + number // 2,
            status="ok",
            actor="" if log == "acme" else "ann",
            action="" if log == "acme" else "key.issued",
            detail={} if log == "acme" else {"organisation": "acme"},
        )
        for number in range(4)
        for log in ("acme", "-operators")
    ]
    batch = [
        ProjectedRecord("w1", 1, 100 * place, entry_bytes(encode_record(record)[1]))
        for place, record in enumerate(records)
    ]
    await DatabaseAuditSink(database).store(batch, "w1", START, (1, 10**6))
    yield Explorer(TrafficReader(database, BY_LABEL))
    await database.close()


@pytest.mark.parametrize("limit", range(1, 10))
async def test_pages_follow_each_other_wherever_they_are_cut(
    explorer: Explorer, limit: int
) -> None:
    whole = [row.request_id async for row in explorer.rows(SEARCHES)]
    assert whole == [f"{log}_{number}" for number in (3, 2, 1, 0) for log in ("acme", "-operators")]
    seen: list[str] = []
    before: Place | None = None
    while True:
        page = await explorer.page(SEARCHES, before, limit)
        seen += [row.request_id for row in page.rows]
        if not page.is_more:
            break
        before = Place(page.rows[-1].utc_us, page.rows[-1].sequence)
    assert seen == whole
