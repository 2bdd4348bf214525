"""Delivers the log to the sinks in the settings: in order, at least once, from a cursor.

The backlog is the log itself, so a sink that is away for a week loses nothing and costs nothing.
One worker at a time delivers to a sink; it holds a lease in the database for that long.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from msgspec import structs
from sqlalchemy import Update, insert, not_, or_, select, update
from sqlalchemy.exc import IntegrityError

from gateway.audit.projecting.export import export_line
from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.evidence.deliveries import REFUSED, TAKEN, Run, note
from gateway.store.evidence.sink import AuditQuery, DatabaseAuditSink
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.schema.audit import audit_cursors, audit_shippers
from gateway.telemetry import Event, logger


BATCH_LINES = 500
ROUND_BATCHES = 20
"""After this many batches it is the next sink's turn; the duty comes back a second later."""
LEASE_US = 60_000_000
APART_US = 10 * LEASE_US
"""A lease that ends later than this was taken by a clock too far ahead to be tolerated."""
REFUSED_EVERY_US = 10_000_000
LOOK_S = 10.0
"""How often an idle log is asked for new checkpoints."""
_CHECKPOINTS, _RECORDS = "checkpoints", "records"


class Sink(Protocol):
    """A place outside; `gateway.providers.outlets.sinks` has them."""

    takes_checkpoints: bool

    @property
    def problem(self) -> str:
        """Why it did not take the last delivery, in our words; empty if it did."""
        ...

    async def deliver(self, lines: Sequence[Mapping[str, Any]]) -> bool:
        """Whether all of it was taken; if not, all of it is sent again."""
        ...


