"""Prices that take two people: nobody agrees to their own, and what was compared is what counts."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.clock import StoppedClock
from gateway.errors import ChangedMeanwhile, Forbidden, RequestInvalid
from gateway.store.engine import open_database
from gateway.store.money.price_files import NEVER, PriceFiles
from gateway.store.money.price_proposals import PriceProposals


pytestmark = pytest.mark.anyio
NOW_US = 1_800_000_000_000_000


class Desk:
    """Files and proposals of one database, with two files given."""

    def __init__(self, files: PriceFiles, proposals: PriceProposals) -> None:
        self.files, self.proposals = files, proposals

    async def propose(self, file: int, by: str = "petra", seen: int = 0) -> int:
        made = await self.proposals.propose(file, by, "agreed", seen=seen, more_microusd=7)
        return made.number

    async def states(self) -> dict[int, str]:
        return {each.number: each.state for each in await self.proposals.newest()}


@pytest.fixture
async def desk(database_url: str) -> AsyncIterator[Desk]:
    database, clock = open_database(database_url), StoppedClock(NOW_US)
    found = Desk(PriceFiles(database, clock), PriceProposals(database, clock))
    for name in ("a", "b"):
        await found.files.add(name, f"# {name}\n", "petra")
    yield found
    await database.close()


@pytest.mark.parametrize("same", ["petra", "Petra", " petra "])
async def test_nobody_approves_what_they_proposed(desk: Desk, same: str) -> None:
    number = await desk.propose(1)
    with pytest.raises(Forbidden):
        await desk.proposals.approve(number, same, "fine")
    assert await desk.files.standing() == NEVER
    assert await desk.states() == {1: "waiting"}


async def test_what_a_second_person_approves_is_in_force_and_says_who_did_what(desk: Desk) -> None:
    number = await desk.propose(1)
    order = await desk.proposals.approve(number, "anton", "as in the contract")
    assert order == await desk.files.standing()
    assert (order.number, order.place, order.actor, order.reason) == (1, 1, "anton", "agreed")
    found = await desk.proposals.proposal(number)
    assert found is not None
    assert (found.state, found.decided_by, found.comment, found.place, found.more_microusd) == (
        *("approved", "anton", "as in the contract", 1, 7),
    )
    assert await desk.proposals.proposers([0, 1]) == {1: "petra"}


async def test_what_was_compared_with_other_prices_is_overtaken_and_cannot_be_approved(
    desk: Desk,
) -> None:
    first, second = await desk.propose(1), await desk.propose(2, "paul")
    await desk.proposals.approve(first, "anton", "yes")
    assert await desk.states() == {first: "approved", second: "overtaken"}
    with pytest.raises(RequestInvalid, match="overtaken"):
        await desk.proposals.approve(second, "anton", "yes")
    with pytest.raises(ChangedMeanwhile):
        await desk.propose(2, seen=0)
    assert (await desk.files.standing()).number == 1


async def test_a_file_waits_once_and_is_ended_once(desk: Desk) -> None:
    number = await desk.propose(1)
    with pytest.raises(RequestInvalid, match="proposed already"):
        await desk.propose(1, "paul")
    with pytest.raises(Forbidden):
        await desk.proposals.end(number, "paul", "", "withdrawn")
    with pytest.raises(Forbidden):
        await desk.proposals.end(number, "petra", "no", "declined")
    await desk.proposals.end(number, "anton", "too dear", "declined")
    with pytest.raises(RequestInvalid, match="declined"):
        await desk.proposals.approve(number, "anton", "after all")
    with pytest.raises(RequestInvalid, match="no such"):
        await desk.proposals.approve(9, "anton", "yes")
    again = await desk.propose(1)
    await desk.proposals.end(again, "petra", "", "withdrawn")
    assert await desk.states() == {number: "declined", again: "withdrawn"}
    assert (await desk.proposals.waiting()).rows == ()
    assert await desk.files.standing() == NEVER


async def test_of_two_who_decide_in_the_same_moment_one_is_obeyed(desk: Desk) -> None:
    first, second = await desk.propose(1), await desk.propose(2)
    done = await asyncio.gather(
        desk.proposals.approve(first, "anton", "yes"),
        desk.proposals.approve(second, "berta", "yes"),
        desk.proposals.end(first, "carla", "no", "declined"),
        return_exceptions=True,
    )
    orders = await desk.files.orders(10)
    approved = [number for number, state in (await desk.states()).items() if state == "approved"]
    assert len(orders) == len(approved) <= 1
    assert [each.number for each in orders] == approved, "a file has its proposal's number here"
    for each in done:
        assert not isinstance(each, Exception) or isinstance(each, RequestInvalid), each
