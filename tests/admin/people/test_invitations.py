"""Invitations: a link lets one person in once, and nobody further than who made it."""

import re

import msgspec
import pytest

from gateway.actors import TOKENS_NAME
from gateway.oversight.access import NAMES_OF_PARTS, Grant
from gateway.secrets.secret import Secret
from gateway.store.identity.invitations import GOOD_FOR_S
from gateway.store.identity.people import PeopleStore
from gateway.store.schema.tables import people
from tests.admin import seeding
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
CHOSEN = "a password of their own"


def _code(page: str) -> str:
    found = re.search(r"/invitation#([\w-]{40,})", page)
    assert found is not None
    return found[1]


@pytest.fixture
async def admin(listener: Listener, browser: Browser) -> Browser:
    await listener.issue_key("assistant")
    await seeding.person(listener, "sec", "security_admin")
    await browser.sign_in_as("sec", seeding.PASSWORD)
    return browser


async def _invited(admin: Browser, name: str = "newt", **more: str) -> str:
    answer, page = await admin.send("POST", "/new-person", {"name": name} | more)
    assert answer.status == 201
    return _code(page)


async def test_who_follows_the_link_chooses_a_password_and_is_signed_in(
    listener: Listener, admin: Browser
) -> None:
    code = await _invited(admin, title="Newt", role="viewer", organisation="acme")
    _, page = await admin.send("GET", "/person/newt")
    assert "Invited by sec, and has not signed in yet" in page
    async with browsing(listener) as theirs:
        short, page = await theirs.send("POST", "/invitation", {"code": code, "password": "short"})
        assert (short.status, "12 to 1024 characters" in page) == (400, True)
        form = {"code": code, "password": CHOSEN}
        answer, _ = await theirs.send("POST", "/invitation", form)
        assert (answer.status, answer.headers["location"]) == (303, "/")
        answer, _ = await theirs.send("GET", "/o/acme/traffic")
        assert answer.status == 200
        answer, page = await theirs.send("POST", "/invitation", form)
        assert (answer.status, "this link is not good any more" in page) == (400, True)
    async with browsing(listener) as again:
        await again.sign_in_as("newt", CHOSEN)
        assert await again.is_signed_in()
    records = await deeds(listener)
    assert [(each.actor, each.action) for each in records[1:]] == [
        ("sec", "person.added"),
        ("sec", "role.granted"),
        ("newt", "person.joined"),
        ("newt", "session.began"),
        ("invitation", "session.refused"),
        ("newt", "session.began"),
    ]
    assert code not in str(records)
    assert CHOSEN not in str(records)


@ON_BOTH
async def test_a_link_ends_when_it_is_withdrawn_replaced_too_old_or_its_person_disabled(
    listener: Listener, admin: Browser
) -> None:
    first = await _invited(admin)
    answer, page = await admin.send("POST", "/person/newt/link")
    assert answer.status == 201
    second = _code(page)
    codes = [first]
    listed = [(await admin.send("GET", "/people"))[1]]
    await admin.send("POST", "/person/newt/withdraw")
    listed.append((await admin.send("GET", "/people"))[1])
    assert [page.count("invited</span>") for page in listed] == [1, 0]
    assert [page.count("no way to sign in") for page in listed] == [0, 1]
    assert [page.count("may sign in</span>") for page in listed] == [1, 1], "sec alone"
    codes.append(second)
    _, page = await admin.send("POST", "/person/newt/link")
    await admin.send("POST", "/person/newt/disable")
    done = [(each.actor, each.action) for each in await deeds(listener)]
    made, withdrawn = ("sec", "person.link_made"), ("sec", "person.link_withdrawn")
    assert [each for each in done if each in (made, withdrawn)] == [made, withdrawn, made]
    codes.append(_code(page))
    old = await _invited(admin, "olm")
    listener.clock.advance(GOOD_FOR_S)
    async with browsing(listener) as theirs:
        for code in (*codes, old, "", "x" * 43):
            form = {"code": code, "password": CHOSEN}
            answer, page = await theirs.send("POST", "/invitation", form)
            assert answer.status == 400
            assert "this link is not good any more" in page
        assert not await theirs.is_signed_in()


@ON_BOTH
async def test_a_link_that_a_role_shut_is_called_none_and_said_how_they_are_let_in(
    listener: Listener, admin: Browser
) -> None:
    code = await _invited(admin, role="viewer", organisation="acme")
    grant = Grant("approver", "acme")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).grant("newt", grant)
    pages = [(await admin.send("GET", path))[1] for path in ("/person/newt", "/people")]
    assert "no open invitation. You cannot create one" in pages[0]
    assert "gatewright users password newt" in pages[0]
    assert ("Withdraw the link" in pages[0], ">invited" in pages[1]) == (False, False)
    assert "no way to sign in" in pages[1]
    form = {"code": code, "password": CHOSEN}
    async with browsing(listener) as theirs:
        answer, page = await theirs.send("POST", "/invitation", form)
        assert (answer.status, "given a role since that its maker may not give" in page) == (
            400,
            True,
        )
        async with listener.database() as database:
            await PeopleStore(database, listener.clock).revoke("newt", grant)
        assert "the link is valid for" in (await admin.send("GET", "/person/newt"))[1]
        assert (await theirs.send("POST", "/invitation", form))[0].status == 303


@ON_BOTH
async def test_who_is_enabled_again_needs_another_link(listener: Listener, admin: Browser) -> None:
    codes = [await _invited(admin, "newt"), await _invited(admin, "olm")]
    _, page = await admin.send("GET", "/person/newt/disable")
    assert "Their open invitation is withdrawn" in page
    await admin.send("POST", "/person/newt/disable")
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).disable("olm")
    for name in ("newt", "olm"):
        assert (await admin.send("POST", f"/person/{name}/enable"))[0].status == 303
        _, page = await admin.send("GET", f"/person/{name}")
        assert "no open invitation" in page
    async with browsing(listener) as theirs:
        for code in codes:
            form = {"code": code, "password": CHOSEN}
            answer, page = await theirs.send("POST", "/invitation", form)
            assert (answer.status, "this link is not good any more" in page) == (400, True)


