"""Roles and scopes of every page and form; and that no handler is outside of what is tested."""

import re
from pathlib import Path

import pytest
from litestar import Litestar

from admin.policy_room.api import FORGOTTEN
from admin.sign_in.protection import SAFE_METHODS
from gateway.oversight.access import ROLE_PERMISSIONS, ROLES, Grant, Permission, Role
from tests.admin.listener import Browser, Listener, browsing
from tests.admin.test_access import ABSENT, FOREIGN, OWN, PASSWORD, person, world


pytestmark = pytest.mark.anyio
PUBLIC = {
    *("/health/live", "/health/ready", "/metrics", "/static/{digest:str}/{name:path}"),
    *("/sign-in", "/setup", "/invitation"),
}
"""What anybody may ask for who reaches the listener: whoever adds to it says so here."""
BY_OPENID = {
    *("/sign-in/openid", "/sign-in/openid/again", "/sign-in/openid/back"),
    *("/sign-out/openid", "/sign-out/there"),
}
"""And where a provider is configured: to it and back, and what it says by itself."""
SIGNED_IN = {"/sign-out", "/prove", "/viewing", "/words"}
"""What needs a session and no role."""
ON_PAGES_ALONE = {
    *("session.began", "session.proved", "session.ended", "person.joined"),
    *("place.made", "request.tried"),
    "diagnostics.made",
    *("nothing: a filter of one's own", "nothing: a cookie of the browser's own"),
}
"""What is a browser's matter (sessions, what one likes to see), the walk of who begins, and a file;
whoever adds a deed here says why programs cannot do it."""
VALUES = {"organisation": OWN, "level": "organisation", "key_id": "0" * 12}


Handler = tuple[str, str, str, str]
"""Method, path, permission and where."""


def handlers(application: Litestar) -> list[Handler]:
    """Every handler there is, the automatic answers to OPTIONS apart; HEAD goes with GET."""
    found = []
    for route in application.routes:
        for handler in getattr(route, "route_handlers", ()):
            for method in {str(each) for each in handler.http_methods} - {"OPTIONS", "HEAD"}:
                opt = handler.opt
                found.append((method, route.path, str(opt["access"]), opt.get("where", "")))
    return sorted(found)


def pages(application: Litestar) -> list[Handler]:
    """Those that need a permission and are not of the JSON API, which has a test of its own."""
    return [
        each
        for each in handlers(application)
        if not each[1].startswith("/api/") and each[1] not in PUBLIC | SIGNED_IN
    ]


def address(path: str, organisation: str = OWN) -> str:
    values = VALUES | {"organisation": organisation}

    def value(found: re.Match[str]) -> str:
        return values.get(found[1], "1" if found[2] == "int" else "nothing")

    return re.sub(r"\{([a-z_]+):([a-z]+)\}", value, path)


async def asked(browser: Browser, method: str, target: str) -> int:
    form = None if method in SAFE_METHODS else {"nothing": "of use"}
    answer, _ = await browser.send(method, target, form)
    return answer.status


async def test_every_handler_is_public_by_name_or_needs_a_permission(listener: Listener) -> None:
    found = handlers(listener.application)
    permissions = {each.value for each in Permission}

    assert {path for _, path, access, _ in found if access == "public"} == PUBLIC
    assert {path for _, path, access, _ in found if access == "signed in"} == SIGNED_IN
    rest = [each for each in found if each[1] not in PUBLIC | SIGNED_IN]
    assert [each for each in rest if each[2] not in permissions] == []
    assert len(pages(listener.application)) > 150


async def test_what_a_page_does_programs_can_do_with_the_same_permission(
    listener: Listener,
) -> None:
    done: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for route in listener.application.routes:
        for handler in getattr(route, "route_handlers", ()):
            if records := handler.opt.get("records"):
                is_api = route.path.startswith("/api/")
                done[is_api].add((records, str(handler.opt["access"])))
    found = {each for each in done[False] - done[True] if each[0] not in ON_PAGES_ALONE}
    # The first person is added by who has the set-up link and no session; a simulation of what
    # is live needs only to read it.
    assert found == {("person.added", "public"), (FORGOTTEN, "policies:read")}


