"""Budgets of single end users: rows made at their first request, dropped when their window ends.

The caller says who the end user is, so the number per organisation is bounded. All beyond it share
one budget, `user:ORG/others`, of the same size: a flood of invented names gains nothing, and end
users who are known already keep what is theirs.
"""

from collections.abc import Sequence

from msgspec.structs import replace
from sqlalchemy import bindparam, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock, UnhurriedClock
from gateway.money.budgets import BudgetKey, others_of, template_of, window_start_us
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of, budget_row, children, is_end_user, is_one_of
from gateway.store.money.slices import Budget, Claim, roll
from gateway.store.schema.tables import budgets
from gateway.store.speech import insert_into


END_USERS_MAX = 100_000
"""Rows of end users that an organisation may have in each kind of window."""
_LOOKS = 50
"""The limit is checked this many times until it is reached: one fiftieth more may go unnoticed."""
_LOOK_AGAIN_S = 5.0


class EndUserRows:
    """A worker's changes to the rows of end users."""

    def __init__(self, database: Database, clock: Clock, end_users_max: int) -> None:
        self._database = database
        self._clock = clock
        self._unhurried = UnhurriedClock(clock)
        self._end_users_max = end_users_max
        self._room: dict[BudgetKey, int] = {}
        """How many rows still fit, by template, until they are counted again."""
        self._full_s: dict[BudgetKey, float] = {}

    async def introduce(self, claims: Sequence[Claim]) -> None:
        """Give new end users a row, in a transaction of its own.

        A second worker finds the row: nobody spends before there is something to count with. Beyond
        the limit no row is added, except the one that all others share.
        """
        new = {
            claim.key: BudgetKey(template, claim.key.window)
            for claim in claims
            if (template := template_of(claim.key.account))
            and claim.window_start_us < 0
            and not claim.is_last
        }
        if not new:
            return
        async with self._database.writing() as connection:
            # Locked, so that no limit changes between here and the row that copies it.
            query = (
                select(budgets)
                .where(is_one_of(self._database.kind, set(new.values())))
                .order_by(budgets.c.account, budgets.c.window_kind)
                .with_for_update(read=True)
            )
            found = [budget_of(row) for row in (await connection.execute(query)).mappings().all()]
            templates = {budget.limit.key: budget for budget in found}
            for key in sorted(new):
                if new[key] in templates:
                    await self._introduce(connection, key, templates[new[key]])

    async def _introduce(
        self, connection: AsyncConnection, key: BudgetKey, template: Budget
    ) -> None:
        is_shared = key.account == others_of(key.account)
        if not is_shared and not await self._has_room(connection, template.limit.key):
            return
        limit = replace(template.limit, account=key.account)
        start_us = window_start_us(limit.window, self._clock.utc_us(), limit.time_zone)
        row = budget_row(Budget(limit, start_us, 0, 0, begun_us=template.begun_us))
        statement = insert_into(self._database.kind, budgets).values(row)
        added = await connection.execute(statement.on_conflict_do_nothing())
        if added.rowcount and not is_shared:
            self._room[template.limit.key] -= 1

    async def _has_room(self, connection: AsyncConnection, template: BudgetKey) -> bool:
        """Whether rows still fit; counted now and then, so each worker may be a few rows off."""
        if self._room.get(template, 0) > 0:
            return True
        now_s = self._clock.monotonic_s()
        if now_s - self._full_s.get(template, -_LOOK_AGAIN_S) < _LOOK_AGAIN_S:
            return False
        query = select(func.count()).where(
            budgets.c.account.like(children(template.account), escape="\\"),
            budgets.c.account.not_in([template.account, others_of(template.account)]),
            budgets.c.window_kind == template.window,
        )
        left = self._end_users_max - (await connection.execute(query)).scalar_one()
        self._room[template] = min(left, max(self._end_users_max // _LOOKS, 1))
        if left <= 0:
            self._full_s[template] = now_s
        return left > 0

    async def forget_past(self) -> int:
        """Drop the rows of end users whose day or month is over; returns how many.

        A row whose day is over only because a clock was set stays: if the clock were corrected,
        what was spent would be lost.
        """
        now_us = self._unhurried.utc_us()
        async with self._database.reading() as connection:
            query = select(budgets).where(is_end_user(), budgets.c.leased_microusd == 0)
            rows = [budget_of(row) for row in (await connection.execute(query)).mappings()]
        past = [
            budget
            for budget in rows
            if roll(budget, now_us).window_start_us > budget.window_start_us
        ]
        if past:
            # A row that somebody began to use meanwhile has money leased or another window.
            unused = delete(budgets).where(
                budgets.c.account == bindparam("of_account"),
                budgets.c.window_kind == bindparam("of_window_kind"),
                budgets.c.window_start_us == bindparam("of_window"),
                budgets.c.leased_microusd == 0,
            )
            async with self._database.writing() as connection:
                await connection.execute(
                    unused,
                    [
                        {
                            "of_account": each.limit.account,
                            "of_window_kind": each.limit.window,
                            "of_window": each.window_start_us,
                        }
                        for each in past
                    ],
                )
        return len(past)
