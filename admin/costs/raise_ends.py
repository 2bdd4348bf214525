"""The end of limits that were larger for a time, and how the log tells of what was asked for."""

from typing import Final

from gateway.errors import ChangedMeanwhile
from gateway.oversight.deeds import Deeds
from gateway.store.money.raises import BudgetRaise, BudgetRaises


SCHEDULE: Final = "schedule"


class RaiseEnds:
    """Takes back what was agreed to for a time that is over; each is on record."""

    def __init__(self, raises: BudgetRaises, deeds: Deeds) -> None:
        self._raises = raises
        self._deeds = deeds

    async def tend(self) -> None:
        """Look once; raises NotReady."""
        for each in await self._raises.over():
            before = limit_told(each, each.wanted_microusd)
            after = limit_told(each, each.back_microusd) | raise_told(each)
            try:
                async with self._deeds.doing(
                    SCHEDULE, "budget.raise_ended", each.organisation, before=before, after=after
                ):
                    await self._raises.take_back(each)
            except ChangedMeanwhile:
                await self._raises.forget(each)


def limit_told(asked: BudgetRaise, limit_microusd: int) -> dict[str, object]:
    """A limit as deeds say it."""
    return {"account": asked.account, "limit_microusd": limit_microusd, "window": asked.window}


def raise_told(asked: BudgetRaise) -> dict[str, object]:
    """What was asked for, as deeds say it."""
    return {
        "raise": asked.id,
        "asked_by": asked.asked_by,
        "reason": asked.reason,
        "until_us": asked.until_us,
    }
