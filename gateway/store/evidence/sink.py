"""The database as a projection of the audit log: stored by the projector, searched by people.

Only the segments are evidence; this can be thrown away and rebuilt from them. PostgreSQL keeps
each record's bytes beside the columns that exist to be searched. SQLite stands beside the segments,
so it only says where they are: a copy would cost more than all the rest.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Executable,
    RowMapping,
    Select,
    bindparam,
    func,
    literal_column,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projection import START, Position, ProjectedRecord, SequencedRecord
from gateway.audit.second import is_second
from gateway.audit.segments import Place, read_entries
from gateway.store.engine import Database
from gateway.store.evidence.repeats import repeats
from gateway.store.evidence.rows import (
    AGAIN,
    COLUMNS,
    INSERTS,
    INSERTS_OF_PLACES,
    chunks,
    organisations_of,
    rows_of,
)
from gateway.store.evidence.second_rows import without_taken
from gateway.store.evidence.tree import grow, save
from gateway.store.schema.audit import audit_positions, audit_records
from gateway.store.speech import DatabaseKind, insert_into
from gateway.types import AuditRecord


_PAGE = 500
_Row = tuple[Any, ...]
Also = Callable[[AsyncConnection], Awaitable[None]]
_Counts = list[tuple[str, int]]
"""How many rows each organisation has, ascending by its name."""
_STORED = (
    audit_records.c.sequence,
    audit_records.c.organisation,
    audit_records.c.worker,
    audit_records.c.segment,
    audit_records.c.offset_bytes,
    audit_records.c.raw,
    audit_records.c.stage,
)
_FIRST: dict[str, Any] = {
    "worker": bindparam("of_worker"),
    "segment": bindparam("to_segment"),
    "offset_bytes": bindparam("to_offset"),
}
_MOVE = (
    update(audit_positions)
    .where(
        audit_positions.c.worker == bindparam("of_worker"),
        audit_positions.c.segment == bindparam("from_segment"),
        audit_positions.c.offset_bytes == bindparam("from_offset"),
    )
    .values(segment=bindparam("to_segment"), offset_bytes=bindparam("to_offset"))
    .returning(audit_positions.c.worker)
)
# One statement for all organisations. SQLite needs the WHERE to tell ON CONFLICT from a join.
_NUMBER_SQLITE = text("""
    INSERT INTO audit_sequences (organisation, next_sequence, open_tiles)
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') + 1, x''
    FROM json_each(:counts) WHERE true
    ON CONFLICT (organisation) DO UPDATE
    SET next_sequence = audit_sequences.next_sequence + excluded.next_sequence - 1
    RETURNING organisation, next_sequence, open_tiles
""")
_NUMBER_POSTGRESQL = text("""
    INSERT INTO audit_sequences (organisation, next_sequence, open_tiles)
    SELECT name, count + 1, ''::bytea
    FROM unnest(CAST(:names AS text[]), CAST(:counts AS bigint[])) AS taken (name, count)
    ON CONFLICT (organisation) DO UPDATE
    SET next_sequence = audit_sequences.next_sequence + excluded.next_sequence - 1
    RETURNING organisation, next_sequence, open_tiles
