"""Renders pages: values are escaped, a missing one is an error, no problem says what is ours."""

from datetime import UTC, datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from admin.access import StepUpRequired
from gateway.errors import GatewrightError
from gateway.telemetry import Event, logger, raised_at


SERVER_ERROR: Final = 500
PROBLEMS: Final = {
    400: "This form is not complete.",
    403: "This was sent from another site, or no role of yours permits it. Nothing was done.",
    404: "There is no such page.",
    405: "This page does not take that.",
    413: "That is too much.",
    503: "The database does not answer. Nothing can be shown until it does.",
}
CODES: Final = {
    400: "invalid_request",
    401: "not_signed_in",
    403: "permission_denied",
    404: "not_found",
    405: "method_not_allowed",
    413: "request_too_large",
    503: "not_ready",
}
API: Final = "/api/"


class Screens:
    """Pages for people, and the same problems as JSON for programs."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("admin", "pages"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
        )
        self._environment.filters["moment"] = _moment
        self._environment.filters["usd"] = _usd

    def page(self, name: str, status: int = 200, **values: object) -> Response[str]:
        text = self._environment.get_template(name).render(**values)
        return Response(text, media_type=MediaType.HTML, status_code=status)

    def problem(self, request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
        """The page for whatever went wrong; it says nothing that is ours."""
        status = SERVER_ERROR
        if isinstance(error, HTTPException):
            status = error.status_code
        elif isinstance(error, GatewrightError):
            status = error.http_status
        if status == SERVER_ERROR:
            logger().error(
                Event.REQUEST_CRASHED,
                component="admin",
                endpoint=request.scope["path"],
                error_class=type(error).__name__,
                where=raised_at(error),
            )
        text = PROBLEMS.get(status, "This page cannot be shown.")
        if isinstance(error, StepUpRequired):
            text = "Prove again who you are, then do it again. Nothing was done."
        elif isinstance(error, GatewrightError) and status < SERVER_ERROR:
            text = error.message
        if request.scope["path"].startswith(API):
            code = CODES.get(status, "internal_error")
            if isinstance(error, StepUpRequired):
                code = "step_up_required"
            body = {"error": {"code": code, "message": text}}
            return Response(body, media_type=MediaType.JSON, status_code=status)
        return self.page("problem.html", status, problem=text)


def _moment(utc_s: int) -> str:
    return datetime.fromtimestamp(utc_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _usd(microusd: int) -> str:
    return f"${microusd / 1e6:,.6f}"
