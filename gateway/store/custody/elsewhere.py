"""Finds workers that recorded for an organisation and whose content keys lie in other folders."""

import asyncio
from pathlib import Path

from sqlalchemy import select

from gateway.audit.lying_here import folder_lies_here
from gateway.audit.projecting.projection import RETIRED
from gateway.audit.second import is_second
from gateway.audit.segments import list_workers
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.schema.audit import audit_records
from gateway.store.workers import workers


async def workers_elsewhere(
    database: Database, directory: Path, organisation: str
) -> tuple[str, ...]:
    """Workers that recorded for an organisation but have no folder here; by name.

    A worker whose name was retired is included: its disk may still exist somewhere.
    """
    numbered = set(await DatabaseAuditSink(database).positions())
    here = await asyncio.to_thread(_named, directory)
    return tuple(sorted(await _recorders(database, organisation, numbered - here)))


async def awaited_workers(database: Database, organisation: str) -> tuple[str, ...]:
    """Workers that recorded for an organisation, and all seen within a day; by name.

    The latter may have recorded what is not numbered yet.
    """
    numbered = set(await DatabaseAuditSink(database).positions())
    async with database.reading() as connection:
        lived = set((await connection.execute(select(workers.c.worker))).scalars())
    return tuple(sorted(lived | await _recorders(database, organisation, numbered - lived)))


async def retired_workers(database: Database) -> frozenset[str]:
    """Workers whose disk is declared lost."""
    positions = await DatabaseAuditSink(database).positions()
    return frozenset(name for name, position in positions.items() if position == RETIRED)


async def _recorders(database: Database, organisation: str, names: set[str]) -> set[str]:
    """Those of these that recorded for an organisation; the second device's keys are kept here."""
    columns, found = audit_records.c, set[str]()
    async with database.reading() as connection:
        for worker in names:
            if not worker or is_second(worker):
                continue
            theirs = select(columns.sequence).where(
                columns.organisation == organisation, columns.worker == worker
            )
            if (await connection.execute(theirs.limit(1))).first() is not None:
                found.add(worker)
    return found


def _named(directory: Path) -> set[str]:
    return set(list_workers(directory)) if folder_lies_here(directory) else set()
