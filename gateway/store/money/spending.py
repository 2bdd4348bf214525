"""Sums of spending by any dimension of the records, read from the audit log's projection."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import MINUTE_US
from gateway.errors import RequestInvalid
from gateway.money.budgets import (
    USER_PREFIX,
    BudgetKey,
    WindowKind,
    account_of_end_user,
    others_of,
    template_of,
)
from gateway.money.costs import CostRow
from gateway.oversight.homes import Homes
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of
from gateway.store.money.charged import Charged, spent_of
from gateway.store.money.dimensions import (
    DIMENSIONS,
    NO_FILTER,
    Only,
    Reading,
    check,
    column_of,
    holds,
)
from gateway.store.money.hearings import hearings_of
from gateway.store.money.slices import Budget
from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import budgets, organisations, virtual_keys


_PLAIN = frozenset(DIMENSIONS) - {"label", "finding", "hour", "day", "month"}
"""Dimensions whose values are those of one column."""
_HEARD_AFTER_US = MINUTE_US
"""A worker that could not ask for changes for longer than this admits nobody."""


class Period(Struct, frozen=True):
    """Selects records: from `since_us`, before `until_us`, of one organisation or of all."""

    since_us: int
    until_us: int
    organisation: str | None = None


class Difference(Struct, frozen=True):
    """What the ledger says an account spent in a window, and the sum of its outcomes."""

    account: str
    window: WindowKind
    ledger_microusd: int
    audit_microusd: int
    leased_microusd: int
    """What workers hold; while it is not 0 the two may differ legitimately."""
    unheard_microusd: int = 0
    """What was admitted by workers that never noted when they learned of the limit, and may not
    have known it yet: they crashed first, or are of an older version."""

    @property
    def difference_microusd(self) -> int:
        return self.ledger_microusd - self.audit_microusd

    @property
    def is_explained(self) -> bool:
        """Whether the difference is only what was admitted before workers learned of the limit."""
        return -self.unheard_microusd <= self.difference_microusd <= 0


class SpendingReader:
    """Sums over the outcomes of one database."""

    def __init__(self, database: Database, homes: Homes) -> None:
        self._database = database
        self._homes = homes

    async def zone_of(self, organisation: str | None) -> str:
        """The organisation's time zone; UTC for all of them together."""
        query = select(organisations.c.time_zone).where(organisations.c.name == organisation)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or "UTC"

    async def totals(
        self,
        period: Period,
        by: Sequence[str],
        only: Only = NO_FILTER,
        *,
        groups_max: int | None = None,
    ) -> list[CostRow]:
        """Sums per group of what a filter leaves, highest cost first.

        Raises:
            RequestInvalid: there is no such dimension, or there are more groups than allowed.
            NotReady: the database does not answer.
        """
        check(by, only)
        names = tuple(dict.fromkeys((*by, *only)))
        labels = await self._labels(period.organisation) if "label" in names else {}
        zone = ZoneInfo(await self.zone_of(period.organisation))
        reading = Reading(names, zone, labels, self._homes)
        columns = audit_records.c
        sums = (
            func.count(),
            func.sum(columns.input_tokens),
            func.sum(columns.output_tokens),
            func.sum(columns.cost_microusd),
        )
        keys = reading.columns
        query = (
            select(*keys, *sums).where(*_within(period), *_asked(only, self._homes)).group_by(*keys)
        )
        if groups_max is not None:
            query = query.limit(groups_max + 1)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        if groups_max is not None and len(rows) > groups_max:
            said = f"that is more than {groups_max} groups: name fewer days, or a filter"
            raise RequestInvalid(said, parameter="by")
        merged: dict[tuple[str, ...], list[int]] = {}
        for row in rows:
            if row[-4] == 0:
                continue  # Without a group there is a row also when there is nothing.
            values = reading.values(row)
            if not holds(values, only):
                continue
            added = merged.setdefault(tuple(values[name] for name in by), [0, 0, 0, 0])
            for index, number in enumerate(row[-4:]):
                added[index] += int(number or 0)
        found = [CostRow(group, *numbers) for group, numbers in merged.items()]
        return sorted(found, key=lambda row: (-row.cost_microusd, row.group))

    async def _labels(self, organisation: str | None) -> dict[str, Sequence[str]]:
        """Present labels of keys, by id."""
        query = select(virtual_keys.c.id, virtual_keys.c.labels)
        if organisation is not None:
            query = query.where(virtual_keys.c.organisation == organisation)
        async with self._database.reading() as connection:
            return {row.id: row.labels for row in await connection.execute(query)}

    async def by_day(self, period: Period) -> dict[date, int]:
        """Micro-dollars of each day of the organisation's calendar."""
        rows = await self.totals(period, ["day"])
        return {date.fromisoformat(row.group[0]): row.cost_microusd for row in rows}

    async def differences(self, *, end_users: bool = False) -> list[Difference]:
        """Every limit: its ledger compared with its account's outcomes, in its present window.

        With `end_users` also those of single end users, except the budget shared by surplus users.
        """
        query = select(budgets).order_by(budgets.c.account, budgets.c.window_kind)
        async with self._database.reading() as connection:
            found = (await connection.execute(query)).mappings().all()
            every = {budget.limit.key: budget for budget in map(budget_of, found)}
            wanted = [
                _with_begin(budget, every)
                for (account, _), budget in every.items()
                if not account.startswith(USER_PREFIX)
                or (end_users and account not in {template_of(account), others_of(account)})
            ]
            asked = [
                (budget.limit.account, charged)
                for budget in wanted
                for charged in _charged(budget, await _heard(connection, budget))
            ]
            spent = await spent_of(connection, asked)
        return [
            Difference(
                *(budget.limit.account, budget.limit.window, budget.spent_microusd),
                *(cost_microusd, budget.leased_microusd, cost_microusd - sure_microusd),
            )
            for budget, (cost_microusd, sure_microusd) in zip(
                wanted, zip(spent[::2], spent[1::2], strict=True), strict=True
            )
        ]

    async def by_end_user(self, organisation: str, since_us: int) -> dict[str, int]:
        """The cost of what was admitted since then, by end user's account."""
        columns = audit_records.c
        spent = func.sum(columns.cost_microusd)
        query = select(columns.subject, spent).where(
            columns.organisation == organisation,
            columns.subject != "",
            columns.stage == "outcome",
            *Charged(since_us).outcomes(),
        )
        query = query.group_by(columns.subject).having(spent > 0)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return {account_of_end_user(organisation, name): int(cost) for name, cost in rows}


