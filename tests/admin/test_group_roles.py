"""Groups of an OpenID provider as roles: who leaves the group loses the role."""

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from admin.sign_in.groups import OVERAGE
from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid, RequestInvalid
from gateway.oversight.access import ByGroup, Grant, Person
from gateway.secrets.secret import Secret
from gateway.store.identity.people import PeopleStore, name_of_subject
from gateway.store.schema.tables import role_grants
from tests.admin.chromium import window
from tests.admin.listener import ON_BOTH, Browser, Listener, browsing
from tests.admin.provider_of_a_test import CLIENT, Liar
from tests.admin.seeding import person as known_person
from tests.admin.test_deeds import deeds


pytestmark = pytest.mark.anyio
ROLES = """
groups_claim = ["realm_access", "roles"]
group_roles = [
  {group = "Desk", role = "security_admin", organisation = "*"},
  {group = "Readers", role = "viewer", organisation = "acme"},
]
"""
PASSWORD = "a long password of a test"


@pytest.fixture
def provider() -> Iterator[Liar]:
    liar = Liar()
    yield liar
    liar.stop()


@pytest.fixture
async def listener(tmp_path: Path, listener_url: str, provider: Liar) -> AsyncIterator[Listener]:
    more = f'[oidc]\nissuer = "{provider.issuer}"\nclient_id = "{CLIENT}"\n{ROLES}'
    async with Listener(tmp_path, listener_url, more) as running:
        yield running


def says(provider: Liar, groups: object, **more: object) -> None:
    """From now on its tokens name these groups."""
    told: dict[str, Any] = {"realm_access": {"roles": groups}} | more

    def forge(claims: dict[str, Any]) -> str:
        return provider.honest(claims | {"auth_time": claims["iat"]} | told)

    provider.forge = forge


async def sign_in(browser: Browser, provider: Liar) -> tuple[int, str]:
    begun, _ = await browser.send("GET", "/sign-in/openid")
    found = re.search(r"href='http://[^/]+([^']+)'", provider._asks(begun.headers["location"]))
    assert found is not None
    answer, page = await browser.send("GET", found[1].replace("&amp;", "&"))
    return answer.status, page


async def somebody(listener: Listener, provider: Liar) -> Person | None:
    name = name_of_subject(f"{provider.issuer}|ann")
    async with listener.database() as database:
        people = await PeopleStore(database, listener.clock).listed()
    return next((each for each in people if each.name == name), None)


async def of_provider(listener: Listener) -> list[tuple[str, str]]:
    """What is on record of it: the deed, and what was ordered."""
    return [
        (each.action, each.detail["after"])
        for each in await deeds(listener)
        if each.actor == "oidc-provider"
    ]


@ON_BOTH
async def test_a_role_comes_and_goes_with_the_group_and_each_change_is_on_record(
    listener: Listener, browser: Browser, provider: Liar
) -> None:
    says(provider, ["Desk", "Desk", "desk", "others"])
    assert (await sign_in(browser, provider))[0] == 200
    assert (await browser.send("GET", "/people"))[0].status == 200
    ann = await somebody(listener, provider)
    assert ann is not None
    assert ann.by_group == {ByGroup("security_admin", "*", "Desk")}
    _, page = await browser.send("GET", f"/person/{ann.name}")
    assert "by the group <code>Desk</code>" in page
    assert "Take away Security" not in page
    says(provider, ["desk"])
    async with browsing(listener) as other:
        assert (await sign_in(other, provider))[0] == 200
        assert (await other.send("GET", "/people"))[0].status == 403
    assert (await browser.send("GET", "/people"))[0].status == 403, "also where they were before"
    after = f'"organisation":"*","person":"{ann.name}","role":"security_admin"'
    (added, first), *changes = await of_provider(listener)
    assert added == "person.added"
    assert '"groups":["Desk"]' in first
    assert changes == [
        ("role.granted", f'{{"group":"Desk",{after}}}'),
        ("role.revoked", f'{{"group":"Desk",{after}}}'),
    ]


@ON_BOTH
async def test_a_role_is_by_hand_or_by_group_and_neither_way_ends_the_other(
    listener: Listener, browser: Browser, provider: Liar
) -> None:
    says(provider, [])
    await sign_in(browser, provider)
    ann = await somebody(listener, provider)
    assert ann is not None
    by_hand, by_group = Grant("viewer", "acme"), Grant("security_admin", "*")
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        await store.grant(ann.name, by_hand)
        says(provider, ["Readers", "Desk"])
        await sign_in(browser, provider)
        held = await somebody(listener, provider)
        assert held is not None
        assert held.by_group == {ByGroup("security_admin", "*", "Desk")}
        for step in (store.grant, store.revoke):
            with pytest.raises(RequestInvalid, match="group Desk of the OpenID provider"):
                await step(ann.name, by_group)
        says(provider, [])
        await sign_in(browser, provider)
        left = await somebody(listener, provider)
        assert left is not None
        assert left.grants == {by_hand}


