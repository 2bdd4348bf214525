"""Which budget alerts were sent: each budget, window and percentage once, whoever sends it."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, delete, exists, insert, not_, select, update
from sqlalchemy.exc import IntegrityError

from gateway.clock import DAY_US, Clock
from gateway.money.budgets import WindowKind
from gateway.store.engine import Database
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget
from gateway.store.schema.tables import budget_alerts, budgets


CLAIM_US = 60_000_000
"""Whoever claimed an alert and has not sent it by then gives it up to others."""
KEPT_US: Final = 400 * DAY_US
"""So long it is remembered, and shown, that a budget of a window that is over was used up."""


class Alert(Struct, frozen=True):
    """A budget of which so much is used up."""

    account: str
    window_start_us: int
    percent: int
    limit_microusd: int
    spent_microusd: int
    window: WindowKind


class SentAlert(Struct, frozen=True):
    """An alert that was due, and when the web hook took it."""

    account: str
    window: WindowKind
    window_start_us: int
    percent: int
    claimed_us: int
    sent_us: int | None


class AlertTable:
    """Alerts of one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def claim(self, budgets: Sequence[Budget], percents: Sequence[int]) -> list[Alert]:
        """Alerts that are due and that nobody else sends; send each and call `sent`."""
        due = [
            Alert(
                budget.limit.account,
                budget.window_start_us,
                percent,
                budget.limit.limit_microusd,
                budget.spent_microusd,
                budget.limit.window,
            )
            for budget in budgets
            for percent in percents
            if budget.limit.limit_microusd
            and budget.spent_microusd * 100 >= percent * budget.limit.limit_microusd
        ]
        return [alert for alert in due if await self._claimed(alert)]

    async def newest(self, count_max: int) -> list[SentAlert]:
        """The last alerts that were due, newest first."""
        columns = budget_alerts.c
        query = (
            select(
                columns.account,
                columns.window_kind,
                columns.window_start_us,
                columns.percent,
                columns.claimed_us,
                columns.sent_us,
            )
            .order_by(columns.claimed_us.desc(), columns.account)
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            return [SentAlert(*row) for row in (await connection.execute(query)).all()]

    async def forget_old(self) -> None:
        """Let old alerts go, but those of windows that still run: they would be due again."""
        since_us = self._clock.utc_us() - KEPT_US
        columns = budget_alerts.c
        runs = exists().where(
            budgets.c.account == columns.account,
            budgets.c.window_kind == columns.window_kind,
            budgets.c.window_start_us <= columns.window_start_us,
        )
        old = delete(budget_alerts).where(columns.claimed_us < since_us, not_(runs))
        async with self._database.writing() as connection:
            await connection.execute(old)

    async def sent(self, alert: Alert) -> None:
        change = update(budget_alerts).where(_is(alert)).values(sent_us=self._clock.utc_us())
        async with self._database.writing() as connection:
            await connection.execute(change)

    async def _claimed(self, alert: Alert) -> bool:
        now_us = self._clock.utc_us()
        async with self._database.reading() as connection:
            row = (await connection.execute(select(budget_alerts).where(_is(alert)))).first()
        if row is None:
            values = {
                "account": alert.account,
                "window_kind": alert.window,
                "window_start_us": alert.window_start_us,
                "percent": alert.percent,
                "claimed_us": now_us,
                "sent_us": None,
            }
            try:
                async with self._database.writing() as connection:
                    await connection.execute(insert(budget_alerts), values)
            except IntegrityError:
                return False
            return True
        if row.sent_us is not None or now_us - row.claimed_us < CLAIM_US:
            return False
        again = (
            update(budget_alerts)
            .where(_is(alert), budget_alerts.c.claimed_us == row.claimed_us)
            .values(claimed_us=now_us)
        )
        async with self._database.writing() as connection:
            return bool((await connection.execute(again)).rowcount)


class BudgetAlerts:
    """See `gateway.money.alerting.Alerts`: budgets of all accounts but those of end users."""

    def __init__(self, budgets: LeaseTable, alerts: AlertTable, percents: Sequence[int]) -> None:
        self._budgets = budgets
        self._alerts = alerts
        self._percents = percents

    async def due(self) -> list[Alert]:
        return await self._alerts.claim(await self._budgets.budgets(), self._percents)

    async def sent(self, alert: Alert) -> None:
        await self._alerts.sent(alert)


def _is(alert: Alert) -> ColumnElement[bool]:
    columns = budget_alerts.c
    return and_(
        columns.account == alert.account,
        columns.window_kind == alert.window,
        columns.window_start_us == alert.window_start_us,
        columns.percent == alert.percent,
    )