def _charged(budget: Budget, heard: Mapping[str, int]) -> Iterator[Charged]:
    """What a budget is charged with, and the part that is certain."""
    begun_us, start_us = budget.begun_us, budget.window_start_us
    for since_us in (begun_us, begun_us + _HEARD_AFTER_US):
        yield Charged(max(since_us, start_us), heard, max(begun_us, start_us))


def _with_begin(budget: Budget, every: Mapping[BudgetKey, Budget]) -> Budget:
    """The budget, where an end user's begins no sooner than the limit of them all."""
    account, window = budget.limit.key
    template = every.get(BudgetKey(template_of(account), window))
    if template is None:
        return budget
    return replace(budget, begun_us=max(budget.begun_us, template.begun_us))


async def _heard(connection: AsyncConnection, budget: Budget) -> dict[str, int]:
    """When workers learned of a limit; an end user's together with that of all, or earlier."""
    account, window = budget.limit.key
    own = await hearings_of(connection, budget.limit.key, budget)
    if not (template := template_of(account)):
        return own
    return await hearings_of(connection, BudgetKey(template, window), budget) | own


def _within(period: Period) -> list[ColumnElement[bool]]:
    columns = audit_records.c
    conditions = [
        columns.stage == "outcome",
        columns.utc_us >= period.since_us,
        columns.utc_us < period.until_us,
    ]
    if period.organisation is not None:
        conditions.append(columns.organisation == period.organisation)
    return conditions


def _asked(only: Only, homes: Homes) -> list[ColumnElement[bool]]:
    """The part of a filter that the database can check; all of it is checked again."""
    return [column_of(name, homes).in_(sorted(only[name])) for name in _PLAIN & only.keys()]
