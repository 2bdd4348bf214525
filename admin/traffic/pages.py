"""The pages of traffic: the list, one request, and the list as a file."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import MediaType, Response, get, route
from litestar.params import FromPath
from litestar.response import Stream
from litestar.status_codes import HTTP_404_NOT_FOUND

from admin.access import needs, session_of
from admin.asking import Asking
from admin.kept_views import view_routes
from admin.policy_room.rule_places import RulePlace, RulePlaces
from admin.services import Services
from admin.shell import PEEK, target_of
from admin.sign_in.pages import READING
from admin.traffic.asked import asked_of
from admin.traffic.exports import FORMS, lines_of
from admin.traffic.reader import ROOM, TrafficRoom
from admin.traffic.story import StoryReader
from admin.traffic.words import findings_sent_as, obeyed_in, verdict_of
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission, allows
from gateway.oversight.searching import FIELDS, Filter, Term, moment_us, render
from gateway.store.custody.custody_lists import CustodyLists
from gateway.store.traffic.lists import LOOKED_AT_RECORDS


_READ: Final = needs(Permission.TRAFFIC_READ)
_LIST: Final = "/o/{organisation:str}/traffic"
REVEALS_SHOWN: Final = 20


def traffic_routes(services: Services) -> list[Any]:
    """All pages of the room."""
    room, stories = TrafficRoom(services), StoryReader(services)
    return [
        *_list_routes(services, room),
        *view_routes(services, room.views, ROOM, Permission.TRAFFIC_READ),
        _request_route(services, stories),
    ]


def _list_routes(services: Services, room: TrafficRoom) -> list[Any]:
    @route(_LIST, http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def traffic(request: Asking, organisation: FromPath[str]) -> Response[str]:
        asked, zone = asked_of(request), await zone_of(request, services)
        person = session_of(request).person.name
        listed = await room.listed(organisation, asked, zone, person)
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
            days=_days_of(asked.filter, listed.read_us, zone),
        )

    @get(f"{_LIST}/export", opt=_READ)
    async def export(request: Asking, organisation: FromPath[str]) -> Stream:
        asked, form = asked_of(request), str(request.query_params.get("form", "csv"))
        asked.require_answerable()
        if form not in FORMS:
            raise RequestInvalid(f"form: {', '.join(FORMS)}", parameter="form")
        actor, after = session_of(request).person.name, {"filter": asked.plain, "form": form}
        await services.deeds.record(actor, "traffic.exported", organisation, after=after)
        rows = room.rows(organisation, asked, await zone_of(request, services))
        name = f'attachment; filename="traffic-{organisation}.{form}"'
        return Stream(
            lines_of(rows, form, partial(services.key_names.names, organisation)),
            media_type=FORMS[form],
            headers={"content-disposition": name},
        )

    return [traffic, export]


def _request_route(services: Services, stories: StoryReader) -> Any:
    lists = CustodyLists(services.database, services.clock)
    places = RulePlaces(services)

    @route(f"{_LIST}/{{request_id:str}}", http_method=READING, media_type=MediaType.HTML, opt=_READ)
    async def one_request(
        request: Asking, organisation: FromPath[str], request_id: FromPath[str]
    ) -> Response[str]:
        story = await stories.story(organisation, request_id)
        if story is None:
            return await services.shell.page(
                request,
                "traffic/absent.html",
                "traffic",
                HTTP_404_NOT_FOUND,
                organisation=organisation,
                request_id=request_id,
            )
        way = await services.shell.way(request)
        reveals = None
        person = session_of(request).person
        if allows(person, Permission.AUDIT_READ, organisation):
            since_us = story.decided.utc_us
            reveals = await lists.reveals_about(organisation, request_id, since_us, REVEALS_SHOWN)
        rule_places: Sequence[RulePlace | None] = ()
        if story.explanation and allows(person, Permission.POLICIES_READ, organisation):
            decided, rules = story.decided, story.explanation.rules
            rule_places = await places.of(organisation, decided.workspace, decided.project, rules)
        return await services.shell.page(
            request,
            "traffic/request.html",
            "traffic",
            story=story,
            rule_places=rule_places,
            listed_by=_listed_by,
            listed_at=_listed_at(request, organisation),
            organisation=organisation,
            verdict=verdict_of(story, way),
            sent_as=findings_sent_as(story),
            obeyed=obeyed_in(story),
            days=[_day(each.utc_us) for each in (story.intent, story.outcome) if each],
            reveals=reveals,
            peeked=target_of(request) == PEEK,
        )

    return one_request


def _listed_by(rule: str) -> str:
    """The filter of the requests that a rule held for."""
    return render(Filter((Term("rule", (rule,)),)))


def _listed_at(request: Asking, organisation: str) -> str:
    """The list of requests, with the filter that whoever looks came from."""
    path, came_from = f"/o/{organisation}/traffic", request.headers.get("referer", "")
    try:
        said = urlsplit(came_from)
    except ValueError:
        return path
    if said.netloc != request.headers.get("host") or said.path != path or not said.query:
        return path
    return f"{path}?{said.query}"


def _days_of(found: Filter, now_us: int, zone: str) -> tuple[str, str] | None:
    """The first and the last day of a filter with a beginning, as evidence packs count them.

    None where no pack has such days: none is meant, or one is beyond the calendar.
    """
    since, until = found.value_of("since"), found.value_of("until")
    if not since:
        return None
    # The end is not part of it: until the first of a month is until the last of the one before.
    last_us = min(moment_us(until, now_us, zone) - 1, now_us) if until else now_us
    first_us = moment_us(since, now_us, zone)
    with suppress(ValueError):
        return (_day(first_us), _day(last_us)) if first_us <= last_us else None
    return None


def _day(utc_us: int) -> str:
    """As evidence packs name it."""
    return str(datetime.fromtimestamp(utc_us // 1_000_000, UTC).date())


async def zone_of(request: Asking, services: Services) -> str:
    """The reader's time zone, in which the dates of a filter are meant."""
    return (await services.shell.way(request)).zone
