"""Keeps a form while its sender proves who they are, then offers to send it again.

A session that ended, or a deed that wants a fresh proof, must not cost people what they wrote. The
form is carried in the page that asks for the proof, and then in one that asks whether to go on. A
text file is carried along as text; any other file is named, to be chosen again on its own page.
"""

import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from litestar.connection import ASGIConnection
from litestar.enums import RequestEncodingType
from msgspec import Struct

from admin.asking import Asking


FORM: Final = "application/x-www-form-urlencoded"
MARK: Final = "csrf"
"""The field with the mark of the session that a form is of. It stands in no address: those are kept
in histories and logs; and goes along with no draft, whose session may have ended."""
PREFIX: Final = "carried."
PATH: Final = "carried-path"
PAGE: Final = "carried-page"
LOST: Final = "carried-lost"
FILE_NAME: Final = ".name"
FILE_TEXT: Final = ".text"
"""Behind the name of a field for a file: what the file is called, and what is in it."""
CARRIED_BYTES_MAX: Final = 1_500_000
"""Of fields as a form sends them: what goes along with another form stays below its own limit."""
FIELDS_MAX: Final = 500
_DISPOSITION: Final = re.compile(
    r'(?im)^content-disposition: form-data; name="(?P<name>[^"]*)"'
    r'(?:; filename="(?P<file>[^"]*)")?\s*$'
)
"""As browsers write it, with quotes and line ends within it escaped."""


class Draft(Struct, frozen=True):
    """What was being sent: where to, and the fields, in order."""

    path: str
    fields: tuple[tuple[str, str], ...] = ()
    lost: tuple[str, ...] = ()
    """Names of files that could not be kept: without them it is not sent."""
    page: str = ""
    """Where they are chosen again."""

    def hidden(self) -> list[tuple[str, str]]:
        """As fields of another form."""
        lost = [(LOST, name) for name in self.lost]
        lost += [(PAGE, self.page)] if lost else []
        fields = ((f"{PREFIX}{name}", value) for name, value in self.fields)
        return [(PATH, self.path), *lost, *fields]


async def draft_of(request: Asking) -> Draft | None:
    """The form that a request sends; None where it sends none."""
    if request.content_type[0] == RequestEncodingType.MULTI_PART:
        return _draft_with_files(request, await request.body())
    if request.headers.get("content-type", "").partition(";")[0] != FORM:
        return None
    fields = fields_of(await request.body())
    if fields is None:
        return None
    return Draft(_asked_for(request), tuple(each for each in fields if each[0] != MARK))


async def mark_in(request: Asking) -> str:
    """The mark of a session that a form brings along; empty where it brings none."""
    kind, said = request.content_type
    if kind == RequestEncodingType.MULTI_PART:
        parts = parts_of(await request.body(), said.get("boundary", ""))
        marks = (content.decode(errors="replace") for name, _, content in parts if name == MARK)
    elif kind == FORM:
        marks = (value for name, value in fields_of(await request.body()) or () if name == MARK)
    else:
        return ""
    return next(marks, "")


def _draft_with_files(request: Asking, body: bytes) -> Draft | None:
    fields: list[tuple[str, str]] = []
    lost: list[str] = []
    boundary = request.content_type[1].get("boundary", "")
    for name, file, content in parts_of(body, boundary):
        if name == MARK:
            continue
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = None
        more = [(name, text or "")]
        if file is not None:
            more = [(name + FILE_NAME, file), (name + FILE_TEXT, text or "")]
        if text is not None and len(urlencode(fields + more)) <= CARRIED_BYTES_MAX:
            fields += more
        else:
            lost.append(file or name)
    if not fields and not lost:
        return None
    page = back_to(request) if lost else ""
    return Draft(_asked_for(request), tuple(fields), tuple(lost), page)


def parts_of(body: bytes, boundary: str) -> list[tuple[str, str | None, bytes]]:
    """What a form with files sends: of each field its name, its file's or None, and its content.

    A field for a file with none in it is left out, and all is where it is not as browsers send it.
    """
    mark = b"\r\n--" + boundary.encode()
    pieces = (b"\r\n" + body).split(mark, FIELDS_MAX + 1)
    if not boundary or not pieces[-1].startswith(b"--"):
        return []
    found = []
    for piece in pieces[1:-1]:
        head, _, content = piece.partition(b"\r\n\r\n")
        said = _DISPOSITION.search(head.decode(errors="replace"))
        if said is None or not piece.startswith(b"\r\n"):
            return []
        name, file = said["name"], said["file"]
        if file != "":
            found.append((_unescaped(name), None if file is None else _unescaped(file), content))
    return found


def _unescaped(name: str) -> str:
    return name.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


def carried_in(body: bytes) -> Draft | None:
    """The form that another form carries, if it is one of ours."""
    fields = fields_of(body) or ()
    path = next((value for name, value in fields if name == PATH), "")
    if not is_own_path(path):
        return None
    kept = [(name[len(PREFIX) :], value) for name, value in fields if name.startswith(PREFIX)]
    lost = tuple(value for name, value in fields if name == LOST)
    page = next((value for name, value in fields if name == PAGE), "")
    page = page if is_own_path(page) else "/"
    return Draft(path, tuple(kept), lost, page if lost else "")


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
    page = _joined(sent_from.path, sent_from.query)
    return page if is_own_path(page) and sent_from.path != scope["path"] else "/"


def _asked_for(connection: ASGIConnection[Any, Any, Any, Any]) -> str:
    return _joined(connection.scope["path"], connection.url.query)


def _joined(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


def fields_of(body: bytes) -> tuple[tuple[str, str], ...] | None:
    """Names and values of a form, in order; None where it is none."""
    try:
        text = body.decode()
        return tuple(parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        return None
