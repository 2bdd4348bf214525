"""Upstream ids of calls, batches and files: stored beside the records that name them, searchable.

A person with a vendor's ticket has such an id and none of ours. The id of a call leads to its
request; those of a batch and its files lead to the batch that its lines belong to.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import ProjectedRecord
from gateway.passage import NATIVE, NATIVE_FILES
from gateway.store.engine import Database, driver_of, in_one_turn
from gateway.store.evidence.rows import clean
from gateway.store.schema.audit import audit_upstream_names
from gateway.store.schema.batches import batches
from gateway.store.schema.parcels import parcels
from gateway.store.speech import DatabaseKind
from gateway.store.sqlite_driver import Asked
from gateway.types import AuditRecord


Name = tuple[str, str, str]
"""Organisation, the upstream's name, and what it leads to."""
COLUMNS: Final = ("organisation", "name", "leads_to")
LENGTH_MAX: Final = 200
"""Longest name and target: an index entry has limited room, and ids are shorter."""
FOUND_MAX: Final = 6
_AT_ONCE: Final = (64, 8, 1)
"""SQLite's driver releases the interpreter for each execution, so there should be few."""
_INSERT: Final = f"INSERT INTO {audit_upstream_names.name} ({', '.join(COLUMNS)})"
_ANEW: Final = "ON CONFLICT DO NOTHING"
_ARRAYS: Final = f"{_INSERT} SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) {_ANEW}"  # noqa: S608 - our own names


def names_in(batch: list[ProjectedRecord]) -> list[Name]:
    """The names in some records, each once and in one order for all writers."""
    found: set[Name] = set()
    for projected in batch:
        record = projected.known_record or projected.record
        if record.stage == "outcome" and (record.attempts or NATIVE in record.detail):
            found.update(_names_of(record))
    return sorted(found)


def _names_of(record: AuditRecord) -> Iterator[Name]:
    said = [(name, record.request_id) for each in record.attempts for name in each.upstream_ids]
    if batch := record.detail.get("batch"):
        theirs = (record.detail.get(NATIVE, ""), *record.detail.get(NATIVE_FILES, "").split())
        said += [(name, batch) for name in theirs]
    for name, leads_to in said:
        if 0 < len(name) <= LENGTH_MAX and 0 < len(leads_to) <= LENGTH_MAX:
            yield clean(record.organisation), clean(name), clean(leads_to)


async def write_names(connection: AsyncConnection, kind: DatabaseKind, names: list[Name]) -> None:
    """Write them in the transaction of the rows; names that exist stay as they are."""
    if not names:
        return
    driver = await driver_of(connection)
    if kind == "postgresql":
        await driver.execute(_ARRAYS, *map(list, zip(*names, strict=True)))
    else:
        await in_one_turn(driver, list(_insertions(names)))


def _insertions(names: list[Name]) -> Iterator[Asked]:
    begin = 0
    for size in _AT_ONCE:
        end = len(names) - (len(names) - begin) % size
        values: list[tuple[Any, ...]] = [
            tuple(chain.from_iterable(names[at : at + size])) for at in range(begin, end, size)
        ]
        if values:
            rows = ", ".join(["(?, ?, ?)"] * size)
            yield Asked(f"{_INSERT} VALUES {rows} {_ANEW}", values, is_many=True)
        begin = end


class UpstreamNames:
    """Finds records and batches in one database by upstream ids."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def lead_to(self, organisation: str, name: str) -> list[str]:
        """Ids of an organisation's requests and batches, a few at most; raises NotReady.

        A batch that a vendor is still working on is found by its parcel.
        """
        columns = audit_upstream_names.c
        recorded = (
            select(columns.leads_to)
            .where(columns.organisation == organisation, columns.name == name)
            .order_by(columns.leads_to)
            .limit(FOUND_MAX)
        )
        under_way = (
            select(batches.c.id)
            .join(parcels, parcels.c.batch_id == batches.c.id)
            .where(batches.c.organisation == organisation, parcels.c.vendor_id == name)
            .limit(FOUND_MAX)
        )
        async with self._database.reading() as connection:
            found = [*(await connection.execute(recorded)).scalars()]
            found += (await connection.execute(under_way)).scalars()
        return list(dict.fromkeys(found))[:FOUND_MAX]
