"""Ends requests of workers that never came back, where their segments lie beside ours.

A worker's last report does not say whether it lives: the lock on its segments does, and we hold it
while its requests are ended. The outcomes are written into our own log, as everything this process
says is, and the lock is released once the database has them: a worker that starts under that name
then finds the outcomes there. Lines of batches continue on other workers; what remains is the
intent of each line that went on without its worker, and it is looked for until the last line has
ended.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from gateway.audit.disk import Disk
from gateway.audit.last_refusal import LastRefusal
from gateway.audit.lifelessness import taken
from gateway.audit.open_intents import OpenIntents, refused_before
from gateway.audit.projecting.projection import RETIRED
from gateway.audit.reckoning import GONE, OpenIntent, end_of, open_intents
from gateway.audit.segments import (
    LOCK_NAME,
    list_segments,
    list_workers,
    segment_path,
    written_bytes,
)
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.errors import AuditUnavailable
from gateway.ports import AuditLog
from gateway.store.evidence.cut_off import in_words, is_open, not_reckoned, open_in_second
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.workers import WorkerTable
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord, Receipt


GONE_AFTER_S: Final = 900.0
"""A worker that is restarted is back sooner, and ends by itself what it left."""
_ALL: Final = 10**8
_Place = tuple[int, int]
"""Segment and length: the place where a log ends."""


class LineEnds(Protocol):
    """Ends one worker's lines of batches that no worker will come back to."""

    async def tend(self) -> int:
        """Returns how many were ended; raises AuditUnavailable or NotReady if some remain."""
        ...


LinesLeft = Callable[[OpenIntents, Path, AuditLog], LineEnds]
"""Takes what is open, the worker's folder, and the log to write outcomes to."""


class _Left(Struct, frozen=True):
    """Lines of batches that are open in a log that ends at this place."""

    place: _Place
    intents: OpenIntents
    ends: LineEnds | None
    unread: tuple[int, ...] = ()
    """Segments that cannot be read at the moment: they are tried again."""


