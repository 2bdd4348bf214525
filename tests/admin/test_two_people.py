"""What takes two people takes persons: neither part is the admin token's, or whom it let in."""

import re

import msgspec
import pytest

from admin.access import BY_PEOPLE
from admin.sign_in.protection import SAFE_METHODS
from gateway.actors import ACTOR_CHARS_MAX, NOBODYS, TOKENS_NAME, same_person, typed_by
from gateway.errors import Forbidden
from gateway.oversight.access import (
    APPROVING,
    ROLES,
    Grant,
    Permission,
    Person,
    allows,
    organisations_of,
)
from gateway.rollout.versions import PolicyVersion, step
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore
from tests.admin import seeding
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.admin.test_access_of_pages import address
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
CHOSEN = "a password of their own"
INCIDENTS = "/o/acme/compliance/incidents"


async def follow(listener: Listener, maker: Browser, name: str) -> None:
    """Have somebody choose a password by a link that was made for them just now."""
    answer, page = await maker.send("POST", f"/person/{name}/link")
    assert answer.status == 201, page
    code = re.search(r"/invitation#([\w-]{40,})", page)
    assert code is not None
    async with browsing(listener) as theirs:
        form = {"code": code[1], "password": CHOSEN}
        assert (await theirs.send("POST", "/invitation", form))[0].status == 303


async def invited(listener: Listener, maker: Browser, name: str, role: str) -> None:
    form = {"name": name, "role": role, "organisation": "*"}
    assert (await maker.send("POST", "/new-person", form))[0].status == 201
    await follow(listener, maker, name)


async def asks_to_close(listener: Listener, name: str, password: str = CHOSEN) -> tuple[int, str]:
    """Open an incident, and ask that it be closed."""
    async with browsing(listener) as theirs:
        await theirs.sign_in_as(name, password)
        form = {"title": "A lost laptop", "kind": "access", "q": ""}
        opened, page = await theirs.send("POST", f"{INCIDENTS}/new", form)
        assert opened.status == 303, page
        at = opened.headers["location"]
        answer, page = await theirs.send("POST", f"{at}/close", {"conclusion": "It was found."})
        return answer.status, page if answer.status != 303 else at


@pytest.fixture
async def token(listener: Listener, browser: Browser) -> Browser:
    await listener.issue_key("assistant")
    await browser.sign_in()
    return browser


async def test_the_token_takes_neither_part_in_anything_that_takes_two(
    listener: Listener, token: Browser
) -> None:
    before, found = len(await deeds(listener)), set()
    for route in listener.application.routes:
        for handler in getattr(route, "route_handlers", ()):
            methods = {str(each) for each in handler.http_methods}
            if methods <= SAFE_METHODS | {"OPTIONS"} or handler.opt["records"] not in BY_PEOPLE:
                continue
            found.add(handler.opt["records"])
            answer, _ = await token.send("POST", address(route.path, "acme"), {"reason": "why"})
            assert answer.status == 403, route.path
    assert found == BY_PEOPLE
    assert len(await deeds(listener)) == before


async def test_it_is_said_why_on_pages_and_over_json(listener: Listener, token: Browser) -> None:
    answer, page = await token.send("POST", "/o/acme/policies/installation/submit", {"reason": "x"})
    assert (answer.status, "the admin token is nobody" in page) == (403, True)
    path = "/api/organisations/acme/policies/installation/versions"
    answer, text = await token.send("POST", path, body='{"revision": 1, "reason": "x"}')
    assert msgspec.json.decode(text)["error"]["message"] == NOBODYS


async def test_what_only_takes_away_is_done_by_the_token_and_what_gives_is_not(
    listener: Listener, token: Browser
) -> None:
    key = await seeding.issue(listener, "payroll", models=frozenset({"house", "claude"}))
    path = f"/api/organisations/acme/keys/{key}/change"
    answer, text = await token.send("POST", path, body='{"models": ["house"]}')
    assert answer.status in (200, 201), text
    answer, text = await token.send("POST", path, body='{"models": null, "reason": "more"}')
    assert (answer.status, NOBODYS in text) == (403, True)


