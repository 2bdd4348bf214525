"""The parts of the room, made once, and how its handlers read what a browser sends."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

from litestar import MediaType, Response, post, route
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.policy_room.asking import Asker
from admin.policy_room.desk import Desk
from admin.policy_room.outcomes import Outcomes
from admin.policy_room.places import Place, may
from admin.policy_room.reader import PolicyReader
from admin.policy_room.weighing import Weigher
from admin.services import Services
from admin.shell import Shell
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, Person
from gateway.store.traffic.spans import TrafficSpans


FIELDS_MAX: Final = 500
NUMBER_MAX: Final = 10**6


Named: TypeAlias = FromPath[str]
Numbered: TypeAlias = FromPath[int]
Decorator: TypeAlias = Callable[[Callable[..., Awaitable[Response[Any]]]], HTTPRouteHandler]


def shows(path: str, permission: Permission) -> Decorator:
    """A handler that shows a page of one organisation."""
    opt = needs(permission)
    return route(path, http_method=READING, media_type=MediaType.HTML, opt=opt)


def takes(path: str, permission: Permission, records: str, status: int = SEE_OTHER) -> Decorator:
    """A handler that takes a form of one organisation; `records` is what it leaves behind."""
    return post(path, opt=needs(permission, records=records), status_code=status)


class PolicyRoom(Struct, frozen=True):
    """What the handlers stand on."""

    services: Services
    reader: PolicyReader
    desk: Desk
    weigher: Weigher
    asker: Asker
    outcomes: Outcomes

    @property
    def shell(self) -> Shell:
        return self.services.shell


def open_room(services: Services) -> PolicyRoom:
    """Raises ConfigurationInvalid when the configured document cannot be used."""
    reader = PolicyReader(services)
    return PolicyRoom(
        services=services,
        reader=reader,
        desk=Desk(reader, services.deeds),
        weigher=Weigher(reader, services.clock),
        outcomes=Outcomes(TrafficSpans(services.database, services.homes), services.clock),
        asker=Asker(reader, services.settings, services.clock),
    )


class Rights(Struct, frozen=True):
    """What whoever looks may do at a level: what a page offers, not what a handler checks."""

    edit: bool
    approve: bool
    publish: bool


def rights_of(request: Asking, organisation: str, place: Place) -> Rights:
    """Of whoever is signed in."""
    person = person_of(request)
    wanted = Permission.POLICIES_EDIT, Permission.POLICIES_APPROVE, Permission.POLICIES_PUBLISH
    return Rights(*(may(person, each, organisation, place) for each in wanted))


def told_of_trials(request: Asking, organisation: str, place: Place) -> bool:
    """Whether whoever is signed in sees what is counted of a level's versions as canaries.

    Workers count a trial's requests and keys once for all organisations that it concerns: of the
    installation's these are everybody's, and not for who reads policies in one of them.
    """
    return may(person_of(request), Permission.POLICIES_READ, organisation, place)


def person_of(request: Asking) -> Person:
    """Who is signed in."""
    return session_of(request).person


async def form_of(request: Asking) -> dict[str, str]:
    """The fields of a form; of several with one name the last.

    Raises:
        RequestInvalid: it is no form.
    """
    try:
        text = (await request.body()).decode()
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError as error:
        raise RequestInvalid("this is no form") from error


def query_of(request: Asking) -> dict[str, str]:
    """The fields of an address; of several with one name the last."""
    return {name: str(value) for name, value in request.query_params.items()}


def number_in(fields: Mapping[str, str], name: str, least: int = 0) -> int:
    """A whole number of a form.

    Raises:
        RequestInvalid: it is none.
    """
    text = fields.get(name, "").strip()
    if not text.isascii() or not text.isdigit() or not least <= int(text[:9]) <= NUMBER_MAX:
        raise RequestInvalid(f"{name} is a whole number", parameter=name)
    return int(text[:9])
