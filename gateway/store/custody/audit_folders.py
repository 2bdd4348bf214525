"""Which audit folders there are, and whose segments and content keys lie in each."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from sqlalchemy import RowMapping, select

from gateway.audit.content_keys.keys import WrappedKey, read_keys
from gateway.audit.disk import Disk
from gateway.audit.folder_mark import folder_mark
from gateway.audit.segments import list_workers
from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.revisions import revision_in
from gateway.store.schema.custody import audit_folders
from gateway.store.speech import insert_into


HAD_KEYS = -1


class AuditFolder(Struct, frozen=True):
    """One, as a process that has it said last."""

    folder: str
    """Its mark."""
    workers: tuple[str, ...]
    """Whose segments and keys lie there, by name."""
    told_by: str
    told_us: int
    since_revision: int = HAD_KEYS
    """The counter of changes when it was first seen, without any key; -1 where it had some."""

    def concerns(self, closed_revision: int) -> bool:
        """Whether a case that was closed then may have keys here; 0 is of an older program."""
        return closed_revision == 0 or closed_revision > self.since_revision


class FolderHere:
    """The audit folder of this process, and its word for the database."""

    def __init__(self, database: Database, directory: Path, worker: str, clock: Clock) -> None:
        self._database = database
        self._directory = directory
        self._worker = worker
        self._clock = clock
        self._told: AuditFolder | None = None

    async def tell(self) -> AuditFolder:
        """Say what lies here, where that is another than was said before.

        Raises:
            OSError: the folder cannot be read, or marked.
            NotReady: the database does not answer.
        """
        mark, workers = await asyncio.to_thread(self._look)
        told = self._told
        if told is not None and (told.folder, told.workers) == (mark, workers):
            return told
        has_keys = bool(await asyncio.to_thread(self.keys))
        self._told = await self._put(mark, workers, has_keys=has_keys)
        return self._told

    def keys(self) -> list[list[WrappedKey]]:
        """The whole lines of each key file in their order, without those of empty ones.

        Blocks; raises OSError.
        """
        read = [read_keys(self._directory / each) for each in list_workers(self._directory)]
        return [lines for lines in read if lines]

    def _look(self) -> tuple[str, tuple[str, ...]]:
        mark = folder_mark(self._directory, Disk())
        return mark, tuple(list_workers(self._directory))

    async def _put(self, mark: str, workers: tuple[str, ...], *, has_keys: bool) -> AuditFolder:
        columns = audit_folders.c
        said = {
            "workers": msgspec.json.encode(workers).decode(),
            "told_by": self._worker,
            "told_us": self._clock.utc_us(),
        }
        async with self._database.writing() as connection:
            since = HAD_KEYS if has_keys else await revision_in(connection)
            made = said | {"folder": mark, "since_revision": since}
            first = insert_into(self._database.kind, audit_folders).values(made)
            renewed = first.on_conflict_do_update(index_elements=["folder"], set_=said)
            await connection.execute(renewed)
            query = select(audit_folders).where(columns.folder == mark)
            row = (await connection.execute(query)).mappings().one()
        return _folder_of(row)


async def all_folders(database: Database) -> Sequence[AuditFolder]:
    """By their marks."""
    query = select(audit_folders).order_by(audit_folders.c.folder)
    async with database.reading() as connection:
        return [_folder_of(row) for row in (await connection.execute(query)).mappings()]


def _folder_of(row: RowMapping) -> AuditFolder:
    values = dict(row)
    workers = msgspec.json.decode(values["workers"], type=tuple[str, ...])
    return AuditFolder(**values | {"workers": workers})
