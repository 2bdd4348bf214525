"""Sets and removes limits on behalf of the signed-in person, and says first what that will do.

Two people who change one limit at once do not overwrite each other: the second one sees both.
"""

from datetime import date, timedelta
from typing import Final

from litestar.exceptions import NotFoundException
from msgspec import Struct
from msgspec.structs import asdict

from admin.costs.accounts import is_of, path_of, title_of
from admin.costs.reader import ROLLUP_BATCHES, CostReader
from admin.keys.lines import Spending
from admin.keys.reader import KeyReader
from admin.services import Services
from gateway.clock import DAY_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.money.budgets import Limit, WindowKind, window_end_us
from gateway.money.rates import RateLimit
from gateway.oversight.access import Person
from gateway.store.money.budget_rows import amount_mark
from gateway.store.money.rate_limits import rate_mark


LIMIT_MICROUSD_MAX: Final = 10**15


class Spent(Struct, frozen=True):
    """What an account cost by the records, whatever limits it had."""

    now_microusd: int
    """In the window that runs."""
    before_microusd: int
    """In the whole one before."""


class Standing(Struct, frozen=True):
    """An account as it stands, before its limit is changed."""

    account: str
    title: str
    window: WindowKind
    spending: Spending | None
    """Its limit in this window; None for none."""
    window_ends_us: int
    """When what is spent counts for nothing any more; far away for a limit in all."""
    cost: "Spent | None"
    """What it cost in this window and the one before; None for a limit in all, and of end users."""
    rate: RateLimit | None
    requests: int | None
    """Of the last day; None where nobody counts them: those of each end user."""
    busiest: int
    """Requests of its busiest hour of the last day."""

    @property
    def was(self) -> str:
        """What a form says that it was made from."""
        return amount_mark(self.spending.limit_microusd if self.spending else None)

    @property
    def rate_was(self) -> str:
        return rate_mark(self.rate)


class LimitKeeper:
    """What people may do to limits of one organisation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._costs = CostReader(services)
        self._keys = KeyReader(services)

    async def standing(self, organisation: str, account: str, window: WindowKind) -> Standing:
        """An account with its present limits and how much it asks.

        Raises:
            NotFoundException: it is none of the organisation's.
        """
        services, now_us = self._services, self._services.clock.utc_us()
        await self._require(organisation, account)
        names = await services.key_names.names(organisation, [account.removeprefix("key:")])
        found = (await self._keys.spendings_of([account])).get(account, ())
        rates = {rate.account: rate for rate in await services.rates.all()}
        zone = await services.spending.zone_of(organisation)
        hours = await self._hours(organisation, account, now_us - DAY_US)
        return Standing(
            account=account,
            title=title_of(account, "".join(names.values())),
            window=window,
            spending=next((each for each in found if each.window == window), None),
            window_ends_us=window_end_us(window, now_us, zone),
            cost=await self._cost(organisation, account, window),
            rate=rates.get(account),
            requests=None if account.startswith("user:") else sum(hours),
            busiest=max(hours, default=0),
        )

    async def set_limit(
        self, person: Person, organisation: str, limit: Limit, was: str | None = None
    ) -> None:
        """Limit an account; `was` is what the form was made from.

        Raises:
            RequestInvalid: the amount is negative or too large.
            ChangedMeanwhile: somebody changed it meanwhile.
        """
        if not 0 <= limit.limit_microusd <= LIMIT_MICROUSD_MAX:
            raise RequestInvalid("this amount is negative or too large", parameter="limit_microusd")
        standing = await self._as_it_was(organisation, limit.account, limit.window, was)
        after = {
            "account": limit.account,
            "limit_microusd": limit.limit_microusd,
            "window": limit.window,
        }
        async with self._services.deeds.doing(
            person.name, "budget.set", organisation, before=_limit_of(standing), after=after
        ):
            await self._services.budgets.set_limit(limit, was)

    async def remove_limit(
        self,
        person: Person,
        organisation: str,
        account: str,
        window: WindowKind,
        was: str | None = None,
    ) -> None:
        """Let an account spend without this limit; raises like `set_limit`."""
        standing = await self._as_it_was(organisation, account, window, was)
        after = {"account": account, "window": window}
        async with self._services.deeds.doing(
            person.name, "budget.removed", organisation, before=_limit_of(standing), after=after
        ):
            await self._services.budgets.remove_limit(account, window, was)

    async def set_rate(
        self, person: Person, organisation: str, rate: RateLimit, was: str | None = None
    ) -> None:
        """Limit how often an account may ask; without any number it may ask as it likes.

        Raises:
            RequestInvalid: a number is negative.
            ChangedMeanwhile: somebody changed it meanwhile.
        """
        standing = await self.standing(organisation, rate.account, "total")
        if was is not None and was != standing.rate_was:
            raise ChangedMeanwhile("somebody changed these limits meanwhile")
        is_nothing = rate == RateLimit(rate.account)
        action = "rate_limit.removed" if is_nothing else "rate_limit.set"
        before = asdict(standing.rate) if standing.rate else None
        async with self._services.deeds.doing(
            person.name, action, organisation, before=before, after=asdict(rate)
        ):
            if is_nothing:
                await self._services.rates.remove(rate.account, was)
            else:
                await self._services.rates.set(rate, was)

    async def _as_it_was(
        self, organisation: str, account: str, window: WindowKind, was: str | None
    ) -> Standing:
        standing = await self.standing(organisation, account, window)
        if was is not None and was != standing.was:
            raise ChangedMeanwhile("somebody changed this limit meanwhile")
        return standing

    async def _cost(self, organisation: str, account: str, window: WindowKind) -> Spent | None:
        path = path_of(account, organisation)
        if window == "total" or account.startswith("user:"):
            return None
        by, group = ("workspace", "project")[: len(path or ())], path or ()
        if path is None:
            by, group = ("key_id",), (account.removeprefix("key:"),)
        today, _ = await self._costs.today(organisation)
        await self._services.rollup.catch_up(ROLLUP_BATCHES)
        found = []
        for since, until in _windows(window, today):
            days = (str(since), str(until))
            costs = await self._services.figures.costs_of(organisation, days, by, [group])
            found.append(costs.get(group, 0))
        return Spent(*found)

    async def _require(self, organisation: str, account: str) -> None:
        if not is_of(account, organisation, await self._costs.own_keys(organisation, [account])):
            raise NotFoundException

    async def _hours(self, organisation: str, account: str, since_us: int) -> list[int]:
        """Requests of an account by hour, without those in which there were none."""
        by = ["hour_us", "key_id"]
        rows = await self._services.figures.by_hour([organisation], since_us, by)
        path = path_of(account, organisation)
        mine: frozenset[str] | None = frozenset([account.removeprefix("key:")])
        if path is not None:
            mine = await self._keys.lists.ids_in(organisation, *path) if path else None
        found: dict[int, int] = {}
        for row in rows:
            if mine is None or row.group[1] in mine:
                found[row.group[0]] = found.get(row.group[0], 0) + row.requests
        return list(found.values())


def _windows(window: WindowKind, today: date) -> list[tuple[date, date]]:
    """The first and last day of the window that runs, and of the one before."""
    if window == "day":
        yesterday = today - timedelta(days=1)
        return [(today, today), (yesterday, yesterday)]
    first = today.replace(day=1)
    last = first - timedelta(days=1)
    return [(first, today), (last.replace(day=1), last)]


def _limit_of(standing: Standing) -> dict[str, object] | None:
    if standing.spending is None:
        return None
    return {
        "account": standing.account,
        "limit_microusd": standing.spending.limit_microusd,
        "window": standing.window,
    }
