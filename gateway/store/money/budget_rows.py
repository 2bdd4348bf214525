"""Rows of budgets and leases: between the tables and the arithmetic of slices."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import asdict
from sqlalchemy import (
    ColumnElement,
    Executable,
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
from gateway.store.engine import driver_of
from gateway.store.money.slices import Budget, Lease
from gateway.store.schema.tables import budget_leases, budgets
from gateway.store.speech import for_sqlite


NONE: Final = "none"
"""The mark of no limit."""
MEANWHILE: Final = "somebody changed this limit meanwhile"
# Made once: they run every second, and to make one costs more than to run it.
_OWN_BUDGET = and_(
    budgets.c.account == bindparam("of_account"),
    budgets.c.window_kind == bindparam("of_window_kind"),
)
_OWN_LEASE = and_(
    budget_leases.c.account == bindparam("of_account"),
    budget_leases.c.window_kind == bindparam("of_window_kind"),
    budget_leases.c.worker == bindparam("of_worker"),
)
_BUDGET_CHANGES = [each.name for each in budgets.c if not each.primary_key]
_LEASE_CHANGES = ("window_start_us", "amount_microusd", "spent_microusd", "expires_us")


def _changing(names: Iterable[str]) -> dict[str, Any]:
    return {name: bindparam(name) for name in names}


_CLAIMED = (
    select(budgets)
    .where(tuple_(budgets.c.account, budgets.c.window_kind).in_(bindparam("keys", expanding=True)))
    .order_by(budgets.c.account, budgets.c.window_kind)
    .with_for_update()
)
_LEASED = select(budget_leases).where(
    tuple_(budget_leases.c.account, budget_leases.c.window_kind).in_(
        bindparam("keys", expanding=True)
    ),
    or_(
        budget_leases.c.worker == bindparam("holder"),
        budget_leases.c.expires_us < bindparam("expired_us"),
    ),
)
_CHANGE_BUDGET = update(budgets).where(_OWN_BUDGET).values(_changing(_BUDGET_CHANGES))
_CHANGE_LEASE = update(budget_leases).where(_OWN_LEASE).values(_changing(_LEASE_CHANGES))
_END_LEASE = delete(budget_leases).where(_OWN_LEASE)
_BEGIN_LEASE = insert(budget_leases)


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


async def claimed_budgets(
    connection: AsyncConnection, keys: Collection[BudgetKey]
) -> dict[BudgetKey, Budget]:
    """These, locked in the order of their accounts and windows."""
    rows = (await connection.execute(_CLAIMED, {"keys": list(keys)})).mappings()
    found = [budget_of(row) for row in rows]
    return {budget.limit.key: budget for budget in found}


async def leases_of(
    connection: AsyncConnection, keys: Collection[BudgetKey], worker: str, expired_us: int
) -> list[Lease]:
    """What a worker holds of these budgets, and anybody whose lease was over at that time."""
    about = {"keys": list(keys), "holder": worker, "expired_us": expired_us}
    rows = (await connection.execute(_LEASED, about)).mappings().all()
    return [Lease(**row) for row in rows]


async def write_budgets(connection: AsyncConnection, changed: Sequence[Budget]) -> None:
    if changed:
        rows = [budget_row(budget) for budget in changed]
        await _write(
            connection,
            _CHANGE_BUDGET,
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
        await connection.execute(_END_LEASE, gone)
    if kept:
        await _write(connection, _CHANGE_LEASE, kept)
    if new:
        await connection.execute(_BEGIN_LEASE, new)


async def _write(
    connection: AsyncConnection, statement: Executable, rows: Sequence[dict[str, Any]]
) -> None:
    """Every second: on SQLite past SQLAlchemy, which does more around a statement than it does."""
    if connection.dialect.name == "postgresql":
        await connection.execute(statement, rows)
        return
    await (await driver_of(connection)).executemany(for_sqlite(statement), rows)
