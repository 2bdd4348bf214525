"""The database as a projection of the audit log: stored by the projector, searched by people.

Only the segments are evidence; this can be thrown away and rebuilt from them. Each record's bytes
are kept as they are, beside columns that exist to be searched.
"""

from collections import Counter
from collections.abc import AsyncIterator, Mapping

from msgspec import Struct
from sqlalchemy import ColumnElement, RowMapping, Select, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.entries import decode_entry
from gateway.audit.projector import START, Position, ProjectedRecord, SequencedRecord
from gateway.store.engine import Database
from gateway.store.tables import audit_positions, audit_records, audit_sequences


_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
_PAGE = 500
_STORED = (
    audit_records.c.sequence,
    audit_records.c.organisation,
    audit_records.c.worker,
    audit_records.c.segment,
    audit_records.c.offset_bytes,
    audit_records.c.leaf_hash,
    audit_records.c.chain_hash,
    audit_records.c.raw,
)


class AuditQuery(Struct, frozen=True):
    """Which records; every field that is not None must hold."""

    organisation: str | None = None
    stage: str | None = None
    request_id: str | None = None
    workspace: str | None = None
    project: str | None = None
    key_id: str | None = None
    actor: str | None = None
    action: str | None = None
    target: str | None = None
    data_class: str | None = None
    status: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    """Exclusive."""


class _TakenError(Exception):
    """Somebody else moved the position; rolls the transaction back."""


class DatabaseAuditSink:
    """See `gateway.audit.projector.AuditSink`; any number of processes may store at once."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def positions(self) -> Mapping[str, Position]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(audit_positions))).all()
        return {worker: (segment, offset) for worker, segment, offset in rows}

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
    ) -> bool:
        try:
            async with self._database.writing() as connection:
                await self._move(connection, worker, from_position, to_position)
                await self._insert(connection, await self._number(connection, batch))
        except _TakenError:
            return False
        return True

    async def records(self, query: AuditQuery, after: int = 0) -> AsyncIterator[SequencedRecord]:
        """Matching records by organisation and number; with one organisation, those past `after`.

        Read page by page, so that an export of any length holds neither memory nor a transaction.
        """
        place: tuple[str, int] = (query.organisation or "", after)
        key = tuple_(audit_records.c.organisation, audit_records.c.sequence)
        while True:
            page = _matching(query).where(key > place).limit(_PAGE)
            page = page.order_by(audit_records.c.organisation, audit_records.c.sequence)
            async with self._database.reading() as connection:
                rows = (await connection.execute(page)).mappings().all()
            for row in rows:
                yield _record_of(row)
            if len(rows) < _PAGE:
                return
            place = (rows[-1]["organisation"], rows[-1]["sequence"])

    async def newest(self, query: AuditQuery, limit: int = 100) -> list[SequencedRecord]:
        """The last matching records, newest first; for a page of the admin interface."""
        columns = audit_records.c
        page = _matching(query).order_by(
            columns.utc_us.desc(), columns.organisation, columns.sequence.desc()
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(page.limit(limit))).mappings().all()
        return [_record_of(row) for row in rows]

    async def _move(
        self, connection: AsyncConnection, worker: str, here: Position, there: Position
    ) -> None:
        table = audit_positions
        moved = await connection.execute(
            update(table)
            .where(
                table.c.worker == worker,
                table.c.segment == here[0],
                table.c.offset_bytes == here[1],
            )
            .values(segment=there[0], offset_bytes=there[1])
        )
        if moved.rowcount == 1:
            return
        if here != START:
            raise _TakenError
        make = sqlite.insert if self._database.kind == "sqlite" else postgresql.insert
        first = make(table).values(worker=worker, segment=there[0], offset_bytes=there[1])
        made = await connection.execute(first.on_conflict_do_nothing().returning(table.c.worker))
        if made.first() is None:
            raise _TakenError

    async def _number(
        self, connection: AsyncConnection, batch: list[ProjectedRecord]
    ) -> list[SequencedRecord]:
        """Give each record its organisation's next number; locks the counters in one order."""
        counts = Counter(projected.record.organisation for projected in batch)
        make = sqlite.insert if self._database.kind == "sqlite" else postgresql.insert
        following: dict[str, int] = {}
        for organisation, count in sorted(counts.items()):
            first = make(audit_sequences).values(
                organisation=_clean(organisation), next_sequence=count + 1
            )
            raised = first.on_conflict_do_update(
                index_elements=["organisation"],
                set_={"next_sequence": audit_sequences.c.next_sequence + count},
            )
            result = await connection.execute(raised.returning(audit_sequences.c.next_sequence))
            following[organisation] = int(result.scalar_one()) - count
        numbered = []
        for projected in batch:
            organisation = projected.record.organisation
            numbered.append(SequencedRecord(following[organisation], projected))
            following[organisation] += 1
        return numbered

    async def _insert(self, connection: AsyncConnection, records: list[SequencedRecord]) -> None:
        if not records:
            return
        rows = [_row(record) for record in records]
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        # Past SQLAlchemy, whose inserts cost twice (SQLite) and four times (COPY) the time.
        if self._database.kind == "sqlite":
            await driver.executemany(_INSERT_SQLITE, rows)
        else:
            await driver.copy_records_to_table(audit_records.name, columns=_COLUMNS, records=rows)


