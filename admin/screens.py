"""Renders pages: values are escaped, missing values are errors, problems reveal no internals."""

import secrets
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from litestar import MediaType, Response
from litestar.exceptions import HTTPException
from litestar.response import Redirect

from admin.access import (
    COOKIE,
    EarlierPage,
    SignInRequired,
    StepUpRequired,
    csrf_of,
    draft_in,
    session_in,
)
from admin.asking import Asking
from admin.cards import as_cards
from admin.forms import as_sentence
from admin.interrupted import back_to
from admin.rail import Line, rail_of
from admin.statics import Statics
from gateway.audit.projecting.projector import ProjectionBroken
from gateway.audit.proving.integrator import LogForked, TreeDamaged
from gateway.errors import GatewrightError
from gateway.oversight.access import Person
from gateway.secrets.content_keys import ContentDamaged, KeyClosed
from gateway.telemetry import Event, logger, raised_at


INVALID: Final = 400
NOT_SIGNED_IN: Final = 401
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
"""Status of a change that somebody else's change came before."""
READING: Final = frozenset({"GET", "HEAD"})
SERVER_ERROR: Final = 500
UNAVAILABLE: Final = 503
SEE_OTHER: Final = 303
ENDED: Final = "Your session has ended. Sign in: what you were sending is kept."
ENDED_IN_PART: Final = (
    "Your session has ended. Sign in: only part of what you were sending is kept."
)
LEFT: Final = "Your session has ended. What you typed stays here while you sign in in another tab."
PROBLEMS: Final = {
    400: "This form is not complete.",
    403: "This was sent from another site, or none of your roles permits it. Nothing was done.",
    404: "There is no such page.",
    405: "This page does not accept that.",
    409: "Somebody else changed it meanwhile. Nothing was done.",
    413: "That is too much.",
    503: "The database does not answer. Nothing can be shown until it does.",
}
OF_THE_DATA_PLANE: Final = ("/v1/", "/openai/")
ELSEWHERE: Final = (
    "This is the admin listener, which answers no model requests. They go to the data plane, whose "
    "address has another port (8080 unless it was set)."
)
UNSURE: Final = "The database does not answer, so this may or may not have been done."
GO_BACK: Final = (
    "Go back: what you typed is still in the form. Check whether it was done before you send it "
    "again."
)
EARLIER: Final = (
    "This page is of an earlier session, so nothing was done. You are signed in as {name} now."
)
NO_ADDRESS: Final = "Part of this address cannot be read. Check what follows the question mark."
NO_ROLE: Final = (
    "None of your roles opens this page. Who manages people and roles can give you one that does."
)
DAMAGED: Final = (
    "The audit log cannot be read to its end. `gatewright audit fsck` says what is affected."
)
CODES: Final = {
    400: "invalid_request",
    401: "not_signed_in",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    413: "request_too_large",
    503: "not_ready",
}
API: Final = "/api/"
ORGANISATION_COOKIE: Final = "gatewright_organisation"


