"""Undoes a change of a limit: the form of the inverse change, filled in. Pure.

Each form begins from what the change made: a change by somebody else in between is not overwritten.
"""

from decimal import Decimal

import msgspec

from admin.costs.limits import Standing
from admin.forms import MICRO
from admin.undo import Undo
from gateway.money.budgets import WindowKind
from gateway.money.rates import RateLimit
from gateway.store.money.budget_rows import amount_mark
from gateway.store.money.rate_limits import rate_mark


_EACH: dict[WindowKind, str] = {"day": "each day", "month": "each month", "total": "in total"}


def limit_undo(organisation: str, before: Standing, amount_microusd: int | None) -> Undo | None:
    """From how an account stood, and what its limit is now; None where nothing was changed."""
    was = amount_mark(amount_microusd)
    if was == before.was:
        return None
    fields = {"account": before.account, "window": before.window, "was": was}
    if before.spending is None:
        fields["deed"] = "remove"
        said = f"{before.title} now has a limit {_EACH[before.window]}."
    else:
        fields["limit_microusd"] = f"{Decimal(before.spending.limit_microusd) / MICRO:f}"
        said = f"{before.title}: the limit {_EACH[before.window]} was changed."
        if amount_microusd is None:
            said = (
                f"{before.title} no longer has a limit {_EACH[before.window]}. Undo restores the "
                "same limit, with nothing used."
            )
    return Undo(said, f"/o/{organisation}/costs/limits/change", fields)


def rate_undo(organisation: str, before: Standing, rate: RateLimit) -> Undo:
    """From how an account stood, and how often it may ask now."""
    had = msgspec.structs.asdict(before.rate or RateLimit(before.account))
    fields = {name: "" if value is None else str(value) for name, value in had.items()}
    fields["was"] = rate_mark(None if rate == RateLimit(before.account) else rate)
    said = f"{before.title}: the rate limits were changed."
    return Undo(said, f"/o/{organisation}/costs/limits/rate", fields)
