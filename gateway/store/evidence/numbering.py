"""A worker's position in the database and the numbers for its records, both under a lock.

The process that holds the lock on an organisation's numbers is the only one that stores its records
until the end of the transaction; whatever depends on those records is queried after locking.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import Executable, bindparam, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import START, Position, ProjectedRecord
from gateway.store.engine import together
from gateway.store.evidence.rows import organisations_of
from gateway.store.schema.audit import audit_positions
from gateway.store.speech import DatabaseKind, insert_into


Before = dict[str, tuple[int, bytes]]
"""The size of each organisation's tree before the new records, and its open tiles."""
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


class TakenError(Exception):
    """Another process moved the position; rolls the transaction back."""


async def move(
    connection: AsyncConnection,
    kind: DatabaseKind,
    worker: str,
    here: Position,
    there: Position,
    *,
    and_ask: Executable,
) -> Sequence[Sequence[Any]]:
    """Move a worker's place; returns the rows of another query, run once it is moved.

    Raises:
        TakenError: the place is not `here`.
    """
    step = {"of_worker": worker, "to_segment": there[0], "to_offset": there[1]}
    place = {"from_segment": here[0], "from_offset": here[1]}
    moved, found = await together(connection, [(_MOVE, step | place), (and_ask, {})])
    if moved:
        return found
    if here == START:
        moved, found = await together(connection, [(_first(kind), step), (and_ask, {})])
        if moved:
            return found
    raise TakenError


async def take_numbers(
    connection: AsyncConnection,
    kind: DatabaseKind,
    batch: list[ProjectedRecord],
    *,
    and_ask: Executable,
) -> tuple[Before, Sequence[Sequence[Any]]]:
    """Take the next numbers of each organisation in a batch; returns the rows of another query.

    Locks the organisations in one order.
    """
    added = Counter(organisations_of(batch))
    if not added:
        (found,) = await together(connection, [(and_ask, {})])
        return {}, found
    counts = sorted(added.items())
    taken: dict[str, Any]
    if kind == "sqlite":
        statement, taken = _NUMBER_SQLITE, {"counts": msgspec.json.encode(counts).decode()}
    else:
        statement = _NUMBER_POSTGRESQL
        taken = {"names": [name for name, _ in counts], "counts": [n for _, n in counts]}
    following, found = await together(connection, [(statement, taken), (and_ask, {})])
    before = {name: (number - 1 - added[name], bytes(tiles)) for name, number, tiles in following}
    return before, found


@cache
def _first(kind: DatabaseKind) -> Any:
    """The statement that writes a worker's first position, unless it exists."""
    statement = insert_into(kind, audit_positions).values(_FIRST).on_conflict_do_nothing()
    return statement.returning(audit_positions.c.worker)
