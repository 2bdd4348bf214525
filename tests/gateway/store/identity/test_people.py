"""People in the database: who is left to run the platform, and two who act in the same moment."""

import asyncio
from contextlib import suppress

import pytest

from gateway.clock import StoppedClock
from gateway.errors import RequestInvalid, Unauthenticated
from gateway.oversight.access import EVERYWHERE, Grant, Person
from gateway.secrets.secret import Secret
from gateway.store.engine import Database
from gateway.store.identity.invitations import Invitations
from gateway.store.identity.last_admin import FIRST_ROLE
from gateway.store.identity.people import PeopleStore


pytestmark = pytest.mark.anyio


@pytest.fixture
def store(database: Database) -> PeopleStore:
    return PeopleStore(database, StoppedClock())


async def admins(store: PeopleStore, *names: str) -> list[Person]:
    """People who run the platform, and whom a provider vouches for."""
    for name in names:
        await store.add(name, subject=f"https://id.example|{name}")
        await store.grant(name, FIRST_ROLE)
    return [each for each in await store.listed() if each.name in names]


@pytest.mark.parametrize("step", ["disable", "revoke"])
async def test_of_two_who_end_each_other_at_once_one_stays(store: PeopleStore, step: str) -> None:
    ann, bob = await admins(store, "oidc-ann", "oidc-bob")
    # Both have a connection, so that neither is done before the other begins.
    await asyncio.gather(store.listed(), store.listed())

    async def ends(by: Person, other: Person) -> None:
        if step == "disable":
            await store.disable(other.name, by)
        else:
            await store.revoke(other.name, FIRST_ROLE, by)

    ended = await asyncio.gather(ends(ann, bob), ends(bob, ann), return_exceptions=True)
    left = [
        each for each in await store.listed() if FIRST_ROLE in each.grants and not each.is_disabled
    ]

    assert len(left) == 1
    assert [type(each) for each in ended if each is not None] == [RequestInvalid]


async def test_who_never_came_is_not_the_one_who_runs_the_platform(
    store: PeopleStore, database: Database
) -> None:
    (ann,) = await admins(store, "oidc-ann")
    await store.add("paul")
    await store.grant("paul", FIRST_ROLE, ann)
    code = await Invitations(database, StoppedClock()).make("paul", ann.name, ann)
    for step in (store.disable(ann.name, Person("sec")), store.revoke(ann.name, FIRST_ROLE, ann)):
        with pytest.raises(RequestInvalid, match="is the last who runs the platform"):
            await step
    await Invitations(database, StoppedClock()).redeem(code, Secret("a password of his"))
    await store.revoke(ann.name, FIRST_ROLE, ann)

    assert [each.name for each in await store.listed() if each.grants] == ["paul"]


async def test_a_password_that_was_changed_begins_no_session_however_long_it_took_to_prove_it(
    store: PeopleStore,
) -> None:
    """Hashing takes a while: whoever knew the old one was signed in after everybody was out."""
    old, new = Secret("the first of hers"), Secret("the second of hers")
    await store.add("ann", password=old)
    proved = await store.by_password("ann", old)
    assert proved is not None
    kept = await store.begin("ann", mark=proved.mark)
    assert await store.session(kept) is not None
    await store.set_password("ann", new)
    with pytest.raises(Unauthenticated, match="changed meanwhile"):
        await store.begin("ann", mark=proved.mark)
    assert await store.session(kept) is None
    again = await store.by_password("ann", new)
    assert again is not None
    assert await store.session(await store.begin("ann", mark=again.mark)) is not None
    facts = await store.facts("ann")
    assert facts is not None
    assert facts.sessions == 1


async def test_whoever_is_disabled_while_they_sign_in_has_no_session_when_they_are_enabled(
    store: PeopleStore, database: Database
) -> None:
    """Nor by a link: between the password and the session somebody could have shut them out."""
    password = Secret("the first of hers")
    await store.add("ann")
    links = Invitations(database, StoppedClock())
    joined = await links.redeem(await links.make("ann", "os:root"), password)
    proved = await store.by_password("ann", password)
    assert proved is not None
    session = await store.session(joined)
    assert session is not None
    assert session.person.name == "ann"
    await store.disable("ann")
    with pytest.raises(Unauthenticated):
        await store.begin("ann", mark=proved.mark)
    await store.enable("ann")
    facts = await store.facts("ann")

    assert facts is not None
    assert (facts.sessions, await store.session(joined)) == (0, None)


async def test_of_links_that_are_made_at_once_one_is_good(
    store: PeopleStore, database: Database
) -> None:
    await store.add("ann")
    links = Invitations(database, StoppedClock())
    await asyncio.gather(store.listed(), store.listed(), store.listed())
    codes = await asyncio.gather(*(links.make("ann", "os:root") for _ in range(3)))
    good = []
    for code in codes:
        with suppress(Unauthenticated):
            good.append(await links.whose(code))

    assert good == ["ann"]


async def test_a_role_says_whether_it_was_given_or_taken_now(store: PeopleStore) -> None:
    await store.add("ann")
    viewer = Grant("viewer", EVERYWHERE)
    taken = await store.revoke("ann", viewer)
    given = [await store.grant("ann", viewer) for _ in range(2)]

    assert (taken, given) == (False, [True, False])
    assert [await store.revoke("ann", viewer) for _ in range(2)] == [True, False]


async def test_who_is_vouched_for_twice_at_once_is_one_person(store: PeopleStore) -> None:
    found = await asyncio.gather(
        *(store.by_subject("https://id.example|ann", "Ann") for _ in range(3))
    )

    (ann,) = await store.listed()
    assert found == [ann] * 3
    assert (ann.title, ann.grants) == ("Ann", frozenset())


@pytest.mark.parametrize("title", ["Ann\x1b[2J", "Ann\nroot", "Ann\u202egnp", "Ann\x7f"])
async def test_a_title_steers_no_terminal_and_turns_nothing_around(
    store: PeopleStore, title: str
) -> None:
    with pytest.raises(RequestInvalid, match="title: only characters that can be seen"):
        await store.add("ann", title=title)
    assert await store.listed() == []


async def test_a_title_may_be_spelled_with_joiners(store: PeopleStore) -> None:
    spelled = "\u0d05\u0d28\u0d4d\u200d \u06cc\u200c"
    await store.add("ann", title=spelled)
    assert [each.title for each in await store.listed()] == [spelled]
