"""Rubbish in every address, query and form of the admin pages: refused, and never a crash."""

import re
from urllib.parse import quote

import pytest
from yarl import URL

from admin.access import CSRF_HEADER, csrf_of
from admin.sign_in.protection import SAFE_METHODS
from gateway.oversight.access import ROLES, Grant
from tests.admin.listener import Browser, Listener
from tests.admin.test_access import OWN, PASSWORD, person, world
from tests.admin.test_access_of_pages import address, handlers
from tests.databases import BOTH


pytestmark = [
    pytest.mark.anyio,
    # The stricter one: it knows no NUL, and how large a number is.
    pytest.mark.parametrize("listener_url", BOTH[1:], indirect=True),
]
RUBBISH = (
    "a\x00b",
    b"\xff\xed\xa0\x80",
    "' OR '1'='1 {{7*7}}${7*7} ../../etc/passwd \u202e\u2066",
    "9" * 40,
)
NUMBERS = ("-1", "9" * 30)
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
BODIES = ('{"name":"\\u0000"}', "[" * 20_000)
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


@pytest.mark.long
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
                for rubbish in RUBBISH
            ]
        for target in asked:
            async with browser.session.get(URL(f"{listener.url}{target}", encoded=True)) as answer:
                if answer.status >= 500:
                    crashed.append((path, target[:120]))

    assert crashed == []


async def test_no_form_and_no_body_crashes_a_page(listener: Listener, browser: Browser) -> None:
    await signed_in(listener, browser)
    forms = ["&".join(f"{name}={quote(each)}" for name in FIELDS) for each in RUBBISH]
    sent = [(form, "application/x-www-form-urlencoded") for form in forms]
    sent += [(body, "application/json") for body in BODIES]
    crashed = []
    for method, path, *_ in handlers(listener.application):
        if method in SAFE_METHODS or path in ENDS:
            continue
        for body, kind in sent:
            headers = {"content-type": kind, CSRF_HEADER: csrf_of(browser.session_id)}
            async with browser.session.post(
                f"{listener.url}{address(path)}",
                data=body.encode(),
                headers=headers,
                allow_redirects=False,
            ) as answer:
                if answer.status >= 500:
                    crashed.append((path, body[:60]))

    assert crashed == []


async def test_an_origin_that_is_none_is_another_one(listener: Listener, browser: Browser) -> None:
    await signed_in(listener, browser)
    for origin in ("http://[", "null", "http://[::1", listener.url + "@other.example", "é"):
        answer, _ = await browser.send("POST", "/viewing", {"theme": "dark"}, origin=origin)
        assert answer.status == 403, origin
