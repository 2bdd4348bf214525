"""Rubbish in every address, query and form of the admin pages: refused, and never a crash."""

import re
from urllib.parse import quote

import pytest

from admin.protection import SAFE_METHODS
from gateway.oversight.access import ROLES, Grant
from tests.admin.listener import ON_BOTH, Browser, Listener
from tests.admin.test_access import OWN, PASSWORD, person, world
from tests.admin.test_access_of_pages import handlers


pytestmark = [pytest.mark.anyio, ON_BOTH]
RUBBISH = (
    "\x00",
    "a\x00b",
    "\ud800".encode("utf-8", "surrogatepass"),
    b"\xff\xfe",
    "' OR '1'='1",
    "{{7*7}}${7*7}",
    "../../etc/passwd",
    "9" * 40,
    "-1",
    "\u202e\u2066",
    "x" * 5000,
)
NUMBERS = ("0", "-1", "9" * 30, "1e9", "\x00")
QUERIES = (
    *("q", "since", "until", "before", "by", "group", "sort", "state", "page", "kind", "of"),
    *("workspace", "account", "name", "member", "hours", "form", "request", "to", "done"),
)
FIELDS = (
    *("name", "title", "person", "role", "organisation", "id", "reason", "comment", "action"),
    *("level", "text", "revision", "account", "limit", "window", "models", "labels", "expires"),
    *("subject", "user", "ticket", "minutes", "filter", "value", "version", "number", "seen"),
    *("kind", "at", "code", "password", "token", "zone", "theme", "workspace", "project", "lang"),
)
ENDS = {"/sign-out"}


def addresses(path: str) -> list[str]:
    """The path with each kind of rubbish in each of its places, one at a time."""
    places = list(re.finditer(r"\{([a-z_]+):([a-z]+)\}", path))
    found = []
    for chosen in places:
        given = NUMBERS if chosen[2] == "int" else RUBBISH
        for rubbish in given:

            def value(
                place: re.Match[str], chosen: re.Match[str] = chosen, rubbish: str | bytes = rubbish
            ) -> str:
                if place.start() == chosen.start():
                    return quote(rubbish, safe="")
                usual = {"organisation": OWN, "level": "organisation"}
                return usual.get(place[1], "1" if place[2] == "int" else "nothing")

            found.append(re.sub(r"\{([a-z_]+):([a-z]+)\}", value, path))
    return found or [path]


async def signed_in(listener: Listener, browser: Browser) -> None:
    await world(listener)
    await person(listener, "ann", *(Grant(role, "*") for role in ROLES))
    await browser.sign_in_as("ann", PASSWORD)


async def test_no_address_and_no_query_crashes_a_page(listener: Listener, browser: Browser) -> None:
    await signed_in(listener, browser)
    crashed = []
    for method, path, *_ in handlers(listener.application):
        if method not in SAFE_METHODS:
            continue
        usual = re.sub(r"\{organisation:str\}", OWN, path)
        asked = addresses(path)
        if "{" not in usual:
            asked += [
                f"{usual}?{'&'.join(f'{name}={quote(rubbish)}' for name in QUERIES)}"
                for rubbish in RUBBISH[:-1]
            ]
        for target in asked:
            answer, _ = await browser.send(method, target)
            if answer.status >= 500:
                crashed.append((path, target[:120]))

    assert crashed == []


async def test_no_form_and_no_body_crashes_a_page(listener: Listener, browser: Browser) -> None:
    await signed_in(listener, browser)
    crashed = []
    for method, path, *_ in handlers(listener.application):
        if method in SAFE_METHODS or path in ENDS:
            continue
        (usual, *_) = [each for each in addresses(path) if each] or [path]
        usual = re.sub(r"\{organisation:str\}", OWN, path)
        usual = re.sub(r"\{level:str\}", "organisation", usual)
        usual = re.sub(r"\{[a-z_]+:int\}", "1", usual)
        usual = re.sub(r"\{[a-z_]+:str\}", "nothing", usual)
        for rubbish in RUBBISH:
            form = "&".join(f"{name}={quote(rubbish)}" for name in FIELDS)
            answer, _ = await browser.send(
                method, usual, body=form, content_type="application/x-www-form-urlencoded"
            )
            if answer.status >= 500:
                crashed.append((path, repr(rubbish)[:40]))
        for body in ('{"name":"\\u0000"}', "[" * 20000, "\x00", '"\\ud800"'):
            answer, _ = await browser.send(method, usual, body=body)
            if answer.status >= 500:
                crashed.append((path, body[:40]))

    assert crashed == []
