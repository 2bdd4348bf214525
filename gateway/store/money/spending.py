"""What was spent, grouped by any dimension of the records; read from the audit log's projection."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct
from sqlalchemy import ColumnElement, case, exists, func, or_, select

from gateway.errors import RequestInvalid
from gateway.money.budgets import WindowKind
from gateway.money.costs import CostRow
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of
from gateway.store.money.slices import Budget
from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import budgets, organisations


DIMENSIONS = (
    *("organisation", "workspace", "project", "key", "target", "provider", "jurisdiction"),
    *("data_class", "status", "error", "policy", "app", "day", "month"),
)
"""What a report may be grouped by; days and months are those of the organisation's time zone.

`policy` is the digest of the document that decided, `app` a project with its workspace before it.
"""
_QUARTER_US = 900_000_000
"""Every zone's offset is a whole number of quarters of an hour, so their sums make its days."""
_COLUMN: dict[str, Any] = {
    "key": audit_records.c.key_id,
    "policy": audit_records.c.policy_digest,
    "app": case(
        (audit_records.c.workspace == "", audit_records.c.project),
        else_=audit_records.c.workspace + "/" + audit_records.c.project,
    ).label("app"),
}
_TIMES = ("day", "month")


class Period(Struct, frozen=True):
    """Which records: from `since_us`, before `until_us`, of one organisation or of all."""

    since_us: int
    until_us: int
    organisation: str | None = None


class Difference(Struct, frozen=True):
    """What the ledger says an account spent in a window, and what its outcomes add up to."""

    account: str
    window: WindowKind
    ledger_microusd: int
    audit_microusd: int
    leased_microusd: int
    """What workers hold; while it is not 0 the two may differ honestly."""


class SpendingReader:
    """Sums over the outcomes of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def zone_of(self, organisation: str | None) -> str:
        """The organisation's time zone; UTC for all of them together."""
        query = select(organisations.c.time_zone).where(organisations.c.name == organisation)
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one_or_none() or "UTC"

    async def totals(self, period: Period, by: Sequence[str]) -> list[CostRow]:
        """Sums per group, dearest first.

        Raises:
            RequestInvalid: there is no such dimension.
            NotReady: the database does not answer.
        """
        unknown = [name for name in by if name not in DIMENSIONS]
        if unknown or len(set(by)) < len(by):
            raise RequestInvalid(f"group by: {', '.join(DIMENSIONS)}", parameter="by")
        zone = ZoneInfo(await self.zone_of(period.organisation))
        columns = audit_records.c
        quarter = (columns.utc_us // _QUARTER_US).label("quarter")
        keys: list[Any] = [
            _COLUMN[name] if name in _COLUMN else columns[name] for name in by if name not in _TIMES
        ]
        if any(name in _TIMES for name in by):
            keys.append(quarter)
        sums = (
            func.count(),
            func.sum(columns.input_tokens),
            func.sum(columns.output_tokens),
            func.sum(columns.cost_microusd),
        )
        query = select(*keys, *sums).where(*_within(period)).group_by(*keys)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        merged: dict[tuple[str, ...], list[int]] = {}
        for row in rows:
            if row[-4] == 0:
                continue  # Without a group there is a row also when there is nothing.
            group = _group(by, row[: len(keys)], zone)
            added = merged.setdefault(group, [0, 0, 0, 0])
            for index in range(4):
                added[index] += int(row[len(keys) + index] or 0)
        found = [CostRow(group, *numbers) for group, numbers in merged.items()]
        return sorted(found, key=lambda row: (-row.cost_microusd, row.group))

    async def by_day(self, period: Period) -> dict[date, int]:
        """Micro-dollars of each day of the organisation's calendar."""
        rows = await self.totals(period, ["day"])
        return {date.fromisoformat(row.group[0]): row.cost_microusd for row in rows}

    async def differences(self) -> list[Difference]:
        """Every limit: its ledger beside its account's outcomes, in its present window."""
        query = select(budgets).where(budgets.c.account.not_like("user:%"))
        async with self._database.reading() as connection:
            query = query.order_by(budgets.c.account, budgets.c.window_kind)
            found = (await connection.execute(query)).mappings().all()
            return [await self._difference(connection, budget_of(row)) for row in found]

    async def _difference(self, connection: Any, budget: Budget) -> Difference:
        account = budget.limit.account
        since_us = max(budget.window_start_us, budget.begun_us)
        query = select(func.sum(audit_records.c.cost_microusd)).where(
            audit_records.c.stage == "outcome",
            *_admitted_since(since_us),
            *_of_account(account),
        )
        spent = int((await connection.execute(query)).scalar_one() or 0)
        return Difference(
            account, budget.limit.window, budget.spent_microusd, spent, budget.leased_microusd
        )


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


def _admitted_since(since_us: int) -> list[ColumnElement[bool]]:
    """Outcomes of requests that were let through since then, as the ledger charges them.

    What arrived before and ended after may have been let through on either side: its intent says.
    """
    columns, begun = audit_records.c, audit_records.alias("begun").c
    was_let_through = exists().where(
        begun.request_id == columns.request_id, begun.stage == "intent", begun.utc_us >= since_us
    )
    arrived_us = columns.utc_us - columns.duration_us
    return [columns.utc_us >= since_us, or_(arrived_us >= since_us, was_let_through)]


def _of_account(account: str) -> list[ColumnElement[bool]]:
    """The records that are charged to an account."""
    columns = audit_records.c
    level, _, path = account.partition(":")
    if level == "key":
        return [columns.key_id == path]
    names = ("organisation", "workspace", "project")
    return [columns[name] == part for name, part in zip(names, path.split("/"), strict=False)]


def _group(by: Sequence[str], keys: Sequence[Any], zone: ZoneInfo) -> tuple[str, ...]:
    plain = iter(keys)
    values = {name: str(next(plain)) for name in by if name not in _TIMES}
    for name in by:
        if name in _TIMES:
            moment = datetime.fromtimestamp(int(keys[-1]) * 900, UTC).astimezone(zone)
            values[name] = moment.strftime("%Y-%m-%d" if name == "day" else "%Y-%m")
    return tuple(values[name] for name in by)
