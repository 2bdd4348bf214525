"""Decisions are read back by the boards that they were taken under, whatever others there are."""

from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from gateway.clock import HOUR_US
from gateway.routing.board import TargetBoard
from gateway.store.engine import open_database
from gateway.store.policies.documents import PolicyStore
from gateway.store.schema.policies import target_boards
from gateway.store.traffic.archive import READ_AT_ONCE, DecisionArchive
from tests.gateway.providers.samples import make_target
from tests.gateway.store.profiling import World, intent
from tests.gateway.store.rows import filled


pytestmark = pytest.mark.anyio

BOARD = TargetBoard({"scripted/one": make_target()}, {}).facts_for(None)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    database = open_database(database_url)
    yield World(database)
    await database.close()


async def test_a_replay_reads_the_boards_that_its_records_name_and_no_other(world: World) -> None:
    """Also those that are named for the first time far into it."""
    policies = PolicyStore(world.database, world.clock)
    for name in ("board", "late"):
        await policies.boards.keep(name, BOARD)
    async with world.database.writing() as connection:
        row = filled(target_boards, digest="other", targets="[no board")
        await connection.execute(row)
    begun = [intent(world.start_us + place) for place in range(READ_AT_ONCE + 5)]
    facts = begun[-1].facts
    assert facts is not None
    begun[-1] = structs.replace(begun[-1], facts=structs.replace(facts, board="late"))
    begun[-2] = structs.replace(begun[-2], facts=structs.replace(facts, board="gone"))
    await world.store(*begun)
    archive = DecisionArchive(world.sink, policies)

    found = [each async for each in archive.recorded(world.start_us)]

    replayed = [record.request_id for record in begun if record is not begun[-2]]
    assert [each.request_id for each in found] == replayed
    assert {each.facts.targets for each in found} == {BOARD}


async def test_no_other_board_is_read_for_it(world: World) -> None:
    """A policy that orders by speed leaves one for each change of any target's."""
    policies = PolicyStore(world.database, world.clock)
    await policies.boards.keep("board", BOARD)
    async with world.database.writing() as connection:
        for number in range(3):
            row = filled(target_boards, digest=f"other-{number}", targets="[no board")
            await connection.execute(row)
    begun = intent(world.start_us)
    await world.store(begun, intent(world.start_us + 1, model="named"))
    archive = DecisionArchive(world.sink, policies)

    found = await archive.facts_of("acme", begun.request_id)

    assert found is not None
    record, facts = found
    assert (record.request_id, facts.targets) == (begun.request_id, BOARD)
    assert await archive.newest("acme", 10, since_us=world.start_us - HOUR_US) == []
    assert await policies.boards.named(["board", "gone"]) == {"board": BOARD}
    assert await policies.boards.named(()) == {}
