"""The audit explorer: an organisation's records and deeds about it; one record, and a file."""

from typing import Annotated, Any, Final

from litestar import MediaType, Request, Response, get, post, route
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath
from litestar.response import Redirect, Stream
from msgspec.structs import replace

from admin.access import needs, session_of
from admin.audit.groups import VIEWS, narrowed
from admin.audit.reader import ROOM, AuditRoom, Gathered
from admin.interrupted import is_own_path
from admin.queries import Query
from admin.services import Services
from admin.sign_in import READING, SEE_OTHER
from admin.traffic.asked import Asked, asked_of
from admin.traffic.pages import ViewForm, way_back, zone_of
from admin.undo import ABSENT, offer
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import FIELDS, parse, render
from gateway.store.traffic.lists import LOOKED_AT_RECORDS


_READ: Final = needs(Permission.AUDIT_READ)
_EVERYWHERE: Final = needs(Permission.AUDIT_READ, "everywhere")
_OWN: Final = needs(Permission.AUDIT_READ, records="nothing: a filter of one's own")
_LIST: Final = "/o/{organisation:str}/audit"
Form = Annotated[ViewForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def audit_routes(services: Services) -> list[Any]:
    """All pages of the explorer."""
    room = AuditRoom(services)
    return [*_list_routes(services, room), *_view_routes(services, room)]


def _list_routes(services: Services, room: AuditRoom) -> list[Any]:
    async def shown(request: Request[Any, Any, Any], organisation: str) -> Response[str]:
        asked = viewed_of(request)
        person = session_of(request).person.name
        zone = await zone_of(request, services)
        return await services.shell.page(
            request,
            "audit/list.html",
            "audit" if organisation else "audit-installation",
            400 if asked.wrong else 200,
            explored=await room.explored(organisation, asked, zone, person),
            organisation=organisation,
            operators=OPERATORS,
            fields=FIELDS.values(),
            looked_at=LOOKED_AT_RECORDS,
            ways=VIEWS,
            narrowed=narrowed,
        )

    @route(_LIST, http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def audit(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Response[str]:
        return await shown(request, organisation)

    @route("/audit", http_method=READING, media_type=MediaType.HTML, opt=_EVERYWHERE)
    async def installation(request: Request[Any, Any, Any]) -> Response[str]:
        return await shown(request, "")

    @get(f"{_LIST}/export", opt=needs(Permission.AUDIT_EXPORT))
    async def export(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Stream:
        asked: Asked = asked_of(request)
        if asked.wrong is not None:
            raise RequestInvalid(asked.wrong.message, parameter="q")
        actor, after = session_of(request).person.name, {"filter": asked.plain}
        await services.deeds.record(actor, "audit.exported", organisation, after=after)
        name = f'attachment; filename="audit-{organisation}.jsonl"'
        return Stream(
            room.lines(organisation, asked, await zone_of(request, services)),
            media_type="application/jsonl",
            headers={"content-disposition": name},
        )

    @get("/api/organisations/{organisation:str}/audit/gathered", opt=_READ)
    async def gathered(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Gathered:
        asked = viewed_of(request)
        if asked.wrong is not None:
            raise RequestInvalid(asked.wrong.message, parameter="q")
        if not asked.view:
            asked = replace(asked, view="who")
        return await room.gathered(organisation, asked, await zone_of(request, services))

    return [audit, installation, export, gathered]


VIEW: Final = Query("view", "How what is found is gathered.", choices=tuple(VIEWS))


def viewed_of(request: Request[Any, Any, Any]) -> Asked:
    """What the query says; a way to look that is not known is the list."""
    asked, view = asked_of(request), VIEW.of(request)
    return replace(asked, view=view if view in VIEWS else "")


def _view_routes(services: Services, room: AuditRoom) -> list[Any]:
    @post(f"{_LIST}/views", opt=_OWN, status_code=SEE_OTHER)
    async def keep_audit_view(
        request: Request[Any, Any, Any], organisation: FromPath[str], data: Form
    ) -> Redirect:
        person, text = session_of(request).person.name, render(parse(data.q))
        replaces = data.expects != ABSENT
        await room.views.keep(
            person, organisation, ROOM, data.name.strip(), text, replaces=replaces
        )
        return Redirect(_back(data, organisation), status_code=SEE_OTHER)

    @post(f"{_LIST}/views/drop", opt=_OWN, status_code=SEE_OTHER)
    async def drop_audit_view(
        request: Request[Any, Any, Any], organisation: FromPath[str], data: Form
    ) -> Redirect:
        person = session_of(request).person.name
        dropped = await room.views.drop(person, organisation, ROOM, data.name)
        if dropped is not None:
            offer(request, services.clock, way_back(dropped, data, f"/o/{organisation}/audit"))
        return Redirect(_back(data, organisation), status_code=SEE_OTHER)

    return [keep_audit_view, drop_audit_view]


def _back(data: ViewForm, organisation: str) -> str:
    return data.to if is_own_path(data.to) else f"/o/{organisation}/audit"
