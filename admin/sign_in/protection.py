"""Rules that every request and answer of the admin listener must keep, in one place.

Headers go onto every message, errors and redirects too. A request that changes something must come
from this listener's own pages: the session cookie is SameSite=Strict, and the browser's statement
of where a form was sent from is checked as well.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection, Request
from litestar.datastructures import MutableScopeHeaders
from litestar.exceptions import (
    NotFoundException,
    PermissionDeniedException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler
from litestar.types import Message, Scope

from admin.asking import Asking
from admin.interrupted import FORM, fields_of
from gateway.errors import RequestInvalid
from gateway.paths import is_written_as


SECURITY_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # With `no-referrer` a browser would send `Origin: null` with our own forms.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
STRICT_TRANSPORT: Final = "max-age=15768000"
"""Half a year, and of no other names."""
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
ALWAYS_ENCRYPTED: Final = "always_encrypted"
"""In the application's state: that the settings say https, so that no cookie goes in plain."""
SPEAKS_TLS: Final = "speaks_tls"
"""In the application's state: that the listener has a certificate of its own."""
IS_STRICT: Final = "is_strict"
"""In the application's state: that browsers are told to come by https only.

A proxy that ends TLS says it itself; and the listener's own address may be that of other programs.
"""
INTEGER_MAX: Final = 2**31 - 1
_NUMBERS: Final = {"sequence": 2**63 - 1}
"""How large what an address numbers may be; all else is an INTEGER of the database."""
_NUL_WRITTEN: Final = (b"\x00", b"%00", b"\\u0000")
"""As it is, in a form and in JSON."""
NUL_SENT: Final = "This holds a character that no database keeps (NUL). Nothing was done."
NUL_SENT_IN: Final = "{name!r} holds a character that no database keeps (NUL). Nothing was done."


async def add_security_headers(message: Message, scope: Scope) -> None:
    """A hook that sees every message on its way out."""
    if message["type"] == "http.response.start":
        headers = MutableScopeHeaders.from_message(message)
        for name, value in SECURITY_HEADERS.items():
            if name != "cache-control" or name not in headers:
                headers[name] = value
        if scope["app"].state.get(IS_STRICT, False):
            headers["strict-transport-security"] = STRICT_TRANSPORT


def came_encrypted(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether the browser speaks TLS to us or to a proxy before us.

    Where people reach us by https, as the settings say, it does, whatever a proxy tells or does not
    tell. Anybody may set the header; it only keeps the liar's own cookie off plain connections.
    """
    forwarded = connection.headers.get("x-forwarded-proto", "")
    is_always = connection.app.state.get(ALWAYS_ENCRYPTED, False)
    return bool(is_always) or "https" in (connection.url.scheme, forwarded)


async def require_one_writing(
    connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
) -> None:
    """Refuse an address that a proxy before us may have read otherwise, as if there were none."""
    scope = connection.scope
    if not is_written_as(scope["raw_path"] or b"", scope["path_template"]):
        raise NotFoundException


async def require_own_origin(
    connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
) -> None:
    """Refuse a change that a page of another origin asked for.

    Who sends neither header is no browser, and has no cookie that somebody else could ride on.
    """
    if connection.scope["method"] in SAFE_METHODS:  # type: ignore[typeddict-item]
        return
    headers = connection.headers
    origin = headers.get("origin")
    if origin is not None and _host_of(origin) != headers.get("host", ""):
        raise PermissionDeniedException("sent from another origin")
    speaks_tls = connection.app.state.get(SPEAKS_TLS, False)
    if origin is not None and speaks_tls and not origin.startswith("https://"):
        # Somebody between us may have written a page of the same name in clear.
        raise PermissionDeniedException("sent from a page in clear")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise PermissionDeniedException("sent from another site")


async def require_storable_address(
    connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
) -> None:
    """Refuse what no database keeps: PostgreSQL has no NUL in texts, and its numbers end."""
    for name, value in connection.path_params.items():
        is_too_large = isinstance(value, int) and abs(value) > _NUMBERS.get(name, INTEGER_MAX)
        if is_too_large or "\x00" in str(value):
            raise NotFoundException
    if any("\x00" in value for _, value in connection.query_params.multi_items()):
        raise ValidationException("a NUL in the address")


async def require_storable_body(
    connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler
) -> None:
    """The same of a body; after the guard of access, so that no stranger's is read for it."""
    if isinstance(connection, Request) and connection.method not in SAFE_METHODS:
        body = await connection.body()
        if any(written in body for written in _NUL_WRITTEN):
            raise _nul_sent(connection, body)


def _nul_sent(request: Asking, body: bytes) -> RequestInvalid:
    """It names the field of a form: the character cannot be seen, so nobody would find it."""
    is_form = request.headers.get("content-type", "").partition(";")[0] == FORM
    for name, value in (fields_of(body) or ()) if is_form else ():
        if "\x00" in value and "\x00" not in name:
            return RequestInvalid(NUL_SENT_IN.format(name=name[:100]), parameter=name[:100])
    return RequestInvalid(NUL_SENT)


def _host_of(origin: str) -> str | None:
    """None for what is no origin."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
