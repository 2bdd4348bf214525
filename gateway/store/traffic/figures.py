"""Reads the sums of the rollup for pages: by hour, by day and by key.

Where keys do not matter, sums over all keys are read: a few rows instead of thousands. Where only
keys matter, the sums of each key's days are read.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from sqlalchemy import ColumnElement, Select, Table, and_, func, select, true

from gateway.errors import RequestInvalid
from gateway.money.costs import CostRow
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.rollup import (
    COUNTERS,
    DAY_GROUPS,
    HOUR_GROUPS,
    traffic_day_totals,
    traffic_days,
    traffic_hour_totals,
    traffic_hours,
    traffic_key_days,
)


DAY_DIMENSIONS: Final = (*DAY_GROUPS, "day")
_KEY: Final = "key_id"
_COSTED: Final = CostRow.__struct_fields__[1:]
"""Only what a page of costs shows is summed for each of ten thousand groups."""
GroupOrder = Literal["cost", "growth", "requests", "group"]
"""Largest first; `group` is in the order of the groups' values."""
_ORDERED_BY: Final = {"cost": "cost_microusd", "requests": "requests"}
HOUR_DIMENSIONS: Final = ("organisation", *HOUR_GROUPS, "hour_us")


class Sums(Struct, frozen=True):
    """One group of requests; the counters are those of `gateway.store.schema.rollup`."""

    group: tuple[Any, ...] = ()
    requests: int = 0
    failed: int = 0
    refused: int = 0
    found: int = 0
    unpriced: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_microusd: int = 0
    duration_us: int = 0
    last_us: int = 0


