"""The admin listener's application: wires pages, sign-in and the JSON API over one guard.

Every handler says who may use it (`admin.access`), or the application refuses to start. Pages are
rendered here: no script runs in the browser.
"""

from importlib import resources
from typing import Any, Final

from litestar import Litestar, MediaType, Request, Response, route
from litestar.exceptions import NotAuthorizedException
from litestar.response import Redirect

from admin.access import (
    COOKIE,
    PUBLIC,
    AccessGuard,
    csrf_of,
    needs,
    require_declarations,
    session_of,
)
from admin.api import api_routes
from admin.costs import cost_routes
from admin.oidc import OpenIdClient
from admin.overview import OverviewReader
from admin.protection import add_security_headers, require_own_origin
from admin.screens import API, Screens
from admin.sign_in import READING, SEE_OTHER, Credentials, sign_in_routes
from gateway.access import Permission, organisations_of
from gateway.audit.device import AuditLimits
from gateway.audit.writer import SegmentedAuditLog
from gateway.clock import Clock, SystemClock
from gateway.credentials import admin_token, master_key, oidc_secret, pepper
from gateway.deeds import Deeds
from gateway.errors import ConfigurationInvalid
from gateway.identity import Peppers
from gateway.settings import Settings
from gateway.store.audit_sink import DatabaseAuditSink
from gateway.store.engine import Database, open_database
from gateway.store.keys import KeyStore
from gateway.store.leases import LeaseTable
from gateway.store.people import PeopleStore
from gateway.store.revisions import current
from gateway.store.schema import require_newest_schema
from gateway.store.spending import SpendingReader
from gateway.telemetry import Event, logger


BODY_BYTES_MAX: Final = 64 * 1024


def build_application(settings: Settings, clock: Clock | None = None) -> Litestar:
    """Wire the admin listener; it shares a database with the data plane and nothing else.

    Raises:
        StartupRefused: a handler does not say who may use it, or a secret is missing or a default.
    """
    clock = clock or SystemClock()
    database = open_database(settings.database_url)
    keys = KeyStore(database, Peppers({settings.secrets.pepper_version: pepper(settings)}), clock)
    budgets = LeaseTable(database, clock)
    people = PeopleStore(database, clock)
    openid = open_id_client(settings, clock)
    screens = Screens()
    records = DatabaseAuditSink(database, settings.path(settings.audit.directory))
    reader = OverviewReader(settings, keys, budgets, records, clock)
    log = deeds_log(settings, clock)
    deeds = Deeds(log, clock)

    async def start() -> None:
        await require_newest_schema(database)
        await log.start()
        logger().info(Event.PROCESS_STARTED, component="admin")

    async def stop() -> None:
        if openid is not None:
            await openid.close()
        await log.close()
        await database.close()
        logger().info(Event.PROCESS_STOPPED, component="admin")

    credentials = Credentials(people, admin_token(settings), clock)
    application = Litestar(
        route_handlers=[
            *_pages(database, reader, screens),
            *sign_in_routes(people, credentials, openid, screens, deeds),
            *api_routes(keys, budgets, people, deeds),
            *cost_routes(settings, SpendingReader(database), clock),
        ],
        guards=[require_own_origin, AccessGuard(people, clock)],
        before_send=[add_security_headers],
        on_startup=[start],
        on_shutdown=[stop],
        exception_handlers={
            NotAuthorizedException: lambda request, error: _to_sign_in(screens, request, error),
            Exception: screens.problem,
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=BODY_BYTES_MAX,
    )
    require_declarations(application)
    return application


def deeds_log(settings: Settings, clock: Clock) -> SegmentedAuditLog:
    """Segments of the control plane's own; whoever projects this folder numbers them."""
    return SegmentedAuditLog(
        settings.path(settings.audit.directory),
        f"{settings.audit.worker}-admin",
        keys=master_key(settings),
        clock=clock,
        limits=AuditLimits(
            free_floor_bytes=settings.audit.free_bytes_min,
            deadline_s=settings.audit.append_deadline_s,
        ),
    )


def open_id_client(settings: Settings, clock: Clock) -> OpenIdClient | None:
    """The client of the configured provider, if there is one.

    Raises:
        ConfigurationInvalid: it is not wholly configured.
    """
    if not settings.oidc.issuer:
        return None
    public_url = settings.admin_url.rstrip("/")
    if not settings.oidc.client_id or not public_url:
        reason = "oidc.client_id and admin_url are needed for it"
        raise ConfigurationInvalid(settings.source, "oidc.issuer", reason)
    return OpenIdClient(
        settings.oidc, oidc_secret(settings), clock, f"{public_url}/sign-in/openid/back"
    )


def _pages(database: Database, reader: OverviewReader, screens: Screens) -> list[Any]:
    @route(
        "/",
        http_method=READING,
        media_type=MediaType.HTML,
        opt=needs(Permission.OVERVIEW_READ, "some"),
    )
    async def overview(request: Request[Any, Any, Any]) -> Response[str]:
        visible = organisations_of(session_of(request).person, Permission.OVERVIEW_READ)
        csrf = csrf_of(request.cookies.get(COOKIE, ""))
        return screens.page("overview.html", overview=await reader.read(visible), csrf=csrf)

    @route("/static/gatewright.css", http_method=READING, opt=PUBLIC, media_type="text/css")
    async def stylesheet() -> str:
        return resources.files("admin").joinpath("static", "gatewright.css").read_text("utf-8")

    @route("/health/ready", http_method=READING, opt=PUBLIC)
    async def ready() -> dict[str, str]:
        await current(database)
        return {"status": "ready"}

    return [overview, stylesheet, ready]


def _to_sign_in(
    screens: Screens, request: Request[Any, Any, Any], error: NotAuthorizedException
) -> Response[Any]:
    if request.scope["path"].startswith(API):
        return screens.problem(request, error)
    return Redirect("/sign-in", status_code=SEE_OTHER)
