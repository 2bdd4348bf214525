"""Tells running workers that something changed: a counter, and on PostgreSQL a notification too.

Every transaction that changes what workers keep in memory also raises the counter with `bump`.
Workers look at the counter several times a second; on PostgreSQL a NOTIFY wakes them at once. So a
revoked key is dead everywhere within a second, even when notifications fail. The same look tells
what else waits for them (`glance.py`).
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from sqlalchemy import select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.errors import NotReady
from gateway.pacing import rhythm
from gateway.pacing.moments import rung, until_moment_s
from gateway.store.engine import Database, driver_of
from gateway.store.glance import Waiting, question
from gateway.store.schema.tables import revisions
from gateway.store.speech import cut_off
from gateway.telemetry import Event, logger


_CHANNEL = "gatewright_revision"
_PUT_BACK = "The database was put back to an earlier state: stop every worker and start anew."


async def bump(connection: AsyncConnection) -> None:
    """Raise the counter within the transaction of a change; workers see it once that commits."""
    await connection.execute(update(revisions).values(revision=revisions.c.revision + 1))
    if connection.dialect.name == "postgresql":
        await connection.execute(text(f"NOTIFY {_CHANNEL}"))


async def ring(database: Database) -> None:
    """Raise the counter after a commit; if that fails, workers learn of the change later.

    For changes that lock rows which other transactions lock after the counter.
    """
    with suppress(NotReady):
        async with database.writing() as connection:
            await bump(connection)


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

    def __init__(
        self, database: Database, clock: Clock, *, worker: str = "", poll_s: float = 0.0
    ) -> None:
        """`worker` is the name under which a restored database waits for this worker."""
        self._database = database
        self._clock = clock
        self._poll_s = poll_s or rhythm.REVISIONS_S
        self._question = question(database, worker)
        self._lost = cut_off(database.kind)
        self._rung = asyncio.Event()
        self._line: AsyncConnection | None = None
        """Kept for polling alone: taking a connection from the pool costs more than a poll."""
        self._driver: Any = None
        self.waiting = Waiting(clock)
        self._seen_s = clock.monotonic_s()
        self._put_back = False
        self._log = logger()

    def age_s(self) -> float:
        """Seconds since this worker was up to date with the counter; it grows if it cannot be."""
        return self._clock.monotonic_s() - self._seen_s

    def problem(self) -> str:
        """Why this worker should get no more requests, as far as its database says or shows."""
        if self._put_back:
            return _PUT_BACK
        refusal = self._database.refusal
        return f"The database takes no writes: {refusal}." if refusal else self.waiting.problem()

    async def changes(self, after: int) -> AsyncGenerator[int]:
        """Yield every revision that differs from the previous one, from `after` on; never ends.

        While the database does not answer, nothing is yielded and `age_s` grows. It also grows
        while the caller handles a change, and for good if the counter went back or signed records
        are found to be missing: then the database was restored to an earlier state, in which keys
        are valid that were revoked since, and only a restart makes that safe.
        Close the iterator (`contextlib.aclosing`) to give its connection back.
        """
        try:
            while True:
                self._rung.clear()
                await self._keep_line()
                with suppress(NotReady):
                    revision = await self._read()
                    read_s = self._clock.monotonic_s()
                    self._note(revision, after)
                    if revision != after and not self._put_back:
                        after = revision
                        yield revision
                        self._seen_s = read_s
                        continue
                    if not self._put_back:
                        self._seen_s = read_s
                await rung(self._rung, until_moment_s(self._poll_s))
        finally:
            await self._cut_line()

    def _note(self, revision: int, after: int) -> None:
        if self._put_back:
            return
        if revision < after:
            said = f"its counter of changes went from {after} back to {revision}"
        elif self.waiting.is_awaited:
            said = "it lacks what was signed, and awaits this worker"
        else:
            return
        self._put_back = True
        reason = f"{said}: stop every worker and start anew"
        self._log.error(Event.SNAPSHOT_DATABASE_OLDER, reason=reason)

    async def _read(self) -> int:
        """Read the counter, and with it what waits for workers."""
        try:
            (row,) = await self._database.peek(self._question, self._driver)
        except self._lost as error:
            await self._cut_line()
            raise NotReady("the database does not answer", retry_after_s=1.0) from error
        except NotReady:
            await self._cut_line()
            raise
        return self.waiting.see(row)

    async def _keep_line(self) -> None:
        """Keep a connection for polling; without one each poll takes one from the pool."""
        if self._driver is not None:
            return
        await self._cut_line()
        with suppress(*self._lost):
            self._line = await self._database.engine.connect()
            driver = await driver_of(self._line)
            if self._database.has_sessions:
                await self._hang_bell(driver)
            self._driver = driver

    async def _hang_bell(self, driver: Any) -> None:
        """Listen for notifications; without them polling goes on alone.

        Behind a pooler they would arrive in a session without an owner, with a warning for each.
        """
        await driver.add_listener(_CHANNEL, self._ring)

    def _ring(self, *_: object) -> None:
        self._rung.set()

    async def _cut_line(self) -> None:
        line, self._line, self._driver = self._line, None, None
        if line is None:
            return
        with suppress(*self._lost):
            await line.invalidate()  # Not back to the pool, where it would go on listening.
        await line.close()
