"""A line that was taken over while it was about to wait for a vendor is ended all the same."""

import asyncio
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from gateway.batching import runner as running
from gateway.batching.parcel_runner import GATHER_S
from gateway.batching.runner import BatchRunner, Share, Stores
from gateway.errors import AuditUnavailable, NotReady
from gateway.metrics import Metrics
from gateway.store.batching.lines import LEASE_US
from gateway.store.batching.turns import BatchTurns
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines
from gateway.types import AuditRecord, Receipt
from tests.gateway.batching.parking_lot import HELD, LIMIT, POLL_S, Lot, Worker
from tests.gateway.batching.test_leads import before


pytestmark = pytest.mark.anyio
NOBODY: Any = None


def runner_of(lot: Lot, worker: Worker) -> BatchRunner:
    """What sends this worker's lines, and parks them."""
    return BatchRunner(
        Stores(lot.batches, BatchTurns(lot.database, lot.clock), lot.lines),
        worker.journeys,
        NOBODY,
        lot.clock,
        parked=worker.parked,
        metrics=Metrics(),
        share=Share(worker.name, 8, lambda: "req"),
    )


def unheard(worker: Worker) -> None:
    """The next line is parked, and its worker hears nothing of that."""
    park = worker.waiting.park

    async def parks(*given: Any) -> bool:
        worker.waiting.park = park  # type: ignore[method-assign]
        await park(*given)
        raise NotReady("the connection broke over the commit")

    worker.waiting.park = parks  # type: ignore[method-assign,assignment]


