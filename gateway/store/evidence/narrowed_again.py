"""Restores limits and scopes of keys in a restored database to the narrowest the log ordered.

Nothing gets wider: where the backup was narrower than what was ordered since, it stays so.
"""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import select

from gateway.clock import Clock
from gateway.money.budgets import WINDOWS, BudgetKey, Limit
from gateway.money.rates import RateLimit
from gateway.oversight.key_scope import KeyScope, both, scope_of
from gateway.store.engine import Database
from gateway.store.evidence.told_deeds import ToldDeed, ToldDeeds
from gateway.store.identity.key_scopes import KeyScopes
from gateway.store.money.leases import LeaseTable
from gateway.store.money.rate_limits import RateLimitTable
from gateway.store.schema.tables import virtual_keys


_LIMITED: Final = ("budget.set", "budget.raised", "budget.raise_ended")
_BUDGETS: Final = (*_LIMITED, "budget.removed")
_RATES: Final = ("rate_limit.set", "rate_limit.removed")
_SCOPES: Final = ("key.narrowed", "key.widened")
_OPTIONS: Final = {
    "requests_per_minute": "rpm",
    "tokens_per_minute": "tpm",
    "concurrent_requests": "concurrent",
}
"""A rate's fields as the command line names them; pages use the fields' own names."""


class NarrowedAgain:
    """Narrows limits in one database, before any request. Methods return how many they narrowed."""

    def __init__(self, database: Database, deeds: ToldDeeds, clock: Clock) -> None:
        self._database = database
        self._deeds = deeds
        self._budgets = LeaseTable(database, clock)
        self._rates = RateLimitTable(database)
        self._scopes = KeyScopes(database, clock)
        self._now_us = clock.utc_us

    async def limits(self) -> int:
        return await self._lower_budgets() + await self._lower_rates()

    async def _lower_budgets(self) -> int:
        known = {each.limit.key: each.limit for each in await self._budgets.budgets()}
        lower: dict[BudgetKey, Limit] = {}
        for deeds in await self._deeds.orders(*_BUDGETS):
            for key, limit in _budgets(deeds).items():
                before = lower.get(key) or known.get(key)
                if before is None or limit.limit_microusd < before.limit_microusd:
                    lower[key] = limit
        for limit in lower.values():
            await self._budgets.set_limit(limit)
        return len(lower)

    async def _lower_rates(self) -> int:
        known = {each.account: each for each in await self._rates.all()}
        lower: dict[str, RateLimit] = {}
        for deeds in await self._deeds.orders(*_RATES):
            last = {deed.ordered["account"]: deed for deed in deeds}
            for account, deed in last.items():
                before = lower.get(account) or known.get(account, RateLimit(account))
                if deed.record.action == "rate_limit.set":
                    lower[account] = _lower(before, deed.ordered)
        changed = [rate for rate in lower.values() if rate != known.get(rate.account)]
        for rate in changed:
            await self._rates.set(rate)
        return len(changed)

    async def scopes(self) -> int:
        """Narrow the scopes of keys that have not ended."""
        told = await self._deeds.orders(*_SCOPES)
        lasts = [{deed.ordered["key_id"]: deed.ordered for deed in deeds} for deeds in told]
        columns, narrowed = virtual_keys.c, 0
        query = select(virtual_keys).where(columns.revoked_us.is_(None))
        query = query.where(columns.expires_us.is_(None) | (columns.expires_us > self._now_us()))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings().all()
        for row in rows:
            has = scope_of(row["models"], row["expires_us"], row["labels"], row["translation"])
            wanted = has
            for last in lasts:
                if row["id"] in last:
                    wanted = both(wanted, _scope(last[row["id"]]))
            if wanted != has:
                await self._scopes.narrow(row["organisation"], row["id"], has, wanted)
                narrowed += 1
        return narrowed


def _budgets(deeds: list[ToldDeed]) -> dict[BudgetKey, Limit]:
    """The limits in effect after these deeds, in this order."""
    limits: dict[BudgetKey, Limit] = {}
    for deed in deeds:
        account, window = deed.ordered["account"], deed.ordered.get("window")
        if deed.record.action in _LIMITED:
            assert window is not None
            limit = Limit(account, int(deed.ordered["limit_microusd"]), window)
            limits[limit.key] = limit
            continue
        for each in WINDOWS if window is None else (window,):
            limits.pop(BudgetKey(account, each), None)
    return limits


def _lower(before: RateLimit, ordered: Mapping[str, Any]) -> RateLimit:
    numbers = {}
    for name, option in _OPTIONS.items():
        said = ordered.get(name, ordered.get(option))
        values = [getattr(before, name), None if said is None else int(said)]
        numbers[name] = min((each for each in values if each is not None), default=None)
    return RateLimit(before.account, **numbers)


def _scope(ordered: Mapping[str, Any]) -> KeyScope:
    """The scope without labels: a deed that only takes away leaves labels as they are."""
    translation = ordered["translation"]
    return KeyScope(_models(ordered["models"]), _moment(ordered["expires_us"]), (), translation)


def _models(said: Any) -> tuple[str, ...] | None:
    """The models in an order: pages give a list, or null for all; the command line gives words."""
    if isinstance(said, str):
        return None if said == "all" else tuple(sorted(set(said.split(", ")) - {"none"}))
    return None if said is None else tuple(sorted(said))


def _moment(said: Any) -> int | None:
    return None if said in (None, "never") else int(said)
