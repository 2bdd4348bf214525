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
    return None if fields is None else Draft(back_to(request), fields)


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
    parts = urlsplit(path)
    is_plain = path.isprintable() and "\\" not in path
    return is_plain and path.startswith("/") and not path.startswith("//") and not parts.netloc


def back_to(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    """The path that was asked for, without the mark of a session that may have ended."""
    query = "&".join(
        part for part in connection.url.query.split("&") if part and not part.startswith("csrf=")
    )
    path: str = connection.scope["path"]
    return f"{path}?{query}" if query else path


def _fields(body: bytes) -> tuple[tuple[str, str], ...] | None:
    try:
        text = body.decode()
        return tuple(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        return None
