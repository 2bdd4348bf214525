"""Errors of small routes, in the envelope of the dialect that their callers speak."""

from collections.abc import Callable, Mapping
from typing import Any

from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from gateway.errors import GatewrightError, MethodRefused, RouteUnknown
from gateway.ports import Dialect


METHOD_NOT_ALLOWED = 405
SERVER_ERROR = 500
REQUEST_ID = "request_id"
"""Where a small route's scope state holds the request's id, which the answer's head repeats."""

Explain = Callable[[Request[Any, Any, Any], Exception], Response[bytes]]
Handlers = dict[int | type[Exception], Explain]
OfPath = Callable[[str], str]


def _nothing(_: str) -> str:
    return ""


def error_handlers(
    dialect: Dialect,
    by_header: Mapping[str, Dialect] | None = None,
    *,
    allowed: OfPath = _nothing,
    hint: OfPath = _nothing,
) -> Handlers:
    """What the framework calls for errors of ours and of its own.

    On paths that several vendors' clients share, a header that only one of them sends decides.
    `allowed` gives the methods of a path, `hint` a sentence about one that leads nowhere.
    """
    others = by_header or {}

    def explain(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
        spoken = (others[name] for name in others if name in request.headers)
        chosen = next(spoken, dialect)
        if isinstance(error, HTTPException):
            path = request.scope["path"]
            error = _from_framework(error, allowed(path), hint(path))
        return _error_response(chosen, error, request.scope["state"][REQUEST_ID])

    return {GatewrightError: explain, HTTPException: explain}


def _error_response(dialect: Dialect, error: Exception, request_id: str) -> Response[bytes]:
    if not isinstance(error, GatewrightError):
        error = GatewrightError("The gateway failed to serve this request.")
    status, body = dialect.encode_error(error, request_id)
    headers = {**error.headers, **error.evidence}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    if not error.retryable:
        # SDKs would retry a 409, and every status from 500 on.
        headers["x-should-retry"] = "false"
    return Response(body, status_code=status, media_type=MediaType.JSON, headers=headers)


def _from_framework(error: HTTPException, allowed: str, hint: str) -> GatewrightError:
    """Litestar's own refusals: no such route, wrong method, malformed path or query."""
    if error.status_code >= SERVER_ERROR:
        return GatewrightError("The gateway failed to serve this request.")
    if error.status_code == METHOD_NOT_ALLOWED and allowed:
        return MethodRefused("This path does not take this method.", allowed=allowed)
    return RouteUnknown(f"There is nothing at this path.{hint}")
