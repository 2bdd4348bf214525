"""People and roles: what is shown is what holds; what is given can be taken; nobody gives more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.people.permission_words import PERMISSION_WORDS
from admin.people.verdicts import verdict
from gateway.oversight.access import ROLES, Grant, Permission, Person, allows
from gateway.store.identity.people import PeopleStore
from tests.admin import seeding
from tests.admin.listener import Browser, Listener


pytestmark = pytest.mark.anyio


async def _roles(listener: Listener, name: str) -> frozenset[Grant]:
    async with listener.database() as database:
        people = await PeopleStore(database, listener.clock).listed()
    return next(each.grants for each in people if each.name == name)


GRANTS = st.builds(Grant, st.sampled_from(ROLES), st.sampled_from(["*", "acme", "umbrella"]))


@given(
    st.frozensets(GRANTS, max_size=4),
    st.sampled_from(list(Permission)),
    st.sampled_from(["", "acme", "umbrella"]),
    st.booleans(),
)
def test_a_verdict_says_what_the_guard_does_and_why(
    grants: frozenset[Grant], permission: Permission, organisation: str, is_disabled: bool
) -> None:
    person = Person("ann", grants=grants, is_disabled=is_disabled)
    found = verdict(person, permission, organisation)

    assert found.is_allowed == allows(person, permission, organisation or None)
    assert bool(found.because) == found.is_allowed
    alone = [Person("x", grants=frozenset({each})) for each in found.because]
    assert all(allows(each, permission, organisation or None) for each in alone)


def test_every_permission_has_words_of_its_own() -> None:
    assert tuple(PERMISSION_WORDS) == tuple(Permission)
    said = list(PERMISSION_WORDS.values())
    assert len(set(said)) == len(said)
    assert all(" " in words and ":" not in words.split()[0] for words in said)


async def test_a_permission_is_said_in_words_with_its_code_beside_it(
    listener: Listener, browser: Browser
) -> None:
    await seeding.person(listener, "sec", "security_admin")
    await browser.sign_in_as("sec", seeding.PASSWORD)
    _, page = await browser.send("GET", "/people")

    assert ">propose prices (prices:propose)</option>" in page
    assert "propose prices <code>prices:propose</code></td>" in page
    assert all(f"({permission.value})</option>" in page for permission in Permission)


async def test_a_role_is_given_asked_about_and_taken(listener: Listener, browser: Browser) -> None:
    await listener.issue_key("assistant")
    await seeding.person(listener, "sec", "security_admin")
    await seeding.person(listener, "olga", "viewer", "acme")
    await browser.sign_in_as("sec", seeding.PASSWORD)
    form = {"person": "olga", "role": "app_owner", "organisation": "acme"}

    answer, _ = await browser.send("POST", "/people/grant", form)
    assert answer.status == 303
    assert Grant("app_owner", "acme") in await _roles(listener, "olga")
    ask = "/people?person=olga&permission=keys:issue&organisation=acme"
    _, page = await browser.send("GET", ask)
    assert "Yes: app owner (acme)" in page
    answer, _ = await browser.send("POST", "/people/revoke", form)
    assert answer.status == 303
    assert await _roles(listener, "olga") == {Grant("viewer", "acme")}
    _, page = await browser.send("GET", ask)
    assert "These roles would: app owner" in page


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"person": "olga", "role": "king", "organisation": "acme"}, "choose a role"),
        ({"person": "nobody", "role": "viewer", "organisation": "acme"}, "no such person"),
        ({"person": "olga", "role": "compliance", "organisation": "*"}, "may not"),
    ],
)
async def test_what_cannot_be_given_is_said_in_place_and_the_form_is_kept(
    listener: Listener, browser: Browser, form: dict[str, str], said: str
) -> None:
    await listener.issue_key("assistant")
    await seeding.person(listener, "sec", "security_admin")
    await seeding.person(listener, "olga", "viewer", "acme")
    await browser.sign_in_as("sec", seeding.PASSWORD)
    answer, page = await browser.send("POST", "/people/grant", form)

    assert answer.status == 400
    assert said in page
    assert await _roles(listener, "olga") == {Grant("viewer", "acme")}


async def test_who_belongs_to_one_organisation_sees_no_list_of_people(
    listener: Listener, browser: Browser
) -> None:
    await listener.issue_key("assistant")
    await seeding.person(listener, "olga", "security_admin", "acme")
    await browser.sign_in_as("olga", seeding.PASSWORD)
    answer, _ = await browser.send("GET", "/people")

    assert answer.status == 403


async def test_whom_a_role_is_given_is_told_by_what_people_call_them(
    listener: Listener, browser: Browser
) -> None:
    """Whoever came in by a provider has a name that nobody can tell from another."""
    await seeding.person(listener, "sec", "security_admin")
    async with listener.database() as database:
        people = PeopleStore(database, listener.clock)
        found = await people.by_subject("https://provider.example|7", "Carol Okafor")
    assert found is not None
    await browser.sign_in_as("sec", seeding.PASSWORD)
    _, page = await browser.send("GET", "/people")

    assert f'<option value="{found.name}">Carol Okafor ({found.name})</option>' in page
