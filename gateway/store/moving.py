"""Copies a whole embedded database into an empty PostgreSQL database of the same schema.

For installations that outgrow SQLite. Rows are copied unchanged, so keys, limits, policies and the
order of the log stay as they are; records get the bytes that PostgreSQL keeps, from their segments.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Float,
    MetaData,
    Table,
    delete,
    func,
    literal_column,
    select,
)
from sqlalchemy import table as sql_table
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.lifelessness import held_if_here
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.segments import list_workers, read_entries
from gateway.errors import StartupRefused
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import revisions
from gateway.store.schema.version import require_newest_schema, schema_floor


_OF_THE_SCHEMA: Final = ("alembic_version", schema_floor.name)
"""What describes the schema itself: each database has its own."""
_ROWS_AT_ONCE = 1_000
_Row = tuple[Any, ...]


async def copy_all(source: Database, target: Database, segments: Path) -> Mapping[str, int]:
    """Copy all rows, or none if anything fails; returns the number by table.

    Args:
        source: SQLite; writers to it wait.
        target: PostgreSQL, migrated and otherwise empty.
        segments: the audit folder that belongs to `source`.

    Raises:
        StartupRefused: a schema is old, or `target` holds something.
        WorkerLives: somebody still writes the log; nobody can begin to until the end.
        NotReady: a database does not answer.
    """
    for each in (source, target):
        await require_newest_schema(each)
    with _stopped(segments):
        async with source.writing() as reading, target.writing() as writing:
            tables = await writing.run_sync(_reflected)
            for table in tables:
                await _require_empty(writing, table)
            await writing.execute(delete(revisions))
            copied = {}
            for table in tables:
                is_log = table.name == audit_records.name
                rows = _rows_of(reading, table, segments if is_log else None)
                copied[table.name] = await _write(writing, table, rows)
    return {name: count for name, count in copied.items() if count}


@contextmanager
def _stopped(segments: Path) -> Iterator[None]:
    """Keep everybody from writing the log meanwhile."""
    with ExitStack() as held:
        for worker in list_workers(segments) if folder_lies_here(segments) else ():
            held.enter_context(held_if_here(segments / worker, worker))
        yield


def _reflected(connection: Connection) -> list[Table]:
    """Every table except those of the schema itself, referenced tables first."""
    there = MetaData()
    there.reflect(connection)
    return [table for table in there.sorted_tables if table.name not in _OF_THE_SCHEMA]


async def _require_empty(connection: AsyncConnection, table: Table) -> None:
    if table.name == revisions.name:
        return
    if (await connection.execute(select(func.count()).select_from(table))).scalar_one():
        raise StartupRefused(
            f"the database in `database.url` is in use already (`{table.name}` has rows): name an"
            " empty one, and run `gatewright database migrate` and this before anything is started"
        )


async def _rows_of(
    connection: AsyncConnection, table: Table, segments: Path | None
) -> AsyncIterator[list[_Row]]:
    columns = list(table.columns)
    convert = [_converter(column.type) for column in columns]
    # Without types, as stored: JSON is text in either database.
    untyped: list[ColumnElement[Any]] = [literal_column(f'"{each.name}"') for each in columns]
    found = await connection.stream(select(*untyped).select_from(sql_table(table.name)))
    async for page in found.partitions(_ROWS_AT_ONCE):
        rows = [tuple(to(value) for to, value in zip(convert, row, strict=True)) for row in page]
        if segments is not None:
            rows = await asyncio.to_thread(_with_bytes, segments, table, rows)
        yield rows


def _converter(kind: object) -> Callable[[Any], Any]:
    to = bool if isinstance(kind, Boolean) else float if isinstance(kind, Float) else None
    return (
        (lambda value: value) if to is None else lambda value: None if value is None else to(value)
    )


def _with_bytes(segments: Path, table: Table, rows: Sequence[_Row]) -> list[_Row]:
    """Rows with bytes from the segments; those that are in no segment any more have none."""
    names = [column.name for column in table.columns]
    raw = names.index("raw")
    at = [names.index(name) for name in ("worker", "segment", "offset_bytes")]
    places = [(row[at[0]], row[at[1]], row[at[2]]) for row in rows]
    entries = read_entries(segments, places)
    return [
        (*row[:raw], row[raw] or entries.get(place), *row[raw + 1 :])
        for row, place in zip(rows, places, strict=True)
    ]


async def _write(
    connection: AsyncConnection, table: Table, pages: AsyncIterator[list[_Row]]
) -> int:
    driver = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    columns = [column.name for column in table.columns]
    count = 0
    async for rows in pages:
        await driver.copy_records_to_table(table.name, columns=columns, records=rows)
        count += len(rows)
    return count
