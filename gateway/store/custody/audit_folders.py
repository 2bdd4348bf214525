"""The known audit folders, and the workers whose segments and content keys lie in each."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from sqlalchemy import RowMapping, delete, select

from gateway.audit.content_keys.keys import WrappedKey, read_keys
from gateway.audit.disk import Disk
from gateway.audit.folder_mark import folder_mark
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.segments import list_workers
from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.revisions import current
from gateway.store.schema.custody import audit_folders
from gateway.store.speech import insert_into
from gateway.telemetry import Event, logger


HAD_KEYS = -1


class AuditFolder(Struct, frozen=True):
    """An audit folder, as a process that has it last described it."""

    folder: str
    """Its mark."""
    workers: tuple[str, ...]
    """Whose segments and keys lie there, by name."""
    told_by: str
    told_us: int
    since_revision: int = HAD_KEYS
    """The counter of changes when it was first seen without any key; -1 if it had some then."""
    settled_revision: int = -1
    """It has done its part in all cases closed up to this; -1 for none."""
    settled_workers: str = ""
    """JSON: the workers whose keys that covers; for others it has to check each case again."""

    def concerns(self, closed_revision: int) -> bool:
        """Whether a case that was closed then may have keys here; 0 is from an older program."""
        return closed_revision == 0 or closed_revision > self.since_revision


class FolderHere:
    """The audit folder of this process, and its entry in the database."""

    def __init__(self, database: Database, directory: Path, worker: str, clock: Clock) -> None:
        self._database = database
        self._directory = directory
        self._worker = worker
        self._clock = clock
        self._told: AuditFolder | None = None

    @property
    def told(self) -> AuditFolder | None:
        """What this process last stored about it; None before the first time."""
        return self._told

    async def tell(self) -> AuditFolder:
        """Store what lies here, if it differs from what was last stored.

        Raises:
            OSError: the folder cannot be read, or marked.
            NotReady: the database does not answer.
        """
        mark, workers = await asyncio.to_thread(self._look)
        told, known = self._told, await self._known(mark)
        if known is not None and await asyncio.to_thread(self._is_anothers, known, workers):
            # A folder was copied with its mark: from here on each has keys of its own.
            mark = await asyncio.to_thread(
                folder_mark, self._directory, Disk(), other_than=known.folder
            )
            known = await self._known(mark)
            logger().warning(Event.AUDIT_FOLDER_COPIED, reason=f"its mark is {mark} now")
        if told is not None and told.folder != mark:
            await self._forget(told.folder)
        if known is None or told is None or (told.folder, told.workers) != (mark, workers):
            known = self._told = await self._put(mark, workers)
        return known

    def keys(self) -> dict[str, list[WrappedKey]]:
        """The complete lines of each non-empty key file, in order, by worker.

        Blocks; raises OSError.
        """
        read = {each: read_keys(self._directory / each) for each in list_workers(self._directory)}
        return {worker: lines for worker, lines in read.items() if lines}

    def _look(self) -> tuple[str, tuple[str, ...]]:
        mark = folder_mark(self._directory, Disk())
        return mark, tuple(list_workers(self._directory))

    def _is_anothers(self, known: AuditFolder, workers: tuple[str, ...]) -> bool:
        """Whether the entry under this mark was written for another folder."""
        if self._told is None:  # Who starts cannot tell; whoever else has the mark hears of it.
            return False
        if self._worker in workers and self._worker not in known.workers:
            return True
        foreign = set(known.workers).difference(workers, self._told.workers)
        return not all(folder_lies_here(self._directory / each) for each in foreign)

    async def _known(self, mark: str) -> AuditFolder | None:
        query = select(audit_folders).where(audit_folders.c.folder == mark)
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        return _folder_of(row) if row else None

    async def _forget(self, mark: str) -> None:
        """Delete the entry under the former mark, unless another folder has that mark too."""
        columns = audit_folders.c
        ours = (columns.folder == mark) & (columns.told_by == self._worker)
        async with self._database.writing() as connection:
            await connection.execute(delete(audit_folders).where(ours))

    async def _put(self, mark: str, workers: tuple[str, ...]) -> AuditFolder:
        columns = audit_folders.c
        # In this order: a key that is made meanwhile is younger than what is stored here.
        revision = await current(self._database)
        with_keys = set(await asyncio.to_thread(self.keys))
        said: dict[str, object] = {
            "workers": msgspec.json.encode(workers).decode(),
            "told_by": self._worker,
            "told_us": self._clock.utc_us(),
            # After a start, or any change of the folder, every case is checked.
            "settled_revision": -1,
            "settled_workers": "",
        }
        known = await self._known(mark)
        is_new = {"since_revision": HAD_KEYS if with_keys else revision}
        # Keys that came with segments of another folder may belong to any case.
        came = with_keys.difference(known.workers) if known else set()
        renewed = said | ({"since_revision": HAD_KEYS} if came else {})
        first = insert_into(self._database.kind, audit_folders)
        first = first.values(said | is_new | {"folder": mark})
        async with self._database.writing() as connection:
            put = first.on_conflict_do_update(index_elements=["folder"], set_=renewed)
            await connection.execute(put)
            query = select(audit_folders).where(columns.folder == mark)
            row = (await connection.execute(query)).mappings().one()
        return _folder_of(row)


async def all_folders(database: Database) -> Sequence[AuditFolder]:
    """All folders, by mark."""
    query = select(audit_folders).order_by(audit_folders.c.folder)
    async with database.reading() as connection:
        return [_folder_of(row) for row in (await connection.execute(query)).mappings()]


def _folder_of(row: RowMapping) -> AuditFolder:
    values = dict(row)
    workers = msgspec.json.decode(values["workers"], type=tuple[str, ...])
    return AuditFolder(**values | {"workers": workers})
