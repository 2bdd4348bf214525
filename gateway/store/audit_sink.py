"""The database as a projection of the audit log: stored by the projector, searched by people.

Only the segments are evidence; this can be thrown away and rebuilt from them. PostgreSQL keeps
each record's bytes beside the columns that exist to be searched. SQLite stands beside the segments,
so it only says where they are: a copy would cost more than all the rest.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from operator import attrgetter
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
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projection import START, Position, ProjectedRecord, SequencedRecord
from gateway.audit.segments import Place, read_entries
from gateway.store.audit_tree import grow, save
from gateway.store.engine import Database
from gateway.store.tables import audit_positions, audit_records
from gateway.types import AuditRecord, Usage


_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1
_PAGE = 500
_Row = tuple[Any, ...]
_Counts = list[tuple[str, int]]
"""How many rows each organisation has, ascending by its name."""
_TEXTS = (
    "organisation",
    "stage",
    "request_id",
    "workspace",
    "project",
    "key_id",
    "actor",
    "action",
    "target",
    "provider",
    "jurisdiction",
    "data_class",
    "status",
    "error",
)
_NUMBERS = ("http_status", "utc_us", "cost_microusd", "duration_us")
_COLUMNS = (
    *_TEXTS,
    *_NUMBERS,
    "input_tokens",
    "output_tokens",
    "worker",
    "segment",
    "offset_bytes",
    "sequence",
    "raw",
)
_texts_of: Callable[[AuditRecord], tuple[str, ...]] = attrgetter(*_TEXTS)
_numbers_of: Callable[[AuditRecord], tuple[int, ...]] = attrgetter(*_NUMBERS)
_NO_USAGE = Usage()
_ESCAPED_NUL = b"\\u0000"
"""The only way in which JSON can hold one."""
# SQLite's driver gives the interpreter away for each execution and must wait for it again, under a
# busy event loop up to its switch interval (5 ms): row by row, the projection would fall behind.
_CHUNK_SIZES = (256, 64, 16, 4, 1)
_STORED = (
    audit_records.c.sequence,
    audit_records.c.organisation,
    audit_records.c.worker,
    audit_records.c.segment,
    audit_records.c.offset_bytes,
    audit_records.c.raw,
)
_FIRST: dict[str, Any] = {
    "worker": bindparam("of_worker"),
    "segment": bindparam("to_segment"),
    "offset_bytes": bindparam("to_offset"),
}
_FIRST_SQLITE, _FIRST_POSTGRESQL = (
    make(audit_positions)
    .values(_FIRST)
    .on_conflict_do_nothing()
    .returning(audit_positions.c.worker)
    for make in (sqlite.insert, postgresql.insert)
)
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


def _inserts(columns: tuple[str, ...]) -> dict[int, str]:
    row = f"({', '.join('?' * len(columns))})"
    first = f"INSERT INTO audit_records ({', '.join(columns)}) VALUES {row}"  # noqa: S608 - our own names
    return {size: first + f", {row}" * (size - 1) for size in _CHUNK_SIZES}


_INSERTS = _inserts(_COLUMNS)
_INSERTS_OF_PLACES = _inserts(_COLUMNS[:-1])


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

    def __init__(self, database: Database, directory: Path | None = None) -> None:
        """With the audit `directory`, SQLite holds no copy of the records: they are read there."""
        self._database = database
        self._directory = directory
        self._keeps_bytes = directory is None or database.kind == "postgresql"

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
        if any(projected.known_record is None for projected in batch):
            # Before the transaction: nobody else's writes wait for the decoding.
            batch = await asyncio.to_thread(_decoded, batch)
        names = [_clean(projected.record.organisation) for projected in batch]
        try:
            async with self._database.writing() as connection:
                await self._move(connection, worker, from_position, to_position)
                await self._insert(connection, batch, names)
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
            for record in await self._records_of(rows):
                yield record
            if len(rows) < _PAGE:
                return
            place = (rows[-1]["organisation"], rows[-1]["sequence"])

    async def span(self, organisation: str, since_us: int, until_us: int) -> tuple[int, int] | None:
        """First and last number of an organisation's records of a time; None if there are none."""
        sequence = audit_records.c.sequence
        query = _matching(
            AuditQuery(organisation=organisation, since_us=since_us, until_us=until_us)
        ).with_only_columns(func.min(sequence), func.max(sequence))
        async with self._database.reading() as connection:
            first, last = (await connection.execute(query)).one()
        return None if first is None else (first, last)

    async def newest(self, query: AuditQuery, limit: int = 100) -> list[SequencedRecord]:
        """The last matching records, newest first, without damaged ones; for an admin page."""
        columns = audit_records.c
        page = _matching(query).order_by(
            columns.utc_us.desc(), columns.organisation, columns.sequence.desc()
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(page.limit(limit))).mappings().all()
        return [row for row in await self._records_of(rows) if row.projected.raw_json]

    async def _records_of(self, rows: Sequence[RowMapping]) -> list[SequencedRecord]:
        """A record that is damaged or not in its segment any more comes without its bytes."""
        lacking = [row for row in rows if row["raw"] is None]
        entries: dict[Place, bytes] = {}
        if lacking and self._directory is not None:
            places = [(row["worker"], row["segment"], row["offset_bytes"]) for row in lacking]
            entries = await asyncio.to_thread(read_entries, self._directory, places)
        return [_record_of(row, entries) for row in rows]

    async def _move(
        self, connection: AsyncConnection, worker: str, here: Position, there: Position
    ) -> None:
        step = {"of_worker": worker, "to_segment": there[0], "to_offset": there[1]}
        place = {"from_segment": here[0], "from_offset": here[1]}
        if await self._changed(connection, _MOVE, step | place):
            return
        first = _FIRST_SQLITE if self._database.kind == "sqlite" else _FIRST_POSTGRESQL
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

    async def _insert(
        self, connection: AsyncConnection, batch: list[ProjectedRecord], names: list[str]
    ) -> None:
        if not batch:
            return
        before = await self._number(connection, sorted(Counter(names).items()))
        await save(connection, await asyncio.to_thread(grow, batch, names, before))
        following = {name: size + 1 for name, (size, _) in before.items()}
        rows = _rows(batch, following, with_bytes=self._keeps_bytes)
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        # Past SQLAlchemy, whose inserts cost twice (SQLite) and four times (COPY) the time.
        if self._database.kind == "postgresql":
            await driver.copy_records_to_table(audit_records.name, columns=_COLUMNS, records=rows)
            return
        left = len(batch)
        for size, statement in (_INSERTS if self._keeps_bytes else _INSERTS_OF_PLACES).items():
            count, left = divmod(left, size)
            if count:
                # The driver's thread draws from the generators.
                await driver.executemany(statement, _chunks(rows, count, size))


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


