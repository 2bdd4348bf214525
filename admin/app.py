"""The admin listener's application: puts rooms, sign-in and the JSON API behind one guard.

Every handler says who may use it (`admin.access`), or the application refuses to start.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from litestar import HttpMethod, Litestar
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.types import Message, Send
from prometheus_client import CollectorRegistry

from admin.access import AccessGuard, SignInRequired, keep_form, require_declarations
from admin.api import api_routes
from admin.audit.integrity import integrity_routes
from admin.audit.pages import audit_routes
from admin.audit.records import record_routes
from admin.batches.routes import batch_routes
from admin.compliance import compliance_routes
from admin.costs.routes import cost_routes
from admin.finding.pages import finding_routes
from admin.first_run.pages import first_run_routes
from admin.keys.routes import key_routes
from admin.models.catalogue import models_routes
from admin.models.credential_pages import credential_routes
from admin.models.engine import engine_routes
from admin.models.planner import planner_routes
from admin.models.price_files import price_file_routes
from admin.models.prices import price_routes
from admin.models.provider import provider_routes
from admin.openapi import openapi_routes
from admin.overview.pages import overview_routes
from admin.overview.probes import probe_routes
from admin.people.routes import people_routes
from admin.policy_room.routes import policy_routes
from admin.services import Services, open_services
from admin.sign_in.back_channel import back_channel_routes
from admin.sign_in.oidc import OpenIdClient
from admin.sign_in.pages import Credentials, sign_in_routes
from admin.sign_in.protection import (
    ALWAYS_ENCRYPTED,
    IS_STRICT,
    SPEAKS_TLS,
    add_security_headers,
    require_one_writing,
    require_own_origin,
    require_storable_address,
    require_storable_body,
)
from admin.sign_in.token_sessions import TokenSessions
from admin.system.routes import system_routes
from admin.teams.routes import team_routes
from admin.traffic.api import traffic_api_routes
from admin.traffic.pages import traffic_routes
from admin.traffic.profiles import profile_routes
from admin.typed_paths import typed_path_routes
from admin.undo import carry_undo
from admin.viewing import viewing_routes
from gateway.clock import Clock, SystemClock
from gateway.configuration.checking import is_guarded
from gateway.configuration.settings import Settings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.credentials import admin_token, oidc_secret, pepper


BODY_BYTES_MAX: Final = 2 * 1024 * 1024
"""The largest form allowed: a large policy document, encoded."""
ROOMS: Final[tuple[Callable[[Services], list[Any]], ...]] = (
    overview_routes,
    first_run_routes,
    finding_routes,
    viewing_routes,
    api_routes,
    cost_routes,
    key_routes,
    team_routes,
    policy_routes,
    traffic_routes,
    traffic_api_routes,
    profile_routes,
    batch_routes,
    audit_routes,
    record_routes,
    integrity_routes,
    compliance_routes,
    models_routes,
    credential_routes,
    provider_routes,
    price_file_routes,
    price_routes,
    engine_routes,
    planner_routes,
    people_routes,
    system_routes,
    typed_path_routes,
)
"""The rooms for people who are signed in; each room says what its handlers need."""


class Listening(Litestar):
    """Accepts HEAD at every address that accepts GET (RFC 9110, 9.1), also for files and JSON."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == ScopeType.HTTP:
            if scope["method"] == HttpMethod.HEAD:
                # The server knows the original method, and leaves the body out.
                scope = {**scope, "method": "GET"}
            elif scope["method"] == HttpMethod.OPTIONS:
                send = _naming_head(send)
        await super().__call__(scope, receive, send)


def _naming_head(send: Send) -> Send:
    """Adds HEAD to `Allow`: the framework names its handlers' methods, which have only GET."""

    async def say(message: Message) -> None:
        if message["type"] == "http.response.start":
            allowed = dict(message["headers"]).get(b"allow", b"").decode().split(", ")
            if "GET" in allowed:
                others = [(name, said) for name, said in message["headers"] if name != b"allow"]
                methods = ", ".join(sorted({*allowed, "HEAD"})).encode()
                message["headers"] = [*others, (b"allow", methods)]
        await send(message)

    return say


def build_application(
    settings: Settings, clock: Clock | None = None, registry: CollectorRegistry | None = None
) -> Litestar:
    """Wire the admin listener; it shares a database with the data plane and nothing else.

    `registry` holds this process's metrics for `/metrics`.

    Raises:
        StartupRefused: a handler does not say who may use it, or a secret is missing or a default.
    """
    services = open_services(settings, clock or SystemClock())
    openid = open_id_client(settings, services.clock)
    token = admin_token(settings)
    tokens = TokenSessions(token, pepper(settings))
    credentials = Credentials(services.people, token, services.clock)

    async def stop(application: Litestar) -> None:
        if openid is not None:
            await openid.close()
        await services.stop(application)

    is_named_https = urlsplit(settings.admin_url).scheme == "https"
    rooms = [handler for room in ROOMS for handler in room(services)]
    application = Listening(
        route_handlers=[
            *services.statics.routes(),
            *sign_in_routes(services, credentials, tokens, openid),
            *(back_channel_routes(services, openid) if openid is not None else ()),
            *probe_routes(registry or CollectorRegistry()),
            *rooms,
            *openapi_routes(rooms),
        ],
        guards=[
            require_one_writing,
            require_own_origin,
            require_storable_address,
            keep_form,
            AccessGuard(services.people, tokens, services.clock),
            require_storable_body,
        ],
        before_send=[add_security_headers, carry_undo],
        on_startup=[services.start],
        on_shutdown=[stop],
        exception_handlers={
            SignInRequired: services.screens.sign_in,
            Exception: services.screens.problem,
        },
        openapi_config=None,
        logging_config=None,
        request_max_body_size=BODY_BYTES_MAX,
        state=State(
            {
                ALWAYS_ENCRYPTED: is_named_https or settings.admin.is_encrypted,
                SPEAKS_TLS: settings.admin.is_encrypted,
                IS_STRICT: is_named_https and settings.admin.is_encrypted,
            }
        ),
    )
    require_declarations(application)
    return application


def open_id_client(settings: Settings, clock: Clock) -> OpenIdClient | None:
    """The client of the configured provider, if there is one.

    Raises:
        ConfigurationInvalid: it is not fully configured.
    """
    if not settings.oidc.issuer:
        return None
    parts = urlsplit(settings.oidc.issuer)
    if not is_guarded(parts):
        reason = "must be https beyond this machine: whoever is between us could vouch for anybody"
        raise ConfigurationInvalid(settings.source, "oidc.issuer", reason)
    public_url = settings.admin_url.rstrip("/")
    if not settings.oidc.client_id or not public_url:
        reason = "oidc.client_id and admin_url are needed for it"
        raise ConfigurationInvalid(settings.source, "oidc.issuer", reason)
    return OpenIdClient(
        settings.oidc,
        oidc_secret(settings),
        clock,
        f"{public_url}/sign-in/openid/back",
        pepper=pepper(settings),
    )
