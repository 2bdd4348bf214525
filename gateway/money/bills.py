"""Adds up what a request costs: the bills of all its attempts. Pure.

What an upstream says that it counted is owed exactly, whatever was reserved. If bytes were sent and
the upstream did not say, an estimate is owed: it may be too much, but never takes a request above
what was reserved for it. A refusal costs nothing, and neither does what was never sent.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from gateway.money.catalogue import cost
from gateway.price import US, paid_tier
from gateway.types import Target, Usage


class Bill(Struct, frozen=True):
    """What is owed for one upstream call."""

    target: Target
    usage: Usage | None
    """None if nothing is owed."""
    is_batch: bool = False
    """Whether the batch price is paid."""

    @property
    def is_estimated(self) -> bool:
        return self.usage is not None and self.usage.estimated

    @property
    def cost_microusd(self) -> int:
        if self.usage is None:
            return 0
        return cost(self.target.price, self.usage, is_batch=self.is_batch)


def as_asked(bill: Bill, tree: Mapping[str, object]) -> Bill:
    """Estimate what nobody counted at the dearer tier and place that the request names.

    An upstream that broke off did not say what it served; it may not have been a cheaper one.
    """
    usage, price = bill.usage, bill.target.price
    if usage is None or not usage.estimated:
        return bill
    asked, place = tree.get("service_tier"), tree.get("inference_geo")
    tier = paid_tier(asked) if isinstance(asked, str) else ""
    is_told = usage.service_tier or bill.is_batch
    if not is_told and price.percent_of(tier) > price.percent_of(""):
        usage = structs.replace(usage, service_tier=tier)
    if place == US and not usage.inference_geo:
        usage = structs.replace(usage, inference_geo=US)
    return structs.replace(bill, usage=usage)


def charged(bills: Sequence[Bill], reserved_microusd: int) -> tuple[int, ...]:
    """What is charged for each of a request's bills, in micro-dollars.

    Estimates share, in their order, what the exact bills leave of the reservation.
    """
    costs: list[int] = []
    estimated: list[int] = []
    for place, bill in enumerate(bills):
        costs.append(bill.cost_microusd)
        if bill.is_estimated:
            estimated.append(place)
    if estimated:
        exact = sum(costs) - sum([costs[place] for place in estimated])
        left = max(0, reserved_microusd - exact)
        for place in estimated:
            costs[place] = min(costs[place], left)
            left -= costs[place]
    return tuple(costs)
