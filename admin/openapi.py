"""The JSON API in OpenAPI 3.1: every route under `/api/`, made from the handlers themselves.

Litestar would serve such a document at an address of its own, without saying who may read it. So
litestar only describes the routes here, in an application that is never served, and one route of
ours shows the result.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

import msgspec
from litestar import Litestar, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi.config import OpenAPIConfig

from admin.access import COOKIE, CSRF_HEADER, needs
from admin.queries import queries_of
from gateway.oversight.access import Permission


PREFIX: Final = "/api/"
AT: Final = "/api/openapi.json"
_REFS: Final = "#/components/schemas/"
_ABOUT: Final = (
    "The control plane of one installation. Sign in as a browser does and send the cookie along; a "
    f"change also sends `{CSRF_HEADER}`, and some want a proof of who you are that is at most five "
    "minutes old (`step_up_required`). Times are microseconds UTC, money is micro-dollars."
)
_PARAM: Final = (
    "The field of the body, or the parameter of the address, that is wrong, by its path; `body` is "
    "the whole body. Missing where it is none of them."
)
_PROBLEM: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "param": {"type": "string", "description": _PARAM},
            },
        }
    },
}
_PROBLEMS: Final = {
    "400": "It is not complete, or not understood.",
    "401": "Nobody is signed in, or the session has ended.",
    "403": "No role permits it, it came from another site, or a fresh proof is wanted.",
    "404": "There is nothing here, or nothing that you may know of.",
    "503": "The database does not answer.",
}
_WHERE: Final = {
    "organisation": "in the organisation of the path",
    "some": "in at least one organisation",
    "everywhere": "everywhere",
}


def openapi_routes(handlers: Sequence[Any]) -> list[Any]:
    """The route that shows the document; made when it is first asked for, then kept."""
    made: list[dict[str, Any]] = []

    @get(AT, opt=needs(Permission.OVERVIEW_READ, "some"))
    async def openapi() -> dict[str, Any]:
        if not made:
            made.append(await asyncio.to_thread(described, [*handlers, openapi]))
        return made[0]

    return [openapi]


def described(handlers: Sequence[Any]) -> dict[str, Any]:
    """The document: paths and schemas as plain values."""
    ours = [each for each in handlers if _is_of_the_api(each)]
    config = OpenAPIConfig(
        title="Gatewright control plane",
        version=version("gatewright"),
        description=_ABOUT,
        create_examples=False,
    )
    application = Litestar(ours, openapi_config=config, logging_config=None)
    document: dict[str, Any] = msgspec.to_builtins(application.openapi_schema.to_schema())
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas["Problem"] = _PROBLEM
    document["components"]["securitySchemes"] = {
        "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
        "mark": {"type": "apiKey", "in": "header", "name": CSRF_HEADER},
    }
    found = {operation["operationId"]: operation for operation in _operations(document)}
    for route in application.routes:
        for handler in getattr(route, "route_handlers", ()):
            for operation_id in _ids_of(handler, route.path_format, document):
                schemas |= _complete(found[operation_id], handler)
    return document


def _is_of_the_api(handler: Any) -> bool:
    return isinstance(handler, HTTPRouteHandler) and any(
        path.startswith(PREFIX) for path in handler.paths
    )


def _operations(document: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for item in document["paths"].values():
        yield from (each for each in item.values() if isinstance(each, dict))


def _ids_of(handler: HTTPRouteHandler, path: str, document: Mapping[str, Any]) -> list[str]:
    item = document["paths"].get(path, {})
    methods = (str(method).lower() for method in handler.http_methods)
    return [item[method]["operationId"] for method in methods if method in item]


def _complete(operation: dict[str, Any], handler: HTTPRouteHandler) -> dict[str, Any]:
    """What only our declarations know, put into an operation; the schemas that this adds."""
    access, is_change = handler.opt["access"], "GET" not in handler.http_methods
    words = operation["operationId"].removeprefix("Api")
    operation["summary"] = (handler.fn.__name__).replace("_", " ").strip().capitalize() or words
    operation["description"] = _said(handler)
    operation["security"] = [{"session": [], "mark": []}] if is_change else [{"session": []}]
    if isinstance(access, Permission):
        operation["x-permission"] = access.value
    if queries := queries_of(handler.fn):
        operation.setdefault("parameters", []).extend(each.described() for each in queries)
    answers = operation["responses"]
    for status, text in _PROBLEMS.items():
        content = {"application/json": {"schema": {"$ref": f"{_REFS}Problem"}}}
        answers[status] = {"description": text, "content": content}
    for answer in answers.values():
        for media_type in [name for name in answer.get("content", {}) if not name]:
            answer["content"]["application/octet-stream"] = answer["content"].pop(media_type)
    body = body_type_of(handler) if is_change and "requestBody" not in operation else None
    if body is None:
        return {}
    template = f"{_REFS}body.{{name}}"
    (schema,), schemas = msgspec.json.schema_components([body], ref_template=template)
    content = {"application/json": {"schema": schema}}
    operation["requestBody"] = {"required": True, "content": content}
    return {f"body.{name}": each for name, each in schemas.items()}


def _said(handler: HTTPRouteHandler) -> str:
    """Who may use it and what it leaves behind, in words."""
    access, records = handler.opt["access"], handler.opt.get("records", "")
    if isinstance(access, Permission):
        said = f"Needs `{access.value}` {_WHERE[handler.opt['where']]}."
    else:
        said = "For everybody who is signed in."
    if records and not records.startswith("nothing"):
        said += f" Leaves an admin record `{records}`."
    return said


def body_type_of(handler: HTTPRouteHandler) -> type[msgspec.Struct] | None:
    """The struct that a handler reads its body as.

    Declared, or the one struct without unknown fields that the handler's own code names: bodies
    are read into such structs, and nothing else is one.
    """
    function = handler.fn
    named = [function.__globals__.get(name) for name in function.__code__.co_names]
    for found in (handler.opt.get("body"), *named):
        if isinstance(found, type) and issubclass(found, msgspec.Struct):
            config = found.__struct_config__
            if found is handler.opt.get("body") or config.forbid_unknown_fields:
                return found
    return None
