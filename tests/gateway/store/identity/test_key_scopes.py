"""Keys that may do less at once and more by two people, also where these come together."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from gateway.clock import StoppedClock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.identity import KeyRecord, Peppers
from gateway.oversight.key_scope import KeyScope, scope_of
from gateway.store.engine import open_database
from gateway.store.identity.key_scopes import KeyProposal, KeyScopes
from gateway.store.identity.keys import KeyStore, NewKey, Place


pytestmark = pytest.mark.anyio
HAD = scope_of(["house"], 2_000_000_000_000_000, ["team"], "warn")
WANTED = replace(HAD, models=("claude", "house"))
NONE_AT_ALL = scope_of([], 1_900_000_000_000_000, ["team"], "strict")


class Desk:
    """One key of one organisation, and what is done to it."""

    def __init__(self, scopes: KeyScopes, keys: KeyStore, key_id: str, clock: StoppedClock) -> None:
        self.scopes, self.keys, self.key_id, self.clock = scopes, keys, key_id, clock

    async def propose(
        self, wanted: KeyScope = WANTED, *, seen: KeyScope = HAD, by: str = "petra"
    ) -> KeyProposal:
        return await self.scopes.propose(
            "acme", self.key_id, wanted, seen=seen, actor=by, reason="a second model"
        )

    async def key(self) -> KeyRecord:
        """As a worker has it that loads its keys now."""
        return (await self.keys.table()).records[self.key_id]

    async def scope(self) -> KeyScope:
        record = await self.key()
        asker = record.principal
        return scope_of(asker.models, record.expires_us, asker.labels, asker.translation)

    async def states(self) -> list[str]:
        return sorted(each.state for each in await self.scopes.of_key("acme", self.key_id))


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    database, clock = open_database(database_url), StoppedClock(1_800_000_000_000_000)
    keys = KeyStore(database, Peppers({1: b"p" * 32}), clock)
    new = NewKey(
        place=Place("acme", "research", "assistant"),
        name="payroll",
        created_by="petra",
        labels=HAD.labels,
        models=frozenset(HAD.models or ()),
        expires_us=HAD.expires_us,
    )
    key = await keys.issue(new)
    yield Desk(KeyScopes(database, clock), keys, key.key_id, clock)
    await database.close()


async def test_what_only_takes_away_holds_at_once_and_raises_the_revision(desk: Desk) -> None:
    before = (await desk.keys.table()).revision
    await desk.scopes.narrow("acme", desk.key_id, HAD, NONE_AT_ALL)
    assert await desk.scope() == NONE_AT_ALL
    assert (await desk.key()).principal.models == frozenset(), "none, and not all"
    assert (await desk.keys.table()).revision > before, "workers load their keys again"
    with pytest.raises(RequestInvalid, match="do more"):
        await desk.scopes.narrow("acme", desk.key_id, NONE_AT_ALL, HAD)
    with pytest.raises(RequestInvalid, match="no such key"):
        await desk.scopes.narrow("umbrella", desk.key_id, NONE_AT_ALL, NONE_AT_ALL)


@pytest.mark.parametrize("same", ["petra", "Petra", " petra "])
async def test_nobody_lets_a_key_do_what_they_proposed(desk: Desk, same: str) -> None:
    made, revision = await desk.propose(), (await desk.keys.table()).revision
    with pytest.raises(Forbidden):
        await desk.scopes.approve("acme", made.id, same, "fine")
    with pytest.raises(Forbidden):
        await desk.scopes.end("acme", made.id, same, "no", "declined")
    with pytest.raises(RequestInvalid, match="no such proposal"):
        await desk.scopes.approve("umbrella", made.id, "anton", "another's")
    assert await desk.scope() == HAD
    assert (await desk.keys.table()).revision == revision, "nothing changed for anybody"


async def test_what_a_second_person_approves_holds_and_says_who_did_what(desk: Desk) -> None:
    made, revision = await desk.propose(), (await desk.keys.table()).revision
    assert (await desk.scopes.waiting("acme")).rows == (made,)
    assert (await desk.scopes.waiting("umbrella")).rows == ()
    done = await desk.scopes.approve("acme", made.id, "anton", "for the pilot")
    assert await desk.scope() == WANTED
    assert (await desk.keys.table()).revision > revision
    found = await desk.scopes.proposal("acme", made.id)
    assert found == done
    assert (done.state, done.proposed_by, done.decided_by, done.comment) == (
        *("approved", "petra", "anton", "for the pilot"),
    )
    with pytest.raises(RequestInvalid, match="is approved"):
        await desk.scopes.approve("acme", made.id, "berta", "again")


async def test_a_change_in_between_overtakes_what_waits_and_what_was_seen(desk: Desk) -> None:
    made = await desk.propose()
    with pytest.raises(RequestInvalid, match="waits already"):
        await desk.propose(by="paul")
    await desk.scopes.narrow("acme", desk.key_id, HAD, NONE_AT_ALL)
    assert await desk.states() == ["overtaken"]
    with pytest.raises(RequestInvalid, match="overtaken"):
        await desk.scopes.approve("acme", made.id, "anton", "yes")
    with pytest.raises(ChangedMeanwhile):
        await desk.propose()
    with pytest.raises(ChangedMeanwhile):
        await desk.scopes.narrow("acme", desk.key_id, HAD, NONE_AT_ALL)
    assert await desk.scope() == NONE_AT_ALL
    await desk.propose(HAD, seen=NONE_AT_ALL)
    assert await desk.states() == ["overtaken", "waiting"]


async def test_another_secret_is_no_other_scope(desk: Desk) -> None:
    made = await desk.propose()
    await desk.keys.rotate(desk.key_id, overlap_s=0)
    await desk.scopes.approve("acme", made.id, "anton", "yes")
    assert await desk.scope() == WANTED


async def test_a_proposal_ends_with_its_key_and_cannot_bring_it_back(desk: Desk) -> None:
    made = await desk.propose()
    await desk.keys.revoke(desk.key_id)
    assert (await desk.scopes.waiting("acme")).rows == ()
    assert await desk.scopes.waiting_anywhere(0, 9) == []
    assert await desk.states() == ["ended"]
    with pytest.raises(RequestInvalid, match="is ended"):
        await desk.scopes.approve("acme", made.id, "anton", "yes")
    with pytest.raises(RequestInvalid, match="has ended"):
        await desk.propose(replace(HAD, expires_us=None))
    assert desk.key_id not in (await desk.keys.table()).records


async def test_a_key_that_expired_is_not_brought_back_by_a_later_end(
    desk: Desk, database_url: str
) -> None:
    longer = replace(HAD, expires_us=2_100_000_000_000_000)
    made = await desk.propose(longer)
    other = open_database(database_url)
    late = KeyScopes(other, StoppedClock(2_000_000_000_000_000))
    assert [each.state for each in await late.of("acme")] == ["ended"]
    with pytest.raises(RequestInvalid, match="is ended"):
        await late.approve("acme", made.id, "anton", "yes")
    await other.close()


async def test_it_is_withdrawn_by_who_made_it_and_declined_by_others(desk: Desk) -> None:
    made = await desk.propose()
    with pytest.raises(Forbidden):
        await desk.scopes.end("acme", made.id, "anton", "", "withdrawn")
    await desk.scopes.end("acme", made.id, "petra", "", "withdrawn")
    again = await desk.propose()
    done = await desk.scopes.end("acme", again.id, "anton", "no need", "declined")
    assert (done.state, done.comment) == ("declined", "no need")
    assert await desk.states() == ["declined", "withdrawn"]
    assert await desk.scope() == HAD


async def test_of_those_who_come_in_the_same_moment_one_is_obeyed(desk: Desk) -> None:
    made = await desk.propose()
    done = await asyncio.gather(
        desk.scopes.approve("acme", made.id, "anton", "yes"),
        desk.scopes.end("acme", made.id, "berta", "no", "declined"),
        desk.scopes.narrow("acme", desk.key_id, HAD, NONE_AT_ALL),
        return_exceptions=True,
    )
    for each in done:
        assert not isinstance(each, Exception) or isinstance(each, RequestInvalid), each
    found = await desk.scopes.proposal("acme", made.id)
    assert found is not None
    has = await desk.scope()
    assert (found.state == "approved") is (has == WANTED), (found.state, has)
    assert has in (HAD, WANTED, NONE_AT_ALL)
    assert (has == NONE_AT_ALL) is (done[2] is None)


async def test_nobody_ends_a_key_by_approving_what_came_too_late(desk: Desk) -> None:
    """It was to do more for a while that is over by now: as agreed to, it would be dead."""
    soon = replace(WANTED, expires_us=1_800_000_000_000_000 + 60_000_000)
    proposed = await desk.propose(soon)
    desk.clock.advance(60)
    with pytest.raises(RequestInvalid, match="would have expired by now"):
        await desk.scopes.approve("acme", proposed.id, "anton", "fine")

    assert await desk.scope() == HAD
    assert await desk.states() == ["waiting"]
