"""The first page, the JSON behind it, and whether the listener can work."""

from datetime import UTC, datetime
from typing import Any

from litestar import MediaType, Response, get, route

from admin.access import PUBLIC, needs, session_of
from admin.asking import Asking
from admin.overview.needs import organisation_of
from admin.overview.reader import Overview, OverviewReader
from admin.policy_room.places import Place, place_named
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.clock import SECOND_US
from gateway.errors import NotReady
from gateway.oversight.access import Permission, organisations_of
from gateway.oversight.searching import Filter, Term, render
from gateway.store.engine import Database
from gateway.store.glance import is_read_only
from gateway.store.revisions import current


_READS = needs(Permission.OVERVIEW_READ, "some")


async def _why_not(database: Database) -> str:
    """Why this listener cannot work now; empty where it can."""
    try:
        await current(database)
        if await is_read_only(database):
            return "The database takes no writes."
    except NotReady:
        return "The database does not answer."
    return f"The database takes no writes: {database.refusal}." if database.refusal else ""


def _seen_by(request: Asking) -> frozenset[str] | None:
    """Whose figures somebody sees; None is everybody's, and of callers that nobody knows."""
    return organisations_of(session_of(request).person, Permission.OVERVIEW_READ)


def _alone(organisations: frozenset[str] | None) -> str:
    """The one whose traffic makes all of the figures; empty where they are of more."""
    return min(organisations) if organisations and len(organisations) == 1 else ""


def _place_of(level: str) -> tuple[str, Place | None]:
    """Whose level it is, and how it is called and addressed there."""
    organisation = organisation_of(level)
    return organisation, place_named(organisation, level)


def overview_routes(services: Services) -> list[Any]:
    """All of them."""
    reader = OverviewReader(services)

    async def found_for(request: Asking) -> Overview:
        person = session_of(request).person
        return await reader.read(person, _seen_by(request))

    @route("/", http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def overview(request: Asking) -> Response[str]:
        found = await found_for(request)
        since = datetime.fromtimestamp(found.since_us / SECOND_US, UTC)
        return await services.shell.page(
            request,
            "overview/overview.html",
            "overview",
            overview=found,
            organisation=_alone(_seen_by(request)),
            places={
                level: _place_of(level)
                for level in {
                    *(each.level for each in found.changes),
                    *(each.level for each in found.needs),
                }
            },
            since=render(Filter((Term("since", (f"{since:%Y-%m-%dT%H:%MZ}",)),))),
        )

    @get("/api/overview", opt=_READS)
    async def overview_api(request: Asking) -> Overview:
        return await found_for(request)

    @route("/health/ready", http_method=READING, opt=PUBLIC)
    async def ready() -> Response[dict[str, str]]:
        # Asked by machines: never a page, and the reason in the words of this listener.
        if reason := await _why_not(services.database):
            return Response({"status": "not ready", "reason": reason}, status_code=503)
        return Response({"status": "ready"})

    return [overview, overview_api, ready]
