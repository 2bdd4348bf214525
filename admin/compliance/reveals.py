"""Break-glass in the browser: ask, let a second person answer, read while it is open, end it."""

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
from admin.compliance.office import REVEALED_MAX, Office, in_words
from admin.forms import form_of
from admin.queries import PAGE_ROWS, after_of, first_of
from admin.services import Services
from admin.shell import PEEK, target_of
from admin.sign_in.pages import SEE_OTHER
from gateway.errors import RequestInvalid
from gateway.oversight.access import Permission
from gateway.store.custody.orders import REVEAL_MINUTES_MAX, Reveal


AT: Final = "/o/{organisation:str}/compliance/reveals"
ONE: Final = AT + "/{reveal:str}"
_P = Permission
_READS: Final = needs(_P.AUDIT_READ)
Deed = Callable[[str, str], Awaitable[Reveal]]


class RevealForm(Struct, frozen=True):
    """The form, as it was typed."""

    request_id: str = ""
    reason: str = ""
    ticket: str = ""
    minutes: str = "30"


Form = Annotated[RevealForm, Body(media_type=RequestEncodingType.URL_ENCODED)]


def reveal_routes(services: Services, office: Office) -> list[Any]:
    """The list, the form, one reveal, and what is done to it."""
    return [*_reading(services, office), *_changing(services, office)]


def _reading(services: Services, office: Office) -> list[Any]:
    shell = services.shell

    @get(AT, media_type=MediaType.HTML, opt=_READS)
    async def list_reveals(request: Asking, organisation: FromPath[str]) -> Response[str]:
        return await shell.page(
            request,
            "compliance/reveals.html",
            "reveals",
            by_us=office.custody.ends_by_us(),
            reveals=await office.lists.reveals(
                organisation, first_of(request), PAGE_ROWS, after_of(request)
            ),
            standing=await office.standing(organisation),
        )

    @get(AT + "/new", media_type=MediaType.HTML, opt=_READS)
    async def new_reveal(request: Asking) -> Response[str]:
        form = RevealForm(request_id=request.query_params.get("request", "")[:200])
        return await asking(services, request, form)

    @get(ONE, media_type=MediaType.HTML, opt=_READS)
    async def one_reveal(
        request: Asking, organisation: FromPath[str], reveal: FromPath[str]
    ) -> Response[str]:
        return await showing(services, office, request, organisation, reveal)

    return [list_reveals, new_reveal, one_reveal]


def _changing(services: Services, office: Office) -> list[Any]:
    @post(
        AT,
        media_type=MediaType.HTML,
        opt=needs(_P.CONTENT_REVEAL, records="reveal.asked"),
        status_code=SEE_OTHER,
    )
    async def ask(request: Asking, organisation: FromPath[str], data: Form) -> Response[Any]:
        async def made() -> Response[Any]:
            try:
                asked = await office.ask_reveal(
                    session_of(request).person.name,
                    organisation,
                    data.request_id,
                    reason=data.reason,
                    ticket=data.ticket,
                    minutes=_minutes(data.minutes.strip()),
                )
            except RequestInvalid as error:
                return await asking(services, request, data, error.message, error.parameter)
            return Redirect(
                f"/o/{organisation}/compliance/reveals/{asked.id}", status_code=SEE_OTHER
            )

        return await services.shown_once.answer(request, await form_of(request), made)

    return [ask, *_answering(services, office)]


def _answering(services: Services, office: Office) -> list[Any]:
    async def done(
        request: Asking,
        organisation: str,
        reveal: str,
        deed: Deed,
    ) -> Response[Any]:
        await office.reveal(organisation, reveal)
        try:
            with in_words():
                await deed(session_of(request).person.name, reveal)
        except RequestInvalid as error:
            return await showing(services, office, request, organisation, reveal, error)
        return Redirect(f"/o/{organisation}/compliance/reveals/{reveal}", status_code=SEE_OTHER)

    @post(
        ONE + "/approve",
        media_type=MediaType.HTML,
        opt=needs(_P.CONTENT_APPROVE_REVEAL, records="reveal.approved"),
        status_code=SEE_OTHER,
    )
    async def approve(
        request: Asking, organisation: FromPath[str], reveal: FromPath[str]
    ) -> Response[Any]:
        return await done(request, organisation, reveal, office.custody.approve_reveal)

    @post(
        ONE + "/end",
        media_type=MediaType.HTML,
        opt=needs(_P.CONTENT_APPROVE_REVEAL, records="reveal.ended"),
        status_code=SEE_OTHER,
    )
    async def end(
        request: Asking, organisation: FromPath[str], reveal: FromPath[str]
    ) -> Response[Any]:
        comment = (await form_of(request)).text("comment")
        deed = partial(office.custody.end_reveal, comment=comment)
        return await done(request, organisation, reveal, deed)

    @post(
        ONE + "/content",
        media_type=MediaType.HTML,
        opt=needs(_P.CONTENT_REVEAL, records="reveal.used"),
    )
    async def content(
        request: Asking, organisation: FromPath[str], reveal: FromPath[str]
    ) -> Response[Any]:
        return await reading(services, office, request, organisation, reveal)

    return [approve, end, content]


def _minutes(text: str) -> int:
    """So many; 0, which is refused, for what is no number of minutes."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 5 else 0  # noqa: PLR2004


async def asking(
    services: Services,
    request: Asking,
    form: RevealForm,
    problem: str = "",
    field: str | None = None,
) -> Response[str]:
    """The form, with what was typed and what is wrong with it."""
    return await services.shell.page(
        request,
        "compliance/reveal_new.html",
        "reveals",
        400 if problem else 200,
        form=form,
        problem=problem,
        mistakes={field: problem} if field else {},
        minutes_max=REVEAL_MINUTES_MAX,
    )


async def showing(
    services: Services,
    office: Office,
    request: Asking,
    organisation: str,
    reveal_id: str,
    error: RequestInvalid | None = None,
) -> Response[str]:
    """One reveal without content; once it is over, instead of a page that still shows some."""
    reveal, by_us = await office.reveal(organisation, reveal_id), office.custody.ends_by_us()
    others = (
        await office.others(_P.CONTENT_APPROVE_REVEAL, organisation, reveal.asked_by)
        if reveal.is_waiting
        else []
    )
    answer = await services.shell.page(
        request,
        "compliance/reveal.html",
        "reveals",
        409 if error else 200,
        reveal=reveal,
        others=others,
        problem=error.message if error else "",
        mistakes={error.parameter: error.message} if error and error.parameter else {},
        by_us=by_us,
        revealed=None,
        revealed_max=REVEALED_MAX,
    )
    is_over = not reveal.is_waiting and not reveal.is_open(by_us)
    if is_over and target_of(request) not in ("", PEEK):
        answer.headers["hx-redirect"] = request.scope["path"]
    return answer


async def reading(
    services: Services, office: Office, request: Asking, organisation: str, reveal_id: str
) -> Response[str]:
    """One reveal with content: the answer to a POST, so that no reload reads it unrecorded."""
    found = await office.reveal(organisation, reveal_id)
    try:
        revealed = await office.content(session_of(request).person.name, found)
    except RequestInvalid as error:
        return await showing(services, office, request, organisation, reveal_id, error)
    return await services.shell.page(
        request,
        "compliance/reveal.html",
        "reveals",
        reveal=await office.reveal(organisation, reveal_id),
        problem="",
        by_us=office.custody.ends_by_us(),
        revealed=revealed,
        revealed_max=REVEALED_MAX,
    )
