"""Changes whom an open incident concerns: counted first, then set, on record."""

from datetime import UTC, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from litestar import MediaType, Response, post, route
from litestar.params import FromPath
from litestar.response import Redirect
from msgspec import Struct
from msgspec.structs import replace

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.compliance.incident_room import IncidentRoom, filter_of
from admin.compliance.office import Office
from admin.forms import Form, as_sentence, form_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.wall_clocks import TURNS, said_us, turn_field, turns_of
from admin.wrong_fields import taken_as
from gateway.clock import SECOND_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.oversight.access import Permission, Person
from gateway.store.custody.incidents import Incident, checked


AT: Final = "/o/{organisation:str}/compliance/incidents/{incident:str}/scope"
API: Final = "/api/organisations/{organisation:str}/compliance/incidents/{incident:str}/scope"
MEANWHILE: Final = "Somebody else changed or closed it meanwhile, so nothing was done."
_LEADS: Final = needs(Permission.INCIDENTS_LEAD)
_CHANGES: Final = needs(Permission.INCIDENTS_LEAD, records="incident.rescoped")


class ScopeOrder(Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests it concerns: a filter and a time, 0 for one that goes on.

    `was` is the scope that this was made from, as an incident says it; empty for whatever holds.
    """

    filter: str
    since_us: int
    until_us: int = 0
    was: str = ""


class ScopeDesk:
    """Of incidents of one organisation at a time."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.room = IncidentRoom(services)

    def wanted(self, incident: Incident, order: ScopeOrder) -> Incident:
        """The incident as it would be.

        Raises:
            RequestInvalid: the filter cannot be read, or the times cannot be.
        """
        changed = replace(
            incident,
            filter=filter_of(order.filter),
            since_us=order.since_us or incident.since_us,
            until_us=order.until_us,
        )
        return checked(changed, self._services.clock.utc_us())

    async def change(self, person: Person, incident: Incident, order: ScopeOrder) -> Incident:
        """Let it concern other requests; its clocks go on as they are.

        Raises:
            RequestInvalid: like `wanted`.
            ChangedMeanwhile: somebody changed it since, or it is closed.
        """
        wanted = self.wanted(incident, order)
        if incident.closed_us or order.was.strip() not in ("", incident.scope):
            raise ChangedMeanwhile("somebody changed or closed it meanwhile")
        before, after = _said(incident), _said(wanted) | {"incident": incident.id}
        async with self._services.deeds.doing(
            person.name, "incident.rescoped", incident.organisation, before=before, after=after
        ):
            if not await self.room.store.rescope(incident, wanted):
                raise ChangedMeanwhile("somebody changed or closed it meanwhile")
        return wanted


class ScopePages:
    """The page that counts first."""

    def __init__(self, services: Services, desk: ScopeDesk) -> None:
        self._services = services
        self._desk = desk

    async def ordered(self, request: Asking, form: Form) -> ScopeOrder:
        """The form as an order; raises RequestInvalid."""
        zone = (await self._services.shell.way(request)).zone
        now_us = self._services.clock.utc_us()
        since_us, until_us = (said_us(form, name, now_us, zone) for name in ("since", "until"))
        return ScopeOrder(form.text("q"), since_us, until_us, form.text("was"))

    async def page(
        self,
        request: Asking,
        place: tuple[str, str],
        form: Form,
        wrong: str = "",
        status: int = 200,
    ) -> Response[str]:
        """What an incident concerns now, and what it would with the form."""
        desk = self._desk
        incident = await desk.room.incident(*place)
        zone = (await self._services.shell.way(request)).zone
        wanted, is_typed = None, bool(form.text("since") or form.text("was"))
        try:
            if is_typed and not wrong:
                wanted = desk.wanted(incident, await self.ordered(request, form))
        except RequestInvalid as error:
            wrong, status = as_sentence(error.message), 400
        until = form.text("until") if form.text("was") else _field(incident.until_us, zone)
        typed = {"since": form.text("since"), "until": until}
        ended = datetime.fromtimestamp(incident.until_us // SECOND_US, ZoneInfo(zone))
        turn = {name: form.text(turn_field(name)) for name in typed}
        turn["until"] = turn["until"] or TURNS[ended.fold]
        return await self._services.shell.page(
            request,
            "compliance/incident_scope.html",
            "incidents",
            status,
            incident=incident,
            now=await desk.room.scope(incident),
            until=until,
            turns={name: turns_of(text, zone) for name, text in typed.items()},
            turn=turn,
            changed=wanted,
            wanted=await desk.room.scope(wanted) if wanted else None,
            form=form,
            wrong=wrong,
        )


def scope_routes(services: Services, _: Office) -> list[Any]:
    """The page and the deed; also as JSON."""
    desk = ScopeDesk(services)
    pages = ScopePages(services, desk)

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_LEADS)
    async def scope_page(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Response[str]:
        given = Form({name: [value] for name, value in request.query_params.items()})
        return await pages.page(request, (organisation, incident), given)

    @post(AT, media_type=MediaType.HTML, opt=_CHANGES, status_code=SEE_OTHER)
    async def change_scope(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Response[Any]:
        form, place = await form_of(request), (organisation, incident)
        found = await desk.room.incident(*place)
        try:
            order = await pages.ordered(request, form)
            await desk.change(session_of(request).person, found, order)
        except ChangedMeanwhile as error:
            return await pages.page(request, place, form, MEANWHILE, error.status)
        except RequestInvalid as error:
            return await pages.page(request, place, form, as_sentence(error.message), 400)
        return Redirect(f"/o/{organisation}/compliance/incidents/{incident}", status_code=SEE_OTHER)

    @post(API, opt=_CHANGES)
    async def set_scope(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Incident:
        order = await body_of(request, ScopeOrder)
        found = await desk.room.incident(organisation, incident)
        with taken_as("incident", since="since_us", until="until_us"):
            return await desk.change(session_of(request).person, found, order)

    return [scope_page, change_scope, set_scope]


def _said(incident: Incident) -> dict[str, object]:
    return {name: getattr(incident, name) for name in ("filter", "since_us", "until_us")}


def _field(utc_us: int, zone: str) -> str:
    """A time as a form's field has it; to the second, rounded up so that it ends no earlier."""
    if not utc_us:
        return ""
    at = datetime.fromtimestamp(-(-utc_us // 1_000_000), UTC)
    return at.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")
