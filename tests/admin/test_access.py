"""Roles and scopes over HTTP: every route and role, in the own, a foreign and an absent place."""

import re
import secrets
from pathlib import Path
from typing import Any

import msgspec
import pytest
from litestar import Litestar, get
from litestar.params import FromPath

import admin
from admin.access import PUBLIC, STEP_UP_S, needs, require_declarations
from gateway.clock import StoppedClock
from gateway.errors import StartupRefused
from gateway.oversight.access import ROLE_PERMISSIONS, ROLES, STEP_UP, Grant, Permission, Role
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.sessions import IDLE_S
from tests.admin import seeding
from tests.admin.listener import Browser, Listener, browsing


pytestmark = pytest.mark.anyio
PASSWORD = secrets.token_hex(12)
OWN, FOREIGN, ABSENT = "acme", "umbrella", "nowhere"
BODIES: dict[str, dict[str, object]] = {
    "keys": {"workspace": "research", "project": "bot", "name": "new"},
    "people": {"name": "new-{organisation}"},
    "reviews": {"name": "new", "every_days": 7},
    "incidents": {"title": "new"},
    "scope": {"filter": "", "since_us": 0},
    "teams": {"name": "made", "title": "Made here"},
    "budgets": {"account": "org:{organisation}", "limit_microusd": 5},
    "budget_raises": {
        "account": "org:{organisation}",
        "limit_microusd": 10**9,
        "reason": "a test",
    },
    "removed": {"account": "org:{organisation}", "window": "day"},
    "obligations": {"regimes": ["gdpr"], "reason": "the board", "seen": 0},
    "rate_limits": {"account": "org:{organisation}", "requests_per_minute": 5},
    "grants": {"person": "somebody", "role": "viewer"},
    "revoked": {"person": "somebody", "role": "viewer"},
    "discard": {"revision": 1},
    "draft": {"text": 'name = "drafted"\nversion = 1\n', "revision": 0},
    "versions": {"revision": 1, "reason": "a test"},
    "verdict": {"action": "approve", "reason": "a test"},
    "rollout": {"action": "publish", "reason": "a test"},
    "rollback": {"to": 1, "reason": "a test"},
    "schedule": {"action": "publish", "at": "2027-01-16T09:00", "reason": "a test"},
    "unschedule": {"reason": "a test"},
    "reveals": {"reason": "why", "ticket": "T-1"},
    "holds": {"reason": "why"},
    "release": {"asked_by": ""},
    "erasures": {"ticket": "T-1"},
    "subjects": {"user": "somebody"},
    "accept": {"reason": "why"},
    "files": {"text": "[models]\n"},
    "propose": {"reason": "a test", "seen": 1},
    "approve": {"comment": "a test"},
    "decline": {"comment": "a test"},
    "packs": {"log": "requests", "since_us": 0, "until_us": 1, "recipient": "somebody"},
}


async def person(listener: Listener, name: str, *grants: Grant) -> None:
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        await store.add(name, password=Secret(PASSWORD))
        for grant in grants:
            await store.grant(name, grant)


async def world(listener: Listener) -> None:
    """Two organisations, with a key and a budget each."""
    for organisation in (OWN, FOREIGN):
        await furnish(listener, organisation)
    await person(listener, "somebody")


async def furnish(listener: Listener, organisation: str) -> None:
    await listener.issue_key(f"key of {organisation}", organisation)
    await listener.limit(f"org:{organisation}", 10**6)
    await seeding.limit(listener, f"org:{organisation}", 10**6, "month")


async def signed_in(listener: Listener, browser: Browser, name: str, grant: Grant) -> None:
    """Somebody with one role, in front of the two organisations."""
    await world(listener)
    await person(listener, name, grant)
    await browser.sign_in_as(name, PASSWORD)


def declared(application: Litestar) -> list[tuple[str, str, dict[str, Any]]]:
    """Method, path and declaration of every handler of the API."""
    found = []
    for route in application.routes:
        for handler in getattr(route, "route_handlers", ()):
            methods = sorted(str(each) for each in handler.http_methods if str(each) != "OPTIONS")
            found += [(method, route.path, dict(handler.opt)) for method in methods]
    return [each for each in found if each[1].startswith("/api/")]


async def call(
    browser: Browser, method: str, path: str, organisation: str
) -> tuple[int, dict[str, Any]]:
    target = re.sub(r"\{organisation[^}]*\}", organisation, path)
    target = re.sub(r"\{key_id[^}]*\}", "0" * 12, target)
    target = re.sub(r"\{[a-z_]+:int\}", "1", target)
    target = re.sub(r"\{level[^}]*\}", "organisation", target)
    target = re.sub(r"\{number[^}]*\}", "1", target)
    kind = path.rstrip("/").rsplit("/", 1)[-1]
    body = msgspec.json.encode(BODIES.get(kind, {})).decode()
    answer, text = await browser.send(
        method, target, body=body.replace("{organisation}", organisation)
    )
    return answer.status, msgspec.json.decode(text) if text else {}


