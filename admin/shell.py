"""The frame of every page of a signed-in person: rail, organisation, reading preferences.

A page is rendered complete or, for a script that asks for it, as one block alone: both come from
one template, so that what works without scripts is what works with them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from litestar import Response
from litestar.datastructures import Cookie
from markupsafe import Markup
from msgspec import Struct

from admin.access import COOKIE, csrf_of, session_of
from admin.asking import Asking
from admin.preferences import Preferences, preferences_of
from admin.rail import Line, places_of, rail_of
from admin.screens import ORGANISATION_COOKIE, Screens
from admin.sign_in.protection import came_encrypted
from admin.undo import Undo, offered
from gateway.actors import NOBODYS
from gateway.clock import Clock
from gateway.configuration.sections import CurrencySettings
from gateway.oversight.access import EVERYWHERE, Permission, Person, allows


PEEK: Final = "peek"
"""The block that a list shows beside itself."""
BETWEEN: Final = " · "
"""Separates, in a title, a thing's name, its screen's (if it has one), and our own."""


class Badge(Struct, frozen=True):
    """A short state in the bar: kind is good, warn, bad, accent or idle."""

    word: str
    kind: str
    href: str
    title: str = ""


class Frame(Struct, frozen=True):
    """The frame around a page; templates know it as `shell`."""

    person: Person
    organisation: str
    organisations: Sequence[str]
    rail: Sequence[Line]
    places: Sequence[Line]
    badges: Sequence[Badge]
    csrf: str
    way: Preferences
    path: str
    now_us: int
    zone: str
    """The organisation's time zone, in which its days are counted; `way` has the reader's."""
    undo: Undo | None = None
    """The deed of a moment ago that may be undone."""
    nobodys: str = NOBODYS
    """The text for a session of the admin token where two people are needed."""

    def may(self, permission: str) -> bool:
        """Whether the reader may do this in the page's organisation."""
        return allows(self.person, Permission(permission), self.organisation or None)

    def may_everywhere(self, permission: str) -> bool:
        """Whether the reader may do this in all organisations."""
        return allows(self.person, Permission(permission))


Badges = Callable[[Person, str], Awaitable[Sequence[Badge]]]
Organisations = Callable[[], Awaitable[Mapping[str, str]]]
"""Names of all organisations, and their time zones."""


class Shell:
    """Renders pages inside their frame."""

    def __init__(
        self,
        screens: Screens,
        organisations: Organisations,
        currencies: Mapping[str, CurrencySettings],
        clock: Clock,
        badges: Sequence[Badges] = (),
    ) -> None:
        self._screens = screens
        self._organisations = organisations
        self._currencies = currencies
        self._clock = clock
        self._badges = badges

    async def page(
        self,
        request: Asking,
        template: str,
        current: str,
        status: int = 200,
        **values: object,
    ) -> Response[str]:
        """A page, or the block of it that the header `HX-Target` names, if it has such a block.

        `template` is a file of `admin/pages`, `current` the name of the screen as the rail has it;
        the template reads `values`, and the frame as `shell`.
        """
        frame = await self.frame(request, current)
        block = target_of(request)
        text = self._screens.render(template, block, shell=frame, **values)
        if block == PEEK and self._screens.has_block(template, PEEK):
            title = self._screens.render(template, "title", shell=frame, **values)
            text = self._drawer(frame, title, text)
        answer: Response[str] = self._screens.html(text, status)
        answer.headers["vary"] = "hx-target, cookie"
        if frame.organisation and frame.organisation != request.cookies.get(ORGANISATION_COOKIE):
            answer.cookies.append(
                Cookie(
                    ORGANISATION_COOKIE,
                    value=frame.organisation,
                    path="/",
                    httponly=True,
                    samesite="strict",
                    secure=came_encrypted(request),
                )
            )
        return answer

    def _drawer(self, frame: Frame, title: str, text: str) -> str:
        """A block as a list shows it beside itself: with a name, and a way to close or open it."""
        parts = title.split(BETWEEN)
        name = BETWEEN.join(parts[:-2] or parts[:1])
        # Both were rendered, and so escaped, before.
        drawer = {"title": Markup(name), "shown": Markup(text)}  # noqa: S704
        return self._screens.render("parts/peek.html", "", shell=frame, **drawer)

    async def frame(self, request: Asking, current: str) -> Frame:
        """The frame of a page: who reads it, what it shows, and in which format."""
        person = session_of(request).person
        zones = await self._organisations()
        visible = _visible(person, sorted(zones))
        organisation = _organisation_of(request, visible)
        badges = [badge for each in self._badges for badge in await each(person, organisation)]
        return Frame(
            person=person,
            organisation=organisation,
            organisations=visible,
            rail=rail_of(person, organisation, current),
            places=places_of(person, organisation),
            badges=badges,
            csrf=csrf_of(request.cookies.get(COOKIE, "")),
            way=self._way(request, zones, organisation),
            path=request.scope["path"],
            now_us=self._clock.utc_us(),
            zone=zones.get(organisation, "UTC"),
            undo=offered(request, self._clock.utc_us()),
        )

    async def way(self, request: Asking) -> Preferences:
        """The reader's preferences alone, without the queries that the rest of a frame needs."""
        zones = await self._organisations()
        visible = _visible(session_of(request).person, sorted(zones))
        return self._way(request, zones, _organisation_of(request, visible))

    def _way(self, request: Asking, zones: Mapping[str, str], organisation: str) -> Preferences:
        return preferences_of(request, self._currencies, zones.get(organisation, "UTC"))


def target_of(request: Asking) -> str:
    """The block of a page that a script asks for; empty if the complete page is wanted."""
    return request.headers.get("hx-target", "").rpartition("#")[2]


def _organisation_of(request: Asking, visible: Sequence[str]) -> str:
    """The organisation that the address names, or else the one looked at last."""
    said = request.path_params.get("organisation") or request.cookies.get(ORGANISATION_COOKIE)
    return str(said) if said in visible else next(iter(visible), "")


def _visible(person: Person, organisations: Sequence[str]) -> list[str]:
    held = {grant.organisation for grant in person.grants}
    return [name for name in organisations if EVERYWHERE in held or name in held]
