"""Which lines a worker may still send that was away for a while."""

import asyncio
import secrets
from typing import Any

import pytest
from msgspec import structs
from sqlalchemy import update

from gateway.batching.chores import BatchChores
from gateway.batching.runner import BatchRunner, Share, Stores
from gateway.configuration.settings import Limits
from gateway.errors import LeaseOver
from gateway.metrics import Metrics
from gateway.secrets.envelope import MasterKey
from gateway.secrets.secret import Secret
from gateway.store.batching.lines import LEASE_US, Claim
from gateway.store.database_clock import APART_US
from gateway.store.engine import Database
from gateway.store.schema.batches import batch_lines
from tests.gateway.batching.test_leads import Hands, Worker, before


pytestmark = pytest.mark.anyio
NOBODY: Any = None


async def claimed(worker: Worker, holder: str) -> list[Claim]:
    batch = await worker.batch()
    await worker.check(batch)
    key = await worker.batches.content_key(batch)
    assert key is not None
    return await worker.lines.claim(batch, key, holder, 2)


def running(worker: Worker) -> BatchRunner:
    return BatchRunner(
        Stores(worker.batches, worker.turns, worker.lines),
        NOBODY,
        BatchChores(*(worker.batches, worker.lines, worker.files, worker.clock), Limits(), 1),
        worker.clock,
        parked=NOBODY,
        metrics=Metrics(),
        share=Share("w0", 8, lambda: "req"),
    )


async def test_a_line_that_another_has_by_now_is_not_sent_while_its_worker_finds_out(
    database: Database,
) -> None:
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    clock = worker.clock
    runner = running(worker)
    lost, kept = await claimed(worker, runner.holder)
    runner._claims |= {"lost": lost, "kept": kept}
    async with database.writing() as connection:
        taken = update(batch_lines).where(batch_lines.c.number == lost.line.number)
        await connection.execute(taken.values(holder="w1.1", claims=batch_lines.c.claims + 1))
    clock.now_us += LEASE_US
    found_out: list[str] = []

    async def send() -> None:
        for claim in (lost, kept):
            with pytest.raises(LeaseOver):
                runner._check_lease(claim)
        found_out.append("lost")

    before(worker.lines, "lost", send)
    await runner.keep()
    assert found_out == ["lost"]
    runner._check_lease(kept)


async def test_what_is_leased_is_sent_up_to_a_second_before_others_may_have_it(
    database: Database,
) -> None:
    """Two workers' ideas of the clock that they share may be so far apart."""
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    runner = running(worker)
    claim, _ = await claimed(worker, runner.holder)
    worker.clock.now_us += LEASE_US - APART_US - 1
    runner._check_lease(claim)
    worker.clock.now_us += 1
    with pytest.raises(LeaseOver):
        runner._check_lease(claim)


async def test_a_claim_whose_worker_never_heard_of_it_lapses(database: Database) -> None:
    """The database went away between the commit and saying so."""
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    runner = running(worker)
    unheard, heard = await claimed(worker, runner.holder)
    runner._claims |= {"heard": heard}
    for _ in range(3):
        worker.clock.now_us += LEASE_US // 2
        await runner.keep()
    batch_id = heard.batch.batch_id
    states = await worker.lines.states(batch_id, [heard.line.number, unheard.line.number])
    assert states == {heard.line.number: "running", unheard.line.number: "waiting"}
    runner._check_lease(heard)


async def test_a_line_that_its_own_worker_claimed_again_is_sent_once(database: Database) -> None:
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    runner = running(worker)
    first, other = await claimed(worker, runner.holder)
    async with database.writing() as connection:
        mine = update(batch_lines).where(batch_lines.c.number == first.line.number)
        await connection.execute(mine.values(claims=2))
    again = structs.replace(first, claims=2)
    ended: list[str] = []

    async def send(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    for claim, name in ((first, "first"), (again, "again"), (other, "other")):
        runner._begin_sending(claim, send(name))
    await asyncio.sleep(0)
    await runner.keep()
    await asyncio.sleep(0)
    assert ended == ["first"]
    await runner.close()
    assert sorted(ended) == ["again", "first", "other"]


async def test_a_worker_that_ends_leaves_a_database_that_hangs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever stops it kills it before a command in the database ends: its log is not closed."""
    worker = Worker("w0", database, MasterKey(Secret(secrets.token_bytes(32))), Hands())
    runner = running(worker)

    async def hang(_: str) -> None:
        await asyncio.Future()

    monkeypatch.setattr(worker.lines, "free", hang)
    await asyncio.wait_for(runner.close(), 20.0)