def _record_of(row: RowMapping, entries: Mapping[Place, bytes]) -> SequencedRecord:
    place = (row["worker"], row["segment"], row["offset_bytes"])
    raw = entries.get(place, b"") if row["raw"] is None else bytes(row["raw"])
    return SequencedRecord(row["sequence"], ProjectedRecord(*place, raw))


def _decoded(batch: list[ProjectedRecord]) -> list[ProjectedRecord]:
    """Raises msgspec.MsgspecError when a record is no JSON of ours."""
    return [
        msgspec.structs.replace(projected, known_record=projected.record) for projected in batch
    ]


def _rows(
    batch: list[ProjectedRecord], following: dict[str, int], *, with_bytes: bool
) -> Iterator[_Row]:
    """Whole rows in the order of _COLUMNS, each with its organisation's next number."""
    for projected in batch:
        row = _row(projected)
        number = following[row[0]]
        following[row[0]] = number + 1
        yield (*row, number, projected.raw_json) if with_bytes else (*row, number)


def _row(projected: ProjectedRecord) -> _Row:
    """One value per column of the table but the last two."""
    record = projected.record
    usage = record.usage or _NO_USAGE
    input_tokens, output_tokens = usage.input_tokens, usage.output_tokens
    texts, numbers = _texts_of(record), _numbers_of(record)
    status, utc_us, cost, duration = numbers
    if _ESCAPED_NUL in projected.raw_json:
        texts = tuple(map(_clean, texts))
    # A union of bits is negative when one of its numbers is, and not below the largest of them.
    widest = utc_us | cost | duration | input_tokens | output_tokens
    if not (0 <= status <= _INT32_MAX and 0 <= widest <= _INT64_MAX):
        numbers = (_within(status, _INT32_MAX), *(_within(n, _INT64_MAX) for n in numbers[1:]))
        input_tokens = _within(input_tokens, _INT64_MAX)
        output_tokens = _within(output_tokens, _INT64_MAX)
    return (
        *texts,
        *numbers,
        input_tokens,
        output_tokens,
        projected.worker,
        projected.segment,
        projected.offset_bytes,
    )


def _chunks(rows: Iterator[_Row], count: int, size: int) -> Iterator[_Row]:
    """The values of the next `size` rows together, `count` times."""
    for _ in range(count):
        yield tuple(chain.from_iterable(islice(rows, size)))


@cache
def _for_sqlite(statement: Executable) -> str:
    return str(statement.compile(dialect=sqlite.dialect(paramstyle="named")))  # type: ignore[attr-defined]


def _clean(text: str) -> str:
    # PostgreSQL keeps no NUL in text; a record that holds one must not stop the projection.
    return text.replace("\x00", "\ufffd")


def _within(number: int, limit: int) -> int:
    return max(-limit, min(limit, number))
