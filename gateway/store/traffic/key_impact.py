"""Counts recent requests of a key, and refusals because of models it may not use."""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from sqlalchemy import func, select

from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.rollup import traffic_key_days


COUNT_MAX: Final = 10_000


class KeyImpact(Struct, frozen=True):
    """Reads one database; what is counted row by row is limited."""

    database: Database

    async def asked(self, organisation: str, key_id: str, since_day: str) -> int:
        """Requests since this day (`2026-11-30`), as summed by the rollup."""
        columns = traffic_key_days.c
        query = select(func.coalesce(func.sum(columns.requests), 0)).where(
            columns.organisation == organisation,
            columns.key_id == key_id,
            columns.day >= since_day,
        )
        async with self.database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def refused(
        self, organisation: str, key_id: str, models: Collection[str], since_us: int
    ) -> int:
        """Refused requests since then that named one of these models; at most `COUNT_MAX`.

        A rule may have refused some of them too, so this does not say that these would be answered.
        """
        if not models:
            return 0
        columns = audit_records.c
        found = (
            select(columns.sequence)
            .where(
                columns.organisation == organisation,
                columns.utc_us >= since_us,
                # Worded so that the index of failed requests is used.
                columns.stage == "outcome",
                columns.status != "ok",
                columns.status == "refused",
                columns.key_id == key_id,
                columns.model_requested.in_(sorted(models)),
            )
            .limit(COUNT_MAX)
            .subquery()
        )
        async with self.database.reading() as connection:
            query = select(func.count()).select_from(found)
            return int((await connection.execute(query)).scalar_one())
