"""The HTTP methods that each path accepts, and hints for clients that call a wrong path."""

import re
from collections.abc import Callable, Iterable, Mapping

from litestar.handlers import HTTPRouteHandler


_PLACE = re.compile(r"\{\w+:(\w+)\}")
_PLACES: Mapping[str, str] = {"str": "[^/]+", "path": ".+"}
OPTIONS = "OPTIONS"
HEAD = "HEAD"
"""Accepted wherever GET is, with the same head; the server leaves the body out."""


class Methods:
    """The methods of every path, taken from the handlers themselves."""

    def __init__(self, handlers: Iterable[HTTPRouteHandler]) -> None:
        self._taken: dict[re.Pattern[str], set[str]] = {}
        for handler in handlers:
            for path in handler.paths:
                pattern = re.compile(_PLACE.sub(lambda place: _PLACES[place[1]], path))
                self._taken.setdefault(pattern, set()).update(map(str, handler.http_methods))

    def at(self, path: str) -> str:
        """The methods of a path, in the form of the header `allow`; empty if it does not exist."""
        found = {
            method
            for pattern, methods in self._taken.items()
            if pattern.fullmatch(path)
            for method in methods
        }
        if "GET" in found:
            found.add(HEAD)
        return ", ".join(sorted(found))


_VERSION = "/v1"
_SLASHES = re.compile("//+")
_UNSERVED = re.compile(
    r"(?:/openai)?/v1/(?:assistants|audio|classify|containers|evals|fine_tuning|images"
    r"|moderations|ocr|realtime|rerank|responses/compact|score|skills|threads|uploads"
    r"|vector_stores|videos)(?:/.*)?"
)
"""Endpoints of vendors and engines that clients know and that do not exist here."""


def writing_hint(is_ours: Callable[[str], bool], path: str) -> str:
    """A hint that a path is one of ours in another spelling; empty if that is not the mistake.

    `path` is without escapes: if it is ours as it is, it was sent with some.
    """
    plain = _SLASHES.sub("/", path).rstrip("/")
    if not is_ours(plain):
        return ""
    return (
        " A path has one writing only here: no doubled slash, none at its end, and escapes in "
        "names alone. Does the client's base URL end with a slash?"
    )


def base_url_hint(is_ours: Callable[[str], bool], path: str) -> str:
    """What a client's base URL lacks, or has twice; empty if that is not the mistake.

    `is_ours` says whether something is at a path.
    """
    plain = path.rstrip("/")
    if plain.startswith("/messages") and is_ours(_VERSION + plain):
        # Anthropic's own clients add it themselves, DSPy's and some others do not.
        return " The base URL of this client ends with /v1 here."
    if is_ours(_VERSION + plain):
        return " The base URL of OpenAI's clients ends with /v1 here."
    if plain.startswith(2 * _VERSION) and is_ours(plain.removeprefix(_VERSION)):
        return " The path has /v1 twice: the base URL of Anthropic's clients ends without it."
    return ""


def unserved_hint(path: str) -> str:
    """A hint that vendors have this path and the gateway does not; empty for any other path."""
    if not _UNSERVED.fullmatch(path):
        return ""
    return (
        " This endpoint is not served here; chat completions, messages, responses, completions and "
        "embeddings are."
    )