def _matching(query: AuditQuery) -> Select[tuple[object, ...]]:
    conditions: list[ColumnElement[bool]] = []
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is None:
            continue
        if name == "since_us":
            conditions.append(audit_records.c.utc_us >= value)
        elif name == "until_us":
            conditions.append(audit_records.c.utc_us < value)
        else:
            conditions.append(audit_records.c[name] == value)
    return select(*_STORED).where(*conditions)


def _record_of(row: RowMapping) -> SequencedRecord:
    raw = bytes(row["raw"])
    entry = decode_entry(raw)
    projected = ProjectedRecord(
        worker=row["worker"],
        segment=row["segment"],
        offset_bytes=row["offset_bytes"],
        leaf_hash=bytes(row["leaf_hash"]).hex(),
        chain_hash=bytes(row["chain_hash"]).hex(),
        record=entry.record,
        content=entry.content,
        raw_json=raw,
    )
    return SequencedRecord(row["sequence"], projected)


def _row(numbered: SequencedRecord) -> tuple[object, ...]:
    """One value per column of the table, in its order."""
    projected, record = numbered.projected, numbered.projected.record
    usage = record.usage
    return (
        _clean(record.organisation),
        numbered.sequence,
        projected.worker,
        projected.segment,
        projected.offset_bytes,
        bytes.fromhex(projected.leaf_hash),
        bytes.fromhex(projected.chain_hash),
        record.stage,
        _clean(record.request_id),
        _within(record.utc_us, _INT64_MAX),
        _clean(record.workspace),
        _clean(record.project),
        _clean(record.key_id),
        _clean(record.actor),
        _clean(record.action),
        _clean(record.target),
        _clean(record.provider),
        _clean(record.jurisdiction),
        _clean(record.data_class),
        _clean(record.status),
        _within(record.http_status, _INT32_MAX),
        _clean(record.error),
        _within(record.cost_microusd, _INT64_MAX),
        _within(usage.input_tokens if usage else 0, _INT64_MAX),
        _within(usage.output_tokens if usage else 0, _INT64_MAX),
        _within(record.duration_us, _INT64_MAX),
        projected.raw_json,
    )


_COLUMNS = audit_records.columns.keys()
_INSERT_SQLITE = str(insert(audit_records).compile(dialect=sqlite.dialect()))


def _clean(text: str) -> str:
    # PostgreSQL keeps no NUL in text; a record that holds one must not stop the projection.
    return text.replace("\x00", "\ufffd") if "\x00" in text else text


def _within(number: int, limit: int) -> int:
    return max(-limit, min(limit, number))
