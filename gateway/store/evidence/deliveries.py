"""A log of what sinks took and refused, for people; also rewinds a sink so that it gets it again.

One row stands for a run: deliveries that ended alike, one after another, within an hour. Rewinding
only moves cursors; the delivering worker notices that its cursor was moved, and continues there.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import (
    BigInteger,
    Column,
    Index,
    Integer,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.store.attention import Attention
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_cursors, audit_records, audit_second_records
from gateway.store.schema.tables import metadata


RUN_US: Final = 3_600_000_000
KEPT_US: Final = 30 * 86_400_000_000
RUNS_KEPT: Final = 1_000
"""For each sink: one that alternately takes and refuses must not fill the database."""
SIDE_BY_SIDE_US: Final = 60_000_000
"""Workers write side by side, so numbers follow times only roughly; this is the margin."""
ORGANISATIONS_MAX: Final = 10_000
RECORDS: Final = "records"
CHECKPOINTS: Final = "checkpoints"
TAKEN, REFUSED, SENT_BACK = "taken", "refused", "sent_back"

sink_deliveries = Table(
    "sink_deliveries",
    metadata,
    Column("sink", String(63), primary_key=True),
    Column("since_us", BigInteger, primary_key=True, autoincrement=False),
    Column("until_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("lines", BigInteger, nullable=False),
    Column("who", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index(None, "since_us"),
)


class Run(Struct, frozen=True):
    """Consecutive deliveries to a sink with the same result, or an order to send records again."""

    sink: str
    since_us: int
    until_us: int
    state: str
    """taken, refused or sent_back."""
    tries: int
    lines: int
    who: str
    """The worker that delivered, or the person who sent back."""
    reason: str = ""


class SinkState(Struct, frozen=True):
    """How far deliveries to a sink have come."""

    sink: str
    records_behind: int
    oldest_us: int
    """When the oldest record that it has not taken was written; 0 if there is none."""
    newest: Run | None
    taken_us: int
    """When it last took something; 0 if that is not remembered."""


async def note(connection: AsyncConnection, run: Run) -> None:
    """Add a delivery to the log, in the transaction that it belongs to."""
    columns = sink_deliveries.c
    newest = (
        select(sink_deliveries)
        .where(columns.sink == run.sink)
        .order_by(columns.since_us.desc())
        .limit(1)
    )
    row = (await connection.execute(newest)).mappings().one_or_none()
    last = Run(**row) if row is not None else None
    if last is not None and _continues(last, run):
        same = (columns.sink == last.sink) & (columns.since_us == last.since_us)
        grown = {
            "until_us": max(run.until_us, last.until_us),
            "tries": last.tries + run.tries,
            "lines": last.lines + run.lines,
        }
        await connection.execute(update(sink_deliveries).where(same).values(**grown))
        return
    # Two runs of one sink may begin in the same microsecond of a clock that stands still.
    since_us = max(run.since_us, last.since_us + 1) if last is not None else run.since_us
    await connection.execute(insert(sink_deliveries).values(asdict(run) | {"since_us": since_us}))
    oldest = (
        select(columns.since_us)
        .where(columns.sink == run.sink)
        .order_by(columns.since_us.desc())
        .offset(RUNS_KEPT)
        .limit(1)
    )
    last_us = (await connection.execute(oldest)).scalar_one_or_none() or 0
    is_beyond = (columns.sink == run.sink) & (columns.since_us <= last_us)
    is_old = columns.until_us < run.until_us - KEPT_US
    await connection.execute(delete(sink_deliveries).where(is_beyond | is_old))


def _continues(last: Run, run: Run) -> bool:
    if run.state == SENT_BACK or (last.state, last.who, last.reason) != (
        *(run.state, run.who, run.reason),
    ):
        return False
    return run.since_us // RUN_US == last.since_us // RUN_US


class Deliveries:
    """Reads the log of one database, and sends back."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def runs(self, sinks: Collection[str], count_max: int) -> list[Run]:
        """The newest runs of these sinks, newest first."""
        columns = sink_deliveries.c
        query = (
            select(sink_deliveries)
            .where(columns.sink.in_(sorted(sinks)))
            .order_by(columns.since_us.desc())
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            return [Run(**row) for row in (await connection.execute(query)).mappings()]

    async def states(self, sinks: Collection[str]) -> list[SinkState]:
        """The state of each of these sinks, by name."""
        delays = await Attention(self._database).delays(sinks, ORGANISATIONS_MAX)
        newest = await self._newest(sinks)
        taken = await self._taken(sinks)
        found = []
        for sink in sorted(sinks):
            own = [each for each in delays if each.sink == sink]
            oldest = [each.oldest_us for each in own if each.oldest_us]
            found.append(
                SinkState(
                    sink,
                    sum(each.records for each in own),
                    min(oldest, default=0),
                    newest.get(sink),
                    taken.get(sink, 0),
                )
            )
        return found

    async def would_send(self, sink: str, since_us: int) -> Mapping[str, int]:
        """How many records of each organisation would be sent again; without those with none."""
        async with self._database.reading() as connection:
            steps = await _steps(connection, sink, since_us)
        return {organisation: was - to for organisation, (was, to) in steps.items()}

    async def send_back(self, sink: str, since_us: int, who: str) -> int:
        """Send a sink again what was written or signed since then; returns how many records."""
        now_us = self._clock.utc_us()
        columns = audit_cursors.c
        async with self._database.writing() as connection:
            steps = await _steps(connection, sink, since_us)
            for organisation, (_, to) in steps.items():
                own = (columns.sink == sink) & (columns.organisation == organisation)
                await connection.execute(
                    update(audit_cursors).where(own, columns.kind == RECORDS).values(position=to)
                )
            # Idle logs are included: their checkpoints prove that nothing happened.
            signed = (columns.sink == sink) & (columns.kind == CHECKPOINTS)
            await connection.execute(
                update(audit_cursors)
                .where(signed, columns.position >= since_us)
                .values(position=max(since_us - 1, 0))
            )
            count = sum(was - to for was, to in steps.values())
            await note(connection, Run(sink, now_us, now_us, SENT_BACK, 1, count, who))
        return count

    async def second_records(self) -> Mapping[str, int]:
        """How many records the database took itself while a disk could not, by worker."""
        columns = audit_second_records.c
        query = select(columns.worker, func.count()).group_by(columns.worker)
        async with self._database.reading() as connection:
            return {worker: int(count) for worker, count in await connection.execute(query)}

    async def _newest(self, sinks: Collection[str]) -> dict[str, Run]:
        columns = sink_deliveries.c
        latest = (
            select(columns.sink, func.max(columns.since_us).label("since_us"))
            .where(columns.sink.in_(sorted(sinks)), columns.state != SENT_BACK)
            .group_by(columns.sink)
            .subquery()
        )
        query = select(sink_deliveries).join(
            latest, (columns.sink == latest.c.sink) & (columns.since_us == latest.c.since_us)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        return {row["sink"]: Run(**row) for row in rows}

    async def _taken(self, sinks: Collection[str]) -> dict[str, int]:
        columns = sink_deliveries.c
        query = (
            select(columns.sink, func.max(columns.until_us))
            .where(columns.sink.in_(sorted(sinks)), columns.state == TAKEN)
            .group_by(columns.sink)
        )
        async with self._database.reading() as connection:
            return {sink: int(until_us) for sink, until_us in await connection.execute(query)}


async def _steps(
    connection: AsyncConnection, sink: str, since_us: int
) -> dict[str, tuple[int, int]]:
    """Organisations whose cursor would go back, with its present and its new place."""
    cursors, records = audit_cursors.c, audit_records.c
    query = select(cursors.organisation, cursors.position).where(
        cursors.sink == sink, cursors.kind == RECORDS
    )
    rows: Sequence[tuple[str, int]] = [
        (row.organisation, row.position) for row in (await connection.execute(query)).all()
    ]
    found = {}
    for organisation, position in rows:
        later = (records.organisation == organisation) & (
            records.utc_us >= max(since_us - SIDE_BY_SIDE_US, 0)
        )
        # The earliest need not have the lowest number: another worker's may have come in before it.
        earliest = select(func.min(records.utc_us)).where(later).scalar_subquery()
        # For a bare column PostgreSQL searches for the minimum from the beginning of the log.
        first = select(func.min(records.sequence + 0)).where(
            later, records.utc_us <= earliest + SIDE_BY_SIDE_US
        )
        sequence = (await connection.execute(first)).scalar_one_or_none()
        if sequence is not None and sequence - 1 < position:
            found[organisation] = (int(position), int(sequence) - 1)
    return found
