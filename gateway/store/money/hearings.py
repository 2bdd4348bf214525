"""Times at which workers learned of a limit or window: they charge what they admit from then.

A limit holds from when it is set, but a worker hears of it a moment later, by a clock that may
differ. A day begins with the first worker whose clock says so; a worker whose clock is behind
charges the new day from what is still the evening before by its own clock. With these moments on
record, it is known exactly which outcomes a budget has to account for.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from msgspec import Struct
from sqlalchemy import and_, delete, exists, not_, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import MINUTE_US
from gateway.money.budgets import BudgetKey, WindowKind, template_of
from gateway.store.engine import Database
from gateway.store.money.budget_rows import children
from gateway.store.money.slices import Budget
from gateway.store.schema.tables import budget_hearings, budgets
from gateway.store.speech import insert_into


RECENT_US: Final = 10 * MINUTE_US
"""A worker that starts notes only limits this new: it did not learn of older ones late."""
_HEARINGS = budget_hearings.c


class Hearing(Struct, frozen=True):
    """A worker charges a limit from `heard_us` on, by its own clock.

    `since_us` is when the limit was set, or when the window began, by the clock of whoever did
    that.
    """

    key: BudgetKey
    since_us: int
    heard_us: int


class Hearings:
    """The hearings in one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, worker: str, pending: dict[BudgetKey, Hearing]) -> None:
        """Write these down and drop them; a worker notes each limit once, whenever it started.

        Raises:
            NotReady: the database does not answer; all are still pending.
        """
        if not pending:
            return
        written = dict(pending)
        rows = [
            {
                "account": each.key.account,
                "window_kind": each.key.window,
                "worker": worker,
                "since_us": each.since_us,
                "heard_us": each.heard_us,
            }
            for _, each in sorted(written.items())
        ]
        statement = insert_into(self._database.kind, budget_hearings)
        said = {name: statement.excluded[name] for name in ("since_us", "heard_us")}
        upsert = statement.on_conflict_do_update(
            index_elements=["account", "window_kind", "worker"],
            set_=said,
            where=_HEARINGS.since_us < statement.excluded.since_us,
        )
        async with self._database.writing() as connection:
            await connection.execute(upsert, rows)
        for key, hearing in written.items():
            if pending.get(key) is hearing:
                del pending[key]

    async def forget_over(self) -> None:
        """Drop hearings that do not matter for any budget's present window.

        Either their limit is gone (even if they were written down later), their window is over, or
        all of this window is charged anyway.

        Raises:
            NotReady: the database does not answer.
        """
        begun_us, start_us = budgets.c.begun_us, budgets.c.window_start_us
        says_something = exists().where(
            budgets.c.account == _HEARINGS.account,
            budgets.c.window_kind == _HEARINGS.window_kind,
            _HEARINGS.since_us.in_([begun_us, start_us]),
            # A worker without a hearing is given a limit's first minute, which may reach into this
            # window.
            or_(_HEARINGS.heard_us > start_us, _HEARINGS.since_us > start_us - MINUTE_US),
        )
        async with self._database.writing() as connection:
            await connection.execute(delete(budget_hearings).where(not_(says_something)))


def only_new(
    hearings: Mapping[BudgetKey, Hearing], charged: Collection[BudgetKey]
) -> dict[BudgetKey, Hearing]:
    """Hearings of limits that were set shortly before, or by a clock that is ahead.

    Not those that an earlier run knew and had `charged` when it crashed: if it did not write them
    down, nobody knows when it began.
    """
    known = {*charged, *(BudgetKey(template_of(each.account), each.window) for each in charged)}
    return {
        key: each
        for key, each in hearings.items()
        if each.heard_us < each.since_us + RECENT_US and key not in known
    }


async def hearings_of(connection: Any, key: BudgetKey, budget: Budget) -> dict[str, int]:
    """When each worker began to charge the present window of a limit, by worker name.

    `key` is the key of the limit: the budget's own, or that of all end users.
    """
    start_us, begun_us = budget.window_start_us, budget.begun_us
    query = select(_HEARINGS.worker, _HEARINGS.since_us, _HEARINGS.heard_us).where(
        _HEARINGS.account == key.account,
        _HEARINGS.window_kind == key.window,
        _HEARINGS.since_us.in_([begun_us, start_us]),
    )
    rows = (await connection.execute(query)).all()
    # A worker that learned of an older limit in this window charged the previous window until its
    # end.
    return {
        worker: heard_us if since_us >= start_us else max(heard_us, start_us)
        for worker, since_us, heard_us in rows
    }


async def forget_hearings(
    connection: AsyncConnection, account: str, window: WindowKind | None
) -> None:
    """Forget hearings of a removed limit, a template's with all users'; None is all windows."""
    of_template = _HEARINGS.account.like(children(account), escape="\\")
    gone = or_(_HEARINGS.account == account, of_template)
    if window is not None:
        gone = and_(gone, _HEARINGS.window_kind == window)
    await connection.execute(delete(budget_hearings).where(gone))
