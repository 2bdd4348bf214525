"""Reads in one query what waits for workers in the database, together with the revision.

Batches, schedules and connection tests are idle most of the time. A worker that polled each of them
separately spent more on these queries than on everything else it does when idle. The same query
tells whether the server accepts writes (after a failover a worker may be connected to the wrong
one), and whether the database was restored and waits for this worker to restart.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, false, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import ACTIVE
from gateway.clock import Clock
from gateway.store.checkups import CLAIM_WITHIN_US, provider_checkups
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_awaited_workers
from gateway.store.schema.batches import batches
from gateway.store.schema.parcels import parcels
from gateway.store.schema.policies import policy_schedules
from gateway.store.schema.tables import revisions


def question(database: Database, worker: str = "") -> str:
    """The query of one worker, as text: it runs several times a second and never changes."""
    query: Select[Any] = select(
        revisions.c.revision,
        exists().where(batches.c.state.in_(ACTIVE)),
        exists().where(parcels.c.id != ""),
        _newest_order.scalar_subquery(),
        _first_schedule.scalar_subquery(),
        _is_read_only(database.kind),
        _is_awaited(worker),
    )
    compiled = query.compile(
        dialect=database.engine.dialect, compile_kwargs={"literal_binds": True}
    )
    return str(compiled)


def _is_read_only(kind: str) -> ColumnElement[bool]:
    """Whether the server is read-only: a demoted one answers every query but accepts no writes."""
    if kind == "sqlite":
        return false()
    return func.current_setting("transaction_read_only") == "on"


def _is_awaited(worker: str) -> ColumnElement[bool]:
    """Whether a restored database waits for the worker, which went on as if nothing happened."""
    columns = audit_awaited_workers.c
    untold = (columns.worker == worker, columns.told_us == 0, columns.lost_us == 0)
    return exists().where(*untold)


async def is_read_only(database: Database) -> bool:
    """Whether it accepts no writes; raises NotReady if it does not answer at all."""
    async with database.reading() as connection:
        return await is_read_only_in(connection)


async def is_read_only_in(connection: AsyncConnection) -> bool:
    """The same for one connection's server: connections of a pool may lead to different ones."""
    query = select(_is_read_only(connection.dialect.name))
    return bool((await connection.execute(query)).scalar_one())


async def write_nothing_new(database: Database) -> None:
    """Write what is there once more: SQLite reports a full disk only on a write.

    Raises:
        NotReady: the write failed.
    """
    async with database.writing() as connection:
        for step in (1, -1):  # SQLite writes no page without a change.
            moved = update(revisions).values(revision=revisions.c.revision + step)
            await connection.execute(moved)


_newest_order = select(func.max(provider_checkups.c.asked_us)).where(
    provider_checkups.c.claimed_us == 0
)
_first_schedule = select(func.min(policy_schedules.c.at_us)).where(
    policy_schedules.c.state == "waiting"
)


class Waiting:
    """What waits, as last read from the database; before the first read, everything might."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._batches_s = clock.monotonic_s()
        self._has_batches = True
        self._has_parcels = True
        self._ordered_us: int | None = clock.utc_us()
        self._scheduled_us: int | None = 0
        self._is_read_only = False
        self.is_awaited = False
        """Whether the database was restored, and waits for this worker to restart."""

    def see(self, row: Sequence[Any]) -> int:
        """Take in an answer to `question`; returns its revision."""
        revision, has_batches, has_parcels, self._ordered_us, self._scheduled_us, *told = row
        self._is_read_only, self.is_awaited = map(bool, told)
        self._has_batches, self._has_parcels = bool(has_batches), bool(has_parcels)
        if has_batches:
            self._batches_s = self._clock.monotonic_s()
        return int(revision)

    def problem(self) -> str:
        """Why this worker should get no more requests, as far as the database says."""
        return "The database takes no writes." if self._is_read_only else ""

    def batches(self) -> bool:
        """Whether any batch is not over."""
        return self._has_batches

    def batches_lately(self, within_s: float) -> bool:
        """Whether any batch was active a moment ago: their gauges must still go down to zero."""
        return self._clock.monotonic_s() - self._batches_s < within_s

    def parcels(self) -> bool:
        """Whether a vendor has lines of ours, or may get some; it must delete them in the end."""
        return self._has_parcels or self._has_batches

    def checkups(self) -> bool:
        """Whether a connection test waits to be run."""
        ordered_us = self._ordered_us
        return ordered_us is not None and self._clock.utc_us() - ordered_us < CLAIM_WITHIN_US

    def schedules(self) -> bool:
        """Whether the time of a scheduled version has come."""
        scheduled_us = self._scheduled_us
        return scheduled_us is not None and scheduled_us <= self._clock.utc_us()
