"""The page of one person, and what lets them in or keeps them out."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.forms import Form, form_of
from admin.people.desk import GOOD_FOR_HOURS, PeopleDesk, grant_in, link_of, roles_to_give
from admin.people.reader import PeopleReader
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.undo import Undo, offer
from gateway.errors import ChangedMeanwhile, GatewrightError
from gateway.oversight.access import ROLES, Grant, Permission, Person, may_grant


NEW: Final = "/new-person"
_AT: Final = "/person/{person:str}"
_HTML: Final = MediaType.HTML
_READS: Final = needs(Permission.PEOPLE_READ, "everywhere")
_MANAGES: Final = needs(Permission.PEOPLE_MANAGE, "everywhere")
Deed = Callable[[Asking, Person, Person], Awaitable[None]]


def person_routes(services: Services) -> list[Any]:
    """Reading, inviting, disabling and enabling."""
    room = PersonRoom(services)
    return [*_reading(services, room), *_inviting(services, room), *_changing(room)]


class PersonRoom:
    """Somebody's page, also with what was wrong about a form."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.reader = PeopleReader(services)
        self.desk = PeopleDesk(services)

    async def page(
        self, request: Asking, name: str, wrong: str = "", status: int = 400
    ) -> Response[str]:
        """The page of somebody; with `status` where something is wrong."""
        detail, reader = await self.reader.detail(name), session_of(request).person
        organisations = sorted(await self._services.people.organisations())
        return await self._services.shell.page(
            request,
            "people/person.html",
            "people",
            status if wrong else 200,
            detail=detail,
            person=detail.person,
            wrong=wrong,
            roles=ROLES,
            to_give=roles_to_give(reader, organisations),
            organisations=organisations,
            is_self=reader.name == name,
            may_let_in=all(may_grant(reader, grant) for grant in detail.person.grants),
        )

    async def told(self, request: Asking, name: str, code: str) -> Response[str]:
        """The one page that shows a link."""
        link = link_of(request, self._services.settings.admin_url, code)
        return await self._services.shell.page(
            request,
            "people/link.html",
            "people",
            201,
            invited=name,
            link=link,
            hours=GOOD_FOR_HOURS,
        )

    async def done(self, request: Asking, name: str, deed: Deed) -> Response[Any]:
        """Do something to somebody, and show their page: what is wrong is said there."""
        person = await self.reader.person(name)
        try:
            await deed(request, session_of(request).person, person)
        except ChangedMeanwhile as error:
            return await self.page(request, name, error.message, error.status)
        except GatewrightError as error:
            return await self.page(request, name, error.message)
        return Redirect(f"/person/{name}", status_code=SEE_OTHER)

    async def offer_back(self, request: Asking, name: str) -> None:
        """Whoever was just disabled may be enabled again, unless somebody else did something."""
        facts = await self._services.people.facts(name)
        if facts is not None and facts.disabled_us is not None:
            said = f"{name} is disabled, and signed out everywhere."
            fields = {"since_us": str(facts.disabled_us)}
            undo = Undo(said, f"/person/{name}/enable", fields)
            offer(request, self._services.clock, undo)


def _reading(services: Services, room: PersonRoom) -> list[Any]:
    @route(_AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def person_page(request: Asking, person: FromPath[str]) -> Response[str]:
        return await room.page(request, person)

    @route(f"{_AT}/disable", http_method=READING, media_type=_HTML, opt=_MANAGES)
    async def disable_page(request: Asking, person: FromPath[str]) -> Response[str]:
        return await services.shell.page(
            request, "people/disable.html", "people", detail=await room.reader.detail(person)
        )

    return [person_page, disable_page]


def _inviting(services: Services, room: PersonRoom) -> list[Any]:
    async def form_page(
        request: Asking, form: Form, wrong: dict[str, str] | None = None
    ) -> Response[str]:
        organisations = sorted(await services.people.organisations())
        return await services.shell.page(
            request,
            "people/new.html",
            "people",
            400 if wrong else 200,
            form=form,
            wrong=wrong or {},
            roles=ROLES,
            to_give=roles_to_give(session_of(request).person, organisations),
            organisations=organisations,
            hours=GOOD_FOR_HOURS,
        )

    @route(NEW, http_method=READING, media_type=_HTML, opt=_MANAGES)
    async def new_person(request: Asking) -> Response[str]:
        return await form_page(request, Form())

    @post(
        NEW,
        media_type=_HTML,
        opt=needs(Permission.PEOPLE_MANAGE, "everywhere", records="person.added"),
    )
    async def invite(request: Asking) -> Response[str]:
        form, by = await form_of(request), session_of(request).person
        name = form.text("name")

        async def invited() -> Response[str]:
            try:
                code = await room.desk.invite(by, name, form.text("title"), _grant_of(form))
            except GatewrightError as error:
                parameter = getattr(error, "parameter", None)
                field = parameter if parameter in ("name", "title") else "role"
                return await form_page(request, form, {field: error.message})
            return await room.told(request, name, code)

        return await services.shown_once.answer(request, form, invited)

    return [new_person, invite, _linking(services, room)]


def _linking(services: Services, room: PersonRoom) -> Any:
    @post(
        f"{_AT}/link",
        media_type=_HTML,
        opt=needs(Permission.PEOPLE_MANAGE, "everywhere", records="person.link_made"),
    )
    async def link(request: Asking, person: FromPath[str]) -> Response[str]:
        async def linked() -> Response[str]:
            found = await room.reader.person(person)
            try:
                code = await room.desk.link(session_of(request).person, found)
            except GatewrightError as error:
                return await room.page(request, person, error.message)
            return await room.told(request, person, code)

        return await services.shown_once.answer(request, await form_of(request), linked)

    return link


def _changing(room: PersonRoom) -> list[Any]:
    desk = room.desk

    async def disable(request: Asking, by: Person, person: Person) -> None:
        await desk.disable(by, person)
        if not person.is_disabled:
            await room.offer_back(request, person.name)

    async def enable(request: Asking, by: Person, person: Person) -> None:
        since_us = (await form_of(request)).whole("since_us", 2**62)
        await desk.enable(by, person, since_us)

    async def withdraw(_: Asking, by: Person, person: Person) -> None:
        await desk.withdraw(by, person)

    async def sign_out(_: Asking, by: Person, person: Person) -> None:
        await desk.sign_out(by, person)

    return [
        _posting(room, "sign-out", "person.signed_out", sign_out),
        _posting(room, "disable", "person.disabled", disable),
        _posting(room, "enable", "person.enabled", enable),
        _posting(room, "withdraw", "person.link_withdrawn", withdraw),
    ]


def _posting(room: PersonRoom, part: str, records: str, deed: Deed) -> Any:
    opt = needs(Permission.PEOPLE_MANAGE, "everywhere", records=records)

    @post(f"{_AT}/{part}", media_type=_HTML, opt=opt, status_code=SEE_OTHER)
    async def handler(request: Asking, person: FromPath[str]) -> Response[Any]:
        return await room.done(request, person, deed)

    return handler


def _grant_of(form: Form) -> Grant | None:
    """The role that a form names; None where it names none. Raises like `grant_in`."""
    return grant_in(form) if form.text("role") else None
