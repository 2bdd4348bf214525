"""Adds outcomes up by hour and by day, from where it stopped the last time.

Records of an organisation have dense numbers and become visible in their order, so a number says
how far the adding went: each record counts exactly once, whichever process adds. Pages then read
sums, which keeps them quick with millions of requests.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from sqlalchemy import Table, case, delete, exists, func, literal_column, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import HOUR_US, Clock, UnhurriedClock
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_awaited_records, audit_records, audit_sequences
from gateway.store.schema.batches import batches
from gateway.store.schema.rollup import (
    COUNTERS,
    DAY_GROUPS,
    HOUR_GROUPS,
    batch_costs,
    rollup_cursors,
    traffic_day_totals,
    traffic_days,
    traffic_hour_totals,
    traffic_hours,
    traffic_key_days,
)
from gateway.store.schema.tables import organisations
from gateway.store.speech import insert_into


BATCH_RECORDS: Final = 5_000
"""This many at once: on SQLite nobody else writes meanwhile."""
HOURS_KEPT: Final = 24 * 22
_QUARTER_US: Final = 900_000_000
_HOURS: Final = (traffic_hours, traffic_hour_totals)
_DAYS: Final = (traffic_days, traffic_day_totals, traffic_key_days)
_IS_AWAITED: Final = (audit_awaited_records.c.organisation == audit_sequences.c.organisation) & (
    audit_awaited_records.c.lost_us == 0
)
_LOST: Final = ("failed", "incomplete")


class Rollup:
    """The sums in one database; any number of processes may add at once."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._unhurried = UnhurriedClock(clock)

    async def catch_up(self, batches_max: int | None = None) -> int:
        """Add up what is new, at most `batches_max` batches; returns how many records are left.

        Raises:
            NotReady: the database does not answer.
        """
        left = {name: count for name, count in await self._behind() if count}
        for name in sorted(left):
            while left[name] and (batches_max is None or batches_max > 0):
                left[name] = await self._add(name)
                batches_max = None if batches_max is None else batches_max - 1
        return sum(left.values())

    async def tidy(self) -> None:
        """Forget hours and batches that no page shows any more; days stay.

        Raises:
            NotReady: the database does not answer.
        """
        first_us = self._unhurried.utc_us() - HOURS_KEPT * HOUR_US
        async with self._database.writing() as connection:
            for table in _HOURS:
                await connection.execute(delete(table).where(table.c.hour_us < first_us))
            gone = batch_costs.c.batch_id.not_in(select(batches.c.id))
            await connection.execute(delete(batch_costs).where(gone))

    async def _behind(self) -> Sequence[tuple[str, int]]:
        """Every organisation with records not added up, or added up in another zone's days."""
        taken = func.coalesce(rollup_cursors.c.sequence, 0)
        is_zone_other = rollup_cursors.c.time_zone != organisations.c.time_zone
        newest = audit_sequences.c.next_sequence - 1
        query = (
            select(
                audit_sequences.c.organisation,
                case((is_zone_other, newest), else_=func.abs(newest - taken)),
            )
            .join(
                rollup_cursors,
                rollup_cursors.c.organisation == audit_sequences.c.organisation,
                isouter=True,
            )
            .join(
                organisations, organisations.c.name == audit_sequences.c.organisation, isouter=True
            )
            # A number whose record is still to come would be skipped for good.
            .where(or_(newest != taken, is_zone_other), ~exists().where(_IS_AWAITED))
        )
        async with self._database.reading() as connection:
            return [(name, int(count)) for name, count in await connection.execute(query)]

    async def _add(self, organisation: str) -> int:
        """Add one batch of one organisation; returns how many records are left."""
        async with self._database.writing() as connection:
            done, zone = await self._place(connection, organisation)
            newest = await connection.scalar(
                select(audit_sequences.c.next_sequence - 1).where(
                    audit_sequences.c.organisation == organisation
                )
            )
            until = min(int(newest or 0), done + BATCH_RECORDS)
            if until <= done:
                return 0
            rows = await connection.execute(_sums(organisation, done, until))
            by_hour, by_day = _added(rows.mappings().all(), ZoneInfo(zone))
            for tables, names, added in (
                (_HOURS, ("hour_us", *HOUR_GROUPS), by_hour),
                (_DAYS, ("day", *DAY_GROUPS), by_day),
            ):
                for table in tables:
                    own, sums = _together(table, names, added)
                    await self._upsert(connection, table, organisation, own, sums)
            await self._add_batches(connection, organisation, done, until)
            change = update(rollup_cursors).where(rollup_cursors.c.organisation == organisation)
            await connection.execute(change.values(sequence=until))
            return int(newest or 0) - until

    async def _place(self, connection: AsyncConnection, organisation: str) -> tuple[int, str]:
        """Where adding stopped, and in which zone's days; restarts if that has changed."""
        query = select(organisations.c.time_zone).where(organisations.c.name == organisation)
        zone = (await connection.execute(query)).scalar_one_or_none() or "UTC"
        first = {"organisation": organisation, "sequence": 0, "time_zone": zone}
        insert = self._insert(rollup_cursors).values(first).on_conflict_do_nothing()
        await connection.execute(insert)
        cursor = select(rollup_cursors).where(rollup_cursors.c.organisation == organisation)
        row = (await connection.execute(cursor.with_for_update())).mappings().one()
        size = select(audit_sequences.c.next_sequence - 1).where(
            audit_sequences.c.organisation == organisation
        )
        newest = (await connection.execute(size)).scalar_one_or_none() or 0
        if row["time_zone"] == zone and row["sequence"] <= newest:
            return int(row["sequence"]), zone
        # Another time zone has other days; a projection that was rebuilt has other numbers.
        for table in (*_HOURS, *_DAYS, batch_costs):
            await connection.execute(delete(table).where(table.c.organisation == organisation))
        change = update(rollup_cursors).where(rollup_cursors.c.organisation == organisation)
        await connection.execute(change.values(sequence=0, time_zone=zone))
        return 0, zone

    async def _add_batches(
        self, connection: AsyncConnection, organisation: str, after: int, until: int
    ) -> None:
        """Add the costs of lines of batches; most records are not of any."""
        columns, sums = audit_records.c, batch_costs.c
        query = (
            select(columns.batch, func.count(), func.sum(columns.cost_microusd))
            .where(
                columns.organisation == organisation,
                columns.sequence > after,
                columns.sequence <= until,
                columns.stage == "outcome",
                # Written out: the index of batches is used only if the query repeats its condition.
                literal_column("(batch <> '')"),
            )
            .group_by(columns.batch)
            .order_by(columns.batch)
        )
        rows = [
            {
                "organisation": organisation,
                "batch_id": batch_id,
                "requests": count,
                "cost_microusd": int(cost),
            }
            for batch_id, count, cost in await connection.execute(query)
        ]
        if not rows:
            return
        statement = self._insert(batch_costs)
        added = {
            name: sums[name] + statement.excluded[name] for name in ("requests", "cost_microusd")
        }
        names = ("organisation", "batch_id")
        await connection.execute(
            statement.on_conflict_do_update(index_elements=names, set_=added), rows
        )

    async def _upsert(
        self,
        connection: AsyncConnection,
        table: Table,
        organisation: str,
        groups: tuple[str, ...],
        added: dict[tuple[Any, ...], list[int]],
    ) -> None:
        if not added:
            return
        statement = self._insert(table)
        largest = func.max if self._database.kind == "sqlite" else func.greatest
        changes = {name: table.c[name] + statement.excluded[name] for name in COUNTERS}
        changes["last_us"] = largest(table.c.last_us, statement.excluded.last_us)
        names = [column.name for column in table.primary_key]
        # In one order, so that two processes do not deadlock.
        rows = [
            {"organisation": organisation}
            | dict(zip(groups, group, strict=True))
            | dict(zip((*COUNTERS, "last_us"), sums, strict=True))
            for group, sums in sorted(added.items())
        ]
        await connection.execute(
            statement.on_conflict_do_update(index_elements=names, set_=changes), rows
        )

    def _insert(self, table: Table) -> Any:
        return insert_into(self._database.kind, table)


