"""Ends requests of workers that never came back, where their segments lie beside ours.

Whether a worker lives is not guessed from what it last said: its segments' lock says it, and is
held while its requests are ended. What becomes of them is written into our own log, as everything
is that this process says, and its lock is given back when the database knows of it: whoever starts
under its name then finds the outcomes there. Lines of batches are left to the worker itself.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from gateway.audit.disk import Disk
from gateway.audit.reckoning import GONE, OpenIntent, closing, open_intents
from gateway.audit.segments import LOCK_NAME, list_segments, list_workers, segment_path
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.errors import AuditUnavailable
from gateway.store.evidence.cut_off import is_open, open_in_second
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.workers import WorkerTable
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord


GONE_AFTER_S: Final = 900.0
"""A worker that is restarted is back before; it ends what it left by itself."""
_ALL: Final = 10**8


class GoneWorkers:
    """Looked for by one worker in its audit directory."""

    def __init__(
        self,
        directory: Path,
        log: SegmentedAuditLog,
        sink: DatabaseAuditSink,
        second: SecondContents,
        workers: WorkerTable,
        *,
        clock: Clock,
        catch_up: Callable[[], Awaitable[object]],
    ) -> None:
        """`log` is this process's own; `catch_up` brings the database up to date."""
        self._directory = directory
        self._log = log
        self._sink = sink
        self._second = second
        self._workers = workers
        self._clock = clock
        self._catch_up = catch_up
        self._seen: dict[str, tuple[int, int]] = {}
        """Where the logs end in which nothing is open any more."""
        self._held: dict[str, int] = {}
        """The lock of a worker whose outcomes are being written here."""
        self._failed_s = 0.0
        """When our log last refused one, which it may have written all the same."""

    async def tend(self) -> int:
        """End what is open of workers that are gone; how many requests that were.

        Raises:
            AuditUnavailable, NotReady, OSError, ProjectionBroken: some are still to be ended.
        """
        await self._let_go()
        ended = 0
        known = {each.worker: each.seen_us for each in await self._workers.all()}
        for worker in await asyncio.to_thread(list_workers, self._directory):
            here = await asyncio.to_thread(_end_of, self._directory / worker)
            if worker == self._log.worker or here is None or self._seen.get(worker) == here[:2]:
                continue
            last_us = max(known.get(worker, 0), here[2])
            if self._clock.utc_us() - last_us > GONE_AFTER_S * 1e6:
                ended += await self._end(worker)
        return ended

    async def close(self) -> None:
        """Give back every lock; whoever starts next reads what is in our log."""
        for worker in list(self._held):
            Disk().close(self._held.pop(worker))

    async def _end(self, worker: str) -> int:
        folder = self._directory / worker
        try:
            descriptor = await asyncio.to_thread(Disk().lock, folder / LOCK_NAME)
        except BlockingIOError:
            return 0  # It lives, whatever it says or does not say.
        self._held[worker] = descriptor
        try:
            here = await asyncio.to_thread(_end_of, folder)
            cut_off = await self._cut_off(worker)
        except BaseException:
            await self.close()
            raise
        if cut_off:
            await self._write([closing(each, self._clock.utc_us(), GONE) for each in cut_off])
            logger().warning(Event.AUDIT_CUT_OFF, worker=worker, count=len(cut_off))
            await self._catch_up()
        await self.close()
        if here is not None:
            self._seen[worker] = here[:2]
        return len(cut_off)

    async def _cut_off(self, worker: str) -> list[OpenIntent]:
        """What is open of a worker whose lock is held."""
        await self._catch_up()
        left = await asyncio.to_thread(open_intents, self._directory / worker, _ALL)
        carried = await open_in_second(self._second, self._sink, worker)
        found = {each.record.request_id: each for each in (*carried, *left.requests)}
        return [each for each in found.values() if await is_open(self._sink, each)]

    async def _write(self, outcomes: Sequence[AuditRecord]) -> None:
        """Raises AuditUnavailable: some may be written all the same, and the lock is kept."""
        try:
            await asyncio.gather(*(self._log.append(each) for each in outcomes))
        except AuditUnavailable:
            self._failed_s = asyncio.get_running_loop().time()
            raise

    async def _let_go(self) -> None:
        """Give back a lock that was kept, when all that was written under it is known."""
        if not self._held:
            return
        begun_s = asyncio.get_running_loop().time() - self._log.stats().oldest_pending_s
        if begun_s > self._failed_s:
            await self._catch_up()
            await self.close()


def _end_of(folder: Path) -> tuple[int, int, int] | None:
    """Last segment, its length, and when anything was last written there; None: no segments."""
    numbers = list_segments(folder)
    if not numbers:
        return None
    found = segment_path(folder, numbers[-1]).stat()
    newest_ns = max((os.stat(path).st_mtime_ns for path in folder.iterdir()), default=0)  # noqa: PTH116
    return numbers[-1], found.st_size, newest_ns // 1000
