"""The compliance room's home page, legal holds, and what retention would destroy next."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, Final

from litestar import MediaType, Response, get, post
from litestar.enums import RequestEncodingType
from litestar.params import Body, FromPath
from litestar.response import Redirect
from msgspec import Struct

from admin.access import needs, session_of
from admin.asking import Asking
from admin.compliance.checklist import ChecklistRoom
from admin.compliance.erasures import SCOPES
from admin.compliance.hold_notes import HoldNotes
from admin.compliance.office import Office, in_words
from admin.forms import form_of
from admin.queries import PAGE_ROWS, after_of, first_of
from admin.services import Services
from admin.sign_in.pages import SEE_OTHER
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.custody.orders import Hold


AT: Final = "/o/{organisation:str}/compliance"
_P = Permission
_READS: Final = needs(_P.AUDIT_READ)
Showing = Callable[..., Awaitable[Response[str]]]
Deed = Callable[[str, str], Awaitable[object]]


class NewHold(Struct, frozen=True):
    """A hold that was set just now, and what it covers: of a name mistyped, nothing."""

    hold: Hold
    keys: int | None
    """None where the audit folder cannot be read at this moment."""


class HoldForm(Struct, frozen=True):
    """The form, as it was typed; the name of an end user never leaves it but as a digest."""

    user: str = ""
    reason: str = ""
    scope: str = "user"
    """Everybody's content is held only where that was chosen: two people are needed to undo it."""


Form = Annotated[HoldForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def keeping_routes(services: Services, office: Office) -> list[Any]:
    """Home, holds and retention."""
    shell, checklist = services.shell, ChecklistRoom(services, office)

    @get(AT, media_type=MediaType.HTML, opt=_READS)
    async def home(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await shell.page(
            request,
            "compliance/home.html",
            "compliance",
            standing=await office.standing(organisation),
            checklist=await checklist.read(organisation),
        )

    @get(AT + "/retention", media_type=MediaType.HTML, opt=_READS)
    async def retention(request: Asking, organisation: FromPath[str]) -> Response[str]:
        folders, now_us = await office.retained(organisation), services.clock.utc_us()
        late = (each.report.overdue_us(now_us) for each in folders if not each.is_lost)
        return await shell.page(
            request,
            "compliance/retention.html",
            "retention",
            due=await office.due(organisation),
            standing=await office.standing(organisation),
            folders=folders,
            late_us=max(late, default=0),
            run=services.settings.retention.run,
            classes=sorted(services.settings.retention.classes.items()),
        )

    return [home, retention, *_hold_routes(services, office)]


def _hold_routes(services: Services, office: Office) -> list[Any]:
    notes = HoldNotes(services, office.erasures.cases)

    async def showing(
        request: Asking,
        organisation: str,
        form: HoldForm,
        problem: str = "",
        status: int = 200,
        field: str = "",
    ) -> Response[str]:
        place = (first_of(request), PAGE_ROWS, after_of(request))
        holds = await office.lists.holds(organisation, *place)
        values: dict[str, Any] = {"holds": holds, "form": form, "problem": problem}
        values["notes"] = await notes.of(organisation, holds.rows)
        values["mistakes"] = {field: problem} if field else {}
        values["new"] = await _new_hold(request, organisation, office)
        return await services.shell.page(
            request, "compliance/holds.html", "holds", status, **values
        )

    @get(AT + "/holds", media_type=MediaType.HTML, opt=_READS)
    async def holds(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await showing(request, organisation, HoldForm())

    @post(
        AT + "/holds",
        media_type=MediaType.HTML,
        opt=needs(_P.HOLDS_SET, records="hold.set"),
        status_code=SEE_OTHER,
    )
    async def set_hold(request: Asking, organisation: FromPath[str], data: Form) -> Response[Any]:
        async def made() -> Response[Any]:
            try:
                made = await _set(office, session_of(request).person.name, organisation, data)
            except RequestInvalid as error:
                said = (error.message, error.status, error.parameter or "")
                return await showing(request, organisation, data, *said)
            back = f"/o/{organisation}/compliance/holds?done={made.id}"
            return Redirect(back, status_code=SEE_OTHER)

        return await services.shown_once.answer(request, await form_of(request), made)

    return [holds, set_hold, *_release_routes(office, showing)]


async def _set(office: Office, actor: str, organisation: str, form: HoldForm) -> Hold:
    """Raises RequestInvalid with the field that is wrong."""
    if not form.reason.strip():
        reason = "A hold needs a reason, which is shown to the person who releases it."
        raise RequestInvalid(reason, parameter="reason")
    if form.scope not in SCOPES or (form.scope == "user") != bool(form.user.strip()):
        reason = "Enter an end user, or choose the whole organisation and leave it empty."
        raise RequestInvalid(reason, parameter="user")
    subject = office.subject_of(organisation, form.user.strip())
    with in_words():
        return await office.custody.set_hold(actor, organisation, subject, form.reason)


async def _new_hold(request: Asking, organisation: str, office: Office) -> NewHold | None:
    hold = await office.custody.hold(organisation, request.query_params.get("done", ""))
    if hold is None or hold.released_by:
        return None
    try:
        return NewHold(hold, await office.covered(hold))
    except OSError:
        return NewHold(hold, None)


def _release_routes(office: Office, showing: Showing) -> list[Any]:
    async def done(request: Asking, organisation: str, hold: str, deed: Deed) -> Response[Any]:
        await office.hold(organisation, hold)
        try:
            with in_words():
                await deed(session_of(request).person.name, hold)
        except RequestInvalid as error:
            return await showing(request, organisation, HoldForm(), error.message, 409)
        return Redirect(f"/o/{organisation}/compliance/holds", status_code=SEE_OTHER)

    @post(
        AT + "/holds/{hold:str}/release",
        media_type=MediaType.HTML,
        opt=needs(_P.HOLDS_SET, records="hold.released"),
        status_code=SEE_OTHER,
    )
    async def release(
        request: Asking, organisation: FromPath[str], hold: FromPath[str]
    ) -> Response[Any]:
        # Without it the page said nothing of who asks: it is an older one.
        seen = next(iter((await form_of(request)).all("asked_by")), None)
        deed = partial(office.custody.release_hold, seen=seen)
        return await done(request, organisation, hold, deed)

    @post(
        AT + "/holds/{hold:str}/keep",
        media_type=MediaType.HTML,
        opt=needs(_P.HOLDS_SET, records="hold.release_declined"),
        status_code=SEE_OTHER,
    )
    async def keep(
        request: Asking, organisation: FromPath[str], hold: FromPath[str]
    ) -> Response[Any]:
        why = (await form_of(request)).text("comment")
        deed = partial(office.custody.keep_hold, comment=why)
        return await done(request, organisation, hold, deed)

    return [release, keep]
