"""Profiles in the browser and as JSON: what prompts and answers look like, now and before."""

from typing import Any, Final
from urllib.parse import urlencode

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.forms import form_of
from admin.queries import Query
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from admin.traffic.profile_reader import (
    AcceptOrder,
    ProfileDetail,
    ProfileList,
    ProfileRoom,
    may_accept,
)
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.traffic.drifts import Drift


AT: Final = "/o/{organisation:str}/traffic/profiles"
API: Final = "/api/organisations/{organisation:str}/profiles"
_READS: Final = needs(Permission.TRAFFIC_READ)
_ACCEPTS: Final = needs(Permission.POLICIES_PUBLISH, records="drift.accepted")


def profile_routes(services: Services) -> list[Any]:
    """Pages, what is done on them, and the JSON behind them."""
    room = ProfileRoom(services)
    return [*_page_routes(services, room), *_api_routes(room)]


def _page_routes(services: Services, room: ProfileRoom) -> list[Any]:
    async def page(
        request: Asking, found: ProfileDetail, wrong: str = "", reason: str = ""
    ) -> Response[str]:
        return await services.shell.page(
            request,
            "traffic/profile.html",
            "profiles",
            400 if wrong else 200,
            found=found,
            may_accept=may_accept(session_of(request).person, found.organisation),
            wrong=wrong,
            reason=reason,
        )

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def profiles(request: Asking, organisation: FromPath[str]) -> Response[str]:
        listed = await room.listed(organisation)
        return await services.shell.page(
            request, "traffic/profiles.html", "profiles", listed=listed
        )

    @route(f"{AT}/{{kind:str}}", http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def one_profile(
        request: Asking, organisation: FromPath[str], kind: FromPath[str]
    ) -> Response[str]:
        return await page(request, await room.detail(organisation, kind, _scope(request)))

    @post(f"{AT}/drifts/{{drift:str}}/accept", opt=_ACCEPTS, status_code=SEE_OTHER)
    async def accept(
        request: Asking, organisation: FromPath[str], drift: FromPath[str]
    ) -> Redirect | Response[str]:
        form = await form_of(request)
        reason = form.text("reason")
        try:
            done = await room.accept(session_of(request).person, organisation, drift, reason)
        except RequestInvalid as error:
            found = await room.detail(organisation, form.text("kind"), form.text("of"))
            return await page(request, found, error.message, reason)
        place = f"/o/{organisation}/traffic/profiles/{done.kind}"
        return Redirect(f"{place}?{urlencode({'of': done.scope})}", status_code=SEE_OTHER)

    return [profiles, one_profile, accept]


def _api_routes(room: ProfileRoom) -> list[Any]:
    @get(API, opt=_READS)
    async def list_profiles(organisation: FromPath[str]) -> ProfileList:
        return await room.listed(organisation)

    @get(f"{API}/{{kind:str}}", opt=_READS)
    async def show_profile(
        request: Asking, organisation: FromPath[str], kind: FromPath[str]
    ) -> ProfileDetail:
        return await room.detail(organisation, kind, _scope(request))

    @post(f"{API}/drifts/{{drift:str}}/accept", opt=_ACCEPTS)
    async def accept_drift(
        request: Asking, organisation: FromPath[str], drift: FromPath[str]
    ) -> Drift:
        order = await body_of(request, AcceptOrder)
        person = session_of(request).person
        return await room.accept(person, organisation, drift, order.reason.strip())

    return [list_profiles, show_profile, accept_drift]


OF: Final = Query("of", "The model that prompts ask for, or the target; any character.")


def _scope(request: Asking) -> str:
    return OF.of(request)