class Shipper:
    """Delivers to every sink in turn."""

    def __init__(
        self,
        database: Database,
        records: DatabaseAuditSink,
        sinks: Mapping[str, Sink],
        clock: Clock,
        holder: str,
    ) -> None:
        self._database = database
        self._records = records
        self._trees = DatabaseAuditTrees(database)
        self._sinks = sinks
        self._clock = clock
        self._holder = holder
        self._log = logger()
        self._failing: set[str] = set()
        self._refusals: dict[str, tuple[int, int]] = {}
        """By sink: refusals not noted yet, and when one was last noted."""
        self._looked_s: dict[str, float] = {}

    async def perform(self) -> int:
        """Run one round for each sink; returns how many lines were taken in all.

        Raises:
            NotReady: the database does not answer.
            OSError: a segment cannot be read at the moment; the next round tries again.
        """
        taken = 0
        sizes = await self._trees.sizes()
        for name, sink in self._sinks.items():
            if not await self._has_more(name, sizes):
                continue
            async with self._leased(name) as term:
                if term:
                    taken += await self._ship(name, sink, term)
        return taken

    async def _has_more(self, name: str, sizes: Mapping[str, int]) -> bool:
        """Whether there are records, or it is time to look for checkpoints; writes nothing."""
        now_s = self._clock.monotonic_s()
        columns = audit_cursors.c
        query = select(columns.organisation, columns.position).where(
            columns.sink == name, columns.kind == _RECORDS
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        known: dict[str, int] = {row.organisation: row.position for row in rows}
        if any(size > known.get(organisation, 0) for organisation, size in sizes.items()):
            return True
        if now_s - self._looked_s.get(name, -LOOK_S) < LOOK_S:
            return False
        self._looked_s[name] = now_s
        return True

    async def _ship(self, name: str, sink: Sink, term: int) -> int:
        taken = 0
        kinds = (_RECORDS, _CHECKPOINTS) if sink.takes_checkpoints else (_RECORDS,)
        for organisation in sorted(await self._trees.sizes()):
            for kind in kinds:
                for _ in range(ROUND_BATCHES):
                    here = await self._cursor(name, kind, organisation)
                    lines, cursor = await self._next(kind, organisation, here)
                    if not lines:
                        break
                    if not await self._goes_on(name, term):
                        return taken  # Another worker is further by now.
                    if not await sink.deliver(lines):
                        await self._refused(name, sink.problem)
                        return taken
                    taken += len(lines)
                    self._note(name, failing=False)
                    count = len(lines) if kind == _RECORDS else 0
                    if not await self._move((name, kind, organisation), term, here, cursor, count):
                        break  # Somebody sent it back meanwhile: the next round begins there.
        return taken

    async def _next(
        self, kind: str, organisation: str, here: int
    ) -> tuple[list[dict[str, Any]], int]:
        """What comes after the cursor, and where the cursor is once that is taken."""
        if kind == _CHECKPOINTS:
            signed = await self._trees.between(organisation, here + 1, 2**62, BATCH_LINES)
            found = [structs.asdict(each) | {"root": each.root.hex()} for each in signed]
            return found, signed[-1].signed_us if signed else here
        lines: list[dict[str, Any]] = []
        # What cannot be read now must wait: what lies behind the cursor is never sent again.
        query = AuditQuery(organisation=organisation)
        rows = self._records.records(query, after=here, strict=True)
        async for row in rows:
            lines.append(export_line(row))
            here = row.sequence
            if len(lines) == BATCH_LINES:
                break
            if not len(lines) % 50:
                await asyncio.sleep(0)  # Requests go first.
        return lines, here

    async def _cursor(self, name: str, kind: str, organisation: str) -> int:
        columns = audit_cursors.c
        query = select(columns.position).where(
            columns.sink == name, columns.kind == kind, columns.organisation == organisation
        )
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one_or_none() or 0)

    async def _move(
        self, place: tuple[str, str, str], term: int, here: int, position: int, records: int
    ) -> bool:
        """Move a cursor on and note the delivery; False if the cursor was moved in the meantime.

        Also False if another worker has begun to deliver since: otherwise what the cursor was sent
        back to would be skipped.
        """
        sink, kind, organisation = place
        columns = audit_cursors.c
        own = (
            (columns.sink == sink) & (columns.kind == kind) & (columns.organisation == organisation)
        )
        now_us = self._clock.utc_us()
        async with self._database.writing() as connection:
            if not (await connection.execute(self._kept(sink, term))).rowcount:
                return False
            change = update(audit_cursors).where(own, columns.position == here)
            if not (await connection.execute(change.values(position=position))).rowcount:
                known = await connection.execute(select(columns.position).where(own))
                if known.scalar_one_or_none() is not None:
                    return False
                key = {"sink": sink, "kind": kind, "organisation": organisation}
                await connection.execute(insert(audit_cursors).values(**key, position=position))
            await note(connection, Run(sink, now_us, now_us, TAKEN, 1, records, self._holder))
        return True

    async def _refused(self, name: str, problem: str) -> None:
        """Note a refusal: the first at once, then every few seconds with their number."""
        self._note(name, failing=True)
        now_us, (count, noted_us) = self._clock.utc_us(), self._refusals.get(name, (0, 0))
        if 0 <= now_us - noted_us < REFUSED_EVERY_US:  # Less than 0: the clock was set back.
            self._refusals[name] = count + 1, noted_us
            return
        self._refusals[name] = 0, now_us
        run = Run(name, now_us, now_us, REFUSED, count + 1, 0, self._holder, problem)
        async with self._database.writing() as connection:
            await note(connection, run)

    def _kept(self, sink: str, term: int) -> Update:
        """Extend the lease by its full time, unless another worker has begun since."""
        mine = (audit_shippers.c.sink == sink) & (audit_shippers.c.term == term)
        return update(audit_shippers).where(mine).values(until_us=self._clock.utc_us() + LEASE_US)

    async def _goes_on(self, sink: str, term: int) -> bool:
        """Check the lease before a delivery: a stopped worker must not deliver old records."""
        async with self._database.writing() as connection:
            return bool((await connection.execute(self._kept(sink, term))).rowcount)

    @asynccontextmanager
    async def _leased(self, name: str) -> AsyncIterator[int]:
        """The number of this turn at the sink; 0 if it is another worker's turn."""
        term = await self._take_lease(name)
        try:
            yield term
        finally:
            if term:
                await self._give_lease(name, term)

    async def _take_lease(self, name: str) -> int:
        now_us = self._clock.utc_us()
        columns = audit_shippers.c
        values = {"holder": self._holder, "until_us": now_us + LEASE_US}
        take = update(audit_shippers).where(
            columns.sink == name,
            or_(
                not_(columns.until_us.between(now_us, now_us + APART_US)),
                columns.holder == self._holder,
            ),
        )
        async with self._database.reading() as connection:
            known = (
                await connection.execute(select(columns.sink).where(columns.sink == name))
            ).all()
        try:
            async with self._database.writing() as connection:
                if known:
                    took = take.values(**values, term=columns.term + 1).returning(columns.term)
                    return (await connection.execute(took)).scalar_one_or_none() or 0
                first = insert(audit_shippers).values(sink=name, **values, term=1)
                await connection.execute(first)
        except IntegrityError:
            return 0  # Another worker was faster.
        return 1

    async def _give_lease(self, name: str, term: int) -> None:
        columns = audit_shippers.c
        mine = (columns.sink == name) & (columns.term == term)
        async with self._database.writing() as connection:
            await connection.execute(update(audit_shippers).where(mine).values(until_us=0))

    def _note(self, name: str, *, failing: bool) -> None:
        """Log once when a sink stops taking, and once when it takes again."""
        if failing and name not in self._failing:
            self._failing.add(name)
            self._log.warning(Event.SINK_NOT_TAKEN, component=name)
        elif not failing and name in self._failing:
            self._failing.discard(name)
            self._log.info(Event.SINK_RECOVERED, component=name)
