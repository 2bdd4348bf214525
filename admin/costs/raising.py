"""Raises limits by two people: one asks, another one agrees.

Every deed is recorded before it is done, with the old limit and the new one.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.costs.accounts import told_of
from admin.costs.limits import LIMIT_MICROUSD_MAX, LimitKeeper, Standing
from admin.second_person import reason_in, refused_raise
from admin.services import Services
from gateway.actors import NOBODYS, same_person
from gateway.clock import DAY_US
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.money.budgets import WindowKind
from gateway.oversight.access import Permission, Person
from gateway.store.money.raises import BudgetRaise, BudgetRaises, RaiseWish
from gateway.store.money.recorded_raises import RecordedRaises, end_of_day_us


MONTH_US: Final = 30 * DAY_US
SHOWN_MAX: Final = 20
LEVELS: Final = ("org:", "ws:", "proj:", "key:")
"""Of end users nobody here is the owner."""


class RaiseOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody asks for; the account must belong to the path's organisation."""

    account: str
    limit_microusd: int
    reason: str
    window: WindowKind = "month"
    until: str | None = None
    """The last day of the larger limit, in the organisation's time zone; null for good."""
    was: int | None = None
    """Its `limit_microusd` as it was read; where another one holds by then, it is refused (409)."""


class RaiseTold(NamedTuple):
    """What was asked for, for a page."""

    asked: BudgetRaise
    title: str
    """The account in words."""


class RaiseKeeper:
    """What people may do about larger limits of one organisation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._limits = LimitKeeper(services)
        self.raises = BudgetRaises(services.database, services.clock)
        self._recorded = RecordedRaises(self.raises, services.deeds)

    async def standing(self, organisation: str, account: str, window: WindowKind) -> Standing:
        """As `LimitKeeper` says it; raises NotFoundException for what nobody asks more for."""
        if not account.startswith(LEVELS):
            raise NotFoundException
        return await self._limits.standing(organisation, account, window)

    async def ask(self, person: Person, organisation: str, order: RaiseOrder) -> BudgetRaise:
        """Ask for a larger limit; somebody else decides.

        Raises:
            NotFoundException: the account is none of the organisation's.
            ChangedMeanwhile: the limit is another one than was seen.
            Forbidden: whoever asks came by the admin token.
            RequestInvalid: with the field that is wrong.
        """
        if person.of_token:
            raise Forbidden(NOBODYS)
        standing = await self.standing(organisation, order.account, order.window)
        if standing.spending is None:
            raise RequestInvalid("it has no such limit to raise", parameter="account")
        if not 0 <= order.limit_microusd <= LIMIT_MICROUSD_MAX:
            raise RequestInvalid("this amount is negative or too large", parameter="limit_microusd")
        seen = standing.spending.limit_microusd
        if order.was is not None and order.was != seen:
            raise ChangedMeanwhile("somebody changed this limit meanwhile", parameter="was")
        wish = RaiseWish(
            account=order.account,
            window=order.window,
            wanted_microusd=order.limit_microusd,
            until_us=await self._end_us(organisation, order.until or ""),
            reason=reason_in(order.reason),
        )
        return await self._recorded.ask(organisation, wish, person.name, seen_microusd=seen)

    async def approve(
        self, person: Person, organisation: str, raise_id: str, comment: str
    ) -> BudgetRaise:
        """Make a limit as large as somebody else asked for.

        Raises:
            NotFoundException: nothing of this id was asked for in the organisation.
            Forbidden: it is their own, or they may not set limits here.
            ChangedMeanwhile, RequestInvalid: it does not wait any more, or has no comment.
        """
        found = await self._found(person, organisation, raise_id)
        return await self._recorded.approve(found, person.name, reason_in(comment))

    async def decline(
        self, person: Person, organisation: str, raise_id: str, comment: str
    ) -> BudgetRaise:
        """Leave a limit as it is; raises like `approve`."""
        found = await self._found(person, organisation, raise_id)
        return await self._recorded.decline(found, person.name, reason_in(comment))

    async def withdraw(self, person: Person, organisation: str, raise_id: str) -> BudgetRaise:
        """Take back what one asked for oneself; raises like `approve`."""
        found = await self._waiting(organisation, raise_id)
        if not same_person(person.name, found.asked_by):
            raise Forbidden("Only the person who requested it can withdraw it.")
        return await self._recorded.withdraw(found, person.name)

    async def others(self, organisation: str, asked_by: str) -> list[str]:
        """Who may agree to what somebody asked for."""
        able = await self._services.people_lists.able(Permission.BUDGETS_SET, organisation)
        return [each.name for each in able if not same_person(each.name, asked_by)]

    async def shown(self, person: Person, organisation: str) -> list[RaiseTold]:
        """What waits, and what became lately of what somebody asked for: for the page of limits."""
        waiting = (await self.raises.waiting(organisation, 0, SHOWN_MAX)).rows
        since_us = self._services.clock.utc_us() - MONTH_US
        theirs = await self.raises.decided_since(since_us, person.name)
        mine = [each for each in theirs if each.organisation == organisation]
        return await self.told(organisation, [*mine[:SHOWN_MAX], *waiting])

    async def told(self, organisation: str, asked: Sequence[BudgetRaise]) -> list[RaiseTold]:
        """The same with the names of what they are about."""
        ids = [each.account.removeprefix("key:") for each in asked]
        names = await self._services.key_names.names(organisation, ids)
        return [
            RaiseTold(each, told_of(each.account, names.get(each.account.removeprefix("key:"), "")))
            for each in asked
        ]

    async def _found(self, person: Person, organisation: str, raise_id: str) -> BudgetRaise:
        found = await self._waiting(organisation, raise_id)
        if refusal := refused_raise(person, found):
            raise Forbidden(refusal)
        return found

    async def _waiting(self, organisation: str, raise_id: str) -> BudgetRaise:
        found = await self.raises.one(organisation, raise_id)
        if found is None:
            raise NotFoundException
        if found.state != "waiting":
            raise RequestInvalid(f"This is {found.state}.", parameter="id")
        return found

    async def _end_us(self, organisation: str, until: str) -> int:
        zone = await self._services.spending.zone_of(organisation) if until else ""
        return end_of_day_us(until, zone, self._services.clock.utc_us())
