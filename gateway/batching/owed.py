"""What a request costs whose reservation is gone, by its intent; and where its outcome is asked."""

from collections.abc import Awaitable, Callable

from gateway.identity import accounts_of
from gateway.money.budgets import account_of_end_user
from gateway.store.money.late_bookings import LateCost
from gateway.types import AuditRecord


OutcomeOf = Callable[[str, str], Awaitable[AuditRecord | None]]
"""Organisation and request → the outcome on record."""


def late_cost(begun: AuditRecord, cost_microusd: int) -> LateCost:
    """What is booked for it, on every level and the end user's."""
    accounts = accounts_of(begun.organisation, begun.workspace, begun.project, begun.key_id)
    if begun.subject:
        accounts += (account_of_end_user(begun.organisation, begun.subject),)
    return LateCost(begun.request_id, accounts, cost_microusd, begun.utc_us)
