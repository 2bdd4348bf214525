"""The cost of a request whose reservation is gone, from its intent; looks up its outcome."""

from collections.abc import Awaitable, Callable

from msgspec import Struct, structs

from gateway.identity import accounts_of
from gateway.money.budgets import account_of_end_user
from gateway.passage import NATIVE
from gateway.store.money.late_bookings import LateBookings, LateCost
from gateway.store.money.parked_money import ParkedMoney, Stake
from gateway.types import AuditRecord, Reservation


OutcomeOf = Callable[[str, str], Awaitable[AuditRecord | None]]
"""Organisation and request → the outcome on record."""


class Purse(Struct, frozen=True):
    """Where the money of parked lines is kept, besides the ledger."""

    late: LateBookings
    parked: ParkedMoney
    stake: Callable[[str, Reservation], Stake]
    """What a request's reservation holds."""


def late_cost(begun: AuditRecord, cost_microusd: int) -> LateCost:
    """The cost to book for it, on every level and for the end user."""
    accounts = accounts_of(begun.organisation, begun.workspace, begun.project, begun.key_id)
    if begun.subject:
        accounts += (account_of_end_user(begun.organisation, begun.subject),)
    return LateCost(begun.request_id, accounts, cost_microusd, begun.utc_us)


def unsent(outcome: AuditRecord) -> AuditRecord:
    """The same for a parked line that no vendor was ever given: it is known to be free."""
    detail = {name: outcome.detail[name] for name in ("batch", "line")}
    return structs.replace(outcome, cost_microusd=0, detail={**detail, "path": NATIVE})