def _sums(organisation: str, after: int, until: int) -> Any:
    """Sums of the next records, by quarter of an hour: every zone's days consist of those."""
    columns = audit_records.c
    quarter = (columns.utc_us // _QUARTER_US).label("quarter")

    def count(condition: Any) -> Any:
        return func.sum(case((condition, 1), else_=0))

    is_free = (columns.status == "ok") & (columns.cost_microusd == 0)
    counted = {
        "requests": func.count(),
        "failed": count(columns.status.in_(_LOST)),
        "refused": count(columns.status == "refused"),
        "found": count(columns.findings != ""),
        "unpriced": count(is_free),
        **{name: func.sum(columns[name]) for name in COUNTERS[5:]},
        "last_us": func.max(columns.utc_us),
    }
    groups = [columns[name] for name in DAY_GROUPS]
    return (
        select(quarter, *groups, *(value.label(name) for name, value in counted.items()))
        .where(
            columns.organisation == organisation,
            columns.sequence > after,
            columns.sequence <= until,
            columns.stage == "outcome",
        )
        .group_by(quarter, *groups)
    )


_Added = dict[tuple[Any, ...], list[int]]


def _added(rows: Sequence[Any], zone: ZoneInfo) -> tuple[_Added, _Added]:
    """Quarters combined into hours of UTC and days of a zone."""
    by_hour: _Added = {}
    by_day: _Added = {}
    for row in rows:
        start_s = int(row["quarter"]) * 900
        day = datetime.fromtimestamp(start_s, UTC).astimezone(zone).strftime("%Y-%m-%d")
        hour_us = start_s // 3600 * HOUR_US
        sums = [int(row[name] or 0) for name in COUNTERS]
        of_hour = (row[name] for name in HOUR_GROUPS)
        _put(by_hour, (hour_us, *of_hour), sums, row["last_us"])
        _put(by_day, (day, *(row[name] for name in DAY_GROUPS)), sums, row["last_us"])
    return by_hour, by_day


def _together(
    table: Table, names: tuple[str, ...], added: _Added
) -> tuple[tuple[str, ...], _Added]:
    """The dimensions that a table has, and the sums combined by these."""
    own = tuple(name for name in names if name in table.primary_key.columns)
    if own == names:
        return names, added
    places = [names.index(name) for name in own]
    together: _Added = {}
    for group, (*sums, last_us) in added.items():
        _put(together, tuple(group[place] for place in places), sums, last_us)
    return own, together


def _put(added: _Added, group: tuple[Any, ...], sums: list[int], last_us: int) -> None:
    found = added.setdefault(group, [0] * (len(COUNTERS) + 1))
    for index, number in enumerate(sums):
        found[index] += number
    found[-1] = max(found[-1], last_us)
