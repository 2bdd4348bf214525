"""Requests without an outcome of workers that were heard of today and are gone: counted, not ended.

Only their last hours are looked at, so that this costs little however long the log is.
"""

from typing import Any, Final

from msgspec import Struct
from sqlalchemy import exists, func, select

from gateway.audit.second import SECOND_SUFFIX
from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.evidence.gone_workers import GONE_AFTER_S
from gateway.store.schema.audit import audit_records, audit_sequences
from gateway.store.workers import workers


LOOKED_AT_US: Final = 2 * 3_600_000_000
"""Of a worker's time; what it had begun before, only lines of batches are still open of."""
_SKEW_US: Final = 60_000_000


class Unended(Struct, frozen=True):
    """What one worker left."""

    worker: str
    requests: int
    gone_us: int
    """For how long nothing was heard of it."""


class UnendedReader:
    """Of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def read(self, organisation: str | None = None) -> list[Unended]:
        """By worker, of one organisation or all; without those that left nothing.

        Raises:
            NotReady: the database does not answer.
        """
        now_us = self._clock.utc_us()
        gone = select(workers.c.worker, workers.c.seen_us).where(
            workers.c.seen_us < now_us - round(GONE_AFTER_S * 1e6)
        )
        found = []
        async with self._database.reading() as connection:
            for worker, seen_us in (await connection.execute(gone.order_by("worker"))).all():
                query = _open_of(worker, seen_us, organisation)
                count = int((await connection.execute(query)).scalar_one())
                if count:
                    found.append(Unended(worker, count, now_us - seen_us))
        return found


def _open_of(worker: str, seen_us: int, organisation: str | None) -> Any:
    begun, ended = audit_records.c, audit_records.alias("ended").c
    every = select(audit_sequences.c.organisation)
    if organisation is not None:
        every = every.where(audit_sequences.c.organisation == organisation)
    has_ended = exists().where(ended.request_id == begun.request_id, ended.stage == "outcome")
    return select(func.count()).where(
        begun.organisation.in_(every),
        begun.utc_us >= seen_us - LOOKED_AT_US,
        begun.utc_us <= seen_us + _SKEW_US,
        begun.stage == "intent",
        begun.worker.in_([worker, worker + SECOND_SUFFIX]),
        ~has_ended,
    )
