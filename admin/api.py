"""The JSON API of the control plane: what is behind the screens, organisation by organisation."""

import re
from typing import Any, Final

import msgspec
from litestar import Request, get, post
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.bodies import body_of
from admin.services import Services
from gateway.access import EVERYWHERE, Grant, Permission, Role, organisations_of
from gateway.budgets import Limit, WindowKind
from gateway.deeds import Deeds
from gateway.errors import RequestInvalid
from gateway.store.keys import KeyStore
from gateway.store.leases import LeaseTable
from gateway.store.people import PeopleStore


LIMIT_MICROUSD_MAX: Final = 10**15
NO_CONTENT: Final = 204
_P = Permission


class BudgetOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A limit to be set; the account must belong to the path's organisation."""

    account: str
    limit_microusd: int
    window: WindowKind = "month"


class GrantOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A role to be given in the path's organisation."""

    person: str
    role: Role


def api_routes(services: Services) -> list[Any]:
    """All routes of the API; each says what it needs, and what it records."""
    keys, deeds = services.keys, services.deeds
    return [
        *_budget_routes(keys, services.budgets, deeds),
        *_people_routes(services.people, deeds),
    ]


def _budget_routes(keys: KeyStore, budgets: LeaseTable, deeds: Deeds) -> list[Any]:
    @get("/api/organisations/{organisation:str}/budgets", opt=needs(_P.BUDGETS_READ))
    async def list_budgets(organisation: FromPath[str]) -> list[Any]:
        own = {f"key:{record.key_id}" for record in await keys.keys(organisation)}
        return [
            msgspec.to_builtins(budget)
            for budget in await budgets.budgets()
            if _is_of(budget.limit.account, organisation) or budget.limit.account in own
        ]

    @post(
        "/api/organisations/{organisation:str}/budgets",
        opt=needs(_P.BUDGETS_SET, records="budget.set"),
        status_code=NO_CONTENT,
    )
    async def set_budget(request: Request[Any, Any, Any], organisation: FromPath[str]) -> None:
        order = await body_of(request, BudgetOrder)
        own = {f"key:{record.key_id}" for record in await keys.keys(organisation)}
        if not _is_of(order.account, organisation) and order.account not in own:
            raise NotFoundException
        if order.limit_microusd > LIMIT_MICROUSD_MAX:
            raise RequestInvalid("the limit is too large", parameter="limit_microusd")
        former = [each.limit for each in await budgets.budgets()]
        ordered = (order.account, order.window)
        before = [msgspec.to_builtins(each) for each in former if each.key == ordered]
        async with deeds.doing(
            session_of(request).person.name,
            "budget.set",
            organisation,
            before=before[0] if before else None,
            after=msgspec.to_builtins(order),
        ):
            await budgets.set_limit(Limit(order.account, order.limit_microusd, order.window))

    return [list_budgets, set_budget]


def _people_routes(people: PeopleStore, deeds: Deeds) -> list[Any]:
    @get("/api/people", opt=needs(_P.PEOPLE_READ, "everywhere"))
    async def list_people() -> list[dict[str, Any]]:
        return [
            {
                "name": person.name,
                "title": person.title,
                "disabled": person.is_disabled,
                "roles": [[grant.role, grant.organisation] for grant in sorted(person.grants)],
            }
            for person in await people.listed()
        ]

    @get("/api/organisations", opt=needs(_P.OVERVIEW_READ, "some"))
    async def list_organisations(request: Request[Any, Any, Any]) -> dict[str, Any]:
        visible = organisations_of(session_of(request).person, _P.OVERVIEW_READ)
        return {"everywhere": visible is None, "organisations": sorted(visible or ())}

    @post(
        "/api/organisations/{organisation:str}/grants",
        opt=needs(_P.PEOPLE_MANAGE, records="role.granted"),
        status_code=NO_CONTENT,
    )
    async def grant_here(request: Request[Any, Any, Any], organisation: FromPath[str]) -> None:
        await give(request, organisation)

    @post(
        "/api/grants",
        opt=needs(_P.PEOPLE_MANAGE, "everywhere", records="role.granted"),
        status_code=NO_CONTENT,
    )
    async def grant_everywhere(request: Request[Any, Any, Any]) -> None:
        await give(request, EVERYWHERE)

    async def give(request: Request[Any, Any, Any], organisation: str) -> None:
        order = await body_of(request, GrantOrder)
        grantor = session_of(request).person
        had = [each.grants for each in await people.listed() if each.name == order.person]
        before = [[each.role, each.organisation] for each in sorted(had[0])] if had else None
        after = {"person": order.person, "role": order.role, "organisation": organisation}
        about = "" if organisation == EVERYWHERE else organisation
        async with deeds.doing(grantor.name, "role.granted", about, before=before, after=after):
            await people.grant(order.person, Grant(order.role, organisation), grantor)

    return [list_people, list_organisations, grant_here, grant_everywhere]


def _is_of(account: str, organisation: str) -> bool:
    """Whether an account's name lies in an organisation; keys have to be looked up."""
    name = re.escape(organisation)
    return re.fullmatch(rf"org:{name}|(ws|proj|user):{name}/[a-z0-9._/*-]+", account) is not None