@ON_BOTH
async def test_a_role_by_group_holds_in_no_session_that_the_provider_did_not_vouch_for(
    listener: Listener, browser: Browser, provider: Liar
) -> None:
    says(provider, ["Desk"])
    await sign_in(browser, provider)
    ann = await somebody(listener, provider)
    assert ann is not None
    async with listener.database() as database:
        store = PeopleStore(database, listener.clock)
        await store.set_password(ann.name, Secret(PASSWORD))
        session = await store.session(await store.begin(ann.name))
    assert session is not None
    assert session.person.grants == frozenset()
    async with browsing(listener) as other:
        await other.sign_in_as(ann.name, PASSWORD)
        assert (await other.send("GET", "/people"))[0].status == 403


async def test_who_is_disabled_stays_so_in_spite_of_groups(
    listener: Listener, browser: Browser, provider: Liar
) -> None:
    says(provider, [])
    await sign_in(browser, provider)
    ann = await somebody(listener, provider)
    assert ann is not None
    async with listener.database() as database:
        await PeopleStore(database, listener.clock).disable(ann.name)
    says(provider, ["Desk"])
    assert (await sign_in(browser, provider))[0] == 401
    left = await somebody(listener, provider)
    assert left is not None
    assert (left.is_disabled, left.grants) == (True, frozenset())


@pytest.mark.parametrize(
    ("groups", "more"),
    [
        (["Desk"], {"_claim_names": {"realm_access": "src1"}}),
        ([7], {}),
        ([["Desk"]], {}),
        ({"Desk": True}, {}),
        (True, {}),
    ],
)
async def test_groups_that_are_not_told_or_not_legible_let_nobody_in(
    listener: Listener, browser: Browser, provider: Liar, groups: object, more: dict[str, object]
) -> None:
    says(provider, groups, **more)
    status, page = await sign_in(browser, provider)
    assert status == 403
    assert ("more groups than" in page) == ("_claim_names" in more)
    assert "more groups than" in OVERAGE
    assert not await browser.is_signed_in()
    assert await somebody(listener, provider) is None


async def test_ten_thousand_groups_and_one_that_is_a_text_are_read(
    listener: Listener, browser: Browser, provider: Liar
) -> None:
    says(provider, [*(f"g{at}" for at in range(10_000)), "Desk"])
    assert (await sign_in(browser, provider))[0] == 200
    assert (await browser.send("GET", "/people"))[0].status == 200
    says(provider, "Desk, Readers")
    await sign_in(browser, provider)
    assert (await browser.send("GET", "/people"))[0].status == 403, "a text is not taken apart"
    says(provider, "Desk")
    await sign_in(browser, provider)
    assert (await browser.send("GET", "/people"))[0].status == 200


async def test_who_is_admin_by_group_is_not_the_one_who_has_to_be_left(
    listener: Listener, browser: Browser, provider: Liar
) -> None:
    await known_person(listener, "bob", "platform_admin", organisation="*")
    says(provider, [])
    await sign_in(browser, provider)
    ann = await somebody(listener, provider)
    assert ann is not None
    row = {"person": ann.name, "role": "platform_admin", "organisation": "*", "by_group": "Desk"}
    async with listener.database() as database:
        async with database.writing() as connection:
            await connection.execute(role_grants.insert(), row)
        store = PeopleStore(database, listener.clock)
        (bob,) = [each for each in await store.listed() if each.name == "bob"]
        with pytest.raises(RequestInvalid, match="the last who runs the platform"):
            await store.revoke("bob", Grant("platform_admin", "*"), bob)
        async with database.reading() as connection:
            found = await connection.execute(select(role_grants.c.person))
            assert "bob" in found.scalars().all()


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (
            'group_roles = [{group = "A", role = "king", organisation = "*"}]',
            "oidc.group_roles[0].role",
        ),
        ('group_roles = [{group = "A", role = "viewer"}]', "oidc.group_roles[0]"),
        ("groups_claim = []", "oidc.groups_claim"),
    ],
)
def test_a_mapping_that_means_nothing_refuses_the_start(
    tmp_path: Path, line: str, key: str
) -> None:
    file = tmp_path / "gatewright.toml"
    file.write_text(f"[oidc]\n{line}\n")
    with pytest.raises(ConfigurationInvalid) as caught:
        load_settings(file)
    assert key in str(caught.value)
    assert "gatewright.toml" in str(caught.value)


async def test_in_a_browser_who_leaves_the_group_is_refused_at_the_next_sign_in(
    listener: Listener, provider: Liar
) -> None:
    says(provider, ["Desk"])
    async with window(listener) as seen:
        await seen.open("/sign-in")
        await seen.page.click("text=Sign in with your organisation")
        await seen.page.click("text=It is me")
        await seen.page.wait_for_url(re.compile(r"^[^?]*/$"))
        ann = await somebody(listener, provider)
        assert ann is not None
        for width in (1280, 390):
            await seen.page.set_viewport_size({"width": width, "height": 900})
            for path in ("/people", f"/person/{ann.name}"):
                await seen.open(path)
                assert await seen.page.is_visible("text=Desk")
                assert await seen.faults() == []
        says(provider, [])
        await seen.open("/sign-in/openid")
        await seen.page.click("text=It is me")
        await seen.page.wait_for_selector("text=You are signed in as")
        await seen.open("/people")
        assert await seen.page.is_visible("text=You are signed in as")
