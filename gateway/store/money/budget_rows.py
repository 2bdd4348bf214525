"""Rows of budgets and leases: between the tables and the arithmetic of slices."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import asdict
from sqlalchemy import (
    ColumnElement,
    RowMapping,
    and_,
    bindparam,
    delete,
    func,
    insert,
    not_,
    or_,
    select,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import ChangedMeanwhile
from gateway.money.budgets import USER_PREFIX, BudgetKey, Limit, WindowKind
from gateway.store.money.slices import Budget, Lease
from gateway.store.schema.tables import budget_leases, budgets


NONE: Final = "none"
"""The mark of no limit."""
MEANWHILE: Final = "somebody changed this limit meanwhile"
_LEASE_CHANGES = ("window_start_us", "amount_microusd", "spent_microusd", "expires_us")


def amount_mark(limit_microusd: int | None) -> str:
    """A limit as whoever changes it says what they saw; None for no limit."""
    return NONE if limit_microusd is None else str(limit_microusd)


def limit_mark(budget: Budget | None) -> str:
    return amount_mark(None if budget is None else budget.limit.limit_microusd)


def require_seen(mark: str, seen: str | None) -> None:
    """Raises ChangedMeanwhile where somebody saw something else; None is who looked at nothing."""
    if seen is not None and mark != seen:
        raise ChangedMeanwhile(MEANWHILE)


def budget_of(row: RowMapping) -> Budget:
    kind: WindowKind = row["window_kind"]
    return Budget(
        Limit(row["account"], row["limit_microusd"], kind, row["time_zone"]),
        row["window_start_us"],
        row["spent_microusd"],
        row["leased_microusd"],
        row["zone_since_us"],
        row["begun_us"],
    )


def budget_row(budget: Budget) -> dict[str, object]:
    return {
        "account": budget.limit.account,
        "limit_microusd": budget.limit.limit_microusd,
        "window_kind": budget.limit.window,
        "window_start_us": budget.window_start_us,
        "spent_microusd": budget.spent_microusd,
        "leased_microusd": budget.leased_microusd,
        "time_zone": budget.limit.time_zone,
        "zone_since_us": budget.zone_since_us,
        "begun_us": budget.begun_us,
    }


def is_one_of(keys: Collection[BudgetKey]) -> ColumnElement[bool]:
    return tuple_(budgets.c.account, budgets.c.window_kind).in_(list(keys))


def is_end_user() -> ColumnElement[bool]:
    """Rows of single end users; not the limits that hold for each of them."""
    account = budgets.c.account
    return and_(account.like(f"{USER_PREFIX}%"), not_(account.like("%/*")))


def below(prefix: str) -> str:
    escaped = prefix.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    return f"{escaped}%"


def children(account: str) -> str:
    """A pattern for the end users that a template's limit holds for; of no row for others."""
    if account.startswith(USER_PREFIX) and account.endswith("/*"):
        return below(account.removesuffix("*"))
    return ""


async def limit_all(connection: AsyncConnection, limit: Limit) -> None:
    """Write a limit where it holds: for the account or, by a template, for its end users too.

    Those may be a hundred thousand, more than a statement can name. They are locked in the order in
    which workers lock them.
    """
    of_limit = and_(
        or_(
            budgets.c.account == limit.account,
            budgets.c.account.like(children(limit.account), escape="\\"),
        ),
        budgets.c.window_kind == limit.window,
    )
    locked = select(budgets.c.account).where(of_limit).order_by(budgets.c.account)
    count = select(func.count()).select_from(locked.with_for_update().subquery())
    await connection.execute(count)
    said = {"limit_microusd": limit.limit_microusd, "time_zone": limit.time_zone}
    await connection.execute(update(budgets).where(of_limit).values(said))


async def write_budgets(connection: AsyncConnection, changed: Sequence[Budget]) -> None:
    if changed:
        own = and_(
            budgets.c.account == bindparam("of_account"),
            budgets.c.window_kind == bindparam("of_window_kind"),
        )
        rows = [budget_row(budget) for budget in changed]
        names = rows[0].keys() - {"account", "window_kind"}
        await connection.execute(
            update(budgets).where(own).values({name: bindparam(name) for name in names}),
            [
                {"of_account": row.pop("account"), "of_window_kind": row.pop("window_kind"), **row}
                for row in rows
            ],
        )


async def write_leases(
    connection: AsyncConnection,
    leases: Sequence[Lease],
    held: Mapping[BudgetKey, Lease],
    ended: set[BudgetKey],
) -> None:
    own = and_(
        budget_leases.c.account == bindparam("of_account"),
        budget_leases.c.window_kind == bindparam("of_window_kind"),
        budget_leases.c.worker == bindparam("of_worker"),
    )
    gone, kept, new = [], [], []
    for lease in leases:
        key = {
            "of_account": lease.account,
            "of_window_kind": lease.window_kind,
            "of_worker": lease.worker,
        }
        if lease.key in ended:
            gone.append(key)
        elif lease.key in held:
            kept.append(key | {name: getattr(lease, name) for name in _LEASE_CHANGES})
        else:
            new.append(asdict(lease))
    if gone:
        await connection.execute(delete(budget_leases).where(own), gone)
    if kept:
        changes: dict[str, Any] = {name: bindparam(name) for name in _LEASE_CHANGES}
        await connection.execute(update(budget_leases).where(own).values(changes), kept)
    if new:
        await connection.execute(insert(budget_leases), new)
