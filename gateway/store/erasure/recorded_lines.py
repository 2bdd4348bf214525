"""Finds in the records whose the lines of a batch were, for results whose lines are gone."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import select

from gateway.batches import Batch
from gateway.store.engine import Database
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.schema.batches import batches


RECORDS_MAX: Final = 20_000
"""At most this many records are read for one batch, unless all of its records are needed."""


class RecordedLines(Struct, frozen=True):
    """What the records of one batch tell."""

    subjects: Sequence[tuple[int, str]]
    """Numbers of lines and their end users; lines without one are left out."""
    is_whole: bool
    """Whether every record of the batch was read."""


class LineRecords:
    """The records of batches in one database."""

    def __init__(self, database: Database, sink: DatabaseAuditSink) -> None:
        self._database, self._sink = database, sink

    async def of(self, batch: Batch, *, all_of_them: bool) -> RecordedLines:
        """Records written before each line was sent; without `all_of_them`, at most `RECORDS_MAX`.

        Records from before schema 0052 are not found by their batch. Then `RECORDS_MAX` of its key
        are looked at: the key may have made any number of other requests.

        Raises:
            OSError: a segment cannot be read at the moment.
        """
        is_named = await self._is_named(batch)
        query = _query(batch, is_named=is_named)
        most = None if all_of_them and is_named else RECORDS_MAX
        return await self._read(query, batch.batch_id, most)

    async def named(self, organisation: str, batch_id: str, *, all_of_them: bool) -> RecordedLines:
        """The same, by name alone, for a batch that may be forgotten."""
        query = _by_name(organisation, batch_id)
        return await self._read(query, batch_id, None if all_of_them else RECORDS_MAX)

    async def _read(self, query: AuditQuery, batch_id: str, most: int | None) -> RecordedLines:
        subjects, is_whole, looked_at = list[tuple[int, str]](), True, 0
        async for row in self._sink.records(query, strict=True):
            if looked_at == most:
                return RecordedLines(subjects, is_whole=False)
            looked_at += 1
            if not row.projected.raw_json:
                is_whole = False  # Whose line it was cannot be told any more.
                continue
            record = row.projected.record
            if record.subject and record.detail.get("batch") == batch_id:
                subjects.append((int(record.detail.get("line", "0")), record.subject))
        return RecordedLines(subjects, is_whole)

    async def _is_named(self, batch: Batch) -> bool:
        """Whether all records of a batch are found by its name."""
        query = select(batches.c.is_cost_kept).where(batches.c.id == batch.batch_id)
        async with self._database.reading() as connection:
            return bool((await connection.execute(query)).scalar_one_or_none())


def _query(batch: Batch, *, is_named: bool) -> AuditQuery:
    organisation, _, _ = batch.project
    if is_named:
        return _by_name(organisation, batch.batch_id)
    return AuditQuery(
        organisation=organisation,
        stage="intent",
        key_id=batch.key_id,
        since_us=batch.started_us,
        until_us=batch.ended_us + 1,
    )


def _by_name(organisation: str, batch_id: str) -> AuditQuery:
    # Not by time: the records have the clocks of other machines than the batch.
    return AuditQuery(organisation=organisation, stage="intent", batch=batch_id)
