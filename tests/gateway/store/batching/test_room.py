"""What a project's message batches take of its room: from their arrival on, and with answers."""

import pytest
from msgspec import structs
from sqlalchemy import func, select

from gateway.batches import Batch, Line, LineCounts, LineEnd
from gateway.clock import SECOND_US
from gateway.store.batching.leads import ARRIVING_US, LeadOver
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines
from tests.gateway.batching.parking_lot import PROJECT, Lot


pytestmark = pytest.mark.anyio
ARRIVING_S = ARRIVING_US // SECOND_US


async def arriving(lot: Lot, size_bytes: int) -> Batch:
    now_us = lot.clock.utc_us()
    until_us = now_us + 86_400_000_000
    new = Batch(
        *("msgbatch_", "messages", PROJECT, "k1", "/v1/messages", "validating"),
        *(now_us, until_us, until_us),
    )
    return await lot.batches.make(new, size_bytes=size_bytes, is_receiving=True)


async def test_what_arrives_counts_and_no_longer_than_it_may_arrive(database: Database) -> None:
    lot = Lot(database)
    batch = await arriving(lot, 1_000)
    assert await lot.batches.held(PROJECT) == (1_000, 1)
    for other in (PROJECT._replace(organisation="globex"), PROJECT._replace(name="y")):
        assert await lot.batches.held(other) == (0, 0)
    kept = await arriving(lot, 20)
    await lot.batches.drop(batch.batch_id)
    assert await lot.batches.held(PROJECT) == (20, 1)
    await lot.batches.begin(kept.batch_id, 20, keep_us=7_200_000_000)
    assert await lot.batches.held(PROJECT) == (20, 1)
    await arriving(lot, 300)
    await lot.wait(ARRIVING_S)
    assert await lot.batches.held(PROJECT) == (20, 1)


async def test_what_keeps_arriving_keeps_its_room_and_what_has_lost_it_cannot_go_on(
    database: Database,
) -> None:
    """A worker that was killed in the middle holds nobody up for longer than it was silent."""
    lot = Lot(database)
    batch = await arriving(lot, 1_000)
    key = await lot.batches.content_key(batch)
    assert key is not None
    for number in (1, 2):
        await lot.wait(ARRIVING_S - 1)
        await lot.lines.receive(batch.batch_id, key, [Line(number, f"c{number}", b"{}")])
        assert await lot.batches.held(PROJECT) == (1_000, 1)
    await lot.wait(ARRIVING_S - 1)
    assert await lot.batches.held(PROJECT) == (1_000, 1)
    await lot.wait(1)
    assert await lot.batches.held(PROJECT) == (0, 0)
    with pytest.raises(LeadOver):
        await lot.lines.receive(batch.batch_id, key, [Line(3, "c3", b"{}")])
    with pytest.raises(LeadOver):
        await lot.batches.begin(batch.batch_id, 1_000, keep_us=7_200_000_000)
    assert await lot.batches.forget_expired() == 1
    assert await lot.lines.states(batch.batch_id, [1, 2]) == {}


@pytest.mark.parametrize("keeps_lines", [True, False])
async def test_answers_that_are_kept_with_their_lines_take_room(
    database: Database, *, keeps_lines: bool
) -> None:
    """Those of a batch of files are files by then, and count as such."""
    lot = Lot(database)
    await lot.begin(3)
    batch = structs.replace(lot.batch, ending="completed")
    claims = await lot.lines.claim(lot.batch, lot.key, "w0.1", 2)
    for claim in claims:
        answer = LineEnd("succeeded", 200, "req", b"x" * 5_000)
        assert await lot.lines.end(claim, lot.key, answer)
    await lot.batches.wind_up(batch.batch_id, "completed")
    query = select(func.sum(func.length(batch_lines.c.sealed_end)))
    async with database.reading() as connection:
        answers = int((await connection.execute(query)).scalar_one())
    assert answers > 10_000
    await lot.batches.end(batch, LineCounts(succeeded=2), keeps_lines=keeps_lines)
    assert await lot.batches.held(PROJECT) == (answers if keeps_lines else 0, 0)
