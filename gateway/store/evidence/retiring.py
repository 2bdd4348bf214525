"""Retires the name of a worker whose disk is lost: unprojected records will never be read.

This replaces the lock that proves a worker gone where its segments can be reached. The worker's
place in the projection moves behind every segment, in the transaction that says who wants it. So
nothing of it is numbered afterwards, even if the disk comes back, and its open requests are known.
"""

from collections.abc import AsyncIterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from msgspec import Struct
from sqlalchemy import insert, not_, or_, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.audit.projecting.projection import RETIRED, START, Position, ProjectedRecord
from gateway.audit.second import SECOND_SUFFIX
from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.store.engine import Database
from gateway.store.evidence.gone_workers import GONE_AFTER_S
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.evidence.unended import is_open_of
from gateway.store.schema.audit import (
    audit_positions,
    audit_records,
    gone_workers,
    worker_retirements,
)
from gateway.store.workers import workers


_AT_ONCE: Final = 500
ENDING_US: Final = 900_000_000
"""A log that began to write outcomes this long ago, and did not finish, is not waited for; nor is
one that began this far in the future: a clock was set back."""


class Standing(Struct, frozen=True):
    """What the database knows of a gone worker."""

    position: Position
    """Up to where its segments are projected."""
    heard_us: int
    """When it was last heard of; 0 if that is forgotten."""
    retired_us: int
    """0 unless its name is retired."""
    second: Position = START
    """Up to where its second device is numbered."""


class Retired(Struct, frozen=True):
    """A worker whose name is retired from now on, by whom, and why."""

    worker: str
    heard_us: int
    now_us: int
    by: str
    reason: str


class Retiring:
    """Retires names of workers in one database."""

    def __init__(self, database: Database, sink: DatabaseAuditSink, clock: Clock) -> None:
        self._database = database
        self._sink = sink
        self._clock = clock

    async def standing(self, worker: str) -> Standing:
        """How a worker stands.

        Raises:
            RequestInvalid: nothing of it ever reached the database, or it was heard of lately.
        """
        spoke = select(workers.c.seen_us).where(workers.c.worker == worker)
        known = select(gone_workers).where(gone_workers.c.worker == worker)
        async with self._database.reading() as connection:
            seen_us = (await connection.execute(spoke)).scalar_one_or_none() or 0
            row = (await connection.execute(known)).one_or_none()
        positions = await self._sink.positions()
        position = positions.get(worker)
        if position is None:
            raise RequestInvalid(f"nothing of a worker {worker} ever reached this database")
        if self._clock.utc_us() - seen_us < GONE_AFTER_S * 1e6:
            raise RequestInvalid(f"worker {worker} was heard of less than a quarter of an hour ago")
        heard_us = max(seen_us, row.heard_us if row is not None else 0)
        second = positions.get(worker + SECOND_SUFFIX, START)
        return Standing(position, heard_us, row.retired_us if row is not None else 0, second)

    async def retire(self, worker: str, standing: Standing, by: str, reason: str) -> None:
        """Retire the name: nothing of it is projected from now on; may be repeated."""
        if standing.retired_us:
            return
        async with self._database.writing() as connection:
            await retire_within(connection, self._retired(worker, standing, by, reason))

    def _retired(self, worker: str, standing: Standing, by: str, reason: str) -> Retired:
        now_us = self._clock.utc_us()
        return Retired(worker, standing.heard_us or now_us, now_us, by, reason)

    async def begin_ending(self, worker: str, log: str) -> bool:
        """Whether `log` may write a retired worker's outcomes; two at once would write them twice.

        A log has one writer: a process that finds its own log named here goes on after a crash.
        """
        columns, now_us = gone_workers.c, self._clock.utc_us()
        is_over = not_(columns.ending_us.between(now_us - ENDING_US, now_us + ENDING_US))
        is_free = or_(columns.ending_by.in_(["", log]), is_over)
        mine = update(gone_workers).where(columns.worker == worker, is_free)
        async with self._database.writing() as connection:
            taken = await connection.execute(mine.values(ending_by=log, ending_us=now_us))
            return bool(taken.rowcount)

    async def finish_ending(self, worker: str, log: str) -> None:
        """Note that the database knows every outcome that was written."""
        columns = gone_workers.c
        mine = update(gone_workers).where(columns.worker == worker, columns.ending_by == log)
        async with self._database.writing() as connection:
            await connection.execute(mine.values(ending_by="", ending_us=0))

    async def open(self, worker: str) -> AsyncIterator[ProjectedRecord]:
        """The worker's intents without an outcome, however old; unreadable ones have no bytes."""
        columns = audit_records.c
        key = tuple_(columns.organisation, columns.sequence)
        place = ("", 0)
        while True:
            query = (
                select(columns.organisation, columns.sequence)
                .where(is_open_of(worker, columns), key > place)
                .order_by(columns.organisation, columns.sequence)
                .limit(_AT_ONCE)
            )
            async with self._database.reading() as connection:
                rows = [tuple(row) for row in (await connection.execute(query)).all()]
            for organisation, some in groupby(rows, itemgetter(0)):
                found = await self._sink.numbered(organisation, [number for _, number in some])
                for each in sorted(found, key=lambda row: row.sequence):
                    yield each.projected
            if len(rows) < _AT_ONCE:
                return
            place = rows[-1]


async def retire_within(connection: AsyncConnection, retired: Retired) -> None:
    """Put a worker's place after every segment; waiting requests to retire it become overtaken."""
    worker = retired.worker
    segment, offset = RETIRED
    place = {"segment": segment, "offset_bytes": offset}
    for name in (worker, worker + SECOND_SUFFIX):
        mine = update(audit_positions).where(audit_positions.c.worker == name)
        if not (await connection.execute(mine.values(**place))).rowcount:
            await connection.execute(insert(audit_positions).values(worker=name, **place))
    values = {"retired_us": retired.now_us, "retired_by": retired.by, "reason": retired.reason}
    mine = update(gone_workers).where(gone_workers.c.worker == worker)
    if not (await connection.execute(mine.values(**values))).rowcount:
        row = {"worker": worker, "heard_us": retired.heard_us, "requests": 0, "since_us": 0}
        await connection.execute(insert(gone_workers).values(**row, **values))
    cases = worker_retirements.c
    waiting = update(worker_retirements).where(cases.worker == worker, cases.state == "waiting")
    await connection.execute(waiting.values(state="overtaken", decided_us=retired.now_us))