class GoneWorkers:
    """Found by one worker in its audit directory."""

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
        lines: LinesLeft | None = None,
    ) -> None:
        """`log` is this process's own; `catch_up` brings the database up to date.

        Without `lines`, lines of batches are left to the worker itself.
        """
        self._directory = directory
        self._log = log
        self._sink = sink
        self._second = second
        self._workers = workers
        self._clock = clock
        self._catch_up = catch_up
        self._lines = lines
        self._left: dict[str, _Left] = {}
        """Lines of workers whose requests have ended, if any line is still open."""
        self._seen: dict[str, _Place] = {}
        """The ends of logs in which nothing is open any more."""
        self._held: dict[str, int] = {}
        """The locks of workers whose outcomes are being written here."""
        self._has_written = False
        """Whether anything was written under that lock: the database has to know of it first."""
        self._refusal = LastRefusal(log)
        self._problems: dict[str, str] = {}

    @property
    def problem(self) -> str:
        """Workers of which it is not yet known what was cut off, and why; empty if all is known."""
        return " ".join(self._problems[worker] for worker in sorted(self._problems))

    async def tend(self) -> int:
        """End what gone workers left open; returns the number of requests.

        Raises:
            AuditUnavailable, NotReady, OSError, ProjectionBroken: some have still to be ended.
        """
        await self._let_go()
        ended = 0
        known = {each.worker: each.seen_us for each in await self._workers.all()}
        positions = await self._sink.positions()
        failed: OSError | None = None
        for worker in await asyncio.to_thread(list_workers, self._directory):
            if worker == self._log.worker:
                continue
            if positions.get(worker) == RETIRED:
                # Whoever retired it has ended everything known to be open.
                self._problems.pop(worker, None)
                continue
            try:
                ended += await self._look_at(worker, known.get(worker, 0))
            except OSError as error:
                # A failure holds up the other workers only while outcomes under its lock are not
                # known.
                failed = failed or error
                if self._held:
                    break
        if failed is not None:
            raise failed
        return ended

    async def _look_at(self, worker: str, heard_us: int) -> int:
        here = await asyncio.to_thread(_end_of, self._directory / worker)
        if here is None or self._seen.get(worker) == here[:2]:
            return 0
        silent_us = self._clock.utc_us() - max(heard_us, here[2])
        return await self._end(worker) if silent_us > GONE_AFTER_S * 1e6 else 0

    async def close(self) -> None:
        """Release every lock; the next process to start reads what is in our log."""
        for worker in list(self._held):
            Disk().close(self._held.pop(worker))

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        """Write an outcome under a held lock; on AuditUnavailable the lock is kept."""
        self._has_written = True
        try:
            return await self._log.append(record, content)
        except AuditUnavailable:
            self._refusal.note()
            raise

    async def _end(self, worker: str) -> int:
        folder = self._directory / worker
        try:
            descriptor = await taken(partial(Disk().lock, folder / LOCK_NAME))
        except BlockingIOError:
            self._left.pop(worker, None)
            self._problems.pop(worker, None)
            return 0  # It lives, whatever it says or does not say.
        self._held[worker], self._has_written = descriptor, False
        try:
            return await self._end_held(worker, folder)
        except BaseException:
            if not self._has_written:
                await self.close()
            raise

    async def _end_held(self, worker: str, folder: Path) -> int:
        here = (await asyncio.to_thread(_end_of, folder) or _NOWHERE)[:2]
        await self._catch_up()
        left, ended = self._left.get(worker), 0
        if left is None or left.place != here or left.unread:
            free = await asyncio.to_thread(refused_before, folder)
            cut_off, left = await self._found(worker, here, left, free)
            now_us, ended = self._clock.utc_us(), len(cut_off)
            ends = [end_of(each, now_us, free, GONE) for each in cut_off]
            await asyncio.gather(*map(self.append, ends))
            self._left[worker] = left
            if cut_off:
                logger().warning(Event.AUDIT_CUT_OFF, worker=worker, count=ended)
        ended += await left.ends.tend() if left.ends is not None else 0
        if ended:
            await self._catch_up()
        await self.close()
        if not left.unread and (left.ends is None or not len(left.intents)):
            del self._left[worker]
            self._seen[worker] = here
        return ended

    async def _found(
        self, worker: str, here: _Place, before: _Left | None, refused_ids: frozenset[str]
    ) -> tuple[list[OpenIntent], _Left]:
        """Open requests of a worker whose lock is held, and the lines it left.

        `before` is what was found when not all could be read; what was refused counts as a request.
        """
        folder = self._directory / worker
        reckoned = await asyncio.to_thread(open_intents, folder, _ALL, refused_ids)
        self._problems.pop(worker, None)
        if reckoned.unread:
            self._problems[worker] = not_reckoned(worker, in_words(reckoned.unread))
        if before is None or before.place != here or before.ends is None:
            before = None
        intents = before.intents if before is not None else OpenIntents()
        intents.adopt(reckoned.lines)
        ends = before.ends if before is not None else None
        if ends is None and reckoned.lines and self._lines is not None:
            ends = self._lines(intents, folder, self)
        carried = await open_in_second(self._second, self._sink, worker, refused_ids)
        found = {each.record.request_id: each for each in (*carried, *reckoned.requests)}
        cut_off = [each for each in found.values() if await is_open(self._sink, each)]
        return cut_off, _Left(here, intents, ends, reckoned.unread)

    async def _let_go(self) -> None:
        """Release a lock that was kept, once all that was written under it is known."""
        if self._held and not self._refusal.may_be_written:
            await self._catch_up()
            await self.close()


_NOWHERE: Final = (0, 0, 0)


def _end_of(folder: Path) -> tuple[int, int, int] | None:
    """Last segment, its length, and when it was last written to; None without segments."""
    numbers = list_segments(folder)
    if not numbers:
        return None
    length = written_bytes(segment_path(folder, numbers[-1]))
    newest_ns = max((os.stat(path).st_mtime_ns for path in folder.iterdir()), default=0)  # noqa: PTH116
    return numbers[-1], length, newest_ns // 1000
