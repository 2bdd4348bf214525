"""The simulator: one request under two policies, side by side; nothing is sent, nothing is kept.

The question is in the address, so that it can be passed on. A pasted body is not: it may hold
content, and addresses are written down in many places.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from litestar import Response
from litestar.exceptions import NotFoundException
from msgspec import Struct

from admin.asking import Asking
from admin.policy_room.asking import PREFIX, fields_in_order
from admin.policy_room.places import Place, place_of
from admin.policy_room.room import (
    Named,
    PolicyRoom,
    form_of,
    query_of,
    shows,
    takes,
)
from admin.policy_room.testing import Tried, tried, wants_answer
from gateway.oversight.access import Permission
from policies.explain import Explanation
from policies.program import PolicyDocument


BASE: Final = "/o/{organisation:str}/policies/simulator"
LIVE, DRAFT = "live", "draft"
CHOICES_MAX: Final = 50
"""Of a level\'s versions, the newest; an older one is named in the address."""


class Side(Struct, frozen=True):
    """One of the two policies, and what came out under it."""

    name: str
    """`live`, `draft`, or a version's number."""
    title: str
    found: Tried | None


def simulating_routes(room: PolicyRoom) -> list[Any]:
    """The page, by address and, for a pasted body, by form."""

    @shows(BASE, Permission.POLICIES_READ)
    async def simulator(request: Asking, organisation: Named) -> Response[str]:
        said = {name: text for name, text in query_of(request).items() if name != "body"}
        return await simulator_page(room, request, organisation, said)

    @takes(BASE, Permission.POLICIES_READ, "nothing: it is decided and forgotten", 200)
    async def simulate(request: Asking, organisation: Named) -> Response[str]:
        return await simulator_page(room, request, organisation, await form_of(request))

    return [simulator, simulate]


async def simulator_page(
    room: PolicyRoom, request: Asking, organisation: str, said: dict[str, str]
) -> Response[str]:
    """The question, and the answers beside each other."""
    place = place_of(organisation, said.get("level") or "organisation")
    versions = await room.reader.lists.page(place.name, 0, CHOICES_MAX)
    names = [said.get("a") or LIVE, said.get("b", "")]
    sides = [
        await _side(room, organisation, place, name, said if wants_answer(said) else {})
        for name in names
        if name
    ]
    views = await room.reader.levels(organisation)
    places = [view.place for view in views]
    places += await room.reader.places_without(organisation, views)
    first, rest = fields_in_order()
    kept = {name: text for name, text in said.items() if text and name != "body"}
    return await room.shell.page(
        request,
        "policy_room/simulator.html",
        "simulator",
        organisation=organisation,
        place=place,
        places=places,
        choices=_choices([str(each.number) for each in versions.rows], names),
        said=said,
        names=names,
        sides=sides,
        same=_same(sides),
        fact_fields=first,
        more_fields=rest,
        is_more=any(said.get(f"{PREFIX}{field.name}") for field in rest),
        in_house={each.name for each in await room.reader.targets() if each.in_house},
        permalink=f"/o/{organisation}/policies/simulator?{urlencode(kept)}",
    )


def _choices(newest: list[str], names: list[str]) -> list[str]:
    """What may be decided under, with what is asked for where that is older."""
    known = [LIVE, DRAFT, *newest]
    return [*known, *(name for name in names if name and name not in known)]


async def _side(
    room: PolicyRoom, organisation: str, place: Place, name: str, said: Mapping[str, str]
) -> Side:
    title, document, problem = await _document(room, place, name)
    if problem:
        return Side(name, title, Tried(problem=problem) if said else None)
    return Side(name, title, await tried(room, organisation, place, document, said, is_any=True))


async def _document(
    room: PolicyRoom, place: Place, name: str
) -> tuple[str, PolicyDocument | None, str]:
    """A policy by its name here: title, document (None: the levels above alone), problem."""
    if name == LIVE:
        version, document = await room.reader.live(place)
        return f"live{f' (version {version.number})' if version else ''}", document, ""
    if name == DRAFT:
        working = await room.desk.working(place)
        report = await room.desk.checked(working.text)
        wrong = "" if report.document else "the draft has mistakes; nothing can be decided under it"
        return "the draft", report.document, wrong
    if not name.isascii() or not name.isdigit():
        raise NotFoundException
    version = await room.reader.version(place, int(name[:9]))
    return f"version {version.number}", await room.reader.document(version), ""


def _same(sides: list[Side]) -> bool | None:
    """Whether both decided the same; None where there are not two answers."""
    found: list[Explanation] = [
        each.found.explanation for each in sides if each.found and each.found.explanation
    ]
    if len(found) != 2:  # noqa: PLR2004
        return None
    one, other = (each.decision for each in found)
    keys = ("effect", "refusal", "candidates", "obligations")
    return all(getattr(one, key) == getattr(other, key) for key in keys)
