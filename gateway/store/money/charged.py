"""Which outcomes a budget has to account for: what was let through since a worker charged it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from sqlalchemy import Column, ColumnElement, and_, case, exists, not_, or_

from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import late_bookings


class Charged(Struct, frozen=True):
    """From when on a budget is charged with what was let through.

    Args:
        since_us: with what most workers let through.
        by_worker: with what these did, by their own clocks.
        booked_us: with what was booked late and by itself, whoever let it through.
    """

    since_us: int
    by_worker: Mapping[str, int] = {}
    booked_us: int | None = None

    def outcomes(self) -> list[ColumnElement[bool]]:
        """Outcomes of requests that were let through since then, as the ledger charges them.

        What arrived before and ended after may have been let through on either side: its intent
        says. So it does of what a crash cut off, of whose length nothing is known. Only what was
        over at once and has no intent here is of the moment of its outcome.
        """
        columns, begun = audit_records.c, audit_records.alias("begun").c
        of_it = (begun.request_id == columns.request_id, begun.stage == "intent")
        was_let_through = exists().where(*of_it, begun.utc_us >= self._since(begun))
        arrived_us = columns.utc_us - columns.duration_us
        every_us = [self.since_us, *self.by_worker.values()]
        if self.booked_us is not None:
            every_us.append(self.booked_us)
        is_sure = and_(arrived_us >= max(every_us), columns.duration_us > 0)
        is_alone = and_(arrived_us >= self._since(columns), not_(exists().where(*of_it)))
        return [columns.utc_us >= min(every_us), or_(is_sure, was_let_through, is_alone)]

    def _by(self, worker: Column[str]) -> Any:
        if not self.by_worker:
            return self.since_us
        return case(self.by_worker, value=worker, else_=self.since_us)

    def _since(self, record: Any) -> Any:
        if self.booked_us is None:
            return self._by(record.worker)
        was_late = exists().where(late_bookings.c.request_id == record.request_id)
        return case((was_late, self.booked_us), else_=self._by(record.worker))
