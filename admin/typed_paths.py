"""Addresses typed without an organisation: `/costs` leads to the only one, or to a choice."""

from typing import Any, Final
from urllib.parse import quote

from litestar import MediaType, Response, route
from litestar.exceptions import NotFoundException
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.first_run.pages import PATH
from admin.rail import ROOMS, Screen
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.oversight.access import allows


BEFORE: Final = "/o/{organisation}"
_SCREENS: Final = tuple(screen for room in ROOMS for screen in room.screens)
TYPED: Final = {
    screen.path.removeprefix(BEFORE): screen
    for screen in _SCREENS
    if screen.path.startswith(BEFORE)
    and screen.path.removeprefix(BEFORE) not in {each.path for each in _SCREENS}
}
"""Screens of the rail whose path begins with an organisation, by the rest of it. No link has it."""


def typed_path_routes(services: Services) -> list[Any]:
    """All of them."""
    return [_leading(services, path, screen) for path, screen in TYPED.items()]


def _leading(services: Services, path: str, screen: Screen) -> Any:
    reads = needs(screen.needs, "some")

    @route(path, http_method=READING, media_type=MediaType.HTML, opt=reads)
    async def lead(request: Asking) -> Response[Any]:
        person = session_of(request).person
        query = request.scope["query_string"].decode("latin-1")
        organisations = sorted(await services.people.organisations())
        ways = {
            name: f"/o/{quote(name)}{path}{'?' if query else ''}{query}"
            for name in organisations
            if allows(person, screen.needs, name)
        }
        if not ways and not organisations and allows(person, screen.needs):
            # On the first day there is none: the page that makes one says what comes before this.
            return Redirect(PATH, status_code=SEE_OTHER)
        if not ways:
            raise NotFoundException
        if len(ways) == 1:
            return Redirect(*ways.values(), status_code=SEE_OTHER)
        return await services.shell.page(
            request, "organisations.html", screen.name, screen=screen, ways=ways
        )

    return lead
