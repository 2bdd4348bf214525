"""Tells running workers that something changed: a counter, and on PostgreSQL a bell.

Whatever a worker keeps in memory is raised by `bump` in the transaction that changes it. Workers
look at the counter several times a second; on PostgreSQL a NOTIFY wakes them at once. So a revoked
key is dead everywhere within a second, also when the bell is broken.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import asyncpg
from sqlalchemy import select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import NotReady
from gateway.store.engine import Database
from gateway.store.tables import revisions


POLL_S = 0.25
_CHANNEL = "gatewright_revision"
_READ_SQLITE = str(select(revisions.c.revision))
_LOST = (DBAPIError, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)


async def bump(connection: AsyncConnection) -> None:
    """Raise the counter within the transaction of a change; heard when it commits."""
    await connection.execute(update(revisions).values(revision=revisions.c.revision + 1))
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"NOTIFY {_CHANNEL}"))


async def revision_in(connection: AsyncConnection) -> int:
    """The counter as a transaction sees it."""
    return int((await connection.execute(select(revisions.c.revision))).scalar_one())


async def current(database: Database) -> int:
    """The counter now.

    Raises:
        NotReady: the database does not answer.
    """
    async with database.reading() as connection:
        return await revision_in(connection)


class RevisionWatcher:
    """Follows the counter of one database for one worker."""

    def __init__(self, database: Database, clock: Clock, *, poll_s: float = POLL_S) -> None:
        self._database = database
        self._clock = clock
        self._poll_s = poll_s
        self._rung = asyncio.Event()
        self._bell: AsyncConnection | None = None
        self._seen_s = clock.monotonic_s()

    def age_s(self) -> float:
        """Seconds since the counter was last read; a worker that hears nothing goes stale."""
        return self._clock.monotonic_s() - self._seen_s

    async def changes(self, after: int) -> AsyncGenerator[int]:
        """Every revision other than the one before it, from `after` on; never ends by itself.

        While the database does not answer nothing is yielded and `age_s` grows. Close the iterator
        (`contextlib.aclosing`) to give its connection back.
        """
        try:
            while True:
                self._rung.clear()
                await self._hang_bell()
                with suppress(NotReady):
                    revision = await self._read()
                    self._seen_s = self._clock.monotonic_s()
                    if revision != after:
                        after = revision
                        yield revision
                        continue
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._rung.wait(), self._poll_s)
        finally:
            await self._take_bell_down()

    async def _read(self) -> int:
        """The counter now; SQLite's own way is one turn of its thread instead of fifteen."""
        if self._database.kind == "postgresql":
            return await current(self._database)
        (row,) = await self._database.peek(_READ_SQLITE)
        return int(row[0])

    async def _hang_bell(self) -> None:
        """Listen, where the database can call; without a bell the poll goes on alone."""
        if self._database.kind != "postgresql":
            return
        if self._bell is not None:
            if not (await _driver_of(self._bell)).is_closed():
                return
            await self._take_bell_down()
        with suppress(*_LOST):
            self._bell = await self._database.engine.connect()
            await (await _driver_of(self._bell)).add_listener(_CHANNEL, self._ring)

    def _ring(self, *_: object) -> None:
        self._rung.set()

    async def _take_bell_down(self) -> None:
        if self._bell is None:
            return
        bell, self._bell = self._bell, None
        with suppress(*_LOST):
            await bell.invalidate()  # Not back to the pool, where it would go on listening.
        await bell.close()


async def _driver_of(connection: AsyncConnection) -> Any:
    return (await connection.get_raw_connection()).driver_connection
