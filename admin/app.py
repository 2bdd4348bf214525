"""The admin listener's application: sign-in, and a first overview of the evidence.

Everything but the health check and the sign-in page needs a session; that is decided in one place,
before any handler runs. Pages are rendered here: no script runs in the browser.
"""

from datetime import UTC, datetime
from importlib import resources
from typing import Annotated, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from litestar import Litestar, MediaType, Request, Response, post, route
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie
from litestar.enums import HttpMethod, RequestEncodingType
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.params import Body
from litestar.response import Redirect
from msgspec import Struct

from admin.overview import OverviewReader
from admin.protection import add_security_headers, require_own_origin
from admin.sessions import Sessions
from gateway.clock import Clock, SystemClock
from gateway.credentials import admin_token, pepper
from gateway.errors import GatewrightError
from gateway.identity import Peppers
from gateway.settings import Settings
from gateway.store.audit_sink import DatabaseAuditSink
from gateway.store.engine import Database, open_database
from gateway.store.keys import KeyStore
from gateway.store.leases import LeaseTable
from gateway.store.migrate import require_newest_schema
from gateway.store.revisions import current
from gateway.telemetry import Event, logger, raised_at


COOKIE = "gatewright_admin"
SEE_OTHER: Final = 303
SERVER_ERROR: Final = 500
READING: Final = (HttpMethod.GET, HttpMethod.HEAD)
BODY_BYTES_MAX: Final = 64 * 1024
PROBLEMS: Final = {
    400: "This form is not complete.",
    403: "This was sent from another site, so nothing was done.",
    404: "There is no such page.",
    405: "This page does not take that.",
    413: "That is too much.",
    503: "The database does not answer. Nothing can be shown until it does.",
}


class SignIn(Struct, frozen=True):
    """The sign-in form."""

    token: str


class Screens:
    """Renders pages; every value is escaped, a missing one is an error."""

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

    def problem(self, request: Request[Any, Any, Any], error: Exception) -> Response[str]:
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
        return self.page("problem.html", status, problem=text)


def build_application(settings: Settings, clock: Clock | None = None) -> Litestar:
    """Wire the admin listener; it shares a database with the data plane and nothing else."""
    clock = clock or SystemClock()
    database = open_database(settings.database_url)
    peppers = Peppers({settings.secrets.pepper_version: pepper(settings)})
    sessions = Sessions(admin_token(settings), clock)
    reader = OverviewReader(
        settings,
        KeyStore(database, peppers, clock),
        LeaseTable(database, clock),
        DatabaseAuditSink(database, settings.path(settings.audit.directory)),
        clock,
    )

    async def start() -> None:
        await require_newest_schema(database)
        logger().info(Event.PROCESS_STARTED, component="admin")

    async def stop() -> None:
        await database.close()
        logger().info(Event.PROCESS_STOPPED, component="admin")

    async def require_session(
        connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler
    ) -> None:
        if handler.opt.get("public"):
            return
        if not sessions.is_signed_in(connection.cookies.get(COOKIE, "")):
            raise NotAuthorizedException

    screens = Screens()
    return Litestar(
        route_handlers=[*_routes(database, sessions, reader, screens)],
        guards=[require_own_origin, require_session],
        before_send=[add_security_headers],
        on_startup=[start],
        on_shutdown=[stop],
        exception_handlers={NotAuthorizedException: _to_sign_in, Exception: screens.problem},
        openapi_config=None,
        logging_config=None,
        request_max_body_size=BODY_BYTES_MAX,
    )


def _routes(
    database: Database, sessions: Sessions, reader: OverviewReader, screens: Screens
) -> list[Any]:
    @route("/", http_method=READING, media_type=MediaType.HTML)
    async def overview() -> Response[str]:
        return screens.page("overview.html", overview=await reader.read())

    @route("/sign-in", http_method=READING, opt={"public": True}, media_type=MediaType.HTML)
    async def sign_in_page() -> Response[str]:
        return screens.page("sign_in.html", problem="")

    @post("/sign-in", opt={"public": True}, media_type=MediaType.HTML, status_code=SEE_OTHER)
    async def sign_in(
        request: Request[Any, Any, Any],
        data: Annotated[SignIn, Body(media_type=RequestEncodingType.URL_ENCODED)],
    ) -> Response[Any]:
        session_id = sessions.sign_in(data.token.strip())
        if session_id is None:
            logger().warning(Event.ADMIN_REFUSED, component="admin")
            return screens.page("sign_in.html", 401, problem="That is not the token.")
        logger().info(Event.ADMIN_SIGNED_IN, component="admin")
        cookie = Cookie(
            COOKIE,
            value=session_id,
            httponly=True,
            samesite="strict",
            secure=_came_encrypted(request),
            path="/",
        )
        return Redirect("/", status_code=SEE_OTHER, cookies=[cookie])

    @post("/sign-out", status_code=SEE_OTHER)
    async def sign_out(request: Request[Any, Any, Any]) -> Redirect:
        sessions.sign_out(request.cookies.get(COOKIE, ""))
        answer = Redirect("/sign-in", status_code=SEE_OTHER)
        answer.delete_cookie(COOKIE)
        return answer

    @route(
        "/static/gatewright.css",
        http_method=READING,
        opt={"public": True},
        media_type="text/css",
    )
    async def stylesheet() -> str:
        return resources.files("admin").joinpath("static", "gatewright.css").read_text("utf-8")

    @route("/health/ready", http_method=READING, opt={"public": True})
    async def ready() -> dict[str, str]:
        await current(database)
        return {"status": "ready"}

    return [overview, sign_in_page, sign_in, sign_out, stylesheet, ready]


def _to_sign_in(_: Request[Any, Any, Any], _error: NotAuthorizedException) -> Redirect:
    return Redirect("/sign-in", status_code=SEE_OTHER)


def _came_encrypted(request: Request[Any, Any, Any]) -> bool:
    """Whether the browser speaks TLS to us or to a proxy before us.

    Anybody may set the header; it only keeps the liar's own cookie off plain connections.
    """
    forwarded = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, forwarded)


def _moment(utc_s: int) -> str:
    return datetime.fromtimestamp(utc_s, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _usd(microusd: int) -> str:
    return f"${microusd / 1e6:,.6f}"
