"""Service tiers, and the deficit round robin that shares prompt tokens between them."""

from collections.abc import Collection
from enum import IntEnum


class Tier(IntEnum):
    """Who goes first: a lower number is served earlier and loses its blocks later."""

    PRIORITY = 0
    STANDARD = 1
    BATCH = 2


WEIGHTS = {Tier.PRIORITY: 8, Tier.STANDARD: 4, Tier.BATCH: 1}


def tier_named(name: str) -> Tier:
    """The tier called `name` in lower case; raises `KeyError`."""
    return Tier[name.upper()]


class DeficitRoundRobin:
    """Shares a token budget by weight; a tier keeps credit for what it could not use, for a while.

    Shreedhar and Varghese, "Efficient fair queuing using deficit round robin" (1996). The credit
    is bounded by one budget either way, so that a quiet hour buys no monopoly afterwards.
    """

    def __init__(self) -> None:
        self._credits = dict.fromkeys(Tier, 0)

    def shares(self, active: Collection[Tier], budget: int) -> dict[Tier, int]:
        """How many tokens each active tier may take first; the rest is for any tier with work."""
        total = sum(WEIGHTS[tier] for tier in active)
        for tier in Tier:
            if tier in active:
                credit = self._credits[tier] + -(-budget * WEIGHTS[tier] // total)
                self._credits[tier] = min(credit, budget)
            else:
                self._credits[tier] = 0
        return {tier: max(0, self._credits[tier]) for tier in sorted(active)}

    def spend(self, tier: Tier, num_tokens: int, budget: int) -> None:
        """Charge what a tier took, on credit or not."""
        self._credits[tier] = max(self._credits[tier] - num_tokens, -budget)
