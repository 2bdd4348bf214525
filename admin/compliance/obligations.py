"""The checklist of obligations in the browser and as JSON, and the choice of rules."""

from typing import Any, Final

from litestar import MediaType, Response, get, post, route
from litestar.params import FromPath
from litestar.response import Redirect

from admin.access import needs, session_of
from admin.asking import Asking
from admin.bodies import body_of
from admin.compliance.checklist import Checklist, ChecklistRoom, RegimeOrder
from admin.compliance.office import Office
from admin.forms import Form, form_of
from admin.screens import CONFLICT
from admin.services import Services
from admin.sign_in.pages import READING, SEE_OTHER
from gateway.errors import ChangedMeanwhile, RequestInvalid
from gateway.obligations import REGIMES, TITLES
from gateway.oversight.access import Permission
from gateway.store.custody.regimes import RegimeChoice


AT: Final = "/o/{organisation:str}/compliance/obligations"
API: Final = "/api/organisations/{organisation:str}/compliance/obligations"
PLACE_MAX: Final = 10**6
MEANWHILE: Final = (
    "Somebody else chose meanwhile, so nothing was done. Below is the current choice."
)
_P = Permission
_READS: Final = needs(_P.AUDIT_READ)
_CHOOSES: Final = needs(_P.OBLIGATIONS_SET, records="obligations.chosen")


def obligation_routes(services: Services, office: Office) -> list[Any]:
    """The page and its form."""
    room = ChecklistRoom(services, office)

    async def page(
        request: Asking,
        organisation: str,
        form: Form | None = None,
        wrong: str = "",
        status: int = 200,
    ) -> Response[str]:
        return await services.shell.page(
            request,
            "compliance/obligations.html",
            "obligations",
            status,
            checklist=await room.read(organisation),
            regimes=[(name, TITLES[name]) for name in REGIMES],
            form=form,
            wrong=wrong,
            is_stale=status == CONFLICT,
        )

    @route(AT, http_method=READING, media_type=MediaType.HTML, opt=_READS)
    async def checklist(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await page(request, organisation)

    @post(AT, media_type=MediaType.HTML, opt=_CHOOSES, status_code=SEE_OTHER)
    async def choose(request: Asking, organisation: FromPath[str]) -> Response[Any]:
        form = await form_of(request)
        seen = form.whole("seen", PLACE_MAX) or 0
        order = RegimeOrder(tuple(form.all("regimes")), form.text("reason"), seen)
        try:
            await room.choose(session_of(request).person, organisation, order)
        except ChangedMeanwhile as error:
            return await page(request, organisation, form, MEANWHILE, error.status)
        except RequestInvalid as error:
            return await page(request, organisation, form, error.message, 400)
        return Redirect(f"/o/{organisation}/compliance/obligations", status_code=SEE_OTHER)

    return [checklist, choose]


def obligation_api_routes(services: Services, office: Office) -> list[Any]:
    """The same as JSON."""
    room = ChecklistRoom(services, office)

    @get(API, opt=_READS)
    async def show_obligations(organisation: FromPath[str]) -> Checklist:
        return await room.read(organisation)

    @post(API, opt=_CHOOSES)
    async def choose_regimes(request: Asking, organisation: FromPath[str]) -> RegimeChoice:
        order = await body_of(request, RegimeOrder)
        return await room.choose(session_of(request).person, organisation, order)

    return [show_obligations, choose_regimes]
