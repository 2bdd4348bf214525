"""Parked lines that do not open any more: each ends alone, and nobody's money stays with it."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from sqlalchemy import update

from gateway.batches import UNREADABLE
from gateway.store.engine import open_database
from gateway.store.schema.batches import batch_lines
from gateway.store.schema.parcels import parked_lines
from tests.gateway.batching.parking_lot import Lot


pytestmark = [pytest.mark.anyio, pytest.mark.either]
GOOD = 4
DAMAGED = (
    *((batch_lines, "sealed_body"), (batch_lines, "sealed_id"), (parked_lines, "sealed_ticket")),
)
"""Of the lines 1, 2 and 3."""


@pytest.fixture
async def lot(database_url: str) -> AsyncIterator[Lot]:
    database = open_database(database_url)
    lot = Lot(database)
    await lot.begin(GOOD)
    yield lot
    await database.close()


async def damage(lot: Lot) -> None:
    async with lot.database.writing() as connection:
        for number, (table, column) in enumerate(DAMAGED, 1):
            row = update(table).where(table.c.number == number)
            await connection.execute(row.values({column: b"not what was sealed"}))


@pytest.mark.parametrize("is_handed_over", [False, True])
async def test_damaged_lines_end_alone_and_hold_no_money(lot: Lot, is_handed_over: bool) -> None:
    worker = await lot.worker("w0")
    requests = await worker.park(GOOD)
    if is_handed_over:
        await worker.tend()
    await damage(lot)
    await worker.ended([requests[0], requests[1], requests[-1]])

    handed = [len(each.parcel.lines) for each in lot.taken()]
    assert handed == [GOOD if is_handed_over else 1]
    assert await lot.states() == {1: "errored", 2: "errored", 3: "errored", GOOD: "succeeded"}
    ends = lot.outcomes()
    lost = [end for name, end in ends.items() if name != requests[-1]]
    assert len(lost) == 3
    assert {(end.error, end.cost_microusd) for end in lost} == {("internal_error", 0)}
    assert {end.detail["line"] for end in lost} == {"1", "2", "3"}
    (group,) = [group async for group in lot.lines.ended(lot.batch, lot.key)]
    for line in group[:3]:
        assert line.end is not None
        assert msgspec.json.decode(line.end.body)["error"]["message"] == UNREADABLE
    await worker.reservations.drop_ended(lot.lines)
    assert await lot.spent() == (ends[requests[-1]].cost_microusd, 0)
    assert await lot.stakes() == 0
