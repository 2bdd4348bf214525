"""People over the JSON API: one person, invited, disabled and enabled; typed in and out."""

from collections.abc import Callable
from typing import Any, Final

from litestar import get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.people.desk import PeopleDesk, link_of
from admin.people.reader import PeopleReader, PersonDetail
from admin.services import Services
from gateway.oversight.access import Permission


NO_CONTENT: Final = 204
_AT: Final = "/api/person/{person:str}"
_MANAGE: Final = Permission.PEOPLE_MANAGE


class Newcomer(Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody to be made known, without a role."""

    name: str
    title: str = ""


class Invited(Struct, frozen=True):
    """A link, the only time it is told."""

    person: str
    link: str


def people_api_routes(services: Services) -> list[Any]:
    """All routes; each says what it needs, and what it records."""
    reader, desk = PeopleReader(services), PeopleDesk(services)
    admin_url = services.settings.admin_url

    @get(_AT, opt=needs(Permission.PEOPLE_READ, "everywhere"))
    async def show_person(person: FromPath[str]) -> PersonDetail:
        return await reader.detail(person)

    @post("/api/people", opt=needs(_MANAGE, "everywhere", records="person.added"))
    async def invite_person(request: Asking) -> Invited:
        order = await body_of(request, Newcomer)
        code = await desk.invite(session_of(request).person, order.name, order.title)
        return Invited(order.name, link_of(request, admin_url, code))

    @post(f"{_AT}/link", opt=needs(_MANAGE, "everywhere", records="person.link_made"))
    async def link_person(request: Asking, person: FromPath[str]) -> Invited:
        found = await reader.person(person)
        code = await desk.link(session_of(request).person, found)
        return Invited(person, link_of(request, admin_url, code))

    @_deed("withdraw", records="person.link_withdrawn")
    async def withdraw_link(request: Asking, person: FromPath[str]) -> None:
        await desk.withdraw(session_of(request).person, await reader.person(person))

    return [show_person, invite_person, link_person, withdraw_link, *_closing(reader, desk)]


def _deed(name: str, records: str) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """What is done to one person, and answered without content."""
    opt = needs(_MANAGE, "everywhere", records=records)
    return post(f"{_AT}/{name}", opt=opt, status_code=NO_CONTENT)


def _closing(reader: PeopleReader, desk: PeopleDesk) -> list[Any]:
    """Keeping somebody out, and letting them in again."""

    @_deed("disable", records="person.disabled")
    async def disable_person(request: Asking, person: FromPath[str]) -> None:
        await desk.disable(session_of(request).person, await reader.person(person))

    @_deed("enable", records="person.enabled")
    async def enable_person(request: Asking, person: FromPath[str]) -> None:
        await desk.enable(session_of(request).person, await reader.person(person))

    @_deed("sign-out", records="person.signed_out")
    async def sign_out_person(request: Asking, person: FromPath[str]) -> None:
        await desk.sign_out(session_of(request).person, await reader.person(person))

    return [disable_person, enable_person, sign_out_person]