async def test_nobody_makes_a_link_to_somebody_who_may_do_more(
    listener: Listener, admin: Browser
) -> None:
    await seeding.person(listener, "carla", "compliance")
    answer, page = await admin.send("POST", "/person/carla/link")

    assert answer.status == 400
    assert "who may do what you may not do yourself" in page


async def test_a_link_is_good_for_nothing_once_its_person_may_do_more_than_its_maker(
    listener: Listener, admin: Browser
) -> None:
    code = await _invited(admin)
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        await people.grant("newt", Grant("compliance", "acme"))
    async with browsing(listener) as theirs:
        form = {"code": code, "password": CHOSEN}
        answer, _ = await theirs.send("POST", "/invitation", form)
        assert answer.status == 400
        async with listener.database() as database:
            people = PeopleStore(database, listener.clock)
            await people.revoke("newt", Grant("compliance", "acme"))
            await people.disable("sec")
        answer, _ = await theirs.send("POST", "/invitation", form)
        assert answer.status == 400


async def test_a_link_of_the_admin_token_lets_in_who_may_do_less(listener: Listener) -> None:
    async with browsing(listener) as token, browsing(listener) as theirs:
        await token.sign_in()
        code = await _invited(token)
        answer, _ = await theirs.send("POST", "/invitation", {"code": code, "password": CHOSEN})
        assert answer.status == 303


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"name": "Not A Name"}, "lower-case letters"),
        ({"name": "sec"}, "there is such a person already"),
        (
            {"name": "newt", "role": "compliance", "organisation": "*"},
            "permissions that you do not have",
        ),
    ],
)
async def test_who_cannot_be_invited_is_said_in_place_and_is_not_made(
    listener: Listener, admin: Browser, form: dict[str, str], said: str
) -> None:
    answer, page = await admin.send("POST", "/new-person", form)

    assert answer.status == 400
    assert said in page
    async with listener.database() as database:
        names = [each.name for each in await PeopleStore(database, listener.clock).listed()]
    assert names == ["sec"]


@pytest.mark.parametrize(
    "place",
    [
        *({}, {"organisation": ""}, {"organisation": "No Name"}, {"role": "king"}),
        {"role": "compliance", "organisation": "*"},
    ],
)
async def test_a_role_that_cannot_be_given_or_holds_nowhere_makes_nobody(
    listener: Listener, admin: Browser, place: dict[str, str]
) -> None:
    form = {"name": "newt", "role": "viewer"} | place
    answer, page = await admin.send("POST", "/new-person", form)
    assert answer.status == 400
    assert 'value="newt"' in page
    assert re.search("choose a role|no organisation has such a name|You cannot give", page)
    assert (await admin.send("GET", "/person/newt"))[0].status == 404


async def test_who_follows_a_link_leaves_no_session_of_somebody_else_behind(
    listener: Listener, admin: Browser
) -> None:
    await seeding.person(listener, "olga", "viewer", "acme")
    async with browsing(listener) as elsewhere:
        await elsewhere.sign_in_as("olga", seeding.PASSWORD)
        _, page = await admin.send("POST", "/person/olga/link")
        async with browsing(listener) as there:
            form = {"code": _code(page), "password": CHOSEN}
            assert (await there.send("POST", "/invitation", form))[0].status == 303
            assert await there.is_signed_in()
        assert not await elsewhere.is_signed_in(), "another password ends what the old one began"
    code, before = await _invited(admin), admin.session_id
    answer, _ = await admin.send("POST", "/invitation", {"code": code, "password": CHOSEN})
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        now, former = await store.session(admin.session_id), await store.session(before)

    assert answer.status == 303
    assert now is not None
    assert (now.person.name, former) == ("newt", None)


async def test_who_an_openid_provider_vouches_for_gets_no_link(
    listener: Listener, admin: Browser
) -> None:
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).add("oidc-1", subject="issuer|1")
    answer, page = await admin.send("POST", "/person/oidc-1/link")

    assert answer.status == 400
    assert "OpenID provider" in page


@pytest.mark.parametrize("name", [*sorted(NAMES_OF_PARTS), "oidc-0123456789ab"])
async def test_nobody_is_named_as_a_part_of_the_gateway_is(
    listener: Listener, admin: Browser, name: str
) -> None:
    """Under the token's name somebody without a role would have all that the token may do."""
    answer, page = await admin.send("POST", "/new-person", {"name": name})
    body = msgspec.json.encode({"name": name}).decode()
    by_api, _ = await admin.send("POST", "/api/people", body=body)

    assert (answer.status, by_api.status) == (400, 400)
    assert "choose another" in page
    async with listener.database() as database:
        everybody = await PeopleStore(database, listener.clock).listed()
    assert [each.name for each in everybody] == ["sec"]


async def test_who_is_named_as_the_token_is_from_before_gets_in_by_no_way(
    listener: Listener, admin: Browser
) -> None:
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).add("newt", password=Secret(CHOSEN))
        async with database.writing() as connection:
            named = people.update().where(people.c.name == "newt")
            await connection.execute(named.values(name=TOKENS_NAME))
    async with browsing(listener) as theirs:
        signed_in = await theirs.sign_in_as(TOKENS_NAME, CHOSEN)
    linked, _ = await admin.send("POST", f"/person/{TOKENS_NAME}/link")

    assert (signed_in.status, linked.status) == (401, 400)
