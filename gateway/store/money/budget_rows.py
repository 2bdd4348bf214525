"""Maps rows of budgets and leases to the values that the arithmetic of slices uses, and back."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
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
    text,
    tuple_,
    update,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.errors import ChangedMeanwhile
from gateway.money.budgets import USER_PREFIX, BudgetKey, Limit, WindowKind
from gateway.store.engine import Asking, together
from gateway.store.money.slices import Budget, Lease
from gateway.store.schema.tables import budget_leases, budgets


NONE: Final = "none"
"""The mark that means no limit."""
MEANWHILE: Final = "somebody changed this limit meanwhile"
# Built once: they run every second, and building one costs more than running it.
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
_BUDGET_NAMES = tuple(budgets.c.keys())
_LEASE_NAMES = tuple(budget_leases.c.keys())
_LEASE_CHANGES = ("window_start_us", "amount_microusd", "spent_microusd", "expires_us")


def _changing(names: Iterable[str]) -> dict[str, Any]:
    return {name: bindparam(name) for name in names}


# The pairs of a JSON list, as a statement that is the same for any number of them.
_PAIRS = text(
    "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(:keys)"
)


def _claimed(keys: Any) -> Executable:
    claimed = tuple_(budgets.c.account, budgets.c.window_kind).in_(keys)
    ordered = select(budgets).where(claimed).order_by(budgets.c.account, budgets.c.window_kind)
    return ordered.with_for_update()


def _leased(keys: Any) -> Executable:
    leases = budget_leases.c
    expired = or_(leases.worker == bindparam("holder"), leases.expires_us < bindparam("expired_us"))
    leased = tuple_(leases.account, leases.window_kind).in_(keys)
    return select(budget_leases).where(leased, expired)


_MANY: Any = bindparam("keys", expanding=True)
_CLAIMED = {"postgresql": _claimed(_MANY), "sqlite": _claimed(_PAIRS)}
_LEASED = {"postgresql": _leased(_MANY), "sqlite": _leased(_PAIRS)}
_CHANGE_BUDGET = update(budgets).where(_OWN_BUDGET).values(_changing(_BUDGET_CHANGES))
_CHANGE_LEASE = update(budget_leases).where(_OWN_LEASE).values(_changing(_LEASE_CHANGES))
_END_LEASE = delete(budget_leases).where(_OWN_LEASE)
_BEGIN_LEASE = insert(budget_leases)


def amount_mark(limit_microusd: int | None) -> str:
    """A limit as the form in which a caller states what they saw; None for no limit."""
    return NONE if limit_microusd is None else str(limit_microusd)


def limit_mark(budget: Budget | None) -> str:
    return amount_mark(None if budget is None else budget.limit.limit_microusd)


def require_seen(mark: str, seen: str | None) -> None:
    """Raise ChangedMeanwhile if something else was seen; None means that nothing was looked at."""
    if seen is not None and mark != seen:
        raise ChangedMeanwhile(MEANWHILE)


def budget_of(row: Mapping[str, Any] | RowMapping) -> Budget:
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


def is_one_of(kind: str, keys: Collection[BudgetKey]) -> ColumnElement[bool]:
    """SQLite reads every row for a list of pairs, but looks up each pair of a JSON list."""
    pairs: Any = list(keys)
    if kind == "sqlite":
        pairs = _PAIRS.bindparams(keys=msgspec.json.encode([*keys]).decode())
    return tuple_(budgets.c.account, budgets.c.window_kind).in_(pairs)


def is_end_user() -> ColumnElement[bool]:
    """Rows of single end users, without the limits that apply to each of them."""
    account = budgets.c.account
    return and_(account.like(f"{USER_PREFIX}%"), not_(account.like("%/*")))


def below(prefix: str) -> str:
    escaped = prefix.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%")
    return f"{escaped}%"


def children(account: str) -> str:
    """A pattern for the end users that a template's limit applies to; none for other accounts."""
    if account.startswith(USER_PREFIX) and account.endswith("/*"):
        return below(account.removesuffix("*"))
    return ""


async def limit_all(connection: AsyncConnection, limit: Limit) -> None:
    """Write a limit for the account or, if it is a template, for its end users too.

    There may be a hundred thousand, more than a statement can name. They are locked in the order in
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


async def claimed(
    connection: AsyncConnection, keys: Collection[BudgetKey], worker: str, expired_us: int
) -> tuple[dict[BudgetKey, Budget], list[Lease]]:
    """These budgets, locked in the order of their accounts and windows, and leases of them.

    The leases are the worker's own and any that were over at `expired_us`.
    """
    name = connection.dialect.name
    wanted = list(keys) if name == "postgresql" else msgspec.json.encode([*keys]).decode()
    about = {"keys": wanted, "holder": worker, "expired_us": expired_us}
    budget_rows, lease_rows = await together(
        connection, [(_CLAIMED[name], {"keys": wanted}), (_LEASED[name], about)]
    )
    named = (dict(zip(_BUDGET_NAMES, row, strict=True)) for row in budget_rows)
    found = {each.limit.key: each for each in map(budget_of, named)}
    leases = [Lease(**dict(zip(_LEASE_NAMES, row, strict=True))) for row in lease_rows]
    return found, [lease for lease in leases if lease.key in found]


async def write_budgets(connection: AsyncConnection, changed: Sequence[Budget]) -> None:
    await together(connection, budget_changes(changed))


def budget_changes(changed: Sequence[Budget]) -> list[Asking]:
    """The statements that write these budgets."""
    rows = [
        {"of_account": row.pop("account"), "of_window_kind": row.pop("window_kind"), **row}
        for row in map(budget_row, changed)
    ]
    return [(_CHANGE_BUDGET, rows)] if rows else []


def lease_changes(
    leases: Sequence[Lease], held: Collection[BudgetKey], ended: Collection[BudgetKey]
) -> list[Asking]:
    """Statements that write these leases: `held` budgets have a row, `ended` ones lose it."""
    gone, kept, new = list[dict[str, Any]](), list[dict[str, Any]](), list[dict[str, Any]]()
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
    written = ((_END_LEASE, gone), (_CHANGE_LEASE, kept), (_BEGIN_LEASE, new))
    return [(statement, rows) for statement, rows in written if rows]