@pytest.mark.timeout(600)
async def test_a_role_opens_what_it_says_where_it_says_and_nothing_else(
    listener: Listener,
) -> None:
    """Each role in an organisation of its own, so that none finds what another one made."""
    await world(listener)
    routes = declared(listener.application)
    assert len(routes) >= 8

    for role in ROLES:
        home = f"of-{role}"
        await furnish(listener, home)
        await person(listener, f"ann-{role}", Grant(role, home))
        async with browsing(listener) as browser:
            await browser.sign_in_as(f"ann-{role}", PASSWORD)
            for method, path, opt in routes:
                await _opens_or_not(browser, role, (method, path), opt, home)


async def _opens_or_not(
    browser: Browser, role: Role, route: tuple[str, str], opt: dict[str, Any], home: str
) -> None:
    permitted = opt["access"] in ROLE_PERMISSIONS[role]
    if opt["where"] == "organisation":
        own, _ = await call(browser, *route, home)
        foreign = await call(browser, *route, FOREIGN)
        absent = await call(browser, *route, ABSENT)
        # A role that may grant may still not grant more than it has; a key that is not there is
        # not found: both were let through to the handler.
        is_let_through = own in (200, 201, 204, 404)
        assert is_let_through is permitted or "/grants" in route[1], (role, route, own)
        assert permitted or own == 403, (role, route, own)
        assert foreign == absent, (role, route)
        assert foreign[0] == 404, (role, route)
    elif opt["where"] == "everywhere":
        status, _ = await call(browser, *route, home)
        assert status == 403, (role, route)


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_role_that_is_held_everywhere_opens_the_same_in_every_organisation(
    listener: Listener,
) -> None:
    """One role after another: what those before made is there in both organisations."""
    await world(listener)
    for role in ROLES:
        await person(listener, f"ann-{role}", Grant(role, "*"))
        async with browsing(listener) as browser:
            await browser.sign_in_as(f"ann-{role}", PASSWORD)
            for method, path, opt in declared(listener.application):
                # What is done everywhere is done once, and cannot be taken back twice.
                places = (OWN, FOREIGN) if "{organisation" in path else (OWN,)
                found = {(await call(browser, method, path, at))[0] for at in places}
                permitted = opt["access"] in ROLE_PERMISSIONS[role]
                assert len(found) == 1, (role, method, path, found)
                assert (found == {403}) is not permitted, (role, method, path)
                if opt["where"] == "organisation":
                    absent, _ = await call(browser, method, path, ABSENT)
                    assert absent == 404, (role, method, path)


async def test_without_a_role_nothing_is_shown_and_without_a_session_nothing_is_said(
    listener: Listener, browser: Browser
) -> None:
    await world(listener)
    for method, path, _ in declared(listener.application):
        assert (await call(browser, method, path, OWN))[0] == 401, path
    await browser.sign_in_as("somebody", PASSWORD)
    for method, path, _ in declared(listener.application):
        assert (await call(browser, method, path, OWN))[0] in (403, 404), path
    answer, _ = await browser.send("GET", "/")
    assert answer.status == 403


async def test_a_role_can_be_given_only_by_who_may_do_all_of_it(
    listener: Listener, browser: Browser
) -> None:
    await signed_in(listener, browser, "sec", Grant("security_admin", OWN))
    path = f"/api/organisations/{OWN}/grants"
    statuses = {}
    for role in ROLES:
        body = msgspec.json.encode({"person": "somebody", "role": role}).decode()
        statuses[role] = (await browser.send("POST", path, body=body))[0].status

    assert {role for role, status in statuses.items() if status == 204} == {
        *("viewer", "app_owner", "security_admin")
    }
    assert set(statuses.values()) == {204, 403}