@cache
def environment() -> Environment:
    """Our templates, each compiled once per process: compiling takes longer than rendering."""
    made = Environment(
        loader=PackageLoader("admin", "pages"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["cards"] = as_cards
    made.globals["mark_of_a_form"] = lambda: secrets.token_urlsafe(18)
    return made


def _status_of(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    if isinstance(error, GatewrightError):
        return error.http_status
    if isinstance(error, ProjectionBroken | TreeDamaged | LogForked):
        return UNAVAILABLE
    # Only what is sent is ever so deep as to end in a RecursionError.
    return 400 if isinstance(error, RecursionError) else SERVER_ERROR


def _text_of(error: Exception, status: int, method: str) -> str:
    """The text that describes a problem."""
    if isinstance(error, StepUpRequired):
        return "Confirm who you are, then do it again. Nothing was done."
    if isinstance(error, EarlierPage):
        return EARLIER.format(name=error.name)
    if isinstance(error, GatewrightError) and status < SERVER_ERROR:
        return error.message
    if isinstance(error, KeyClosed | ContentDamaged):
        return as_sentence(error.message)  # The database answers; what it keeps cannot be read.
    if isinstance(error, ProjectionBroken | TreeDamaged | LogForked):
        return DAMAGED  # What it says itself may be of others' logs.
    return _said(status, method)


def _for_programs(error: Exception, status: int, text: str) -> dict[str, str]:
    """A problem as the JSON API returns it, with the field that is wrong, if there is one."""
    code = CODES.get(status, "internal_error")
    said = {"code": "step_up_required" if isinstance(error, StepUpRequired) else code}
    said["message"] = text
    if isinstance(error, GatewrightError) and error.parameter:
        said["param"] = error.parameter
    return said


def is_fragment(request: Asking) -> bool:
    """Whether a script asks for a piece of a page, to put it into the page that is shown."""
    return request.headers.get("hx-request") == "true"


def _said(status: int, method: str) -> str:
    """A page's text for a problem that has no text itself."""
    if status == FORBIDDEN and method in READING:
        return NO_ROLE  # Nothing was sent, so nothing can have come from another site.
    if status == INVALID and method in READING:
        return NO_ADDRESS
    if status == UNAVAILABLE and method not in READING:
        return UNSURE
    return PROBLEMS.get(status, "This page cannot be shown.")


def _bare(request: Asking, status: int) -> str:
    """The page whose address could not be read, without its query."""
    is_query = status == INVALID and request.method in READING and bool(request.url.query)
    return quote(request.scope["path"]) if is_query else ""


def _ways_on(request: Asking) -> list[Line]:
    """The rooms open to the signed-in person, in the organisation looked at last."""
    session = session_in(request)
    if session is None:
        return []
    return rail_of(session.person, request.cookies.get(ORGANISATION_COOKIE, ""), "")


def _without_role(request: Asking) -> Person | None:
    """The signed-in person, if without any role: no page, not even the overview, is open then."""
    session = session_in(request)
    return session.person if session is not None and not session.person.grants else None


def _typed_in(request: Asking) -> list[tuple[str, str]]:
    """The contents of the refused form: the browser keeps no page, so it forgets them."""
    draft = draft_in(request)
    fields = draft.fields if draft else ()
    return [
        (name.replace("_", " ").replace(".", " "), value)
        for name, value in fields
        if value.strip() and name != "once"
    ]


class Screens:
    """Pages for people, and the same problems as JSON for programs."""

    def __init__(self, statics: Statics, *, has_openid: bool = False) -> None:
        """`has_openid`: an OpenID provider may vouch for people."""
        self._of_all: dict[str, object] = {"statics": statics, "has_openid": has_openid}

    def page(self, name: str, status: int = 200, **values: object) -> Response[str]:
        """A page without a frame: for people who are not signed in, and for problems."""
        return self.html(self.render(name, "", **values), status)

    def render(self, name: str, block: str, **values: object) -> str:
        """A template's text; with the name of one of its blocks, that block's alone."""
        template = environment().get_template(name)
        context = template.new_context(self._of_all | values)
        if block not in template.blocks:
            return "".join(template.root_render_func(context))
        # What the template imports and sets at its top is done before its first piece of text.
        next(template.root_render_func(context), "")
        return "".join(template.blocks[block](context))

    def has_block(self, name: str, block: str) -> bool:
        """Whether a template, or one that it extends, has a block of this name."""
        return block in environment().get_template(name).blocks

    @staticmethod
    def html(text: str, status: int) -> Response[str]:
        return Response(text, media_type=MediaType.HTML, status_code=status)

    def problem(self, request: Asking, error: Exception) -> Response[Any]:
        """The page for whatever went wrong; it reveals nothing internal."""
        status = _status_of(error)
        if status == SERVER_ERROR:
            logger().error(
                Event.REQUEST_CRASHED,
                component="admin",
                # As it was declared: what stands in an address may be somebody's name.
                endpoint=request.scope["path_template"],
                error_class=type(error).__name__,
                where=raised_at(error),
            )
        text = _text_of(error, status, request.method)
        if request.scope["path"].startswith(API):
            body = {"error": _for_programs(error, status, text)}
            return Response(body, media_type=MediaType.JSON, status_code=status)
        if status == NOT_FOUND and request.scope["path"].startswith(OF_THE_DATA_PLANE):
            # A vendor's client shows its caller nothing of a page.
            body = {"error": {"code": CODES[NOT_FOUND], "message": ELSEWHERE}}
            return Response(body, media_type=MediaType.JSON, status_code=status)
        if is_fragment(request):
            return self._beside(status, text)
        if isinstance(error, StepUpRequired):
            kept = {"draft": error.draft, "to": error.to, "csrf": error.csrf}
            return self.page("prove.html", status, problem="", **kept)
        if isinstance(error, EarlierPage) and error.draft:
            kept = {"draft": error.draft, "csrf": error.csrf}
            return self.page("continue.html", status, problem=text, **kept)
        if status == UNAVAILABLE:
            return self._away(request, text)
        alone = _without_role(request) if status in (FORBIDDEN, NOT_FOUND) else None
        if alone is not None:
            csrf = csrf_of(request.cookies.get(COOKIE, ""))
            said = {"person": alone, "csrf": csrf, "typed": _typed_in(request)}
            return self.page("no_role.html", status, **said)
        said = {"typed": _typed_in(request), "bare": _bare(request, status)}
        return self.page("problem.html", status, problem=text, rooms=_ways_on(request), **said)

    def _beside(self, status: int, text: str, *, sign_in: bool = False) -> Response[str]:
        """A line above what is shown, for a script that wanted a piece of a page.

        A complete page, or a redirect to one, would be painted into a table or a drawer.
        """
        answer = self.page("parts/beside.html", status, problem=text, sign_in=sign_in)
        answer.headers |= {"hx-retarget": "#beside", "hx-reswap": "innerHTML"}
        return answer

    def _away(self, request: Asking, text: str) -> Response[str]:
        """The page while the database is away: it asks again, or carries a form to send again."""
        status = UNAVAILABLE
        if request.method in READING:
            return self.page("problem.html", status, problem=text, again=back_to(request))
        draft = draft_in(request)
        if draft is None:
            return self.page("problem.html", status, problem=f"{text} {GO_BACK}")
        csrf = csrf_of(request.cookies.get(COOKIE, ""))
        look = back_to(request)
        return self.page("unsure.html", status, problem=text, draft=draft, csrf=csrf, look=look)

    def sign_in(self, request: Asking, error: SignInRequired) -> Response[Any]:
        """Sends somebody who is not signed in to sign in; a page for those who sent something."""
        if request.scope["path"].startswith(API):
            return self.problem(request, error)
        if is_fragment(request):
            return self._beside(NOT_SIGNED_IN, LEFT, sign_in=True)
        if error.draft is None:
            wanted = back_to(request)
            to = "" if wanted == "/" else f"?{urlencode({'to': wanted})}"
            return Redirect(f"/sign-in{to}", status_code=SEE_OTHER)
        ended = ENDED_IN_PART if error.draft.lost else ENDED
        return self.page("sign_in.html", 401, problem=ended, draft=error.draft, to="")
