"""Lists the limits of one organisation's accounts a page at a time, without reading others."""

from typing import Final

from sqlalchemy import ColumnElement, and_, literal, not_, or_, select

from gateway.clock import Clock
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of, is_end_user
from gateway.store.money.slices import Budget, roll
from gateway.store.pages import Order, Part, part_behind
from gateway.store.schema.tables import budgets, virtual_keys


_BY_ACCOUNT: Final = Order((budgets.c.account, budgets.c.window_kind))


class BudgetLists:
    """Lists the limits in one database."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def page(
        self, organisation: str, first: int, limit: int, after: str = ""
    ) -> Part[Budget]:
        """A page of limits in their present windows, by account; without single end users'.

        `after` is the key of the last one before it.
        """
        now_us = self._clock.utc_us()
        query = select(budgets).where(_is_of(organisation), not_(is_end_user()))
        async with self._database.reading() as connection:
            return await part_behind(
                connection,
                query,
                _BY_ACCOUNT,
                (first, after),
                limit,
                lambda row: roll(budget_of(row), now_us),
            )


def _is_of(organisation: str) -> ColumnElement[bool]:
    """Condition for an organisation's accounts; a key's account does not name its organisation."""
    account, keys = budgets.c.account, virtual_keys.c
    own = select(literal("key:").concat(keys.id)).where(keys.organisation == organisation)
    return or_(
        account == f"org:{organisation}",
        *(
            account.startswith(f"{level}:{organisation}/", autoescape=True)
            for level in ("ws", "proj", "user")
        ),
        and_(account.startswith("key:"), account.in_(own)),
    )