async def test_keys_and_grants_need_a_fresh_proof_and_reading_does_not(
    listener: Listener, browser: Browser
) -> None:
    await signed_in(listener, browser, "ann", Grant("platform_admin", "*"))
    listener.clock.advance(STEP_UP_S + 1)
    refused, body = await call(browser, "POST", "/api/organisations/{organisation}/keys", OWN)
    read, _ = await call(browser, "GET", "/api/organisations/{organisation}/keys", OWN)
    wrong, _ = await browser.send("POST", "/prove", {"password": "not the one it is"})
    # Who else they may be proves nothing of this session.
    other, _ = await browser.send("POST", "/prove", {"token": listener.token})
    still, _ = await call(browser, "POST", "/api/organisations/{organisation}/keys", OWN)
    await browser.send("POST", "/prove", {"password": PASSWORD})
    done, issued = await call(browser, "POST", "/api/organisations/{organisation}/keys", OWN)
    listener.clock.advance(-20.0)
    later, _ = await call(browser, "POST", "/api/organisations/{organisation}/keys", OWN)

    assert (other.status, later) == (403, 403), "a proof of later than now is none"
    assert (refused, body["error"]["code"]) == (403, "step_up_required")
    assert (read, wrong.status, still, done) == (200, 403, 403, 201)
    assert issued["key"].startswith("gw_live_")
    assert {Permission.KEYS_ISSUE, Permission.PEOPLE_MANAGE} <= STEP_UP


async def test_what_is_typed_as_a_proof_after_the_session_ended_stands_in_no_page(
    listener: Listener, browser: Browser
) -> None:
    await signed_in(listener, browser, "ann", Grant("platform_admin", "*"))
    listener.clock.advance(STEP_UP_S + 1)
    path, form = f"/o/{OWN}/keys/new", {"name": "waits", "workspace": "w", "project": "p"}
    _, page = await browser.send("POST", path, form)
    kept = hidden(page)
    listener.clock.advance(IDLE_S + 1)
    answer, page = await browser.send("POST", "/prove", kept | {"password": PASSWORD})
    assert answer.status == 401
    assert PASSWORD not in page
    assert hidden(page) == kept, "what waited for the proof waits for the sign-in now"
    form = kept | {"name": "ann", "password": PASSWORD}
    answer, page = await browser.send("POST", "/sign-in", form)
    assert (answer.status, hidden(page)["name"]) == (200, "waits")
    assert f'action="{path}"' in page

    await browser.send("POST", "/sign-out")
    answer, _ = await browser.send("POST", "/prove", {"password": PASSWORD})
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in")


def hidden(page: str) -> dict[str, str]:
    """The fields of a page's form that nobody sees."""
    found = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: value for name, value in found if name != "csrf"}


async def test_a_change_without_the_sessions_own_mark_is_refused(
    listener: Listener, browser: Browser
) -> None:
    await signed_in(listener, browser, "ann", Grant("platform_admin", "*"))
    for mark in ("", "0" * 64, "é"):
        answer, _ = await browser.send(
            "POST", f"/api/organisations/{OWN}/keys", body="{}", x_gatewright_csrf=mark or "none"
        )
        assert answer.status == 403


async def test_a_form_brings_the_sessions_mark_in_its_body_and_never_in_an_address(
    listener: Listener, browser: Browser
) -> None:
    await signed_in(listener, browser, "ann", Grant("platform_admin", "*"))
    ways = {"locale": "en_IN", "zone": "UTC", "currency": "USD", "theme": "dark"}
    _, page = await browser.send("GET", "/viewing")
    (mark,) = set(re.findall(r'<input type="hidden" name="csrf" value="([^"]+)">', page))
    for path, form, status in (
        ("/viewing", ways | {"csrf": mark}, 303),
        (f"/viewing?csrf={mark}", ways, 403),
        ("/viewing", ways | {"csrf": "0" * 64}, 403),
        ("/viewing", ways, 403),
    ):
        answer, text = await browser.send("POST", path, form, x_gatewright_csrf="")
        assert answer.status == status, path
        # What is asked for once more has the mark of now, and has it once.
        assert text.count(f'name="csrf" value="{mark}"') == (status == 403)
        assert text.count('name="csrf"') == (status == 403)
    pages = (Path(admin.__file__).parent / "pages").rglob("*.html")
    assert [each.name for each in pages if re.search("[?&]csrf=", each.read_text())] == []


async def test_losing_a_role_or_being_disabled_holds_with_the_next_request(
    listener: Listener, browser: Browser
) -> None:
    await signed_in(listener, browser, "ann", Grant("viewer", OWN))
    path = f"/api/organisations/{OWN}/keys"
    before, _ = await browser.send("GET", path)
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        await store.revoke("ann", Grant("viewer", OWN))
        without, _ = await browser.send("GET", path)
        await store.grant("ann", Grant("viewer", OWN))
        again, _ = await browser.send("GET", path)
        await store.disable("ann")
        disabled, _ = await browser.send("GET", path)

    assert [each.status for each in (before, without, again, disabled)] == [200, 404, 200, 401]
    assert (await browser.sign_in_as("ann", PASSWORD)).status == 401