@pytest.mark.parametrize("role", ROLES)
async def test_a_page_opens_to_whom_a_role_permits_it_and_to_nobody_else(
    listener: Listener, browser: Browser, role: Role
) -> None:
    await world(listener)
    await person(listener, "ann", Grant(role, OWN))
    await browser.sign_in_as("ann", PASSWORD)
    for method, path, access, where in pages(listener.application):
        permitted = Permission(access) in ROLE_PERMISSIONS[role] and where != "everywhere"
        status = await asked(browser, method, address(path))
        if not permitted:
            assert status == 403, (method, path, status)
        else:
            # Its handler may still find that there is no such thing, or that the form is none.
            assert status in (200, 201, 303, 400, 404, 409), (method, path, status)


async def test_no_other_method_does_anything_at_any_address(
    listener: Listener, browser: Browser
) -> None:
    """OPTIONS was an error of ours, logged as a crash, to anybody who reached the listener."""
    await world(listener)
    found = handlers(listener.application)
    for path in sorted({each[1] for each in found}):
        there = {method for method, other, *_ in found if other == path}
        answer, said = await browser.send("OPTIONS", address(path))
        assert (answer.status, said) == (204, ""), path
        allowed = set(answer.headers["allow"].replace(" ", "").split(","))
        assert allowed - {"HEAD", "OPTIONS"} <= there, path
        assert ("HEAD" in allowed) == ("GET" in allowed), path
        if "HEAD" in allowed:
            head, body = await browser.send("HEAD", address(path))
            assert (head.status != 405, body) == (True, ""), path
        taken = allowed | there
        for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"} - taken:
            answer, _ = await browser.send(method, address(path), origin=listener.url)
            assert answer.status == 405, (method, path)


async def test_of_foreign_and_absent_organisations_every_page_says_the_same(
    listener: Listener, browser: Browser
) -> None:
    """Also to somebody with every role there is, at home."""
    await world(listener)
    await person(listener, "ann", *(Grant(role, OWN) for role in ROLES))
    await browser.sign_in_as("ann", PASSWORD)
    for method, path, _, where in pages(listener.application):
        if where == "organisation":
            for place in (FOREIGN, ABSENT):
                status = await asked(browser, method, address(path, place))
                assert status == 404, (method, path, place, status)


async def test_no_form_is_taken_without_the_sessions_own_mark(
    listener: Listener, browser: Browser
) -> None:
    """Of other origins, and of who has no session, `test_sign_in` asks every route."""
    await world(listener)
    await person(listener, "ann", *(Grant(role, "*") for role in ROLES))
    await browser.sign_in_as("ann", PASSWORD)
    unsafe = [each for each in handlers(listener.application) if each[0] not in SAFE_METHODS]
    assert len(unsafe) > 100
    for method, path, access, _ in unsafe:
        if access != "public":
            unmarked, _ = await browser.send(
                method, address(path), {"nothing": "of use"}, x_gatewright_csrf="0" * 64
            )
            assert unmarked.status == 403, (method, path)
    assert await browser.is_signed_in()


async def test_with_a_provider_configured_only_its_own_ways_in_and_out_are_public_too(
    tmp_path: Path, sqlite_url: str
) -> None:
    more = '[oidc]\nissuer = "http://127.0.0.1:1"\nclient_id = "gatewright"\n'
    async with Listener(tmp_path, sqlite_url, more) as listener:
        found = handlers(listener.application)
        assert {path for _, path, access, _ in found if access == "public"} == PUBLIC | BY_OPENID
        assert {path for _, path, access, _ in found if access == "signed in"} == SIGNED_IN
        changing = {path for method, path, _, _ in found if method not in SAFE_METHODS}
        assert changing & BY_OPENID == {"/sign-out/openid"}
        async with browsing(listener) as stranger:
            for method, path, _, _ in found:
                if path in BY_OPENID:
                    # A provider that is away vouches for nobody, and a stranger gets no session.
                    assert await asked(stranger, method, path) in (303, 400, 401), path
            assert not await stranger.is_signed_in()
            assert stranger.session_id == ""
