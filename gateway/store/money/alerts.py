"""Remembers sent budget alerts: each budget, window and percentage once, whoever sends it.

This includes windows that are over: a day that was used up a minute before midnight, or while
nobody took the alert, is still reported.
"""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, delete, exists, insert, not_, or_, select, update
from sqlalchemy.exc import IntegrityError

from gateway.clock import DAY_US, Clock
from gateway.money.alerting import AT_ONCE, CLAIM_US
from gateway.money.budgets import BudgetKey, WindowKind, window_end_us
from gateway.store.claims import is_unclaimed
from gateway.store.engine import Database
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget, roll
from gateway.store.schema.tables import budget_alerts, budgets


NEWS_US: Final = DAY_US
"""For this long after a window's end it is still noticed that a share of it was used up."""
TRIED_US: Final = 7 * DAY_US
"""For this long after a window's end an alert about it is tried again."""
KEPT_US: Final = 400 * DAY_US
"""For this long it is remembered, and shown, that the budget of an ended window was used up."""


class Alert(Struct, frozen=True):
    """A budget and the share of it that is used up."""

    account: str
    window_start_us: int
    percent: int
    limit_microusd: int
    spent_microusd: int
    window: WindowKind


class SentAlert(Struct, frozen=True):
    """An alert that was due, and when the web hook accepted it."""

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

    async def claim(
        self, budgets: Sequence[Budget], percents: Sequence[int], count_max: int = 1_000
    ) -> list[Alert]:
        """Alerts that are due and that nobody else sends; send each and call `sent`.

        Those not accepted before their window was over come with what was known of it then.

        Args:
            budgets: in their present windows, or in windows that are over and not reported yet.
            percents: shares of a limit.
            count_max: how many at most.
        """
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
        known = {_key_of(alert) for alert in due}
        due += [each for each in await self._left_over(budgets) if _key_of(each) not in known]
        claimed: list[Alert] = []
        for alert in due:
            if len(claimed) < count_max and await self._claimed(alert):
                claimed.append(alert)
        return claimed

    async def _left_over(self, budgets: Sequence[Budget]) -> list[Alert]:
        """Alerts of ended windows that were claimed, but that nobody accepted."""
        limits = {budget.limit.key: budget for budget in budgets}
        columns, now_us = budget_alerts.c, self._clock.utc_us()
        query = select(budget_alerts).where(
            columns.sent_us.is_(None),
            columns.again_above_microusd.is_(None),
            is_unclaimed(columns.claimed_us, now_us, CLAIM_US),
            columns.limit_microusd > 0,
        )
        query = query.order_by(columns.account, columns.window_start_us, columns.percent)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        found = []
        for row in rows:
            budget = limits.get(BudgetKey(row.account, row.window_kind))
            if budget is None or row.window_start_us >= budget.window_start_us:
                continue
            zone = budget.limit.time_zone
            if now_us < window_end_us(row.window_kind, row.window_start_us, zone) + TRIED_US:
                found.append(_alert_of(row))
        return found

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
            .where(or_(columns.sent_us.is_not(None), columns.again_above_microusd.is_(None)))
            .order_by(columns.claimed_us.desc(), columns.account)
            .limit(count_max)
        )
        async with self._database.reading() as connection:
            return [SentAlert(*row) for row in (await connection.execute(query)).all()]

    async def forget_old(self) -> None:
        """Drop old alerts, except those of windows that still run: they would be due again."""
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
        amounts = {"limit_microusd": alert.limit_microusd, "spent_microusd": alert.spent_microusd}
        if row is None:
            values = amounts | {
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
        if not _is_due_again(row, alert.limit_microusd, now_us):
            return False
        columns, above = budget_alerts.c, row.again_above_microusd
        as_read = columns.again_above_microusd == above
        if above is None:
            as_read = columns.again_above_microusd.is_(None)
        again = (
            update(budget_alerts)
            .where(_is(alert), columns.claimed_us == row.claimed_us, as_read)
            .values(claimed_us=now_us, sent_us=None, again_above_microusd=None, **amounts)
        )
        async with self._database.writing() as connection:
            return bool((await connection.execute(again)).rowcount)


def _is_due_again(row: Any, limit_microusd: int, now_us: int) -> bool:
    """Whether an alert that was claimed before is to be sent again."""
    if row.again_above_microusd is not None:
        return bool(limit_microusd > row.again_above_microusd)
    # A claim far in the future is from a clock that was set back since, as in
    # `gateway.store.claims`.
    return row.sent_us is None and bool(abs(now_us - row.claimed_us) >= CLAIM_US)


class BudgetAlerts:
    """See `gateway.money.alerting.Alerts`: budgets of all accounts except end users'."""

    def __init__(
        self, budgets: LeaseTable, alerts: AlertTable, percents: Sequence[int], clock: Clock
    ) -> None:
        self._budgets = budgets
        self._alerts = alerts
        self._percents = percents
        self._clock = clock

    async def due(self) -> list[Alert]:
        """At most `AT_ONCE` alerts; ask again for the others."""
        now_us = self._clock.utc_us()
        told_of = [_told_of(budget, now_us) for budget in await self._budgets.last_windows()]
        return await self._alerts.claim(told_of, self._percents, AT_ONCE)

    async def sent(self, alert: Alert) -> None:
        await self._alerts.sent(alert)


def _told_of(budget: Budget, now_us: int) -> Budget:
    """A budget in the window whose alerts are due: for a day after its end, the last one."""
    present = roll(budget, now_us)
    limit = budget.limit
    end_us = window_end_us(limit.window, budget.window_start_us, limit.time_zone)
    return budget if now_us < end_us + NEWS_US else present


def _key_of(alert: Alert) -> tuple[str, str, int, int]:
    return alert.account, alert.window, alert.window_start_us, alert.percent


def _alert_of(row: Any) -> Alert:
    return Alert(
        row.account,
        row.window_start_us,
        row.percent,
        row.limit_microusd,
        row.spent_microusd,
        row.window_kind,
    )


def _is(alert: Alert) -> ColumnElement[bool]:
    columns = budget_alerts.c
    return and_(
        columns.account == alert.account,
        columns.window_kind == alert.window,
        columns.window_start_us == alert.window_start_us,
        columns.percent == alert.percent,
    )