async def test_another_password_ends_the_sessions_of_the_old_one(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann", Grant("viewer", "*"))
    await browser.sign_in_as("ann", PASSWORD)
    assert await browser.is_signed_in()
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).set_password(
            "ann", Secret(PASSWORD[::-1] + "x")
        )

    assert not await browser.is_signed_in()


async def test_a_list_of_passwords_is_stopped_and_says_the_same_as_a_wrong_name(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann", Grant("viewer", "*"))
    wrong, for_wrong = await browser.send("POST", "/sign-in", {"name": "ann", "password": "x" * 12})
    nobody, for_nobody = await browser.send(
        "POST", "/sign-in", {"name": "no", "password": "x" * 12}
    )
    for number in range(10):
        await browser.sign_in_as("ann", f"guess number {number}")
    stopped = await browser.sign_in_as("ann", PASSWORD)
    listener.clock.advance(301.0)

    assert (wrong.status, nobody.status, stopped.status) == (401, 401, 401)
    assert for_wrong == for_nobody
    # Whoever is right may come as often as they like.
    often = [(await browser.sign_in_as("ann", PASSWORD)).status for _ in range(12)]
    assert often == [303] * 12


async def test_no_form_leads_to_another_site(listener: Listener, browser: Browser) -> None:
    await world(listener)
    await person(listener, "ann", *(Grant(role, "*") for role in ROLES))
    ways = {"locale": "en_US", "zone": "UTC", "currency": "USD", "theme": "dark"}
    role = {"person": "ann", "role": "viewer", "organisation": OWN}
    views = f"/o/{OWN}/traffic/views"
    for to in ("//evil.example", "https://evil.example", "/\\evil.example"):
        for path, form in (
            ("/sign-in", {"name": "ann", "password": PASSWORD}),
            ("/prove", {"password": PASSWORD}),
            ("/viewing", ways),
            ("/people/grant", role),
            (views, {"name": " mine ", "q": ""}),
            (f"{views}/drop", {"name": "mine", "q": ""}),
        ):
            answer, page = await browser.send("POST", path, form | {"to": to})
            assert answer.status == 303, (path, page)
            assert "evil" not in answer.headers["location"], path
            assert answer.headers["location"].startswith("/"), path


async def test_signing_in_anew_ends_the_session_that_the_browser_had(
    listener: Listener, browser: Browser
) -> None:
    await person(listener, "ann", Grant("viewer", "*"))
    await browser.sign_in_as("ann", PASSWORD)
    former = browser.session_id
    await browser.sign_in_as("ann", PASSWORD)
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        found = [await store.session(each) for each in (former, browser.session_id)]

    assert [each is not None for each in found] == [False, True]


async def test_a_session_id_that_was_planted_before_signing_in_is_worth_nothing(
    listener: Listener,
) -> None:
    await person(listener, "ann", Grant("viewer", "*"))
    async with browsing(listener) as browser:
        planted = "gatewright_admin=planted"
        form = {"name": "ann", "password": PASSWORD}
        answer, _ = await browser.send("POST", "/sign-in", form, cookie=planted)
    async with browsing(listener) as thief:
        seen, _ = await thief.send("GET", "/", cookie=planted)

    assert answer.status == 303
    assert "planted" not in answer.headers["set-cookie"]
    assert seen.status == 303


def test_a_handler_that_does_not_say_who_may_use_it_stops_the_start() -> None:
    @get("/silent")
    async def silent() -> None: ...

    @get("/nowhere", opt=needs(Permission.KEYS_READ))
    async def without_place() -> None: ...

    @get("/of/{organisation:str}", opt=needs(Permission.KEYS_READ, "everywhere"))
    async def with_unused_place(organisation: FromPath[str]) -> None: ...

    @get("/good/{organisation:str}", opt=needs(Permission.KEYS_READ))
    async def good(organisation: FromPath[str]) -> None: ...

    @get("/open", opt=PUBLIC)
    async def public() -> None: ...

    for handler in (silent, without_place, with_unused_place):
        with pytest.raises(StartupRefused, match="does not say who may use it"):
            require_declarations(Litestar([handler], openapi_config=None))
    require_declarations(Litestar([good, public], openapi_config=None))


async def test_sessions_end_for_all_processes_of_one_database(
    listener: Listener, browser: Browser
) -> None:
    """A second process sees at once what the first one ended."""
    await person(listener, "ann", Grant("viewer", "*"))
    await browser.sign_in_as("ann", PASSWORD)
    session_id = browser.session_id
    async with listener.database() as database:
        other = PeopleStore(database, StoppedClock(listener.clock.utc_us()))
        before = await other.session(session_id)
        await browser.send("POST", "/sign-out")
        after = await other.session(session_id)

    assert before is not None
    assert before.person.name == "ann"
    assert after is None
