"""The data plane's ASGI application: its routes, and errors outside any dialect.

Model calls go from the server straight to their doors; Litestar serves the small routes and the
life cycle (docs/decisions/0003). No framework stands between the socket and the journey.
"""

from collections.abc import Awaitable, Sequence
from typing import Any, cast
from urllib.parse import unquote

from litestar import Litestar, MediaType, Request, Response, get
from litestar.connection import ASGIConnection
from litestar.enums import ScopeType
from litestar.exceptions import NotFoundException
from litestar.handlers import BaseRouteHandler, HTTPRouteHandler
from litestar.params import FromPath
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin
from litestar.status_codes import HTTP_204_NO_CONTENT
from litestar.types import HTTPScope, LifespanHook, Message, Receive, Scope, Send
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gateway.api.azure import PREFIX, address_of, endpoint_hint
from gateway.api.decisions import explain_decision
from gateway.api.door import Door, id_headers, new_request_id
from gateway.api.front import Front
from gateway.api.listing import find_model, list_models
from gateway.api.methods import HEAD, OPTIONS, Methods, base_url_hint, unserved_hint, writing_hint
from gateway.api.paging import page_if_asked
from gateway.api.refusals import REQUEST_ID, error_handlers
from gateway.clock import Clock
from gateway.errors import NotReady
from gateway.paths import is_written_as


MODELS_MAX = 1000
"""On one page, as at Anthropic; OpenAI's list has no pages."""


class Application:
    """Passes model calls straight to their doors, and everything else to the framework.

    The framework's router, exception handler and route are coroutines around each call: they did
    nothing for a door, and a streamed answer passed through all of them for every piece.
    """

    __slots__ = ("_clock", "_doors", "_methods", "_others")

    def __init__(
        self, doors: Sequence[Door], others: Litestar, methods: Methods, clock: Clock
    ) -> None:
        self._doors = {door.endpoint.encode("ascii"): door for door in doors}
        """By their paths as sent: no other spelling of one leads to a door."""
        self._others = others
        self._methods = methods
        self._clock = clock

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != ScopeType.HTTP:
            return self._others(scope, receive, send)
        door = self._doors.get(scope["raw_path"])
        if door is not None:
            return door.call(scope, receive, send)
        if scope["path"].startswith(PREFIX) and (address := address_of(scope)) is not None:
            door = self._doors.get(address.path)
            if door is not None:
                return door.call(scope, receive, send, address)
            path = unquote(address.path.decode("ascii"))
            scope = cast("HTTPScope", {**scope, "path": path, "raw_path": address.path})
        return self._small(scope, receive, send)

    def _small(self, scope: HTTPScope, receive: Receive, send: Send) -> Awaitable[None]:
        method = scope["method"]
        request_id = new_request_id(self._clock.utc_us())
        scope["state"][REQUEST_ID] = request_id
        send = _naming(send, request_id)
        if method == HEAD:
            # The server knows the method, and leaves the body out.
            return self._others(cast("Scope", {**scope, "method": "GET"}), receive, send)
        if method == OPTIONS and (allowed := self._methods.at(scope["path"])):
            return _tell_methods(send, allowed)
        return self._others(scope, receive, send)


def _naming(send: Send, request_id: str) -> Send:
    """Add the request's id to every answer, except a door's, which has its own."""
    named = [(name.encode(), value.encode()) for name, value in id_headers(request_id).items()]

    async def say(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [*message["headers"]]
            if named[0][0] not in dict(headers):
                message["headers"] = [*headers, *named]
        await send(message)

    return say


async def _tell_methods(send: Send, allowed: str) -> None:
    # The framework's own answer names the methods of one handler, even if a path has several.
    head = [(b"allow", allowed.encode()), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": HTTP_204_NO_CONTENT, "headers": head})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


class _PlainLitestar(Litestar):
    """Litestar without the plug-ins it finds: our routes take no pydantic models or attrs classes.

    It adds plug-ins for both whenever they can be imported, and here they can: the vendors' SDKs
    bring pydantic. That costs every worker six megabytes (137 with it, 131 without) and start-up
    time, for types that none of its routes has.
    """

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]


def build_application(
    doors: Sequence[Door],
    front: Front,
    more_routes: Sequence[HTTPRouteHandler],
    on_startup: Sequence[LifespanHook],
    on_shutdown: Sequence[LifespanHook],
) -> Application:
    """Wire doors and small routes into one application."""
    small = [*_small_routes(front), *more_routes]
    methods = Methods(small)
    endpoints = frozenset(door.endpoint for door in doors)

    def is_ours(path: str) -> bool:
        return path in endpoints or bool(methods.at(path))

    def hint(path: str) -> str:
        mistake = writing_hint(is_ours, path) or base_url_hint(is_ours, path)
        return unserved_hint(path) or mistake or endpoint_hint(path)

    def allowed(path: str) -> str:
        # `responses/compact` looks like an answer with that name.
        return "" if unserved_hint(path) else methods.at(path)

    others = _PlainLitestar(
        route_handlers=small,
        guards=[_require_one_writing],
        on_startup=on_startup,
        on_shutdown=on_shutdown,
        openapi_config=None,
        logging_config=None,
        exception_handlers=error_handlers(
            front.dialect, front.by_header, allowed=allowed, hint=hint
        ),
    )
    return Application(doors, others, methods, front.clock)


async def _require_one_writing(
    connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
) -> None:
    scope = connection.scope
    if not is_written_as(scope["raw_path"] or b"", scope["path_template"]):
        raise NotFoundException


def _not_ready(front: Front) -> NotReady | None:
    """Why this worker must not get requests now."""
    for check in front.readiness:
        if reason := check():
            return NotReady(reason, retry_after_s=1.0)
    try:
        front.snapshots.current()
    except NotReady as error:
        return error
    return None


def _small_routes(front: Front) -> list[HTTPRouteHandler]:
    @get("/v1/models", media_type=MediaType.JSON)
    async def models(request: Request[Any, Any, Any]) -> bytes:
        principal = await front.principal(request)
        page = page_if_asked(request, MODELS_MAX)
        return list_models(front.snapshots.current(), principal, page)

    @get("/v1/models/{name:path}", media_type=MediaType.JSON)
    async def model(request: Request[Any, Any, Any], name: FromPath[str]) -> bytes:
        principal = await front.principal(request)
        return find_model(front.snapshots.current(), principal, name.lstrip("/"))

    @get("/v1/decisions/{request_id:str}", media_type=MediaType.JSON)
    async def decision(request: Request[Any, Any, Any], request_id: FromPath[str]) -> bytes:
        return await explain_decision(front.archive, request_id, await front.principal(request))

    @get("/health/live", media_type=MediaType.JSON)
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @get("/health/ready", media_type=MediaType.JSON)
    async def ready() -> dict[str, Any]:
        if not_ready := _not_ready(front):
            raise not_ready
        known = {"status": "ready", "snapshot": front.snapshots.current().digest}
        draining = front.draining()
        return {**known, "draining": draining} if draining else known

    front.metrics.snapshot_age.set_function(front.snapshots.age_s)
    front.metrics.ready.set_function(lambda: 0 if _not_ready(front) else 1)

    @get("/metrics")
    async def metrics() -> Response[bytes]:
        # As a header: to a text media type the framework would add the charset again.
        headers = {"content-type": CONTENT_TYPE_LATEST}
        return Response(generate_latest(front.metrics.registry), headers=headers)

    return [models, model, decision, live, ready, metrics]
