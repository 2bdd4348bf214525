"""Static files that pages link to: our styles and the built scripts, read once.

A file's address carries the digest of its bytes, so a browser may keep it for ever.
"""

import gzip
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any, Final

from litestar import Response, route
from litestar.enums import HttpMethod
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from msgspec import Struct

from admin.access import PUBLIC
from admin.asking import Asking


KINDS: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
READING: Final = (HttpMethod.GET, HttpMethod.HEAD)
FOR_GOOD: Final = "public, max-age=31536000, immutable"
_FOR_WRITERS: Final = re.compile(
    rb"/\*.*?\*/\s*|(?<=\n)\s+|;? (?=\})|(?<=[{:,;]) | (?=\{)|(?<=[{},;])\n", re.DOTALL
)
"""In a style sheet, comments, indentation and what stands between its signs: a sixth of what would
travel."""


class File(Struct, frozen=True):
    """One file and where it is linked."""

    data: bytes
    media_type: str
    href: str
    packed: bytes
    """The same in gzip, made once at the start."""


class Statics:
    """All files below `admin/static`, by their name there (`styles/base.css`)."""

    def __init__(self) -> None:
        folder = resources.files("admin").joinpath("static")
        self._files = {name: _file(name, found.read_bytes()) for name, found in _walk(folder, "")}

    def has(self, name: str) -> bool:
        return name in self._files

    def href(self, name: str) -> str:
        """Where a page links it; empty for what was not built."""
        return self._files[name].href if name in self._files else ""

    def routes(self) -> list[Any]:
        @route("/static/{digest:str}/{name:path}", http_method=READING, opt=PUBLIC)
        async def static(
            request: Asking, digest: FromPath[str], name: FromPath[str]
        ) -> Response[bytes]:
            found = self._files.get(str(name).strip("/"))
            if found is None or not found.href.startswith(f"/static/{digest}/"):
                raise NotFoundException
            headers = {"cache-control": FOR_GOOD, "vary": "accept-encoding"}
            data = found.data
            if "gzip" in request.headers.get("accept-encoding", ""):
                data, headers["content-encoding"] = found.packed, "gzip"
            return Response(data, media_type=found.media_type, headers=headers)

        return [static]


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for found in folder.iterdir():
        name = f"{prefix}{found.name}"
        if found.is_dir():
            yield from _walk(found, f"{name}/")
        elif name.rpartition(".")[2] in KINDS:
            yield name, found


@cache
def _file(name: str, data: bytes) -> File:
    if name.endswith(".css"):
        data = _FOR_WRITERS.sub(b"", data)
    digest = hashlib.sha256(data).hexdigest()[:16]
    href = f"/static/{digest}/{name}"
    return File(data, KINDS[name.rpartition(".")[2]], href, gzip.compress(data, 9, mtime=0))
