"""The pages of traffic: the list, one request, what people keep of the list, and its file."""

from typing import Annotated, Any, Final

from litestar import MediaType, Request, Response, get, post, route
from litestar.enums import RequestEncodingType
from litestar.exceptions import NotFoundException
from litestar.params import Body, FromPath
from litestar.response import Redirect, Stream
from msgspec import Struct

from admin.access import needs, session_of
from admin.interrupted import is_own_path
from admin.services import Services
from admin.sign_in import READING, SEE_OTHER
from admin.traffic.asked import asked_of
from admin.traffic.exports import FORMS, lines_of
from admin.traffic.reader import ROOM, TrafficRoom
from admin.traffic.story import StoryReader
from admin.traffic.words import verdict_of
from admin.undo import ABSENT, EXPECTS, Undo, offer
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.oversight.searching import FIELDS, parse, render
from gateway.store.identity.views import SavedView
from gateway.store.traffic.lists import LOOKED_AT_RECORDS


_READ: Final = needs(Permission.TRAFFIC_READ)
_OWN: Final = needs(Permission.TRAFFIC_READ, records="nothing: a filter of one's own")
_LIST: Final = "/o/{organisation:str}/traffic"


class ViewForm(Struct, frozen=True):
    """A view to be kept or dropped; `to` is where its reader was."""

    name: str = ""
    q: str = ""
    to: str = "/"
    expects: str = ""


Form = Annotated[ViewForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def traffic_routes(services: Services) -> list[Any]:
    """All pages of the room."""
    room, stories = TrafficRoom(services), StoryReader(services)
    return [
        *_list_routes(services, room),
        *_view_routes(services, room),
        _request_route(services, stories),
    ]


def _list_routes(services: Services, room: TrafficRoom) -> list[Any]:
    @route(_LIST, http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def traffic(
        request: Request[Any, Any, Any], organisation: FromPath[str]
    ) -> Response[str]:
        asked = asked_of(request)
        person = session_of(request).person.name
        listed = await room.listed(organisation, asked, await zone_of(request, services), person)
        status = 400 if asked.wrong else 200
        return await services.shell.page(
            request,
            "traffic/list.html",
            "traffic",
            status,
            listed=listed,
            organisation=organisation,
            fields=FIELDS.values(),
            looked_at=LOOKED_AT_RECORDS,
        )

    @get(f"{_LIST}/export", opt=_READ)
    async def export(request: Request[Any, Any, Any], organisation: FromPath[str]) -> Stream:
        asked, form = asked_of(request), str(request.query_params.get("form", "csv"))
        if asked.wrong is not None:
            raise RequestInvalid(asked.wrong.message, parameter="q")
        if form not in FORMS:
            raise RequestInvalid(f"form: {', '.join(FORMS)}", parameter="form")
        actor, after = session_of(request).person.name, {"filter": asked.plain, "form": form}
        await services.deeds.record(actor, "traffic.exported", organisation, after=after)
        rows = room.rows(organisation, asked, await zone_of(request, services))
        name = f'attachment; filename="traffic-{organisation}.{form}"'
        return Stream(
            lines_of(rows, form),
            media_type=FORMS[form],
            headers={"content-disposition": name},
        )

    return [traffic, export]


def _view_routes(services: Services, room: TrafficRoom) -> list[Any]:
    @post(f"{_LIST}/views", opt=_OWN, status_code=SEE_OTHER)
    async def keep_view(
        request: Request[Any, Any, Any], organisation: FromPath[str], data: Form
    ) -> Redirect:
        person, text = session_of(request).person.name, render(parse(data.q))
        replaces = data.expects != ABSENT
        await room.views.keep(
            person, organisation, ROOM, data.name.strip(), text, replaces=replaces
        )
        return Redirect(_back(data, organisation), status_code=SEE_OTHER)

    @post(f"{_LIST}/views/drop", opt=_OWN, status_code=SEE_OTHER)
    async def drop_view(
        request: Request[Any, Any, Any], organisation: FromPath[str], data: Form
    ) -> Redirect:
        person = session_of(request).person.name
        dropped = await room.views.drop(person, organisation, ROOM, data.name)
        if dropped is not None:
            offer(request, services.clock, way_back(dropped, data, f"/o/{organisation}/traffic"))
        return Redirect(_back(data, organisation), status_code=SEE_OTHER)

    return [keep_view, drop_view]


def way_back(dropped: SavedView, data: ViewForm, path: str) -> Undo:
    """What keeps a view again that was dropped from the list at a path."""
    fields = {"name": dropped.name, "q": dropped.filter, "to": data.to, EXPECTS: ABSENT}
    return Undo(f"The view {dropped.name} was dropped.", f"{path}/views", fields)


def _request_route(services: Services, stories: StoryReader) -> Any:
    @route(f"{_LIST}/{{request_id:str}}", http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def one_request(
        request: Request[Any, Any, Any], organisation: FromPath[str], request_id: FromPath[str]
    ) -> Response[str]:
        story = await stories.story(organisation, request_id)
        if story is None:
            raise NotFoundException
        way = await services.shell.way(request)
        return await services.shell.page(
            request,
            "traffic/request.html",
            "traffic",
            story=story,
            organisation=organisation,
            verdict=verdict_of(story, way),
            peeked=request.headers.get("hx-target", "").endswith("peek"),
        )

    return one_request


async def zone_of(request: Request[Any, Any, Any], services: Services) -> str:
    """The reader's time zone, in which the dates of a filter are meant."""
    return (await services.shell.way(request)).zone


def _back(data: ViewForm, organisation: str) -> str:
    return data.to if is_own_path(data.to) else f"/o/{organisation}/traffic"
