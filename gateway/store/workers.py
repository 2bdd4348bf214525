"""Last reports of data-plane workers about themselves: one row each, overwritten, later deleted.

Nothing is decided by these rows. Readers must expect workers that stopped reporting: their rows
stay for a day.
"""

from collections.abc import Sequence

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    LargeBinary,
    String,
    Table,
    bindparam,
    delete,
    select,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.oversight.workers import (
    FORGOTTEN_AFTER_S,
    LOST_AFTER_PERIODS,
    PERIOD_S,
    WorkerReport,
    decoded,
    encoded,
)
from gateway.store.engine import Database, together
from gateway.store.schema.tables import metadata
from gateway.store.schema.version import is_newer, stay_permitted


workers = Table(
    "workers",
    metadata,
    Column("worker", String(100), primary_key=True),
    Column("started_us", BigInteger, nullable=False),
    Column("seen_us", BigInteger, nullable=False),
    Column("report", LargeBinary, nullable=False),
)
_RENEWED = (
    update(workers)
    .where(workers.c.worker == bindparam("name"))
    .values({name: bindparam(f"new_{name}") for name in ("started_us", "seen_us", "report")})
    .returning(workers.c.worker)
)
TIDIED_EVERY_US = 3_600_000_000
_FORGOTTEN = delete(workers).where(workers.c.seen_us < bindparam("since_us"))


def alive(connection: Connection, now_us: int) -> list[str]:
    """Workers that do not count as lost, by name; one that ended in good order has no row."""
    since_us = now_us - round(LOST_AFTER_PERIODS * PERIOD_S * 1_000_000)
    query = select(workers.c.worker).where(workers.c.seen_us > since_us)
    return list(connection.execute(query.order_by(workers.c.worker)).scalars())


def alive_below(connection: Connection, now_us: int, schema: str) -> list[str]:
    """Those of `alive` whose program is older than a schema, or does not state its own."""
    names = alive(connection, now_us)
    query = select(workers).where(workers.c.worker.in_(names)).order_by(workers.c.worker)
    reports = [
        decoded(bytes(row.report), row.worker, row.seen_us) for row in connection.execute(query)
    ]
    return [
        each.worker
        for each in reports
        if not each.schema.isdecimal() or is_newer(schema, each.schema)
    ]


class WorkerTable:
    """The reports of all workers of one installation."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tidied_us = 0

    async def put(self, report: WorkerReport) -> None:
        """Store this worker's present state; rows not renewed for a day go, within an hour more.

        Raises:
            NotReady: the database does not answer.
        """
        seen_us = report.seen_us
        tidies = abs(seen_us - self._tidied_us) >= TIDIED_EVERY_US
        async with self._database.writing() as connection:
            await _put(connection, report)
            if tidies:
                since_us = seen_us - round(FORGOTTEN_AFTER_S * 1_000_000)
                await connection.execute(_FORGOTTEN, {"since_us": since_us})
        if tidies:
            self._tidied_us = seen_us

    async def arrive(self, report: WorkerReport) -> None:
        """The first `put`, once it is certain that this program may still run on the schema.

        A migration either finds this row, or has changed the schema before it is checked.

        Raises:
            NotReady: the database does not answer.
            StartupRefused: it was migrated since the start began, and this program is too old now.
        """
        async with self._database.writing() as connection:
            await stay_permitted(connection)
            await _put(connection, report)

    async def leave(self, worker: str, started_us: int) -> None:
        """Remove this worker's row when it stops in good order; a newer namesake keeps its row.

        Raises:
            NotReady: the database does not answer.
        """
        mine = (workers.c.worker == worker) & (workers.c.started_us == started_us)
        async with self._database.writing() as connection:
            await connection.execute(delete(workers).where(mine))

    async def alive(self, now_us: int) -> list[str]:
        """Names of those that were heard of a moment ago; raises NotReady."""
        async with self._database.reading() as connection:
            return await connection.run_sync(alive, now_us)

    async def all(self) -> Sequence[WorkerReport]:
        """All reports, by name.

        Raises:
            NotReady: the database does not answer.
        """
        query = select(workers).order_by(workers.c.worker)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [decoded(bytes(row.report), row.worker, row.seen_us) for row in rows]


async def _put(connection: AsyncConnection, report: WorkerReport) -> None:
    seen_us = report.seen_us
    values = {"started_us": report.started_us, "seen_us": seen_us, "report": encoded(report)}
    renewed = {"name": report.worker} | {f"new_{name}": values[name] for name in values}
    (found,) = await together(connection, [(_RENEWED, renewed)])
    if not found:
        await connection.execute(workers.insert(), {"worker": report.worker, **values})