class TrafficFigures:
    """Reads sums of one database, as far as its rollup has come."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_hour(
        self, organisations: Collection[str] | None, since_us: int, by: Sequence[str]
    ) -> list[Sums]:
        """Sums since then per group of `HOUR_DIMENSIONS`, of these organisations or of all."""
        table = traffic_hours if _KEY in by else traffic_hour_totals
        conditions = [table.c.hour_us >= since_us]
        if organisations is not None:
            conditions.append(table.c.organisation.in_(sorted(organisations)))
        return await self._grouped(table, by, HOUR_DIMENSIONS, conditions)

    async def by_day(
        self, organisation: str, since_day: str, until_day: str, by: Sequence[str]
    ) -> list[Sums]:
        """Sums per group of DAY_DIMENSIONS, both days (`2026-11-30`) included.

        Raises:
            RequestInvalid: there is no such dimension.
            NotReady: the database does not answer.
        """
        table = _days_by(by)
        mine = _between(table, organisation, (since_day, until_day))
        return await self._grouped(table, by, DAY_DIMENSIONS, mine)

    async def dearest(
        self,
        organisation: str,
        days: tuple[str, str],
        by: Sequence[str],
        page: tuple[int, int],
        *,
        order: GroupOrder = "cost",
        before: tuple[str, str] = ("", ""),
    ) -> tuple[list[CostRow], int, CostRow]:
        """A page of groups of `DAY_DIMENSIONS`, how many there are, and the sums of all of them.

        From the first to the last of `days`; by `growth` those first whose cost grew most since the
        days of `before`. `page` is how many to skip and how many to read; beyond the last group it
        is the first page. Raises like `by_day`.
        """
        _check(by, DAY_DIMENSIONS)
        table = _days_by(by)
        each = _costs_of(table, organisation, days, by).subquery()
        of_all = (
            select(*_added(traffic_day_totals, _COSTED))
            .where(*_between(traffic_day_totals, organisation, days))
            .subquery()
        )
        named = [each.c[name] for name in by]
        first, limit = page
        # In one statement, because sums are still being added to in between.
        query = select(*each.c, func.count().over(), *of_all.c).join(of_all, true())
        if order == "growth":
            earlier = _costs_of(table, organisation, before, by).subquery()
            is_same = and_(true(), *(each.c[name] == earlier.c[name] for name in by))
            query = query.outerjoin(earlier, is_same)
            more = each.c.cost_microusd - func.coalesce(earlier.c.cost_microusd, 0)
            query = query.order_by(more.desc(), each.c.cost_microusd.desc())
        elif order != "group":
            query = query.order_by(each.c[_ORDERED_BY[order]].desc())
        query = query.order_by(*named).offset(first).limit(limit)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if not rows and first:
            again = (0, limit)
            return await self.dearest(organisation, days, by, again, order=order, before=before)
        if not rows:
            return [], 0, _cost((), [0] * len(_COSTED))
        width = len(each.c)
        found = [_cost(row[: len(by)], row[len(by) : width]) for row in rows]
        return found, int(rows[0][width]), _cost((), rows[0][width + 1 :])

    async def dear_days(
        self, organisation: str, days: tuple[str, str], dimension: str, least: int, count_max: int
    ) -> list[Sums]:
        """Groups of a dimension and a day with at least this cost in micro-dollars, dearest first.

        From the first to the last of `days`; without a dimension, for the complete organisation.
        """
        table = _days_by([dimension])
        groups = [table.c.day, *([table.c[dimension]] if dimension else [])]
        query = select(*groups).where(*_between(table, organisation, days))
        if table is traffic_key_days:
            cost: ColumnElement[int] = table.c.cost_microusd
            query = query.add_columns(cost).where(cost >= least)
        else:
            cost = func.sum(table.c.cost_microusd)
            query = query.add_columns(cost).group_by(*groups).having(cost >= least)
        query = query.order_by(cost.desc(), *groups).limit(count_max)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return [Sums(tuple(row[:-1]), cost_microusd=int(row[-1])) for row in rows]

    async def cost_on(
        self,
        organisation: str,
        days: Collection[str],
        dimension: str,
        values: Collection[str] | None = None,
    ) -> dict[tuple[str, str], int]:
        """Micro-dollars by day and value of a dimension; without requests there is no entry.

        Of these values, or of all; without a dimension the value is empty.
        """
        columns = _days_by([dimension]).c
        groups = [columns.day, *([columns[dimension]] if dimension else [])]
        conditions = [columns.organisation == organisation, columns.day.in_(sorted(days))]
        if dimension and values is not None:
            conditions.append(columns[dimension].in_(sorted(values)))
        cost = func.sum(columns.cost_microusd)
        query = select(*groups, cost).where(*conditions).group_by(*groups)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {(row[0], row[1] if dimension else ""): int(row[-1]) for row in rows}

    async def costs_of(
        self,
        organisation: str,
        days: tuple[str, str],
        by: Sequence[str],
        groups: Collection[tuple[str, ...]],
    ) -> dict[tuple[str, ...], int]:
        """Micro-dollars of some groups of `DAY_DIMENSIONS`, from the first to the last of `days`.

        Groups without requests have no entry; without a dimension the one group is `()`, all of it.
        Raises like `by_day`.
        """
        _check(by, DAY_DIMENSIONS)
        table = _days_by(by)
        named = [table.c[name] for name in by]
        conditions = _between(table, organisation, days)
        for place, column in enumerate(named):
            conditions.append(column.in_(sorted({group[place] for group in groups})))
        query = select(*named, func.sum(table.c.cost_microusd)).where(*conditions).group_by(*named)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        found = {tuple(row[:-1]): int(row[-1]) for row in rows if row[-1] is not None}
        return {group: cost for group, cost in found.items() if group in groups}

    async def last_used(self, organisation: str, key_ids: Collection[str]) -> dict[str, int]:
        """When each of these keys of an organisation was last used; unused ones have no entry."""
        columns = traffic_key_days.c
        query = (
            select(columns.key_id, func.max(columns.last_us))
            .where(columns.organisation == organisation, columns.key_id.in_(sorted(key_ids)))
            .group_by(columns.key_id)
        )
        async with self._database.reading() as connection:
            return {name: int(last) for name, last in await connection.execute(query)}

    async def last_asked(self, organisation: str) -> dict[str, int]:
        """When keys of each workspace were last used; without any use there is no entry."""
        columns = traffic_day_totals.c
        query = (
            select(columns.workspace, func.max(columns.last_us))
            .where(columns.organisation == organisation)
            .group_by(columns.workspace)
        )
        async with self._database.reading() as connection:
            return {name: int(last) for name, last in await connection.execute(query)}

    async def asked_since(
        self, organisation: str, key_id: str, since_us: int, count_max: int = 10_000
    ) -> int:
        """How many requests of a key ended since then; counts at most `count_max`."""
        columns = audit_records.c
        found = (
            select(columns.sequence)
            .where(
                columns.organisation == organisation,
                columns.utc_us >= since_us,
                columns.key_id == key_id,
                columns.stage == "outcome",
            )
            .limit(count_max)
            .subquery()
        )
        async with self._database.reading() as connection:
            query = select(func.count()).select_from(found)
            return int((await connection.execute(query)).scalar_one())

    async def _grouped(
        self, table: Table, by: Sequence[str], known: Sequence[str], conditions: Sequence[Any]
    ) -> list[Sums]:
        _check(by, known)
        groups = [table.c[name] for name in by]
        query = select(*groups, *_sums(table)).where(*conditions).group_by(*groups)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query.order_by(*groups))).all()
        return [_row(row, len(by)) for row in rows]


def _days_by(dimensions: Iterable[str]) -> Table:
    """The smallest table that has these dimensions."""
    if _KEY not in dimensions:
        return traffic_day_totals
    return traffic_key_days if {*dimensions} <= {_KEY, "day"} else traffic_days


def _between(table: Table, organisation: str, days: tuple[str, str]) -> list[ColumnElement[bool]]:
    """Condition for an organisation, from the first of the days to the last."""
    columns = table.c
    return [columns.organisation == organisation, columns.day >= days[0], columns.day <= days[1]]


def _costs_of(
    table: Table, organisation: str, days: tuple[str, str], by: Sequence[str]
) -> Select[Any]:
    """The cost of each group on these days; groups without a request are left out."""
    groups = [table.c[name] for name in by]
    return (
        select(*groups, *_added(table, _COSTED))
        .where(*_between(table, organisation, days))
        .group_by(*groups)
        .having(func.sum(table.c.requests) > 0)
    )


def _check(by: Sequence[str], known: Sequence[str]) -> None:
    if len(set(by)) < len(by) or not set(by) <= set(known):
        raise RequestInvalid(f"group by: {', '.join(known)}", parameter="by")


def _sums(table: Table) -> list[ColumnElement[int]]:
    """Columns of `Sums` after its group."""
    last = func.coalesce(func.max(table.c.last_us), 0).label("last_us")
    return [*_added(table, COUNTERS), last]


def _added(table: Table, counters: Sequence[str]) -> list[ColumnElement[int]]:
    return [func.coalesce(func.sum(table.c[name]), 0).label(name) for name in counters]


def _cost(group: Sequence[Any], sums: Sequence[Any]) -> CostRow:
    return CostRow(tuple(group), *(int(number) for number in sums))


def _row(row: Sequence[Any], groups: int) -> Sums:
    return Sums(tuple(row[:groups]), *(int(number) for number in row[groups:]))
