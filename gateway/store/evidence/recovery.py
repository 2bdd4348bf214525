"""Starts on a restored database: all workers bring the records they have before any serves.

Serving earlier would be unsafe: any of the logs may hold the revocation of a key, or money spent.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import func, insert, select, update

from gateway.audit.disk import Disk
from gateway.audit.lying_here import folder_lies_here
from gateway.audit.projecting.projector import Projector
from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.audit.proving.merkle import HASH_BYTES, OpenTree, Tile
from gateway.audit.second import SECOND_SUFFIX
from gateway.audit.segments import list_workers
from gateway.clock import Clock
from gateway.configuration.settings import Settings
from gateway.errors import StartupRefused
from gateway.pacing import rhythm
from gateway.store.engine import Database, together
from gateway.store.evidence.awaited import Awaited, AwaitedTable, await_records
from gateway.store.evidence.older_database import Older, OlderDatabase
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees, Growth, saving
from gateway.store.schema.audit import audit_checkpoints, audit_positions, audit_sequences
from gateway.store.speech import insert_into
from gateway.store.workers import workers
from gateway.telemetry import Event, logger


_TOGETHER_US = 60_000_000
"""Workers last heard of within this time of each other were alive when the backup was made."""
_SAID_EVERY_S = 60.0


class Recovery:
    """Runs in one worker or command, before anything is numbered.

    `drain_log` shows what is logged before the worker is ready.
    """

    def __init__(
        self,
        database: Database,
        older: OlderDatabase,
        files: CheckpointFiles,
        clock: Clock,
        directory: Path,
        drain_log: Callable[[], None] = lambda: None,
    ) -> None:
        self._database = database
        self._older = older
        self._files = files
        self._clock = clock
        self._directory = directory
        self._trees = DatabaseAuditTrees(database)
        self._log = logger()
        self._drain_log = drain_log
        self.awaited = AwaitedTable(database)

    async def begin(self, *running: str) -> Older | None:
        """If the database was put back, give its trees the numbers that were signed.

        Repeating it is harmless, even from several processes at once. `running` are workers that
        noticed it while they ran: of those that started after the backup, only they themselves
        know.

        Raises:
            NotReady: the database does not answer.
            OSError: what lies beside the database cannot be read.
        """
        older = await self._older.found()
        if older is None:
            return None
        signed: dict[str, list[SignedCheckpoint]] = {}
        for each in await asyncio.to_thread(self._files.recent):
            signed.setdefault(each.organisation, []).append(each)
        for organisation in sorted(signed):
            while not await self._grow(organisation, signed[organisation]):
                pass
        alive = await self._alive_before(older.lacks.signed_us, older.last_us)
        await self.awaited.expect(alive.union(running))
        return older

    async def is_under_way(self) -> bool:
        return bool(await self.awaited.workers())

    async def tell(self, worker: str) -> None:
        """Note that `begin` was done here, and wait until all others have done it."""
        await self.awaited.tell(worker, await self._here(), self._clock.utc_us())
        said_s = -_SAID_EVERY_S
        while (now := await self.awaited.now()).untold:
            said_s = self._say(now, said_s)
            await asyncio.sleep(rhythm.AWAITED_S)

    async def bring(self, worker: str) -> bool:
        """Note that all records here are in, and wait for those of others.

        True for the one worker that then has to secure what came, and to `finish` or let a person
        decide; False for the others, once all is over.

        Raises:
            StartupRefused: no other worker has a log, and the one here lacks part of what was
                signed.
        """
        await self.awaited.bring(worker, await self._here(), self._clock.utc_us())
        said_s = -_SAID_EVERY_S
        while known := await self.awaited.workers():
            now = await self.awaited.now()
            if now == Awaited() and known[0] == worker:
                return True
            if now.records and not (now.untold or now.unbrought) and await self._is_alone(known):
                raise StartupRefused(
                    f"audit: {now} were signed and are in no log here: an old backup was restored,"
                    " or records were removed. Restore the newest segments, or say by"
                    " `gatewright audit lost` that nobody has them"
                )
            if now != Awaited():
                said_s = self._say(now, said_s)
            await asyncio.sleep(rhythm.AWAITED_S)
        return False

    async def keep_signed(self) -> None:
        """Bring exported checkpoints back into the database: it is as new as its log again."""
        added = insert_into(self._database.kind, audit_checkpoints).on_conflict_do_nothing()
        async for lost in self._older.lost():
            rows = [msgspec.structs.asdict(each) for each in lost]
            async with self._database.writing() as connection:
                await connection.execute(added, rows)

    async def _grow(self, organisation: str, signed: Sequence[SignedCheckpoint]) -> bool:
        """Add the leaves up to the newest checkpoint; False if another process was faster.

        If the leaves are not here, or give other roots, nothing is added: records are then numbered
        as they come, and compared with what was signed afterwards.
        """
        tree = await self._trees.tree(organisation)
        size = tree.size
        until = max(each.size for each in signed)
        if until <= size:
            return True
        leaves = await asyncio.to_thread(self._leaves, organisation, size, until)
        full = _extended(tree, leaves, {each.size: each.root for each in signed})
        if tree.size != until:
            return True
        row = audit_sequences.c.organisation == organisation
        known = select(audit_sequences.c.next_sequence).where(row).with_for_update()
        async with self._database.writing() as connection:
            following = (await connection.execute(known)).scalar_one_or_none()
            if (following or 1) != size + 1:
                return False
            if following is None:
                first = {"organisation": organisation, "next_sequence": 1, "open_tiles": b""}
                await connection.execute(insert(audit_sequences), first)
            moved = update(audit_sequences).where(row).values(next_sequence=until + 1)
            await connection.execute(moved)
            await together(connection, saving([Growth(organisation, tree.encode(), full)]))
            await await_records(connection, organisation, size, leaves)
        return True

    def _leaves(self, organisation: str, size: int, until: int) -> bytes:
        pieces = self._files.leaves.following(organisation, size)
        return b"".join(pieces)[: (until - size) * HASH_BYTES]

    async def _alive_before(self, utc_us: int, until_us: int) -> set[str]:
        """Workers that were alive when the backup was made: they may know more than is here.

        So may workers running since before the last lost checkpoint was signed, whose database was
        put back under them.
        """
        columns = workers.c
        before = select(columns.worker, columns.seen_us).where(columns.seen_us < utc_us)
        over = select(columns.worker)
        over = over.where(columns.started_us < until_us, columns.seen_us >= utc_us)
        newest = select(func.max(columns.seen_us)).where(columns.seen_us < utc_us)
        async with self._database.reading() as connection:
            rows = (await connection.execute(before)).all()
            last_us = (await connection.execute(newest)).scalar_one() or 0
            went_on = (await connection.execute(over)).scalars().all()
        return {worker for worker, seen_us in rows if seen_us >= last_us - _TOGETHER_US} | {
            *went_on
        }

    async def _here(self) -> list[str]:
        """Workers whose segments lie here; whoever projects here projects theirs too."""
        if not folder_lies_here(self._directory):
            return []
        return await asyncio.to_thread(list_workers, self._directory)

    async def _is_alone(self, known: Sequence[str]) -> bool:
        """Whether all workers that are heard of, or ever wrote, have their segments here."""
        async with self._database.reading() as connection:
            wrote = (await connection.execute(select(audit_positions.c.worker))).scalars().all()
        names = {name.removesuffix(SECOND_SUFFIX) for name in wrote}
        return names.union(known) <= set(await self._here())

    def _say(self, now: Awaited, said_s: float) -> float:
        now_s = self._clock.monotonic_s()
        if now_s - said_s < _SAID_EVERY_S:
            return said_s
        what = "start every worker, or `gatewright audit lost` where its disk is lost"
        if now.deeds:
            what = "do again what still has to hold, then `gatewright audit accept`"
        reason = f"{now}: {what}"
        count = sum(now.records.values()) + len(now.deeds)
        self._log.error(Event.AUDIT_DATABASE_WAITS, count=count, reason=reason)
        self._drain_log()
        return now_s


def projector_for(
    settings: Settings, database: Database, sink: DatabaseAuditSink, clock: Clock
) -> Projector:
    """A projector for processes that only read the log: it never contradicts signed numbers."""
    files = CheckpointFiles(settings.path(settings.audit.checkpoint_directory), Disk())
    directory = settings.path(settings.audit.directory)
    older = OlderDatabase(database, files, clock)
    recovery = Recovery(database, older, files, clock, directory)
    return Projector(directory, sink, first=recovery.begin)


def _extended(tree: OpenTree, leaves: bytes, roots: dict[int, bytes]) -> list[Tile]:
    """Grow a tree while its roots match those signed; returns the tiles that became full."""
    hashes = [leaves[at : at + HASH_BYTES] for at in range(0, len(leaves), HASH_BYTES)]
    full, begun = list[Tile](), tree.size
    for size in sorted(known for known in roots if begun < known <= begun + len(hashes)):
        further = OpenTree(tree.size, tree.encode())
        tiles = further.extend(hashes[tree.size - begun : size - begun])
        if further.root() != roots[size]:
            break
        full += tiles
        tree.extend(hashes[tree.size - begun : size - begun])
    return full
