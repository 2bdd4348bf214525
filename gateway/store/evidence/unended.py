"""Counts requests without an outcome of workers that are gone, without ending them.

Only their last hours are searched, so this costs little however long the log is. The result is kept
longer than a worker's own report, which is deleted after a day.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import (
    ColumnElement,
    Select,
    and_,
    delete,
    exists,
    func,
    literal_column,
    or_,
    select,
    update,
)

from gateway.audit.second import SECOND_SUFFIX
from gateway.batches import ACTIVE
from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.evidence.gone_workers import GONE_AFTER_S
from gateway.store.schema.audit import audit_records, audit_sequences, gone_workers
from gateway.store.schema.batches import batches
from gateway.store.speech import insert_into
from gateway.store.workers import workers


LOOKED_AT_US: Final = 2 * 3_600_000_000
"""The time of a worker that is searched; of what it began earlier, only lines of batches are
open."""
BATCHES_US: Final = 3 * 86_400_000_000
"""Lines are looked for in batches made within this time; those that go on wait for them."""
_SKEW_US: Final = 60_000_000


class Unended(Struct, frozen=True):
    """What one worker left open."""

    worker: str
    requests: int
    gone_us: int
    """How long ago it was last heard of."""
    since_us: int = 0
    """When the oldest of them began."""


class Silent(Struct, frozen=True):
    """A worker that was not heard of for long, or whose name is retired."""

    worker: str
    heard_us: int
    requests: int
    """Requests without an outcome, of its last hours; and lines of batches that are over."""
    since_us: int
    """When the oldest of them began; 0 for none."""
    retired_us: int = 0
    """0 unless its name is retired."""
    retired_by: str = ""
    reason: str = ""


class UnendedReader:
    """Counts and reads the unended requests in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read(self, organisation: str | None = None) -> list[Unended]:
        """Unended requests by worker, of one organisation or all; without workers that left none.

        Raises:
            NotReady: the database does not answer.
        """
        now_us = self._clock.utc_us()
        found = []
        for worker, heard_us in sorted((await self._gone(now_us)).items()):
            count, since_us = await self._counted(worker, heard_us, organisation)
            if count:
                found.append(Unended(worker, count, now_us - heard_us, since_us))
        return found

    async def silent(self) -> list[Silent]:
        """Every gone worker, by name, even if it left nothing; counted now.

        Raises:
            NotReady: the database does not answer.
        """
        columns = gone_workers.c
        named = (columns.worker, columns.retired_us, columns.retired_by, columns.reason)
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(*named).where(columns.retired_us > 0))).all()
        retired = {worker: tuple(said) for worker, *said in rows}
        return [
            Silent(
                worker,
                heard_us,
                *await self._counted(worker, heard_us, None),
                *retired.get(worker, ()),
            )
            for worker, heard_us in sorted((await self._gone(self._clock.utc_us())).items())
        ]

    async def kept(self) -> list[Unended]:
        """The last counts, of all organisations; reads one small table."""
        columns, now_us = gone_workers.c, self._clock.utc_us()
        query = select(gone_workers).where(columns.requests > 0).order_by(columns.worker)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [
            Unended(row.worker, row.requests, now_us - row.heard_us, row.since_us) for row in rows
        ]

    async def count(self) -> None:
        """Save the counts of what is open now, for as long as something is.

        Raises:
            NotReady: the database does not answer.
        """
        now_us = self._clock.utc_us()
        gone = await self._gone(now_us)
        found = {name: await self._counted(name, gone[name], None) for name in sorted(gone)}
        async with self._database.writing() as connection:
            for worker, (count, since_us) in found.items():
                values = {"heard_us": gone[worker], "requests": count, "since_us": since_us}
                mine = update(gone_workers).where(gone_workers.c.worker == worker)
                known = (await connection.execute(mine.values(**values))).rowcount
                if count and not known:
                    row = insert_into(self._database.kind, gone_workers)
                    new = row.values(worker=worker, **values).on_conflict_do_nothing()
                    await connection.execute(new)
            columns = gone_workers.c
            is_back = columns.worker.not_in(list(gone))
            over = delete(gone_workers).where(or_(columns.requests == 0, is_back))
            await connection.execute(over.where(columns.retired_us == 0))

    async def _gone(self, now_us: int) -> Mapping[str, int]:
        """Workers that were not heard of for long enough, and when they last were."""
        last_us = now_us - round(GONE_AFTER_S * 1e6)
        spoke = select(workers.c.worker, workers.c.seen_us)
        known = select(gone_workers.c.worker, gone_workers.c.heard_us)
        async with self._database.reading() as connection:
            heard = dict(map(tuple, (await connection.execute(known)).all()))
            heard |= dict(map(tuple, (await connection.execute(spoke)).all()))
        return {name: heard_us for name, heard_us in heard.items() if heard_us < last_us}

    async def _counted(
        self, worker: str, heard_us: int, organisation: str | None
    ) -> tuple[int, int]:
        """How many, and when the oldest began; 0 if there are none."""
        count, since_us = 0, 0
        async with self._database.reading() as connection:
            for query in _open_of(worker, heard_us, organisation):
                some, oldest_us = (await connection.execute(query)).one()
                count += int(some)
                since_us = min(filter(None, (since_us, oldest_us)), default=0)
        return count, since_us


def is_open_of(worker: str, begun: Any) -> ColumnElement[bool]:
    """Whether a row is an intent of this worker, or of its second device, without an outcome."""
    ended = audit_records.alias("ended").c
    has_ended = exists().where(ended.request_id == begun.request_id, ended.stage == "outcome")
    names = [worker, worker + SECOND_SUFFIX]
    return and_(begun.stage == "intent", begun.worker.in_(names), ~has_ended)


def _open_of(worker: str, heard_us: int, organisation: str | None) -> list[Select[int, Any]]:
    """Requests of its last hours, and lines of batches that nobody goes on with."""
    begun = audit_records.c
    every = select(audit_sequences.c.organisation)
    if organisation is not None:
        every = every.where(audit_sequences.c.organisation == organisation)
    over = select(batches.c.id).where(
        batches.c.state.not_in(ACTIVE), batches.c.created_us >= heard_us - BATCHES_US
    )
    counted = select(func.count(), func.min(begun.utc_us)).where(
        begun.organisation.in_(every), is_open_of(worker, begun)
    )
    return [
        counted.where(
            begun.batch == "",
            begun.utc_us >= heard_us - LOOKED_AT_US,
            begun.utc_us <= heard_us + _SKEW_US,
        ),
        # Written out, because the index of lines is used only if the query repeats its condition.
        counted.where(literal_column("(batch <> '')"), begun.batch.in_(over)),
    ]
