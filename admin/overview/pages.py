"""The first page, the JSON behind it, and whether the listener can work."""

from typing import Any

from litestar import MediaType, Request, Response, get, route

from admin.access import PUBLIC, needs, session_of
from admin.overview.reader import Overview, OverviewReader
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.errors import NotReady
from gateway.oversight.access import Permission, organisations_of
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


def overview_routes(services: Services) -> list[Any]:
    """All of them."""
    reader = OverviewReader(services)

    async def found_for(request: Request[Any, Any, Any]) -> Overview:
        person = session_of(request).person
        return await reader.read(person, organisations_of(person, Permission.OVERVIEW_READ))

    @route("/", http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def overview(request: Request[Any, Any, Any]) -> Response[str]:
        found = await found_for(request)
        return await services.shell.page(
            request, "overview/overview.html", "overview", overview=found
        )

    @get("/api/overview", opt=_READS)
    async def overview_api(request: Request[Any, Any, Any]) -> Overview:
        return await found_for(request)

    @route("/health/ready", http_method=READING, opt=PUBLIC)
    async def ready() -> Response[dict[str, str]]:
        # Asked by machines: never a page, and the reason in the words of this listener.
        if reason := await _why_not(services.database):
            return Response({"status": "not ready", "reason": reason}, status_code=503)
        return Response({"status": "ready"})

    return [overview, overview_api, ready]
