"""Which pages there are, and one address of each: found by following links, as a reader would."""

import html
import re
from collections.abc import Iterable

from litestar import Litestar
from litestar.handlers import HTTPRouteHandler

from tests.admin.listener import Browser


_LINK = re.compile(r'(?:href|hx-get)="(/[^"#]*)')
_PARAMETER = re.compile(r"\{[^}]+\}")
PAGES_MAX = 600


def patterns_of(application: Litestar) -> dict[str, re.Pattern[str]]:
    """Each path that is read, as it was declared, and what its addresses look like."""
    found = {}
    for route in application.routes:
        handlers = getattr(route, "route_handlers", [])
        if any(
            isinstance(each, HTTPRouteHandler) and "GET" in each.http_methods for each in handlers
        ):
            pieces = [re.escape(piece) for piece in _PARAMETER.split(route.path)]
            found[route.path] = re.compile("[^/]+".join(pieces))
    return found


def pattern_of(path: str, patterns: dict[str, re.Pattern[str]]) -> str:
    """The declared path that an address belongs to: one with fewer parameters before others."""
    plain = path.partition("?")[0]
    fitting = [name for name, pattern in patterns.items() if pattern.fullmatch(plain)]
    return min(fitting, key=lambda name: name.count("{"), default="")


async def follow_links(
    browser: Browser, patterns: dict[str, re.Pattern[str]], starts: Iterable[str]
) -> dict[str, str]:
    """One address of every page that links lead to, by its declared path.

    Pages that differ only by their query are the same; a page of which several addresses are known
    is read once more, because what the second one links to the first may lack.
    """
    waiting, known = list(starts), set(starts)
    addresses: dict[str, str] = {}
    reads: dict[str, int] = {}
    while waiting and len(known) < PAGES_MAX:
        path = waiting.pop(0)
        name = pattern_of(path, patterns)
        if not name or reads.get(name, 0) >= 2:
            continue
        reads[name] = reads.get(name, 0) + 1
        answer, page = await browser.send("GET", path)
        if answer.content_type != "text/html":
            continue
        assert answer.status < 500, f"{path}: {answer.status}"
        if answer.status == 200:
            addresses.setdefault(name, path)
        for link in map(html.unescape, _LINK.findall(page)):
            if link not in known and not link.startswith(("/static/", "/sign-out")):
                known.add(link)
                waiting.append(link)
    return addresses