""")


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
    about: str | None = None
    batch: str | None = None
    since_us: int | None = None
    until_us: int | None = None
    """Exclusive."""


class _TakenError(Exception):
    """Somebody else moved the position; rolls the transaction back."""


class DatabaseAuditSink:
    """See `gateway.audit.projector.AuditSink`; any number of processes may store at once."""

    def __init__(self, database: Database, directory: Path | None = None) -> None:
        """With the audit `directory`, SQLite holds no copy of the records: they are read there."""
        self._database = database
        self._directory = directory
        self._keeps_bytes = directory is None or database.kind == "postgresql"
        self._may_repeat = database.kind == "postgresql"

    async def positions(self) -> Mapping[str, Position]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(audit_positions))).all()
        self._may_repeat |= any(is_second(worker) for worker, _, _ in rows)
        return {worker: (segment, offset) for worker, segment, offset in rows}

    async def store(
        self,
        batch: list[ProjectedRecord],
        worker: str,
        from_position: Position,
        to_position: Position,
        *,
        also: Also | None = None,
    ) -> bool:
        if any(projected.known_record is None for projected in batch):
            # Before the transaction: nobody else's writes wait for the decoding.
            batch = await asyncio.to_thread(_decoded, batch)
        try:
            async with self._database.writing() as connection:
                await self._move(connection, worker, from_position, to_position)
                if also is not None:
                    await also(connection)
                elif self._may_repeat:
                    batch = await without_taken(connection, batch)
                await self._insert(connection, batch)
        except _TakenError:
            return False
        return True

    async def records(
        self, query: AuditQuery, after: int = 0, *, strict: bool = False
    ) -> AsyncIterator[SequencedRecord]:
        """Matching records by organisation and number; with one organisation, those past `after`.

        Read page by page, so that an export of any length holds neither memory nor a transaction.
        `strict` is for who would act on what is missing: a segment that cannot be read at this
        moment is an OSError then, and no record without its bytes.
        """
        place: tuple[str, int] = (query.organisation or "", after)
        key = tuple_(audit_records.c.organisation, audit_records.c.sequence)
        while True:
            page = _matching(query).where(key > place).limit(_PAGE)
            page = page.order_by(audit_records.c.organisation, audit_records.c.sequence)
            async with self._database.reading() as connection:
                rows = (await connection.execute(page)).mappings().all()
            for record in await self._records_of(rows, strict=strict):
                yield record
            if len(rows) < _PAGE:
                return
            place = (rows[-1]["organisation"], rows[-1]["sequence"])

    async def at(self, place: Place) -> SequencedRecord | None:
        """The record that a receipt names."""
        columns = audit_records.c
        query = select(*_STORED).where(
            tuple_(columns.worker, columns.segment, columns.offset_bytes) == place
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return (await self._records_of(rows))[0] if rows else None

    async def numbered(self, organisation: str, sequences: Sequence[int]) -> list[SequencedRecord]:
        """Records of one organisation by their numbers, in any order; those that are there."""
        columns = audit_records.c
        query = select(*_STORED).where(
            columns.organisation == organisation, columns.sequence.in_(sequences)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return await self._records_of(rows)

    async def span(self, organisation: str, since_us: int, until_us: int) -> tuple[int, int] | None:
        """First and last number of an organisation's records of a time; None if there are none."""
        sequence = audit_records.c.sequence
        query = _matching(
            AuditQuery(organisation=organisation, since_us=since_us, until_us=until_us)
        ).with_only_columns(func.min(sequence), func.max(sequence))
        async with self._database.reading() as connection:
            first, last = (await connection.execute(query)).one()
        return None if first is None else (first, last)

    async def policy_digests(self, organisation: str, first: int, last: int) -> set[str]:
        """Of the policy documents that records of a part of a log name."""
        columns = audit_records.c
        query = (
            select(columns.policy_digest)
            .where(
                columns.organisation == organisation,
                columns.sequence.between(first, last),
                columns.policy_digest != "",
            )
            .distinct()
        )
        async with self._database.reading() as connection:
            return set((await connection.execute(query)).scalars())

    async def began_us(self, organisation: str) -> int:
        """When the first record of an organisation was written; 0 where there is none."""
        columns = audit_records.c
        query = (
            select(columns.utc_us)
            .where(columns.organisation == organisation)
            .order_by(columns.sequence)
            .limit(1)
        )
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one_or_none() or 0)

    async def newest(self, query: AuditQuery, limit: int = 100) -> list[SequencedRecord]:
        """The last matching records, newest first, without damaged ones; for an admin page."""
        columns = audit_records.c
        page = _matching(query).order_by(
            columns.utc_us.desc(), columns.organisation, columns.sequence.desc()
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(page.limit(limit))).mappings().all()
        return [row for row in await self._records_of(rows) if row.projected.raw_json]

    async def outcome(self, organisation: str, request_id: str) -> AuditRecord | None:
        """How a request ended first; None where that is not here, or not here yet."""
        query = AuditQuery(organisation=organisation, stage="outcome", request_id=request_id)
        found = await self.newest(query, 1)
        return found[0].projected.record if found else None

    async def _records_of(
        self, rows: Sequence[RowMapping], *, strict: bool = False
    ) -> list[SequencedRecord]:
        """A record that is damaged or not in its segment any more comes without its bytes."""
        lacking = [row for row in rows if row["raw"] is None]
        entries: dict[Place, bytes] = {}
        if lacking and self._directory is not None:
            places = [(row["worker"], row["segment"], row["offset_bytes"]) for row in lacking]
            entries = await asyncio.to_thread(read_entries, self._directory, places, strict=strict)
        return [_record_of(row, entries) for row in rows]

    async def _move(
        self, connection: AsyncConnection, worker: str, here: Position, there: Position
    ) -> None:
        step = {"of_worker": worker, "to_segment": there[0], "to_offset": there[1]}
        place = {"from_segment": here[0], "from_offset": here[1]}
        if await self._changed(connection, _MOVE, step | place):
            return
        first = _first(self._database.kind)
        if here != START or not await self._changed(connection, first, step):
            raise _TakenError

    async def _number(
        self, connection: AsyncConnection, counts: _Counts
    ) -> dict[str, tuple[int, bytes]]:
        """Take each organisation's next numbers: its size before, and its tree's open tiles.

        Locks the organisations in one order.
        """
        taken: dict[str, object]
        if self._database.kind == "sqlite":
            statement, taken = _NUMBER_SQLITE, {"counts": msgspec.json.encode(counts).decode()}
        else:
            statement = _NUMBER_POSTGRESQL
            taken = {"names": [name for name, _ in counts], "counts": [n for _, n in counts]}
        following = await self._changed(connection, statement, taken)
        added = dict(counts)
        return {name: (number - 1 - added[name], bytes(tiles)) for name, number, tiles in following}

    async def _changed(
        self, connection: AsyncConnection, statement: Executable, values: dict[str, object]
    ) -> Sequence[Any]:
        """What a statement returns; SQLite in one turn of the driver's thread instead of five."""
        if self._database.kind == "postgresql":
            return (await connection.execute(statement, values)).all()
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        rows: list[tuple[Any, ...]] = await driver.execute_fetchall(_for_sqlite(statement), values)
        return rows

    async def _insert(self, connection: AsyncConnection, batch: list[ProjectedRecord]) -> None:
        if not batch:
            return
        names = organisations_of(batch)
        before = await self._number(connection, sorted(Counter(names).items()))
        # Only now: whoever stores outcomes of the same organisation waits for its numbers.
        again = await repeats(connection, batch)
        await save(connection, await asyncio.to_thread(grow, batch, names, before))
        following = {name: size + 1 for name, (size, _) in before.items()}
        rows = rows_of(batch, following, again, with_bytes=self._keeps_bytes)
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        # Past SQLAlchemy, whose inserts cost twice (SQLite) and four times (COPY) the time.
        if self._database.kind == "postgresql":
            await driver.copy_records_to_table(audit_records.name, columns=COLUMNS, records=rows)
            return
        left = len(batch)
        for size, statement in (INSERTS if self._keeps_bytes else INSERTS_OF_PLACES).items():
            count, left = divmod(left, size)
            if count:
                # The driver's thread draws from the generators.
                await driver.executemany(statement, chunks(rows, count, size))


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
    if query.action:
        # Written out, because the index of deeds is taken only for what is seen to be one.
        conditions.append(literal_column("(action <> '')"))
    if query.batch:
        conditions.append(literal_column("(batch <> '')"))
    return select(*_STORED).where(*conditions)


def _record_of(row: RowMapping, entries: Mapping[Place, bytes]) -> SequencedRecord:
    place = (row["worker"], row["segment"], row["offset_bytes"])
    raw = entries.get(place, b"") if row["raw"] is None else bytes(row["raw"])
    return SequencedRecord(row["sequence"], ProjectedRecord(*place, raw), row["stage"] == AGAIN)


def _decoded(batch: list[ProjectedRecord]) -> list[ProjectedRecord]:
    """Raises msgspec.MsgspecError when a record is no JSON of ours."""
    return [
        msgspec.structs.replace(projected, known_record=projected.record) for projected in batch
    ]


@cache
def _first(kind: DatabaseKind) -> Any:
    """What writes a worker's first position down, unless somebody has."""
    statement = insert_into(kind, audit_positions).values(_FIRST).on_conflict_do_nothing()
    return statement.returning(audit_positions.c.worker)


@cache
def _for_sqlite(statement: Executable) -> str:
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))  # type: ignore[attr-defined]
