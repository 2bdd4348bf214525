"""Whose content keys lie in the audit folder of another machine: an erasure here leaves them."""

import asyncio
from pathlib import Path

from sqlalchemy import select

from gateway.audit.segments import list_workers
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.schema.audit import audit_records


async def workers_elsewhere(
    database: Database, directory: Path, organisation: str
) -> tuple[str, ...]:
    """Workers that recorded for an organisation and have no folder in this audit folder; by name.

    One whose name was retired is among them: its disk may still be somewhere.
    """
    numbered = await DatabaseAuditSink(database).positions()
    here = await asyncio.to_thread(_named, directory)
    found = []
    async with database.reading() as connection:
        for worker in sorted(set(numbered) - here - {""}):
            columns = audit_records.c
            theirs = select(columns.sequence).where(
                columns.organisation == organisation, columns.worker == worker
            )
            if (await connection.execute(theirs.limit(1))).first() is not None:
                found.append(worker)
    return tuple(found)


def _named(directory: Path) -> set[str]:
    return set(list_workers(directory)) if directory.is_dir() else set()
