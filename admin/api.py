"""The JSON API of the control plane: the data behind the screens, per organisation."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from litestar import Response, get, post
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of, taking
from admin.asking import Asking
from admin.bodies import body_of
from admin.long_lists import list_of
from admin.services import Services
from admin.wrong_fields import taken_as
from gateway.errors import RequestInvalid
from gateway.oversight.access import (
    EVERYWHERE,
    Grant,
    Permission,
    Person,
    Role,
    organisations_of,
)
from gateway.oversight.deeds import Deeds
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.people_lists import PeopleLists
from gateway.store.pages import Part


NO_CONTENT: Final = 204
GIVEN: Final = "role.granted"
TAKEN: Final = "role.revoked"
Change = Callable[[Asking, str, str], Awaitable[None]]
_P = Permission


class GrantOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """A role to be given or taken in the path's organisation."""

    person: str
    role: Role


def api_routes(services: Services) -> list[Any]:
    """All routes of the API; each says what it needs, and what it records."""
    people = services.people
    return [_listing(people, services.people_lists), *_people_routes(people, services.deeds)]


def _said_of(person: Person) -> dict[str, Any]:
    return {
        "name": person.name,
        "title": person.title,
        "disabled": person.is_disabled,
        "roles": [[grant.role, grant.organisation] for grant in sorted(person.grants)],
    }


def _listing(people: PeopleStore, lists: PeopleLists) -> Any:
    @get("/api/people", opt=needs(_P.PEOPLE_READ, "everywhere"))
    async def list_people(request: Asking) -> Response[Sequence[dict[str, Any]]]:
        async def whole() -> list[dict[str, Any]]:
            return [_said_of(person) for person in await people.listed()]

        async def part(first: int, limit: int, after: str) -> Part[dict[str, Any]]:
            found = await lists.page((), first, limit, after)
            return found.of(map(_said_of, found.rows))

        return await list_of(request, whole, part)

    return list_people


def _people_routes(people: PeopleStore, deeds: Deeds) -> list[Any]:
    @get("/api/organisations", opt=needs(_P.OVERVIEW_READ, "some"))
    async def list_organisations(request: Asking) -> dict[str, Any]:
        visible = organisations_of(session_of(request).person, _P.OVERVIEW_READ)
        return {"everywhere": visible is None, "organisations": sorted(visible or ())}

    async def change(request: Asking, organisation: str, action: str) -> None:
        order = await body_of(request, GrantOrder)
        grantor = session_of(request).person
        had = [each.grants for each in await people.listed() if each.name == order.person]
        before = [[each.role, each.organisation] for each in sorted(had[0])] if had else None
        after = {"person": order.person, "role": order.role, "organisation": organisation}
        about = "" if organisation == EVERYWHERE else organisation
        if action == TAKEN and not (had and Grant(order.role, organisation) in had[0]):
            # Of who holds nothing here nobody learns whether there is somebody of the name.
            raise RequestInvalid("nobody of this name holds this role there", parameter="person")
        step = people.grant if action == GIVEN else people.revoke
        with taken_as(name="person"):
            async with deeds.doing(grantor.name, action, about, before=before, after=after):
                await step(order.person, Grant(order.role, organisation), grantor)

    ways = (("grants", GIVEN), ("grants/revoked", TAKEN))
    changing = [_changing(change, *way) for way in ways]
    return [list_organisations, *(handler for pair in changing for handler in pair)]


def _changing(change: Change, path: str, action: str) -> tuple[Any, Any]:
    """Giving, or taking, a role in one organisation, and everywhere."""

    @post(
        f"/api/organisations/{{organisation:str}}/{path}",
        opt=taking(needs(_P.PEOPLE_MANAGE, records=action), GrantOrder),
        status_code=NO_CONTENT,
    )
    async def change_role_here(request: Asking, organisation: FromPath[str]) -> None:
        await change(request, organisation, action)

    @post(
        f"/api/{path}",
        opt=taking(needs(_P.PEOPLE_MANAGE, "everywhere", records=action), GrantOrder),
        status_code=NO_CONTENT,
    )
    async def change_role_everywhere(request: Asking) -> None:
        await change(request, EVERYWHERE, action)

    return change_role_here, change_role_everywhere
