"""The audit explorer's pages: an organisation's records and deeds, one record, and a file."""

from typing import Any, Final

from litestar import MediaType, Response, get, route
from litestar.params import FromPath
from litestar.response import Stream
from msgspec.structs import replace

from admin.access import needs, session_of
from admin.asking import Asking
from admin.audit.groups import VIEWS, narrowed
from admin.audit.reader import ROOM, AuditRoom, Gathered
from admin.kept_views import view_routes
from admin.queries import Query
from admin.services import Services
from admin.sign_in.pages import READING
from admin.traffic.asked import Asked, asked_of
from admin.traffic.pages import zone_of
from gateway.oversight.access import Permission
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.searching import FIELDS
from gateway.store.traffic.lists import LOOKED_AT_RECORDS


_READ: Final = needs(Permission.AUDIT_READ)
_EVERYWHERE: Final = needs(Permission.AUDIT_READ, "everywhere")
_LIST: Final = "/o/{organisation:str}/audit"


def audit_routes(services: Services) -> list[Any]:
    """All pages of the explorer."""
    room = AuditRoom(services)
    views = view_routes(services, room.views, ROOM, Permission.AUDIT_READ)
    return [*_list_routes(services, room), *views]


def _list_routes(services: Services, room: AuditRoom) -> list[Any]:
    async def shown(request: Asking, organisation: str) -> Response[str]:
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
    async def audit(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await shown(request, organisation)

    @route("/audit", http_method=READING, media_type=MediaType.HTML, opt=_EVERYWHERE)
    async def installation(request: Asking) -> Response[str]:
        return await shown(request, "")

    @get(f"{_LIST}/export", opt=needs(Permission.AUDIT_EXPORT))
    async def export(request: Asking, organisation: FromPath[str]) -> Stream:
        asked: Asked = asked_of(request)
        asked.require_answerable()
        actor, after = session_of(request).person.name, {"filter": asked.plain}
        await services.deeds.record(actor, "audit.exported", organisation, after=after)
        name = f'attachment; filename="audit-{organisation}.jsonl"'
        return Stream(
            room.lines(organisation, asked, await zone_of(request, services)),
            media_type="application/jsonl",
            headers={"content-disposition": name},
        )

    @get("/api/organisations/{organisation:str}/audit/gathered", opt=_READ)
    async def gathered(request: Asking, organisation: FromPath[str]) -> Gathered:
        asked = viewed_of(request)
        asked.require_answerable()
        if not asked.view:
            asked = replace(asked, view="who")
        return await room.gathered(organisation, asked, await zone_of(request, services))

    return [audit, installation, export, gathered]


VIEW: Final = Query("view", "How what is found is gathered.", choices=tuple(VIEWS))


def viewed_of(request: Asking) -> Asked:
    """What the query says; a way to look that is not known is the list."""
    asked, view = asked_of(request), VIEW.of(request)
    return replace(asked, view=view if view in VIEWS else "")
