"""Saved views of a list: a filter with a name, kept or dropped from the list's own page."""

from typing import Annotated, Any, Final

from litestar import post
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.interrupted import is_own_path
from admin.services import Services
from admin.sign_in.pages import SEE_OTHER
from admin.undo import ABSENT, EXPECTS, Undo, offer
from gateway.oversight.access import Permission
from gateway.oversight.searching import parse, render
from gateway.store.identity.views import SavedView, ViewStore


_RECORDS: Final = "nothing: a filter of one's own"


class ViewForm(Struct, frozen=True):
    """A view to be kept or dropped; `to` is where its reader was."""

    name: str = ""
    q: str = ""
    to: str = "/"
    expects: str = ""


Form = Annotated[ViewForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def view_routes(
    services: Services, views: ViewStore, room: str, permission: Permission
) -> list[Any]:
    """Keep and drop views of the list at `/o/ORGANISATION/ROOM`, for whoever may read it."""
    own = needs(permission, records=_RECORDS)
    at = f"/o/{{organisation:str}}/{room}/views"

    @post(at, opt=own, status_code=SEE_OTHER, name=f"keep a view of {room}")
    async def keep_view(request: Asking, organisation: FromPath[str], data: Form) -> Redirect:
        person, text = session_of(request).person.name, render(parse(data.q))
        replaces = data.expects != ABSENT
        await views.keep(person, organisation, room, data.name.strip(), text, replaces=replaces)
        return Redirect(_back(data, organisation, room), status_code=SEE_OTHER)

    @post(f"{at}/drop", opt=own, status_code=SEE_OTHER, name=f"drop a view of {room}")
    async def drop_view(request: Asking, organisation: FromPath[str], data: Form) -> Redirect:
        person = session_of(request).person.name
        dropped = await views.drop(person, organisation, room, data.name)
        if dropped is not None:
            offer(request, services.clock, _way_back(dropped, data, _list(organisation, room)))
        return Redirect(_back(data, organisation, room), status_code=SEE_OTHER)

    return [keep_view, drop_view]


def _list(organisation: str, room: str) -> str:
    return f"/o/{organisation}/{room}"


def _back(data: ViewForm, organisation: str, room: str) -> str:
    return data.to if is_own_path(data.to) else _list(organisation, room)


def _way_back(dropped: SavedView, data: ViewForm, path: str) -> Undo:
    """What keeps a view again that was dropped from the list at a path."""
    fields = {"name": dropped.name, "q": dropped.filter, "to": data.to, EXPECTS: ABSENT}
    return Undo(f"The view {dropped.name} was deleted.", f"{path}/views", fields)
