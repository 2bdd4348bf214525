"""Requests for larger limits over the JSON API: made, listed, decided."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.costs.raising import RaiseKeeper, RaiseOrder
from admin.long_lists import list_of
from admin.services import Services
from admin.wrong_fields import taken_as
from gateway.oversight.access import Permission
from gateway.store.money.raises import BudgetRaise


_P = Permission
_ALL: Final = "/api/organisations/{organisation:str}/budget_raises"
_ONE: Final = f"{_ALL}/{{asked:str}}"


class RaiseVerdict(Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of an ask."""

    comment: str


def raise_api_routes(services: Services) -> list[Any]:
    """All routes; each says what it needs, and what it records."""
    keeper = RaiseKeeper(services)

    @get(_ALL, opt=needs(_P.BUDGETS_READ))
    async def list_raises(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[BudgetRaise]]:
        whole = partial(keeper.raises.of, organisation)
        return await list_of(request, whole, partial(keeper.raises.page, organisation))

    @get(f"{_ALL}/waiting", opt=needs(_P.BUDGETS_READ))
    async def waiting_raises(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[BudgetRaise]]:
        async def whole() -> Sequence[BudgetRaise]:
            return (await keeper.raises.waiting(organisation)).rows

        return await list_of(request, whole, partial(keeper.raises.waiting, organisation))

    @post(_ALL, opt=needs(_P.BUDGETS_ASK, records="budget.raise_asked"))
    async def ask_for_more(request: Asking, organisation: FromPath[str]) -> BudgetRaise:
        order = await body_of(request, RaiseOrder)
        return await keeper.ask(session_of(request).person, organisation, order)

    return [list_raises, waiting_raises, ask_for_more, *_deciding(keeper)]


def _deciding(keeper: RaiseKeeper) -> list[Any]:
    approves = needs(_P.BUDGETS_SET, records="budget.raised")
    declines = needs(_P.BUDGETS_SET, records="budget.raise_declined")
    withdraws = needs(_P.BUDGETS_ASK, records="budget.raise_withdrawn")

    @post(f"{_ONE}/approve", opt=approves, status_code=200)
    async def approve_raise(
        request: Asking, organisation: FromPath[str], asked: FromPath[str]
    ) -> BudgetRaise:
        said = await body_of(request, RaiseVerdict)
        with taken_as("asked", id="asked", reason="comment"):
            return await keeper.approve(
                session_of(request).person, organisation, asked, said.comment
            )

    @post(f"{_ONE}/decline", opt=declines, status_code=200)
    async def decline_raise(
        request: Asking, organisation: FromPath[str], asked: FromPath[str]
    ) -> BudgetRaise:
        said = await body_of(request, RaiseVerdict)
        with taken_as("asked", id="asked", reason="comment"):
            return await keeper.decline(
                session_of(request).person, organisation, asked, said.comment
            )

    @post(f"{_ONE}/withdraw", opt=withdraws, status_code=200)
    async def withdraw_raise(
        request: Asking, organisation: FromPath[str], asked: FromPath[str]
    ) -> BudgetRaise:
        with taken_as("asked", id="asked", reason="comment"):
            return await keeper.withdraw(session_of(request).person, organisation, asked)

    return [approve_raise, decline_raise, withdraw_raise]
