"""What was added up by the rollup, read for pages: by hour, by day and by key."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, Table, func, select

from gateway.errors import RequestInvalid
from gateway.store.engine import Database
from gateway.store.schema.audit import audit_records
from gateway.store.schema.rollup import COUNTERS, traffic_days, traffic_hours


DAY_DIMENSIONS: Final = (
    *(
        "workspace",
        "project",
        "key_id",
        "target",
        "provider",
        "jurisdiction",
        "policy_digest",
        "day",
    ),
)
HOUR_DIMENSIONS: Final = ("organisation", "key_id", "target", "provider", "jurisdiction", "hour_us")


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
    """Sums of one database, as far as its rollup went."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def by_hour(
        self, organisations: Collection[str] | None, since_us: int, by: Sequence[str]
    ) -> list[Sums]:
        """Sums since then per group of HOUR_DIMENSIONS, of these organisations or of all."""
        columns = traffic_hours.c
        conditions = [columns.hour_us >= since_us]
        if organisations is not None:
            conditions.append(columns.organisation.in_(sorted(organisations)))
        return await self._grouped(traffic_hours, by, HOUR_DIMENSIONS, conditions)

    async def by_day(
        self, organisation: str, since_day: str, until_day: str, by: Sequence[str]
    ) -> list[Sums]:
        """Sums per group of DAY_DIMENSIONS, both days (`2026-11-30`) included.

        Raises:
            RequestInvalid: there is no such dimension.
            NotReady: the database does not answer.
        """
        columns = traffic_days.c
        conditions = [
            columns.organisation == organisation,
            columns.day >= since_day,
            columns.day <= until_day,
        ]
        return await self._grouped(traffic_days, by, DAY_DIMENSIONS, conditions)

    async def dearest(
        self,
        organisation: str,
        days: tuple[str, str],
        by: Sequence[str],
        page: tuple[int, int],
        *,
        is_in_order: bool = False,
    ) -> tuple[list[Sums], int, Sums]:
        """Some groups of DAY_DIMENSIONS, how many there are, and the sums of all of them.

        From the first to the last of `days`; dearest first, or in the order of their values.
        `page` is how many to leave out and how many to read; beyond the last group it is the first
        page. Raises like `by_day`.
        """
        _check(by, DAY_DIMENSIONS)
        columns = traffic_days.c
        groups = [columns[name] for name in by]
        mine = (
            columns.organisation == organisation,
            columns.day >= days[0],
            columns.day <= days[1],
        )
        order = groups if is_in_order else [func.sum(columns.cost_microusd).desc(), *groups]
        own = _sums(traffic_days)
        # Of all groups, in the same pass: groups of ten thousand keys are made once.
        of_all = [func.sum(each).over() for each in own[:-1]]
        first, limit = page
        query = (
            select(*groups, *own, *of_all, func.max(own[-1]).over(), func.count().over())
            .where(*mine)
            .group_by(*groups)
            .having(func.sum(columns.requests) > 0)
            .order_by(*order)
            .offset(first)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if not rows:
            return (
                ([], 0, Sums())
                if not first
                else await self.dearest(organisation, days, by, (0, limit), is_in_order=is_in_order)
            )
        width = len(by) + len(own)
        found = [_row(row[:width], len(by)) for row in rows]
        return found, int(rows[0][-1]), _row(rows[0][width:-1], 0)

    async def dear_days(
        self, organisation: str, days: tuple[str, str], dimension: str, least: int, count_max: int
    ) -> list[Sums]:
        """Groups of a dimension and a day that cost at least so many micro-dollars, dearest first.

        From the first to the last of `days`; without a dimension the organisation as a whole.
        """
        columns = traffic_days.c
        cost = func.sum(columns.cost_microusd)
        groups = [columns.day, *([columns[dimension]] if dimension else [])]
        query = (
            select(*groups, cost)
            .where(
                columns.organisation == organisation,
                columns.day >= days[0],
                columns.day <= days[1],
            )
            .group_by(*groups)
            .having(cost >= least)
            .order_by(cost.desc(), *groups)
            .limit(count_max)
        )
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
        """Micro-dollars by day and value of a dimension; missing where nothing was asked.

        Of these values, or of all; without a dimension the value is empty.
        """
        columns = traffic_days.c
        groups = [columns.day, *([columns[dimension]] if dimension else [])]
        conditions = [columns.organisation == organisation, columns.day.in_(sorted(days))]
        if dimension and values is not None:
            conditions.append(columns[dimension].in_(sorted(values)))
        cost = func.sum(columns.cost_microusd)
        query = select(*groups, cost).where(*conditions).group_by(*groups)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {(row[0], row[1] if dimension else ""): int(row[-1]) for row in rows}

    async def last_used(self, organisation: str, key_ids: Collection[str]) -> dict[str, int]:
        """When each of these keys of an organisation last asked; missing where it never did."""
        columns = traffic_days.c
        query = (
            select(columns.key_id, func.max(columns.last_us))
            .where(columns.organisation == organisation, columns.key_id.in_(sorted(key_ids)))
            .group_by(columns.key_id)
        )
        async with self._database.reading() as connection:
            return {name: int(last) for name, last in await connection.execute(query)}

    async def last_asked(self, organisation: str) -> dict[str, int]:
        """When keys of each workspace last asked; missing where none ever did."""
        columns = traffic_days.c
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
        """How many requests of a key ended since then; no more than `count_max` are counted."""
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


def _check(by: Sequence[str], known: Sequence[str]) -> None:
    if len(set(by)) < len(by) or not set(by) <= set(known):
        raise RequestInvalid(f"group by: {', '.join(known)}", parameter="by")


def _sums(table: Table) -> list[ColumnElement[int]]:
    """Columns of `Sums` after its group."""
    last = func.coalesce(func.max(table.c.last_us), 0)
    return [*(func.coalesce(func.sum(table.c[name]), 0) for name in COUNTERS), last]


def _row(row: Sequence[Any], groups: int) -> Sums:
    return Sums(tuple(row[:groups]), *(int(number) for number in row[groups:]))
