"""Writes one limit where it holds; requests to raise the previous limit are then overtaken.

The caller changes a limit in its own transaction, which may do more than that.
"""

from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, and_, func, not_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import ChangedMeanwhile
from gateway.money.budgets import BudgetKey, Limit, WindowKind, window_start_us
from gateway.store.money.budget_rows import (
    MEANWHILE,
    budget_of,
    budget_row,
    is_one_of,
    limit_all,
    limit_mark,
    require_seen,
    write_budgets,
)
from gateway.store.money.slices import Budget, roll
from gateway.store.revisions import bump
from gateway.store.schema.tables import (
    budget_alerts,
    budget_raises,
    budgets,
    organisations,
    virtual_keys,
)
from gateway.store.speech import DatabaseKind, insert_into


async def limited(
    connection: AsyncConnection, kind: DatabaseKind, limit: Limit, seen: str | None, now_us: int
) -> None:
    """Limit an account in one kind of window, as `LeaseTable.set_limit` describes.

    Raises:
        ChangedMeanwhile: the present limit is not the one that was seen.
    """
    zone = await _zone_of(connection, limit.account)
    limit = replace(limit, time_zone=zone)
    # The template first: locking it keeps newcomers from copying its old values.
    found = await locked(connection, is_one_of(kind, [limit.key]))
    require_seen(limit_mark(found.get(limit.key)), seen)
    start_us = window_start_us(limit.window, now_us, zone)
    begun = Budget(limit, start_us, 0, 0, begun_us=now_us)
    if limit.key not in found:
        await _begin(connection, kind, begun, seen)
    await limit_all(connection, limit)
    known = roll(found.get(limit.key, begun), now_us)
    if limit.key in found:
        # An ended window must not be reported with a limit that it never had.
        await write_budgets(connection, [replace(known, limit=limit)])
    await _arm_alerts(connection, known, limit)
    await bump(connection)


async def locked(
    connection: AsyncConnection, which: ColumnElement[bool]
) -> dict[BudgetKey, Budget]:
    """The present budgets, in the order in which workers lock them."""
    query = (
        select(budgets)
        .where(which)
        .order_by(budgets.c.account, budgets.c.window_kind)
        .with_for_update()
    )
    found = [budget_of(row) for row in (await connection.execute(query)).mappings()]
    return {budget.limit.key: budget for budget in found}


async def overtake(
    connection: AsyncConnection,
    account: str,
    window: WindowKind | None,
    now_us: int,
    but: str = "",
) -> None:
    """Overtake the requests about a limit that somebody has changed since.

    Both those that wait and those approved for a time: nobody restores the former limit. `but` is
    the request behind the change itself.
    """
    columns = budget_raises.c
    of_this = and_(columns.account == account, columns.id != but)
    if window is not None:
        of_this &= columns.window_kind == window
    waits = update(budget_raises).where(of_this, columns.state == "waiting")
    await connection.execute(waits.values(state="overtaken", decided_us=now_us))
    holds = and_(columns.state == "approved", columns.until_us > 0)
    await connection.execute(update(budget_raises).where(of_this, holds).values(state="overtaken"))


async def _begin(
    connection: AsyncConnection, kind: DatabaseKind, begun: Budget, seen: str | None
) -> None:
    """Insert the first limit; of two set at once the later wins, unless its caller saw none."""
    values, own = budget_row(begun), ("limit_microusd", "time_zone")
    first = insert_into(kind, budgets).values(values)
    key = ["account", "window_kind"]
    if seen is None:
        changed = {name: values[name] for name in own}
        first = first.on_conflict_do_update(index_elements=key, set_=changed)
    else:
        first = first.on_conflict_do_nothing(index_elements=key)
    if not (await connection.execute(first)).rowcount:
        raise ChangedMeanwhile(MEANWHILE)


async def _zone_of(connection: AsyncConnection, account: str) -> str:
    level, _, path = account.partition(":")
    organisation: Any = path.partition("/")[0]
    if level == "key":
        organisation = (
            select(virtual_keys.c.organisation).where(virtual_keys.c.id == path).scalar_subquery()
        )
    query = select(organisations.c.time_zone).where(organisations.c.name == organisation)
    return (await connection.execute(query)).scalar_one_or_none() or "UTC"


async def _arm_alerts(connection: AsyncConnection, before: Budget, limit: Limit) -> None:
    """Re-arm alerts for shares of a new limit that exceed what is spent in this window.

    They are sent again once reached, if the limit is higher than before: raising a limit and
    undoing that repeats no alert.
    """
    columns = budget_alerts.c
    if limit.limit_microusd:
        of_this = (columns.account == limit.account) & (columns.window_kind == limit.window)
        of_this &= columns.window_start_us == before.window_start_us
        unspent = columns.percent > before.spent_microusd * 100 // limit.limit_microusd
        above = func.coalesce(columns.again_above_microusd, before.limit.limit_microusd)
        armed = update(budget_alerts).where(of_this, unspent)
        await connection.execute(armed.values(again_above_microusd=above))
        is_back = columns.again_above_microusd >= limit.limit_microusd
        as_it_was = update(budget_alerts).where(of_this, not_(unspent), is_back)
        await connection.execute(as_it_was.values(again_above_microusd=None))
