"""Exports: everything that matches, while only a page of it is held."""

from collections.abc import AsyncIterator
from functools import partial

import msgspec
import pytest

from admin.traffic.exports import lines_of
from gateway.audit.entries import encode_record, entry_bytes
from gateway.audit.projecting.projection import START, ProjectedRecord
from gateway.oversight.homes import BY_LABEL
from gateway.oversight.searching import parse
from gateway.store.engine import open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.identity.key_names import KeyNames
from gateway.store.traffic import lists as traffic
from gateway.store.traffic.conditions import Search, Source
from gateway.store.traffic.lists import Page, Place, Row, TrafficReader
from gateway.types import AuditRecord


pytestmark = pytest.mark.anyio
NOW_US = 1_795_000_000_000_000
COUNT = 1_300
AT_ONCE = 100
PIECE = 200
"""So many rows are written at once; see `admin.traffic.exports`."""


class Counted(TrafficReader):
    """Notes how many rows it has read."""

    read = 0

    async def page(self, search: Search, before: Place | None = None, limit: int = 50) -> Page:
        page = await super().page(search, before, limit)
        self.read += len(page.rows)
        return page


@pytest.mark.parametrize("form", ["csv", "jsonl"])
async def test_an_export_holds_no_more_than_a_page_and_a_piece_of_it(
    database_url: str, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(traffic, "_READ_ROWS", AT_ONCE)
    database = open_database(database_url)
    batch = []
    for number in range(COUNT):
        record = AuditRecord(
            stage="outcome",
            request_id=f"req_{number:05}",
            organisation="acme",
            utc_us=NOW_US - number * 1_000,
            status="ok",
        )
        raw = entry_bytes(encode_record(record)[1])
        batch.append(ProjectedRecord("w1", 1, number, raw))
    await DatabaseAuditSink(database).store(batch, "w1", START, (1, COUNT))
    reader = Counted(database, BY_LABEL)
    search = Search(Source("acme", "outcome"), parse(""), NOW_US + 1)
    rows: AsyncIterator[Row] = reader.rows(search)
    written, held_most = b"", 0
    names_of = partial(KeyNames(database).names, "acme")
    async for piece in lines_of(rows, form, names_of):
        written += piece
        sent = written.count(b"\n") - (form == "csv")
        held_most = max(held_most, reader.read - sent)
    assert held_most <= AT_ONCE + PIECE
    assert reader.read == COUNT
    lines = written.decode().splitlines()
    if form == "jsonl":
        found = [msgspec.json.decode(line)["request_id"] for line in lines]
        assert found == [f"req_{number:05}" for number in range(COUNT)]
    assert len(lines) == COUNT + (form == "csv")
    await database.close()
