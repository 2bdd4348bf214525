"""The finder's answers: as lines while somebody types, as a page without scripts, and as JSON."""

from typing import Any, Final

from litestar import MediaType, Response, get, route
from litestar.params import FromPath
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.finding.finder import Finder
from admin.finding.ways import LENGTH_MAX, Way, asked
from admin.queries import Query
from admin.services import Services
from admin.sign_in.pages import READING
from gateway.oversight.access import Permission


_READS: Final = needs(Permission.OVERVIEW_READ)
FIND: Final = Query(
    "find", "Words that must all be there; what is longer is cut.", length_max=LENGTH_MAX
)


class Found(Struct, frozen=True):
    """Where what was typed may lead."""

    ways: tuple[Way, ...]


def finding_routes(services: Services) -> list[Any]:
    """The page, and the JSON behind it."""
    finder = Finder(services)

    @route("/o/{organisation:str}/find", http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def find(request: Asking, organisation: FromPath[str]) -> Response[str]:
        question = asked(FIND.of(request))
        ways = await finder.find(question, session_of(request).person, organisation)
        return await services.shell.page(
            request, "finding/find.html", "find", ways=ways, question=question
        )

    @get("/api/organisations/{organisation:str}/find", opt=_READS)
    async def find_api(request: Asking, organisation: FromPath[str]) -> Found:
        question = asked(FIND.of(request))
        person = session_of(request).person
        return Found(tuple(await finder.find(question, person, organisation)))

    return [find, find_api]
