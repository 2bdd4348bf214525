"""Leases that are over: those of past windows, of earlier runs, and of workers that are gone.

What their holders may have spent of them counts as spent. The next worker that asks for such a
budget settles this; budgets that nobody asks for are searched for, or a report would show forever
what nobody holds.
"""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.money.budgets import BudgetKey
from gateway.store.engine import Database, together
from gateway.store.money.budget_rows import lease_changes
from gateway.store.money.parked_money import given_back, holding_something
from gateway.store.money.slices import Budget, Lease, LeaseHolder, without
from gateway.store.schema.tables import budget_leases


NOBODY: Final = LeaseHolder("", "")
"""Looks for what others left, and holds nothing itself."""
_LEASES = budget_leases.c
_AT_ONCE_MAX: Final = 200
"""Budgets whose leases are looked at in one transaction. Others may have to wait for it, among them
the process's own reports, which keep its leases alive."""


async def forgotten(database: Database, expired_us: int) -> list[BudgetKey]:
    """Budgets on which a lease was over at that time.

    Raises:
        NotReady: the database does not answer.
    """
    query = (
        select(_LEASES.account, _LEASES.window_kind)
        .where(
            _LEASES.expires_us < expired_us,
            _LEASES.amount_microusd > _LEASES.spent_microusd,
        )
        .distinct()
        .limit(_AT_ONCE_MAX)
    )
    async with database.reading() as connection:
        return [BudgetKey(*row) for row in (await connection.execute(query)).all()]


async def settled(
    connection: AsyncConnection,
    state: dict[BudgetKey, Budget],
    found: Sequence[Lease],
    holder: LeaseHolder,
    now_us: int,
) -> dict[BudgetKey, Lease]:
    """The holder's own leases; those of past windows and runs, and of the dead, are written off."""
    own: dict[BudgetKey, Lease] = {}
    over = list[Lease]()
    for lease in found:
        is_current = lease.window_start_us == state[lease.key].window_start_us
        is_own = (lease.worker, lease.incarnation) == (holder.worker, holder.incarnation)
        if is_own and is_current:
            own[lease.key] = lease
        else:
            over.append(lease)
    holding = await holding_something(connection, over)
    for lease in over:
        budget = state[lease.key]
        parked = await given_back(connection, lease, now_us) if lease in holding else 0
        if lease.window_start_us == budget.window_start_us:
            state[lease.key] = without(budget, lease, parked)
    await together(connection, lease_changes(over, (), {lease.key for lease in over}))
    return own
