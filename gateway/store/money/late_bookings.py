"""Costs of requests whose reservation is gone: booked in the database, once for each request.

An earlier process of the worker had reserved the money and given it back. A process that learns
later what is owed books it here before it records the outcome; after a crash, doing both again
changes nothing.
"""

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.money.budgets import WINDOWS, BudgetKey, others_of, template_of
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of, write_budgets
from gateway.store.money.slices import roll
from gateway.store.revisions import ring
from gateway.store.schema.tables import budgets, late_bookings
from gateway.store.speech import insert_into


KEPT_US: Final = 400 * 86_400_000_000
"""How long it is remembered that a request was booked."""


class LateCost(Struct, frozen=True):
    """What a request costs, and whom it is charged to."""

    request_id: str
    accounts: tuple[str, ...]
    cost_microusd: int
    admitted_us: int
    """It is charged to the windows of this moment; windows that are over are left alone."""


class LateBookings:
    """The late bookings in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def book(self, late: LateCost) -> bool:
        """Charge the accounts, even beyond their limits; False if that was done before.

        Raises:
            NotReady: the database does not answer; the call may be repeated.
        """
        now_us = self._clock.utc_us()
        row = {"request_id": late.request_id, "booked_us": now_us}
        statement = insert_into(self._database.kind, late_bookings).values(row)
        old = delete(late_bookings).where(late_bookings.c.booked_us < now_us - KEPT_US)
        async with self._database.writing() as connection:
            await connection.execute(old)
            added = await connection.execute(statement.on_conflict_do_nothing())
            if not added.rowcount:
                return False
            is_overdrawn = await self._charge(connection, late, now_us)
        if is_overdrawn:
            await ring(self._database)
        return True

    async def _charge(self, connection: AsyncConnection, late: LateCost, now_us: int) -> bool:
        """Charge each budget, locked in the order in which workers lock them.

        Whether one was just overdrawn that workers could still spend from.
        """
        shared = [others_of(account) for account in late.accounts if template_of(account)]
        query = (
            select(budgets)
            .where(budgets.c.account.in_([*late.accounts, *shared]))
            .order_by(budgets.c.account, budgets.c.window_kind)
            .with_for_update()
        )
        rows = (await connection.execute(query)).mappings().all()
        found = {budget.limit.key: budget for budget in map(budget_of, rows)}
        charged = {
            key: roll(found[key], now_us)
            for account in late.accounts
            for window in WINDOWS
            if (key := _paying(BudgetKey(account, window), found)) in found
        }
        owing = [
            budget
            for budget in charged.values()
            if late.admitted_us >= max(budget.window_start_us, budget.begun_us)
        ]
        cost = late.cost_microusd
        paid = [replace(each, spent_microusd=each.spent_microusd + cost) for each in owing]
        await write_budgets(connection, paid)
        return any(0 <= each.left_microusd < cost and each.leased_microusd for each in owing)


def _paying(key: BudgetKey, found: Collection[BudgetKey]) -> BudgetKey:
    """The key that pays: an end user without a row shares that of the others."""
    if key in found or not template_of(key.account):
        return key
    return BudgetKey(others_of(key.account), key.window)
