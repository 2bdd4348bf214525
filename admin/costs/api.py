"""Costs and limits over the JSON API: what the pages of cost show and do, typed in and out."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final, Literal

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.costs.accounts import is_of
from admin.costs.branches import BranchReader, LimitTree
from admin.costs.limit_pages import tree_of
from admin.costs.limits import LimitKeeper
from admin.costs.pages import question_of
from admin.costs.reader import CostReader, CostSummary
from admin.long_lists import list_of
from admin.services import Services
from gateway.money.budgets import Limit, WindowKind
from gateway.money.rates import RateLimit
from gateway.oversight.access import Permission
from gateway.store.money.budget_lists import BudgetLists
from gateway.store.money.rate_limits import rate_mark
from gateway.store.money.slices import Budget


NO_CONTENT: Final = 204
_P = Permission
_ROOT: Final = "/api/organisations/{organisation:str}"


class BudgetOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to be set; the account must belong to the path's organisation."""

    account: str
    limit_microusd: int
    window: WindowKind = "month"
    was: int | Literal["none"] | None = None
    """Its `limit_microusd` as it was read; where another one holds by then, it is refused (409)."""


class BudgetRemoval(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to be removed; what the account has in other windows stays."""

    account: str
    window: WindowKind = "month"
    was: int | Literal["none"] | None = None
    """As in an order to set it."""


class RateOrder(RateLimit, frozen=True, forbid_unknown_fields=True):
    """How often an account may ask; without any number it may ask as it likes."""

    was: RateLimit | Literal["none"] | None = None
    """Its `rate` as it was read; where another one holds by then, it is refused (409)."""


def limit_api_routes(services: Services) -> list[Any]:
    """All routes; each says what it needs, and what it records."""
    return [*_reading(services), *_changing(services)]


def _reading(services: Services) -> list[Any]:
    reader, budgets = CostReader(services), services.budgets
    branches = BranchReader(services)
    lists = BudgetLists(services.database, services.clock)

    @get(f"{_ROOT}/costs/summary", opt=needs(_P.COSTS_READ))
    async def summary(request: Asking, organisation: FromPath[str]) -> CostSummary:
        today, _ = await reader.today(organisation)
        return await reader.summary(organisation, question_of(request, today))

    @get(f"{_ROOT}/limits", opt=needs(_P.BUDGETS_READ))
    async def list_limits(request: Asking, organisation: FromPath[str]) -> LimitTree:
        return await tree_of(branches, request, organisation)

    @get(f"{_ROOT}/budgets", opt=needs(_P.BUDGETS_READ))
    async def list_budgets(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[Budget]]:
        async def whole() -> list[Budget]:
            every = await budgets.budgets()
            own = await reader.own_keys(organisation, [each.limit.account for each in every])
            return [each for each in every if is_of(each.limit.account, organisation, own)]

        return await list_of(request, whole, partial(lists.page, organisation))

    return [summary, list_limits, list_budgets]


def _changing(services: Services) -> list[Any]:
    keeper = LimitKeeper(services)

    @post(
        f"{_ROOT}/budgets",
        opt=needs(_P.BUDGETS_SET, records="budget.set"),
        status_code=NO_CONTENT,
    )
    async def set_budget(request: Asking, organisation: FromPath[str]) -> None:
        order = await body_of(request, BudgetOrder)
        limit = Limit(order.account, order.limit_microusd, order.window)
        person = session_of(request).person
        await keeper.set_limit(person, organisation, limit, _amount_was(order.was))

    @post(
        f"{_ROOT}/budgets/removed",
        opt=needs(_P.BUDGETS_SET, records="budget.removed"),
        status_code=NO_CONTENT,
    )
    async def remove_budget(request: Asking, organisation: FromPath[str]) -> None:
        order = await body_of(request, BudgetRemoval)
        person, was = session_of(request).person, _amount_was(order.was)
        await keeper.remove_limit(person, organisation, order.account, order.window, was)

    @post(
        f"{_ROOT}/rate_limits",
        opt=needs(_P.BUDGETS_SET, records="rate_limit.set"),
        status_code=NO_CONTENT,
    )
    async def set_rate(request: Asking, organisation: FromPath[str]) -> None:
        order = await body_of(request, RateOrder)
        kinds = order.requests_per_minute, order.tokens_per_minute, order.concurrent_requests
        rate, person = RateLimit(order.account, *kinds), session_of(request).person
        await keeper.set_rate(person, organisation, rate, _rate_was(order.was))

    return [set_budget, remove_budget, set_rate]


def _amount_was(said: int | str | None) -> str | None:
    """`amount_mark` of what was read; None where nobody looked."""
    return None if said is None else str(said)


def _rate_was(said: RateLimit | str | None) -> str | None:
    return rate_mark(said) if isinstance(said, RateLimit) else said
