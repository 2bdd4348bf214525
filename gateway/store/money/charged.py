"""Which outcomes a budget has to account for: what was let through since a worker charged it."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Column, ColumnElement, Select, and_, case, exists, func, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import late_bookings


_MANY: Final = {"key": ("key_id",), "user": ("organisation", "subject")}
"""Levels with very many accounts, and the columns of whose they are."""


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


class Spent:
    """What outcomes cost, by who is charged with them; for as long as one transaction lasts."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._since: dict[tuple[str, int], dict[str, int]] = {}
        """Of each key and end user, by their level and since when."""

    async def by(self, account: str, charged: Charged) -> int:
        """What the outcomes of an account cost that it is charged with."""
        query = _total(charged).where(*_is_of(account))
        return int((await self._connection.execute(query)).scalar_one() or 0)

    async def of_window(self, account: str, charged: Charged) -> int:
        """The same of one that is charged with all of a window, as most are.

        Keys and end users may be very many, and each would read what all of them spent: those are
        added up together, once.
        """
        level, _, path = account.partition(":")
        names = _MANY.get(level)
        if names is None or charged.by_worker:
            return await self.by(account, charged)
        window = (level, charged.since_us)
        if window not in self._since:
            columns = [audit_records.c[name] for name in names]
            query = _total(charged).add_columns(*columns).group_by(*columns)
            rows = (await self._connection.execute(query)).all()
            self._since[window] = {"/".join(place): int(cost or 0) for cost, *place in rows}
        return self._since[window].get(path, 0)


def _total(charged: Charged) -> Select[Any]:
    spent = select(func.sum(audit_records.c.cost_microusd))
    return spent.where(audit_records.c.stage == "outcome", *charged.outcomes())


def _is_of(account: str) -> list[ColumnElement[bool]]:
    """The records that are charged to an account."""
    columns = audit_records.c
    level, _, path = account.partition(":")
    names = _MANY.get(level, ("organisation", "workspace", "project"))
    # A subject has no stroke in it, and an organisation might.
    parts = path.rsplit("/", 1) if level == "user" else path.split("/")
    return [columns[name] == part for name, part in zip(names, parts, strict=False)]
