"""Records raises of limits in the audit log: asked for, agreed to, expired; each step once.

The caller decides who may do what: pages and the JSON API by roles, commands by the user who types
them.
"""

from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from gateway.clock import SECOND_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.deeds import Deeds
from gateway.store.money.raises import BudgetRaise, BudgetRaises, RaiseWish, Recorded


SCHEDULE: Final = "schedule"
DAYS_MAX: Final = 366


class RecordedRaises:
    """Raises limits in one database and one log: each request is recorded before it is stored."""

    def __init__(self, raises: BudgetRaises, deeds: Deeds) -> None:
        self._raises = raises
        self._deeds = deeds

    async def ask(
        self, organisation: str, wish: RaiseWish, actor: str, *, seen_microusd: int
    ) -> BudgetRaise:
        """Request a larger limit; raises as `BudgetRaises.ask` does."""
        before = _limited(wish.account, wish.window, seen_microusd)
        after = _limited(wish.account, wish.window, wish.wanted_microusd)
        after |= {"until_us": wish.until_us, "reason": wish.reason}
        async with self._deeds.doing(
            actor, "budget.raise_asked", organisation, before=before, after=after
        ):
            return await self._raises.ask(organisation, wish, actor, seen_microusd=seen_microusd)

    async def approve(self, asked: BudgetRaise, actor: str, comment: str) -> BudgetRaise:
        """Make the limit as large as requested; raises as `BudgetRaises.approve` does."""
        before = _limited(asked.account, asked.window, asked.seen_microusd)
        after = _limited(asked.account, asked.window, asked.wanted_microusd) | _told(asked)
        async with self._deeds.doing(
            actor,
            "budget.raised",
            asked.organisation,
            before=before,
            after=after | {"comment": comment},
        ):
            return await self._raises.approve(asked.organisation, asked.id, actor, comment)

    async def decline(self, asked: BudgetRaise, actor: str, comment: str) -> BudgetRaise:
        """Leave the limit as it is; raises as `BudgetRaises.end` does."""
        after = {"account": asked.account, "window": asked.window} | _told(asked)
        after |= {"wanted_microusd": asked.wanted_microusd, "comment": comment}
        async with self._deeds.doing(
            actor, "budget.raise_declined", asked.organisation, after=after
        ):
            return await self._raises.end(asked.organisation, asked.id, actor, comment, "declined")

    async def withdraw(self, asked: BudgetRaise, actor: str) -> BudgetRaise:
        """Withdraw one's own request; raises as `BudgetRaises.end` does."""
        after = {"account": asked.account, "window": asked.window} | _told(asked)
        async with self._deeds.doing(
            actor, "budget.raise_withdrawn", asked.organisation, after=after
        ):
            return await self._raises.end(asked.organisation, asked.id, actor, "", "withdrawn")

    async def tend(self) -> None:
        """Undo temporary raises whose time is over; any number of processes may call this.

        Raises:
            NotReady: the database does not answer.
            AuditUnavailable: it cannot be recorded, so the limit stays as it is for now.
        """
        for each in await self._raises.over():
            try:
                await self._raises.take_back(each, self._ending(each))
            except ChangedMeanwhile:
                await self._raises.forget(each)

    def _ending(self, over: BudgetRaise) -> Recorded:
        before = _limited(over.account, over.window, over.wanted_microusd)
        after = _limited(over.account, over.window, over.back_microusd) | _told(over)
        return lambda: self._deeds.doing(
            SCHEDULE, "budget.raise_ended", over.organisation, before=before, after=after
        )


def end_of_day_us(day: str, time_zone: str, now_us: int) -> int:
    """The end of a larger limit's last day; 0 if no day is given.

    Raises:
        RequestInvalid: it is not a date, is over already, or is more than a year from now.
    """
    if not day:
        return 0
    zone = ZoneInfo(time_zone)
    try:
        last = date.fromisoformat(day)
    except ValueError:
        message = "a day is written as 2026-11-30"
        raise RequestInvalid(message, parameter="until") from None
    today = datetime.fromtimestamp(now_us // SECOND_US, UTC).astimezone(zone).date()
    if last < today:
        raise RequestInvalid("this day is over", parameter="until")
    if last > today + timedelta(days=DAYS_MAX):
        raise RequestInvalid(f"within {DAYS_MAX} days", parameter="until")
    end = datetime.combine(last + timedelta(days=1), time(), zone)
    return int(end.timestamp()) * SECOND_US


def _limited(account: str, window: str, limit_microusd: int) -> dict[str, object]:
    """A limit as records of deeds give it."""
    return {"account": account, "limit_microusd": limit_microusd, "window": window}


def _told(asked: BudgetRaise) -> dict[str, object]:
    """The request as records of deeds give it."""
    return {
        "raise": asked.id,
        "asked_by": asked.asked_by,
        "reason": asked.reason,
        "until_us": asked.until_us,
    }
