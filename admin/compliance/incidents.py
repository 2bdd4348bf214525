"""Incidents in the browser and as JSON: clocks, who is concerned, actions taken, and a report."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.compliance.incident_report import report_text
from admin.compliance.incident_room import (
    CloseOrder,
    IncidentDetail,
    IncidentLine,
    IncidentOrder,
    IncidentRoom,
    ReportOrder,
    Scope,
)
from admin.compliance.office import Office
from admin.forms import Form, as_sentence, form_of
from admin.long_lists import list_of
from admin.queries import after_of, first_of
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.wall_clocks import said_us, turns_of
from admin.wrong_fields import taken_as
from gateway.clock import SECOND_US
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.obligations import TITLES
from gateway.oversight.access import Permission
from gateway.store.custody.incidents import KINDS, Incident, Report


AT: Final = "/o/{organisation:str}/compliance/incidents"
ONE: Final = AT + "/{incident:str}"
API: Final = "/api/organisations/{organisation:str}/compliance/incidents"
RULES: Final[dict[str, str]] = {str(name): title for name, title in TITLES.items()}
NO_CONTENT: Final = 204
MEANWHILE: Final = "Somebody else was faster, so nothing was done. This is the current state."
_P = Permission
_HTML: Final = MediaType.HTML
_READS: Final = needs(_P.AUDIT_READ)
_LEADS: Final = needs(_P.INCIDENTS_LEAD)
_OPENS: Final = needs(_P.INCIDENTS_LEAD, records="incident.opened")
_MARKS: Final = needs(_P.INCIDENTS_LEAD, records="incident.reported")
_CLOSES: Final = needs(_P.INCIDENTS_LEAD, records="incident.closed")
_KEEPS: Final = needs(_P.INCIDENTS_LEAD, records="incident.kept_open")


def incident_routes(services: Services, _: Office) -> list[Any]:
    """The list, opening one, one with its report, and what is done to it."""
    room = IncidentRoom(services)
    return [*_reading(services, room), *_opening(services, room), *_leading(services, room)]


def incident_api_routes(services: Services, _: Office) -> list[Any]:
    """The same as JSON."""
    room = IncidentRoom(services)
    return [*_api_reading(room), *_api_leading(room)]


def _api_reading(room: IncidentRoom) -> list[Any]:
    @get(API, opt=_READS)
    async def list_incidents(
        request: Asking, organisation: FromPath[str]
    ) -> Response[Sequence[IncidentLine]]:
        whole = partial(room.lines, organisation)
        return await list_of(request, whole, partial(room.page, organisation))

    @get(API + "/{incident:str}", opt=_READS)
    async def show_incident(organisation: FromPath[str], incident: FromPath[str]) -> IncidentDetail:
        return await room.detail(organisation, incident)

    return [list_incidents, show_incident]


def _as_taken() -> AbstractContextManager[None]:
    """Times have their unit in JSON, and none in a form."""
    named = {each: f"{each}_us" for each in ("noticed", "reported", "since", "until")}
    return taken_as("incident", **named)


def _api_leading(room: IncidentRoom) -> list[Any]:
    @post(API, opt=_OPENS)
    async def open_incident(request: Asking, organisation: FromPath[str]) -> Incident:
        order = await body_of(request, IncidentOrder)
        with _as_taken():
            return await room.open(session_of(request).person, organisation, order)

    @post(API + "/{incident:str}/reports", opt=_MARKS)
    async def mark_reported(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Report:
        found = await room.incident(organisation, incident)
        order = await body_of(request, ReportOrder)
        with _as_taken():
            return await room.mark(session_of(request).person, found, order)

    @post(API + "/{incident:str}/close", opt=_CLOSES)
    async def close_incident(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Incident:
        found = await room.incident(organisation, incident)
        order = await body_of(request, CloseOrder)
        return await room.close(session_of(request).person, found, order)

    @post(API + "/{incident:str}/keep-open", opt=_KEEPS, status_code=NO_CONTENT)
    async def keep_incident_open(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> None:
        found = await room.incident(organisation, incident)
        await room.keep_open(session_of(request).person, found)

    return [open_incident, mark_reported, close_incident, keep_incident_open]


async def _page(
    services: Services,
    room: IncidentRoom,
    request: Asking,
    place: tuple[str, str],
    *,
    wrong: str = "",
    form: Form | None = None,
    status: int = 200,
    field: str | None = None,
) -> Response[str]:
    detail = await room.detail(*place)
    return await services.shell.page(
        request,
        "compliance/incident.html",
        "incidents",
        status,
        detail=detail,
        names=await _key_names(services, detail),
        incident=detail.incident,
        listed=_listed(detail.incident),
        days=[_day(detail.incident.since_us), _day(detail.incident.until_us or detail.now_us)],
        regimes=TITLES,
        turns=turns_of((form or Form()).text("reported"), (await services.shell.way(request)).zone),
        wrong=wrong,
        form=form or Form(),
        mistakes={field: wrong} if field else {},
    )


async def _key_names(services: Services, detail: IncidentDetail) -> Mapping[str, str]:
    keys = [each.name for each in detail.scope.keys]
    return await services.key_names.names(detail.incident.organisation, keys)


def _listed(incident: Incident) -> str:
    """The filter of a list that has just what the incident counts, to the second."""
    listed = f'{incident.filter} since:"{_at(incident.since_us):%Y-%m-%dT%H:%M:%SZ}"'
    if incident.until_us:
        # What came in the last second that began is in the list, too.
        until = _at(incident.until_us + SECOND_US - 1)
        listed += f' until:"{until:%Y-%m-%dT%H:%M:%SZ}"'
    return listed.strip()


def _day(utc_us: int) -> str:
    """As the form of an evidence pack takes it."""
    return str(_at(utc_us).date())


def _at(utc_us: int) -> datetime:
    return datetime.fromtimestamp(utc_us // SECOND_US, UTC)


def _reading(services: Services, room: IncidentRoom) -> list[Any]:
    @route(AT, http_method=READING, media_type=_HTML, opt=_READS)
    async def incidents_page(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await services.shell.page(
            request,
            "compliance/incidents.html",
            "incidents",
            lines=await room.page(organisation, first_of(request), after=after_of(request)),
            standing=await room.store.standing([organisation]),
            rules=[RULES[name] for name in await room.regimes(organisation)],
        )

    @route(ONE, http_method=READING, media_type=_HTML, opt=_READS)
    async def incident_page(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Response[str]:
        return await _page(services, room, request, (organisation, incident))

    @get(ONE + "/report", media_type=MediaType.TEXT, opt=_READS)
    async def report(organisation: FromPath[str], incident: FromPath[str]) -> Response[str]:
        detail = await room.detail(organisation, incident)
        name = f'attachment; filename="incident-{detail.incident.id}.txt"'
        headers = {"content-disposition": name, "x-content-type-options": "nosniff"}
        text = report_text(detail, await _key_names(services, detail))
        return Response(text, media_type=MediaType.TEXT, headers=headers)

    return [incidents_page, incident_page, report]


def _opening(services: Services, room: IncidentRoom) -> list[Any]:
    async def form_page(
        request: Asking,
        organisation: str,
        form: Form,
        wrong: dict[str, str] | None = None,
        scope: Scope | None = None,
    ) -> Response[str]:
        zone = (await services.shell.way(request)).zone
        return await services.shell.page(
            request,
            "compliance/incident_new.html",
            "incidents",
            400 if wrong else 200,
            form=form,
            wrong=wrong or {},
            turns={name: turns_of(form.text(name), zone) for name in _TIMES},
            scope=scope,
            kinds=[(name, name) for name in KINDS],
            rules=[RULES[name] for name in await room.regimes(organisation)],
        )

    # An incident's id is drawn in hexadecimal digits, so none is ever called so.
    @route(AT + "/new", http_method=READING, media_type=_HTML, opt=_LEADS)
    async def new_incident(request: Asking, organisation: FromPath[str]) -> Response[str]:
        given = Form({name: [value] for name, value in request.query_params.items()})
        return await form_page(request, organisation, given)

    @post(AT + "/new", media_type=_HTML, opt=_OPENS, status_code=SEE_OTHER)
    async def open_here(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        form = await form_of(request)

        async def made() -> Response[Any]:
            try:
                order = await _ordered(services, request, form)
                found = await room.open(session_of(request).person, organisation, order)
            except RequestInvalid as error:
                named = {error.parameter or "title": error.message}
                return await form_page(request, organisation, form, named)
            return Redirect(
                f"/o/{organisation}/compliance/incidents/{found.id}", status_code=SEE_OTHER
            )

        return await services.shown_once.answer(request, form, made)

    return [new_incident, open_here]


_TIMES: Final = ("noticed", "since", "until")


async def _ordered(services: Services, request: Asking, form: Form) -> IncidentOrder:
    zone = (await services.shell.way(request)).zone
    now_us = services.clock.utc_us()
    return IncidentOrder(
        title=form.text("title"),
        kind=form.text("kind", "other"),
        ticket=form.text("ticket"),
        filter=form.text("q"),
        **{f"{name}_us": said_us(form, name, now_us, zone) for name in _TIMES},
    )


def _leading(services: Services, room: IncidentRoom) -> list[Any]:
    async def done(request: Asking, organisation: str, incident: str, step: str) -> Response[Any]:
        place, person = (organisation, incident), session_of(request).person
        form, found = await form_of(request), await room.incident(organisation, incident)
        try:
            if step == "report":
                zone = (await services.shell.way(request)).zone
                at_us = said_us(form, "reported", services.clock.utc_us(), zone)
                order = ReportOrder(form.text("clock"), at_us, form.text("reference"))
                await room.mark(person, found, order)
            elif step == "close":
                # A page always says what stood on it; one on which nobody asked says nothing.
                closing = CloseOrder(form.text("conclusion"), form.text("agreed"))
                await room.close(person, found, closing)
            else:
                await room.keep_open(person, found)
        except ChangedMeanwhile as error:
            return await _page(
                services, room, request, place, wrong=MEANWHILE, form=form, status=error.status
            )
        except RequestInvalid as error:
            more: dict[str, Any] = {"wrong": as_sentence(error.message), "field": error.parameter}
            more |= {"form": form, "status": error.status}
            return await _page(services, room, request, place, **more)
        return Redirect(f"/o/{organisation}/compliance/incidents/{incident}", status_code=SEE_OTHER)

    @post(ONE + "/reports", media_type=_HTML, opt=_MARKS, status_code=SEE_OTHER)
    async def mark(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Response[Any]:
        return await done(request, organisation, incident, "report")

    @post(ONE + "/close", media_type=_HTML, opt=_CLOSES, status_code=SEE_OTHER)
    async def close(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Response[Any]:
        return await done(request, organisation, incident, "close")

    @post(ONE + "/keep-open", media_type=_HTML, opt=_KEEPS, status_code=SEE_OTHER)
    async def keep_open(
        request: Asking, organisation: FromPath[str], incident: FromPath[str]
    ) -> Response[Any]:
        return await done(request, organisation, incident, "keep")

    return [mark, close, keep_open]