@ON_BOTH
async def test_the_token_alone_is_never_two_people_whomever_it_lets_in(
    listener: Listener, token: Browser
) -> None:
    await invited(listener, token, "xenia", "security_admin")
    status, page = await asks_to_close(listener, "xenia")
    assert (status, "the admin token is nobody" in page) == (403, True)
    async with browsing(listener) as hers:
        await hers.sign_in_as("xenia", CHOSEN)
        await invited(listener, hers, "yusuf", "security_admin")
    assert (await asks_to_close(listener, "yusuf"))[0] == 403, "let in by whom the token let in"
    _, page = await token.send("GET", "/person/yusuf")
    assert "counts as nobody where two people are needed" in page


async def test_who_is_let_in_anew_by_a_person_or_at_the_machine_counts_as_one(
    listener: Listener, token: Browser
) -> None:
    for name in ("xenia", "yusuf"):
        await invited(listener, token, name, "security_admin")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).set_password("xenia", Secret(CHOSEN))
    async with browsing(listener) as hers:
        await hers.sign_in_as("xenia", CHOSEN)
        await follow(listener, hers, "yusuf")
    status, at = await asks_to_close(listener, "xenia")
    assert status == 303
    async with browsing(listener) as his:
        await his.sign_in_as("yusuf", CHOSEN)
        closed, _ = await his.send("POST", f"{at}/close", {"agreed": "It was found."})
        assert closed.status == 303
    _, page = await token.send("GET", "/person/xenia")
    assert "counts as nobody" not in page


async def test_who_existed_and_gets_a_link_of_the_token_counts_as_the_token_from_then_on(
    listener: Listener, token: Browser
) -> None:
    await seeding.person(listener, "petra", "platform_admin")
    assert (await asks_to_close(listener, "petra", seeding.PASSWORD))[0] == 303
    await follow(listener, token, "petra")
    assert (await asks_to_close(listener, "petra"))[0] == 403


def test_what_the_token_asked_for_before_nobody_agrees_to() -> None:
    assert same_person(TOKENS_NAME, "ann")
    assert same_person("os:ann", f" {TOKENS_NAME.upper()}")
    assert not same_person("ann", "anton")
    assert typed_by("ann", "os:ann") == typed_by(" OS:Ann ", "os:ann") == "os:ann"
    for typed in ("bob", "x, typed by os:bob", "z" * 300):
        said = typed_by(typed, "os:ann")
        assert len(said) <= ACTOR_CHARS_MAX
        for same in ("ann", "os:Ann", typed_by("carl", "os:ann"), TOKENS_NAME):
            assert same_person(said, same), (typed, same)
        assert not same_person(said, typed_by("carl", "os:dora"))
    assert same_person(typed_by("bob", "os:ann"), "bob"), "by their own word"
    for nobody in ("", " ", "os:", "os: ", ", typed by os:dora"):
        assert same_person(nobody, "ann"), nobody
        assert same_person("ann", nobody), nobody
    version = PolicyVersion("", 1, "d" * 64, "draft", TOKENS_NAME, 0)
    with pytest.raises(Forbidden, match="admin token"):
        step(version, "approve", "anton")
    with pytest.raises(Forbidden):
        step(PolicyVersion("", 1, "d" * 64, "draft", "", 0), "approve", "anton")
    assert step(version, "reject", "anton") == "rejected"


@pytest.mark.parametrize("permission", sorted(APPROVING))
def test_no_role_makes_whom_the_token_let_in_a_second_person(permission: Permission) -> None:
    grants = frozenset(Grant(role, "*") for role in ROLES)
    theirs = Person("xenia", grants=grants, of_token=True)
    assert allows(Person("xenia", grants=grants), permission)
    assert not allows(theirs, permission)
    assert organisations_of(theirs, permission) == frozenset()
