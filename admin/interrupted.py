"""A change that had to wait for a proof of who makes it: its form goes along and is sent again.

A session that ended, or a deed that wants a fresh proof, must not cost what somebody wrote. The
form comes back in the page that asks for the proof, and after it in one that asks whether to go on.
"""

from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from litestar import Request
from litestar.connection import ASGIConnection
from msgspec import Struct


FORM: Final = "application/x-www-form-urlencoded"
PREFIX: Final = "carried."
PATH: Final = "carried-path"
FIELDS_MAX: Final = 500


class Draft(Struct, frozen=True):
    """What was being sent: where to, and the fields, in order."""

    path: str
    fields: tuple[tuple[str, str], ...] = ()

    def hidden(self) -> list[tuple[str, str]]:
        """As fields of another form."""
        return [(PATH, self.path), *((f"{PREFIX}{name}", value) for name, value in self.fields)]


async def draft_of(request: Request[Any, Any, Any]) -> Draft | None:
    """The form that a request sends; None where it sends none."""
    if request.headers.get("content-type", "").partition(";")[0] != FORM:
        return None
    fields = _fields(await request.body())
    return None if fields is None else Draft(_asked_for(request), fields)


def carried_in(body: bytes) -> Draft | None:
    """The form that another form carries, if it is one of ours."""
    fields = _fields(body) or ()
    path = next((value for name, value in fields if name == PATH), "")
    if not is_own_path(path):
        return None
    kept = [(name[len(PREFIX) :], value) for name, value in fields if name.startswith(PREFIX)]
    return Draft(path, tuple(kept))


def is_own_path(path: str) -> bool:
    """Whether a path leads nowhere but to this listener."""
    is_plain = path.isprintable() and "\\" not in path
    return is_plain and path.startswith("/") and not path.startswith("//")


def back_to(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The page that was asked for; of what only takes a form, the page that the form stood on."""
    template, scope = connection.scope["path_template"], connection.scope
    is_page = any(
        route.path_format == template and "GET" in getattr(route, "methods", ())
        for route in connection.app.routes
    )
    if is_page:
        return _asked_for(connection)
    try:
        sent_from = urlsplit(connection.headers.get("referer", ""))
    except ValueError:
        return "/"
    page = _unmarked(sent_from.path, sent_from.query)
    return page if is_own_path(page) and sent_from.path != scope["path"] else "/"


def _asked_for(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    return _unmarked(connection.scope["path"], connection.url.query)


def _unmarked(path: str, query: str) -> str:
    """An address without the mark of a session that may have ended."""
    kept = "&".join(part for part in query.split("&") if part and not part.startswith("csrf="))
    return f"{path}?{kept}" if kept else path


def _fields(body: bytes) -> tuple[tuple[str, str], ...] | None:
    try:
        text = body.decode()
        return tuple(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        return None
