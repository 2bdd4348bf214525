"""One group of the second device as two statements on a permanent connection: PostgreSQL only.

While a disk is away, every request waits for two such groups. The usual way, through the sink and
the pool, costs fourteen messages to the server per group and as many turns of the event loop.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Integer, LargeBinary, Table

from gateway.audit.content_keys.keys import WrappedKey
from gateway.audit.projecting.projection import Position, ProjectedRecord
from gateway.store.engine import Database, Held
from gateway.store.evidence.rows import COLUMNS, NOTHING_KNOWN, organisations_of, rows_of
from gateway.store.evidence.second_rows import SecondRecord, line_of
from gateway.store.evidence.tree import Growth, grow
from gateway.store.evidence.upstream_names import COLUMNS as NAME_COLUMNS
from gateway.store.evidence.upstream_names import Name, names_in
from gateway.store.schema.audit import (
    audit_records,
    audit_second_keys,
    audit_second_records,
    audit_tiles,
    audit_upstream_names,
)


_AT_ONCE: Final = 64
"""How many leaves are added to a tree on the event loop; more go to a thread."""
_SECOND = SecondRecord.__struct_fields__
_KEY = ("key", "organisation", "subject", "line", "master_key_id")
_TILE = ("organisation", "level", "number", "hashes")
# One statement moves the place, numbers the records, and locks in the same order as all others.
_BEGIN: Final = """
    WITH moved AS (
        UPDATE audit_positions SET segment = $2, offset_bytes = $3
        WHERE worker = $1 AND segment = $4 AND offset_bytes = $5 RETURNING 1
    ), numbered AS (
        INSERT INTO audit_sequences (organisation, next_sequence, open_tiles)
        SELECT name, count + 1, ''::bytea
        FROM unnest($6::text[], $7::bigint[]) AS taken (name, count)
        ON CONFLICT (organisation) DO UPDATE
        SET next_sequence = audit_sequences.next_sequence + excluded.next_sequence - 1
        RETURNING organisation, next_sequence, open_tiles
    )
    SELECT organisation, next_sequence, open_tiles, (SELECT count(*) FROM moved) AS moved,
           set_config('synchronous_commit', 'on', true)
    FROM numbered
"""


def _type(table: Table, name: str) -> str:
    kind = table.c[name].type
    if isinstance(kind, BigInteger):
        return "bigint"
    if isinstance(kind, Integer):
        return "integer"
    return "bytea" if isinstance(kind, LargeBinary) else "text"


def _insert(table: Table, columns: Sequence[str], first: int) -> str:
    """Rows as one array for each column; the arrays are the parameters from `first` on."""
    arrays = ", ".join(
        f"${number}::{_type(table, name)}[]" for number, name in enumerate(columns, first)
    )
    names = ", ".join(columns)
    return f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608 - our own names


_PARTS: Final = (
    (audit_records, COLUMNS),
    (audit_second_records, _SECOND),
    (audit_second_keys, _KEY),
    (audit_tiles, _TILE),
    (audit_upstream_names, NAME_COLUMNS),
)


def _end() -> str:
    """The statement that stores a group, once it is numbered."""
    inserts, first = [], 3
    for table, columns in _PARTS:
        # The name may exist already, from an answer to another worker.
        also = " ON CONFLICT DO NOTHING" if table is audit_upstream_names else ""
        inserts.append(f"in_{table.name} AS ({_insert(table, columns, first)}{also})")
        first += len(columns)
    return f"""
        WITH {", ".join(inserts)}
        UPDATE audit_sequences SET open_tiles = grown.tiles
        FROM unnest($1::text[], $2::bytea[]) AS grown (name, tiles)
        WHERE organisation = grown.name
    """  # noqa: S608 - our own names


_END: Final = _end()


class _TakenError(Exception):
    """The place is not where it was expected; rolls the transaction back."""


class SecondWriter:
    """Belongs to one event loop, and to one group at a time."""

    def __init__(self, database: Database) -> None:
        self._held = Held(database)

    async def store(
        self,
        worker: str,
        here: Position,
        there: Position,
        batch: list[ProjectedRecord],
        beside: tuple[Sequence[SecondRecord], Sequence[WrappedKey]],
    ) -> bool:
        """Store all or nothing; False if the worker's place was not `here`.

        Raises:
            NotReady: the database does not answer.
        """
        names = organisations_of(batch)
        counts = Counter(names)
        taken = sorted(counts)
        try:
            async with self._held.transaction() as driver:
                place = (worker, *there, *here)
                added = [counts[name] for name in taken]
                found = await driver.fetch(_BEGIN, *place, taken, added)
                if not found[0]["moved"]:
                    raise _TakenError
                before = {
                    name: (following - 1 - counts[name], bytes(tiles))
                    for name, following, tiles, *_ in found
                }
                growths = await _grown(batch, names, before)
                following = {name: size + 1 for name, (size, _) in before.items()}
                rows = list(rows_of(batch, following, NOTHING_KNOWN))
                named = names_in(batch)
                await driver.execute(_END, *_arrays(growths, rows, named, *beside))
        except _TakenError:
            return False
        return True

    async def let_go(self) -> None:
        """Release the connection; it is taken again when needed."""
        await self._held.let_go()


async def _grown(
    batch: list[ProjectedRecord], names: list[str], before: dict[str, tuple[int, bytes]]
) -> list[Growth]:
    if len(batch) <= _AT_ONCE:
        return grow(batch, names, before)
    return await asyncio.to_thread(grow, batch, names, before)


def _arrays(
    growths: list[Growth],
    rows: list[tuple[Any, ...]],
    named: Sequence[Name],
    second: Sequence[SecondRecord],
    keys: Sequence[WrappedKey],
) -> list[list[Any]]:
    """The parameters of `_END`: one list for each column of each table."""
    tiles = [
        (growth.organisation, tile.level, tile.number, tile.hashes)
        for growth in growths
        for tile in growth.full
    ]
    places = [tuple(getattr(record, name) for name in _SECOND) for record in second]
    lines = [tuple(line_of(key)[name] for name in _KEY) for key in keys]
    arrays: list[list[Any]] = [
        [growth.organisation for growth in growths],
        [growth.open_tiles for growth in growths],
    ]
    parts: tuple[Sequence[tuple[Any, ...]], ...] = (rows, places, lines, tiles, named)
    for found, (_, columns) in zip(parts, _PARTS, strict=True):
        arrays += [list(values) for values in zip(*found, strict=True)] or [[] for _ in columns]
    return arrays
