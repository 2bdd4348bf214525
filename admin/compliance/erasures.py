"""Erasure in the browser: search by digest, open a case, see its numbers, ask for it."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final

from litestar import MediaType, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.exceptions import NotFoundException
from litestar.params import Body, FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.compliance.office import Office, in_words
from admin.forms import form_of
from admin.queries import PAGE_ROWS, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import SEE_OTHER
from gateway.actors import same_person
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.erasure.cases import ErasureCase
from gateway.store.erasure.certificates import certified, told_of
from gateway.store.erasure.erasing import Consequences


AT: Final = "/o/{organisation:str}/compliance/erasures"
ONE: Final = AT + "/{case:str}"
_P = Permission
_READS: Final = needs(_P.AUDIT_READ)
_ASKS: Final = needs(_P.CONTENT_ERASE, records="erasure.asked")
_RECALLS: Final = needs(_P.CONTENT_ERASE, records="erasure.recalled")
_WITHDRAWS: Final = needs(_P.CONTENT_ERASE, records="erasure.withdrawn")
SEARCH, OPEN = "search", "open"
SCOPES: Final = ("user", "organisation")
COPY_STATES: Final = {
    "ordered": "to be deleted",
    "deleted": "deleted",
    "unsent": "never sent",
    "kept": "cannot be deleted",
}
PARCEL_STATES: Final = {
    "new": "not sent yet",
    "submitting": "being searched for",
    "submitted": "in progress at the vendor",
    "cancelling": "being cancelled",
    "collected": "being deleted",
}


class CaseForm(Struct, frozen=True):
    """The form, as it was typed; the name of an end user is kept nowhere."""

    user: str = ""
    law: str = "gdpr"
    ticket: str = ""
    scope: str = "user"
    deed: str = SEARCH


class Confirmation(Struct, frozen=True):
    """What has to be typed before anybody is asked to destroy content."""

    typed: str = ""


Form = Annotated[CaseForm, Body(media_type=RequestEncodingType.URL_ENCODED)]
Confirmed = Annotated[Confirmation, Body(media_type=RequestEncodingType.URL_ENCODED)]


class Found(Struct, frozen=True):
    """What a search found."""

    subject: str
    consequences: Consequences


def erasure_routes(services: Services, office: Office) -> list[Any]:
    """The cases, the search that opens one, and one case."""
    return [*_case_routes(services, office), *_asking_routes(services, office)]


async def _listing(
    services: Services,
    office: Office,
    request: Asking,
    organisation: str,
    form: CaseForm,
    *,
    found: Found | None = None,
    problem: str = "",
) -> Response[str]:
    return await services.shell.page(
        request,
        "compliance/erasures.html",
        "erasures",
        400 if problem else 200,
        cases=await office.erasures.cases.page(
            organisation, first_of(request), PAGE_ROWS, after_of(request)
        ),
        begun=await office.erasures.cases.attempts.begun(organisation),
        form=form,
        found=found,
        problem=problem,
    )


def _case_routes(services: Services, office: Office) -> list[Any]:
    showing = partial(_listing, services, office)

    @get(AT, media_type=MediaType.HTML, opt=_READS)
    async def list_cases(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await showing(request, organisation, CaseForm())

    @post(
        AT,
        media_type=MediaType.HTML,
        opt=needs(_P.CONTENT_ERASE, records="erasure.opened"),
        status_code=200,
    )
    async def search_or_open(
        request: Asking, organisation: FromPath[str], data: Form
    ) -> Response[Any]:
        async def made() -> Response[Any]:
            actor = session_of(request).person.name
            if data.scope not in SCOPES:
                raise RequestInvalid(
                    "One end user's, or the whole organisation's.", parameter="scope"
                )
            if data.scope == "user" and not data.user.strip():
                return await showing(request, organisation, data, problem="Whose content is it?")
            try:
                with in_words():
                    if data.deed != OPEN:
                        found = await _searched(office, actor, organisation, data)
                        return await showing(request, organisation, data, found=found)
                    subject = (
                        office.subject_of(organisation, data.user) if data.scope == "user" else ""
                    )
                    case = await office.erasures.cases.open(
                        actor, organisation, subject, data.law, data.ticket.strip()
                    )
            except RequestInvalid as error:
                return await showing(request, organisation, data, problem=error.message)
            return Redirect(
                f"/o/{organisation}/compliance/erasures/{case.id}", status_code=SEE_OTHER
            )

        return await services.shown_once.answer(request, await form_of(request), made)

    return [list_cases, search_or_open]


async def _searched(office: Office, actor: str, organisation: str, data: CaseForm) -> Found:
    if data.scope == "user":
        return Found(*await office.search(actor, organisation, data.user))
    return Found("", await office.erasures.consequences(organisation, None))


Showing = Callable[..., Awaitable[Response[str]]]


def _one_shown(services: Services, office: Office) -> Showing:
    async def showing(
        request: Asking, organisation: str, case_id: str, problem: str = "", status: int = 200
    ) -> Response[str]:
        case = await office.case(organisation, case_id)
        numbers = None
        try:
            with in_words():
                numbers = await office.consequences(case) if case.state == "open" else None
        except RequestInvalid as error:
            problem = problem or error.message
        reach = await office.reach(case)
        values: dict[str, Any] = {"case": case, "numbers": numbers, "reach": reach}
        values["certificate"] = told_of(case, reach) or None
        values |= {"copy_states": COPY_STATES, "parcel_states": PARCEL_STATES}
        values["begun"] = (await office.erasures.cases.attempts.begun(organisation)).get(case.id)
        person = session_of(request).person
        values["is_own"] = same_person(person.name, case.asked_by)
        if case.state == "open":
            asked_by = case.asked_by or person.name
            values["others"] = await office.others(
                _P.CONTENT_APPROVE_ERASURE, organisation, asked_by
            )
        return await services.shell.page(
            request, "compliance/erasure.html", "erasures", status, problem=problem, **values
        )

    return showing


def _asking_routes(services: Services, office: Office) -> list[Any]:
    showing = _one_shown(services, office)

    @get(ONE, media_type=MediaType.HTML, opt=_READS)
    async def one_case(
        request: Asking, organisation: FromPath[str], case: FromPath[str]
    ) -> Response[str]:
        return await showing(request, organisation, case)

    @get(ONE + "/certificate", opt=_READS, media_type=MediaType.JSON)
    async def certificate(organisation: FromPath[str], case: FromPath[str]) -> Response[bytes]:
        found = await office.case(organisation, case)
        if not found.certificate:
            raise NotFoundException
        name = f'attachment; filename="erasure-{found.id}.json"'
        told = certified(found, await office.reach(found))
        return Response(told, headers={"content-disposition": name})

    @post(ONE + "/ask", media_type=MediaType.HTML, opt=_ASKS, status_code=SEE_OTHER)
    async def ask(
        request: Asking, organisation: FromPath[str], case: FromPath[str], data: Confirmed
    ) -> Response[Any]:
        found = await office.case(organisation, case)
        if data.typed.strip() != found.ticket:
            problem = "Type the ticket of the case: destroyed content cannot be restored."
            return await showing(request, organisation, case, problem, 400)
        deed = office.erasures.ask(session_of(request).person.name, found)
        return await _done(showing, request, found, deed)

    @post(ONE + "/recall", media_type=MediaType.HTML, opt=_RECALLS, status_code=SEE_OTHER)
    async def recall(
        request: Asking, organisation: FromPath[str], case: FromPath[str]
    ) -> Response[Any]:
        found = await office.case(organisation, case)
        deed = office.erasures.cases.recall(session_of(request).person.name, found)
        return await _done(showing, request, found, deed)

    @post(ONE + "/withdraw", media_type=MediaType.HTML, opt=_WITHDRAWS, status_code=SEE_OTHER)
    async def withdraw(
        request: Asking, organisation: FromPath[str], case: FromPath[str]
    ) -> Response[Any]:
        found = await office.case(organisation, case)
        deed = office.erasures.cases.withdraw(session_of(request).person.name, found)
        return await _done(showing, request, found, deed)

    return [one_case, certificate, ask, recall, withdraw]


async def _done(
    showing: Showing, request: Asking, case: ErasureCase, deed: Awaitable[object]
) -> Response[Any]:
    """The case's page anew; with what custody refuses on it, where it does."""
    try:
        with in_words():
            await deed
    except RequestInvalid as error:
        return await showing(request, case.organisation, case.id, error.message, 409)
    at = f"/o/{case.organisation}/compliance/erasures/{case.id}"
    return Redirect(at, status_code=SEE_OTHER)
