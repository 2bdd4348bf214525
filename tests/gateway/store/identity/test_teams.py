"""Teams: made, changed by one at a time, archived; members need a role, titles need letters."""

import secrets
from collections.abc import AsyncIterator

import pytest

from gateway.clock import StoppedClock
from gateway.errors import RequestInvalid
from gateway.identity import Peppers
from gateway.oversight.access import Grant
from gateway.store.engine import Database, open_database
from gateway.store.identity.keys import KeyStore, NewKey, Place
from gateway.store.identity.people import PeopleStore
from gateway.store.identity.teams import KeyDefaults, TeamStore


pytestmark = pytest.mark.anyio
PLACE = Place("acme", "research", "bot")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    database = open_database(database_url)
    people = PeopleStore(database, StoppedClock())
    held = (("olga", "acme"), ("otto", "umbrella"), ("root", "*"), ("dora", "acme"))
    for name, organisation in held:
        await people.add(name)
        await people.grant(name, Grant("viewer", organisation))
    await people.disable("dora")
    await _keys(database).issue(NewKey(PLACE, "robot", "ada"))
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> TeamStore:
    return TeamStore(database, StoppedClock())


def _keys(database: Database) -> KeyStore:
    return KeyStore(database, Peppers({1: secrets.token_bytes(32)}), StoppedClock())


async def test_a_workspace_that_a_key_made_is_a_team_without_an_owner(store: TeamStore) -> None:
    (team,) = await store.teams("acme")

    assert (team.name, team.title, team.owner, team.members) == ("research", "research", "", ())
    assert team.defaults == KeyDefaults()
    assert await store.teams("umbrella") == []


async def test_a_team_is_made_once_and_keeps_its_name(store: TeamStore) -> None:
    await store.create("acme", "people", "People & Culture", "olga")
    team = await store.team("acme", "people")

    assert team is not None
    assert (team.title, team.owner) == ("People & Culture", "olga")
    with pytest.raises(RequestInvalid, match="such a team already"):
        await store.create("acme", "people")
    with pytest.raises(RequestInvalid, match="lower-case"):
        await store.create("acme", "People")
    with pytest.raises(RequestInvalid, match="no such organisation"):
        await store.create("nowhere", "people")


async def test_of_two_who_change_a_team_at_once_the_second_changes_nothing(
    store: TeamStore,
) -> None:
    team = await store.team("acme", "research")
    assert team is not None
    seen = team.revision

    assert await store.change("acme", "research", title="First", owner="olga", revision=seen)
    assert not await store.change("acme", "research", title="Second", owner="", revision=seen)
    assert not await store.archive("acme", "research", seen)
    now = await store.team("acme", "research")
    assert now is not None
    assert (now.title, now.owner, now.archived_us) == ("First", "olga", None)


@pytest.mark.parametrize("title", ["", " ", "x" * 201, "a\u202eb"])
async def test_a_title_is_something_that_can_be_read(store: TeamStore, title: str) -> None:
    with pytest.raises(RequestInvalid):
        await store.change("acme", "research", title=title, owner="")


@pytest.mark.parametrize("name", ["otto", "nobody", "dora"])
async def test_who_has_no_role_there_is_answered_like_who_is_not(
    store: TeamStore, name: str
) -> None:
    for step in (
        store.add_member("acme", "research", name),
        store.change("acme", "research", title="Research", owner=name),
    ):
        with pytest.raises(RequestInvalid, match="nobody with a role in this organisation"):
            await step


async def test_members_come_go_and_are_found_from_the_persons_side(store: TeamStore) -> None:
    for name in ("olga", "root", "olga"):
        await store.add_member("acme", "research", name)
    await store.create("acme", "people", owner="olga")

    team = await store.team("acme", "research")
    assert team is not None
    assert team.members == ("olga", "root")
    assert await store.of_person("olga") == [("acme", "people"), ("acme", "research")]
    await store.remove_member("acme", "research", "olga")
    assert await store.of_person("olga") == [("acme", "people")]


async def test_a_team_that_is_full_takes_nobody_else_and_those_in_it_again(
    store: TeamStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.identity.teams.MEMBERS_MAX", 1)
    for _ in range(2):
        await store.add_member("acme", "research", "olga")
    with pytest.raises(RequestInvalid, match="at most 1 members"):
        await store.add_member("acme", "research", "root")
    team = await store.team("acme", "research")

    assert team is not None
    assert team.members == ("olga",)


async def test_in_an_archived_team_no_key_is_issued_until_it_is_restored(
    store: TeamStore, database: Database
) -> None:
    keys = _keys(database)
    await store.archive("acme", "research")
    with pytest.raises(RequestInvalid, match="archived"):
        await keys.issue(NewKey(PLACE, "another", "ada"))
    assert len(await keys.keys("acme")) == 1
    await store.restore("acme", "research")
    await keys.issue(NewKey(PLACE, "another", "ada"))
    assert len(await keys.keys("acme")) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        KeyDefaults(expires_days=0),
        KeyDefaults(budget_microusd=-1),
        KeyDefaults(tokens_per_minute=-1),
        KeyDefaults(requests_per_minute=10**13),
    ],
)
async def test_defaults_are_numbers_that_can_be_meant(store: TeamStore, wrong: KeyDefaults) -> None:
    with pytest.raises(RequestInvalid):
        await store.set_defaults("acme", "research", wrong)
    kept = KeyDefaults(30, 5_000_000, "day", 10, 1_000, 2)
    await store.set_defaults("acme", "research", kept)
    team = await store.team("acme", "research")
    assert team is not None
    assert team.defaults == kept