async def test_what_was_set_aside_for_it_goes_back_and_its_intent_has_an_outcome(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was away when it was to be parked, and back when its worker asked for it."""
    monkeypatch.setattr(running, "AGAIN_S", 0.01)
    lot = Lot(database)
    await lot.begin(1)
    worker = await lot.worker("w0")
    (claim,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    parked, is_away = await worker.parkable(claim), asyncio.Event()
    park, journeys = worker.waiting.park, worker.journeys

    async def let_through(*_: Any, **__: Any) -> Any:
        return parked

    async def parks(*given: Any) -> bool:
        if not is_back.is_set():
            is_away.set()
            raise NotReady("the database is away")
        return await park(*given)

    is_back = asyncio.Event()
    monkeypatch.setattr(worker.waiting, "park", parks)
    monkeypatch.setattr(journeys, "send", let_through)
    runner = runner_of(lot, worker)
    name = runner._begin_sending(claim, runner._send(claim, lot.key))
    task = runner._sending._tasks[name]
    await is_away.wait()
    async with database.writing() as connection:
        taken = update(batch_lines).values(holder="w1.1", claims=batch_lines.c.claims + 1)
        await connection.execute(taken)

    await runner.keep()
    is_back.set()
    await asyncio.wait([task])

    (outcome,) = lot.outcomes().values()
    assert (outcome.request_id, outcome.cost_microusd) == (parked.ticket.request_id, 0)
    assert await lot.spent() == (0, 0)
    assert runner._parking == []
    await runner.close()


async def test_so_does_one_whose_loss_could_not_be_written_down_at_first(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left open, its intent would be closed at what was set aside for it, which nobody books."""
    monkeypatch.setattr(running, "AGAIN_S", 0.01)
    lot = Lot(database)
    await lot.begin(1)
    worker = await lot.worker("w0")
    (claim,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    parked, append, tries = await worker.parkable(claim), lot.audit.append, list[AuditRecord]()

    async def let_through(*_: Any, **__: Any) -> Any:
        return parked

    async def appends(record: AuditRecord, content: bytes | None = None) -> Receipt:
        tries.append(record)
        lot.audit.failing = len(tries) < 3
        receipt: Receipt = await append(record, content)
        return receipt

    monkeypatch.setattr(worker.journeys, "send", let_through)
    monkeypatch.setattr(lot.audit, "append", appends)
    async with database.writing() as connection:
        taken = update(batch_lines).values(holder="w1.1", claims=batch_lines.c.claims + 1)
        await connection.execute(taken)
    runner = runner_of(lot, worker)
    await runner._send(claim, lot.key)

    (outcome,) = lot.outcomes().values()
    assert (outcome.request_id, outcome.cost_microusd) == (parked.ticket.request_id, 0)
    assert (len(tries), await lot.spent()) == (3, (0, 0))
    await runner.close()


async def test_so_does_one_that_its_own_worker_claimed_again_and_parked(
    database: Database,
) -> None:
    """That another line of this worker's waits in its place is no word about it."""
    lot = Lot(database)
    await lot.begin(1)
    worker = await lot.worker("w0")
    (first,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    older = await worker.parkable(first)
    await lot.wait(LEASE_US / 1e6)
    assert await lot.lines.free_lapsed() == 1
    (newer,) = await worker.park(1)

    await worker.parked.park(first, lot.key, older)

    (outcome,) = lot.outcomes().values()
    assert (outcome.request_id, outcome.cost_microusd) == (older.ticket.request_id, 0)
    assert worker.reservations.held_for(lot.batch.batch_id, 1)[0] == newer
    assert await lot.spent() == (0, HELD)


@pytest.mark.parametrize("is_answered", [True, False])
async def test_one_that_was_parked_unheard_and_ended_by_others_has_one_outcome(
    database: Database, *, is_answered: bool
) -> None:
    lot = Lot(database)
    await lot.begin(1)
    worker, other = await lot.worker("w0"), await lot.worker("w1")
    (claim,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    parked = await worker.parkable(claim)
    unheard(worker)
    with pytest.raises(NotReady):
        await worker.parked.park(claim, lot.key, parked)
    if not is_answered:
        lot.service = None
    await lot.wait(GATHER_S)
    await other.ended([parked.ticket.request_id])

    await worker.parked.park(claim, lot.key, parked)

    (outcome,) = lot.outcomes().values()
    assert outcome.status == ("ok" if is_answered else "failed")
    assert await lot.spent() == (outcome.cost_microusd, 0)
    assert (await lot.stakes(), worker.reservations.holds_any()) == (0, False)


async def test_one_that_was_parked_unheard_waits_as_any_other(
    database: Database,
) -> None:
    lot = Lot(database)
    await lot.begin(1)
    worker = await lot.worker("w0")
    (claim,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    parked = await worker.parkable(claim)
    for _ in range(2):
        await worker.parked.park(claim, lot.key, parked)
    assert lot.outcomes() == {}
    assert worker.reservations.held_for(lot.batch.batch_id, 1)[0] == parked.ticket.request_id
    await worker.ended([parked.ticket.request_id])


@pytest.mark.parametrize("held", [HELD, LIMIT])
@pytest.mark.parametrize("heard", ["holding", "waiting", "delivering", "unwritten"])
async def test_one_that_was_parked_unheard_and_taken_up_by_its_own_worker_is_held_and_paid_once(
    database: Database, heard: str, held: int
) -> None:
    """Before its second try; also where its outcome cannot be written by then."""
    lot = Lot(database)
    await lot.begin(1)
    worker = await lot.worker("w0")
    (claim,) = await lot.lines.claim(lot.batch, lot.key, worker.holder, 1)
    parked = await worker.parkable(claim, held)
    park = partial(worker.parked.park, claim, lot.key, parked)
    unheard(worker)
    with pytest.raises(NotReady):
        await park()
    if heard == "holding":
        before(worker.ledger, "reserve", park)
    await worker.step()
    await worker.step()
    if heard == "waiting":
        await park()
    if heard in {"holding", "waiting"}:
        assert await lot.spent() == (0, held)
    else:
        await lot.wait(POLL_S)
        if heard == "delivering":
            before(worker.journeys, "deliver", park)
        lot.audit.failing = True
        await worker.runner.tend()
        assert [type(each) for each in await worker.failures()] == [AuditUnavailable]
        lot.audit.failing = False
        if heard == "unwritten":
            await park()
    await worker.ended([parked.ticket.request_id])
    (outcome,) = lot.outcomes().values()
    assert outcome.cost_microusd > 0
    assert await lot.spent() == (outcome.cost_microusd, 0)
    assert (await lot.stakes(), worker.reservations.holds_any()) == (0, False)
