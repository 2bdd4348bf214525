"""Ends requests that earlier runs of a worker left open: before it serves, or while it does.

Each is ended once: a request with an outcome in the database is left alone, and if an outcome may
still be on its way to the database, it is waited for before another is written. A segment that
cannot be read does not delay the start: it is tried again while the worker serves, at growing
intervals.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from gateway.audit.disk import Disk
from gateway.audit.last_refusal import LastRefusal
from gateway.audit.open_intents import keep_mark, refused_before
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.reckoning import (
    OpenIntent,
    Reckoned,
    end_of,
    is_line,
    open_intents,
    refused,
    unread_bytes,
)
from gateway.audit.segments import cause_of
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock
from gateway.errors import AuditUnavailable
from gateway.ports import AuditLog
from gateway.store.evidence.second_rows import SecondContents
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.telemetry import Event, logger


READ_FIRST_BYTES: Final = 64 * 1024 * 1024
"""A longer log is searched while the worker serves; a disk reads this much in about a second."""
AGAIN_S: Final = 20.0
AGAIN_MAX_S: Final = 900.0
"""The longest time until segments that could not be read are tried again; it doubles each time."""
_NAMED_MAX: Final = 5


class CutOff:
    """Ends the open requests of one worker, whose log was just opened."""

    def __init__(
        self,
        directory: Path,
        log: SegmentedAuditLog,
        sink: DatabaseAuditSink,
        second: SecondContents,
        *,
        clock: Clock,
        catch_up: Callable[[], Awaitable[object]],
        evidence: AuditLog | None = None,
    ) -> None:
        """`catch_up` brings the database up to date with what is durable.

        `evidence` takes the ends of refused requests, even if `log` alone cannot.
        """
        self._folder = directory / log.worker
        self._worker = log.worker
        self._log = log
        self._evidence = evidence or log
        self._sink = sink
        self._second = second
        self._clock = clock
        self._catch_up = catch_up
        self._below = 0
        """The first segment of this run; 0 once all earlier ones are done."""
        self._carried: list[OpenIntent] = []
        self._refused: frozenset[str] = frozenset()
        """Requests that an earlier run refused, although a device may have taken their intents."""
        self.problem = ""
        """Why it is not yet known what a crash cut off; empty if it is known."""
        self._again_s = self._pause_s = 0.0
        self._refusal = LastRefusal(log)

    async def open(self, *, is_current: bool = True) -> None:
        """Before the first request: end what is open, unless that is to be done later.

        It is done later if it takes long, or if the database is not `is_current`.
        """
        self._below = self._log.position[0]
        self._refused = await asyncio.to_thread(refused_before, self._folder)
        # What is open there now comes from an earlier run; later this may not be so.
        self._carried = await open_in_second(self._second, self._sink, self._worker, self._refused)
        try:
            length = await asyncio.to_thread(unread_bytes, self._folder, self._below)
        except OSError as error:
            self._put_off(cause_of(error))
            return
        if is_current and length <= READ_FIRST_BYTES:
            await self._end_all()

    async def tend(self) -> None:
        """Do what was left to be done, then save what is open now for the next start.

        Raises:
            OSError: it could not be saved; it must be done again.
            AuditUnavailable: a refused request could not be ended.
            ProjectionBroken: it cannot be known yet whether a refused request went on.
        """
        if self._below and self._clock.monotonic_s() >= self._again_s:
            try:
                await self._catch_up()
                await self._end_all()
            except ProjectionBroken as error:
                self._put_off(str(error))
        unkept: OSError | None = None
        try:
            await self.mark()
        except OSError as error:
            unkept = error  # The database may still be asked.
        if self._log.open.refused():
            await self._catch_up()
            await self._end_refused()
        if doubtful := self._log.open.doubtful():
            await self._end_doubtful(doubtful)
        if unkept is not None:
            raise unkept

    async def _end_doubtful(self, request_ids: frozenset[str]) -> None:
        """End requests refused because the database did not answer, although it took their intents.

        Nothing was sent for them either.
        """
        await self._catch_up()
        there = request_ids.intersection(await self._second.open_requests(self._worker))
        for request_id in sorted(there):
            for row in await self._sink.newest(_intent_of(request_id), 1):
                intent = OpenIntent(row.projected.record, row.projected.leaf_hash)
                await self._evidence.append(refused(intent, self._clock.utc_us()))
        self._log.open.looked_for(request_ids - there)

    async def _end_refused(self) -> None:
        """End requests refused for want of a log, whose intents were written after all.

        Nothing was sent for them, so they cost nothing. If the database took the intent as well,
        they went on.
        """
        for record, leaf_hash in self._log.open.refused():
            intent = OpenIntent(record, leaf_hash)
            went_on = await self._second.has_intent(record.request_id)
            if not went_on and await is_open(self._sink, intent):
                await self._evidence.append(refused(intent, self._clock.utc_us()))
            self._log.open.forget_refused(record.request_id)

    async def mark(self) -> None:
        """Save what is open now; raises OSError."""
        mark = self._log.open.mark(*self._log.position)
        if mark is not None:
            await asyncio.to_thread(keep_mark, self._folder, mark, Disk())

    async def _end_all(self) -> None:
        """Write the missing outcomes, those of lines of batches separately."""
        if self._refusal.may_be_written:
            return
        try:
            left = await asyncio.to_thread(open_intents, self._folder, self._below, self._refused)
        except OSError as error:
            self._put_off(cause_of(error))
            return
        # A disk that hung may have kept an intent that the database then took as well.
        found = {each.record.request_id: each for each in (*self._carried, *left.requests)}
        cut_off = [each for each in found.values() if await is_open(self._sink, each)]
        now_us = self._clock.utc_us()
        ends = [end_of(each, now_us, self._refused) for each in cut_off]
        try:
            await asyncio.gather(*map(self._log.append, ends))
        except AuditUnavailable as error:
            self._refusal.note()
            event = Event.AUDIT_WRITE_FAILED
            logger().error(event, worker=self._worker, reason=error.message)
            return
        self._adopt(left)
        if cut_off:
            logger().warning(Event.AUDIT_CUT_OFF, worker=self._worker, count=len(cut_off))
            await self._catch_up()

    def _adopt(self, left: Reckoned) -> None:
        self._log.open.adopt(left.lines, is_whole=not left.unread)
        if left.unread:
            self._put_off(in_words(left.unread))
        else:
            self._below, self.problem = 0, ""

    def _put_off(self, reason: str) -> None:
        """Look again later: what is unknown is neither ended nor forgotten."""
        self._pause_s = min(max(self._pause_s * 2, AGAIN_S), AGAIN_MAX_S)
        self._again_s = self._clock.monotonic_s() + self._pause_s
        self.problem = not_reckoned(self._worker, reason)


def in_words(segments: Sequence[int]) -> str:
    """Describe the segments that cannot be read, or where they end."""
    more = f" and {len(segments) - _NAMED_MAX} more" if len(segments) > _NAMED_MAX else ""
    return f"segments {', '.join(map(str, segments[:_NAMED_MAX]))}{more}"


def not_reckoned(worker: str, reason: str) -> str:
    """Say, in the log too, that requests may have no outcome yet."""
    logger().warning(Event.AUDIT_NOT_RECKONED, worker=worker, reason=reason)
    return (
        f"What a crash of worker {worker} cut off is not all known: its log cannot be read"
        f" at this moment ({reason})."
    )


async def is_open(sink: DatabaseAuditSink, intent: OpenIntent) -> bool:
    """Whether the database has no outcome for it."""
    return await sink.outcome(intent.record.organisation, intent.record.request_id) is None


def _intent_of(request_id: str) -> AuditQuery:
    return AuditQuery(stage="intent", request_id=request_id)


async def open_in_second(
    second: SecondContents, sink: DatabaseAuditSink, worker: str, refused_ids: Collection[str]
) -> list[OpenIntent]:
    """What is still open of the intents that the database took while a worker's disk could not.

    Without lines of batches, except those that were refused.
    """
    found = []
    for request_id in await second.open_requests(worker):
        for row in await sink.newest(_intent_of(request_id), 1):
            intent = OpenIntent(row.projected.record, row.projected.leaf_hash)
            found += [] if is_line(intent, refused_ids) else [intent]
    return found
