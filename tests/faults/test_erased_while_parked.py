"""A line that is erased while it waits for a vendor leaves one outcome, and costs what is owed."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import openai
import pytest
from sqlalchemy import select

from gateway.audit.export import segment_rows
from gateway.audit.reckoning import CRASHED, ERASED
from gateway.store.batching.parcels import ParcelStore
from gateway.store.engine import open_database
from gateway.store.schema.parcels import parcels
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, make
from tests.faults.test_erased_at_vendors import Desk, asked, handed_over, running, until_looked_at
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
LIMIT = 100_000_000


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.batching.parts.LOOK_S", 0.5)


async def of_lines(gateway: RunningGateway, stage: str) -> list[AuditRecord]:
    records = [row.projected.record async for row in segment_rows(gateway.audit_folder)]
    return [each for each in records if each.stage == stage and "batch" in each.detail]


async def until_answered(gateway: RunningGateway, count: int) -> list[AuditRecord]:
    async with asyncio.timeout(60):
        while len(found := await of_lines(gateway, "outcome")) < count:
            await asyncio.sleep(0.1)
    return found


async def test_an_erased_line_that_waits_gets_an_outcome_that_says_why(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    with handed_over(upstreams, "openai") as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            await gateway.limit("org:acme", LIMIT)
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(there)
            desk = Desk(gateway)
            await desk.erase("ann")
            await desk.until_ended()
            await ended(client, batch)
            outcomes = await until_answered(gateway, 3)
            await asyncio.sleep(2.0)  # More looks: nothing is ended twice.
            outcomes = await of_lines(gateway, "outcome")
            intents = {each.request_id: each for each in await of_lines(gateway, "intent")}
            spent = LIMIT - (gateway.plane.budget_left(("org:acme",)) or 0)
    # One of ann's; of bob's one that went back, and one that was answered alone.
    assert len(intents) == len(outcomes) == 3
    assert {each.request_id for each in outcomes} == set(intents)
    (erased,) = [each for each in outcomes if each.error == ERASED]
    begun = intents[erased.request_id]
    assert (erased.status, erased.subject) == ("cancelled", begun.subject)
    assert erased.detail["batch"] == batch.id
    assert erased.detail["line"] == begun.detail["line"] == "1"
    assert erased.cost_microusd == begun.reserved_microusd > 0
    assert spent == sum(each.cost_microusd for each in outcomes)


async def test_a_worker_that_starts_again_ends_what_was_erased_meanwhile(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    with handed_over(upstreams, "openai") as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            await gateway.limit("org:acme", LIMIT)
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(there)
        await Desk(gateway).erase("ann")
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            await ended(client, await client.batches.retrieve(batch.id))
            outcomes = await until_answered(gateway, 3)
            spent = await until_spent(gateway, sum(each.cost_microusd for each in outcomes))
    errors = sorted(each.error for each in outcomes)
    assert errors.count(ERASED) == 1
    assert CRASHED not in errors
    (erased,) = [each for each in outcomes if each.error == ERASED]
    assert 0 < erased.cost_microusd < spent


async def until_spent(gateway: RunningGateway, expected_microusd: int) -> int:
    """What the budget says, once nothing is set aside any more and the worker could be wrong."""
    await asyncio.sleep(2.0)  # More looks: nothing is booked twice.
    async with asyncio.timeout(20):
        while (left := gateway.plane.budget_left(("org:acme",))) != LIMIT - expected_microusd:
            await asyncio.sleep(0.1)
    return LIMIT - left


@pytest.fixture
def let_go(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Parcels are made and stay here, until this is called."""
    due = ParcelStore.due
    stays = True

    async def none_yet(self: ParcelStore, holder: str, count_max: int) -> object:
        return [] if stays else await due(self, holder, count_max)

    def let_go() -> None:
        nonlocal stays
        stays = False

    monkeypatch.setattr(ParcelStore, "due", none_yet)
    return let_go


async def until_made(database_url: str) -> None:
    """A parcel is there that nobody has sent."""
    database = open_database(database_url)
    try:
        async with asyncio.timeout(30):
            while True:
                async with database.reading() as connection:
                    rows = (await connection.execute(select(parcels.c.state))).scalars().all()
                if rows:
                    assert rows == ["new"]
                    return
                await asyncio.sleep(0.05)
    finally:
        await database.close()


async def test_an_erased_line_that_was_never_sent_costs_nothing(
    tmp_path: Path, database_url: str, upstreams: Upstreams, let_go: Callable[[], None]
) -> None:
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await gateway.limit("org:acme", LIMIT)
        batch = await make(client, asked("openai", "ann", "bob"))
        await until_made(database_url)
        await Desk(gateway).erase("ann")
        let_go()
        await check_only_bobs_is_paid(gateway, client, batch.id)
    assert upstreams.openai.batches.made == len(upstreams.openai.batches.lines) == 1


async def test_nor_does_it_where_its_worker_was_away_meanwhile(
    tmp_path: Path, database_url: str, upstreams: Upstreams, let_go: Callable[[], None]
) -> None:
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await gateway.limit("org:acme", LIMIT)
        batch = await make(client, asked("openai", "ann", "bob"))
        await until_made(database_url)
    await Desk(gateway).erase("ann")
    let_go()
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await check_only_bobs_is_paid(gateway, client, batch.id)


async def check_only_bobs_is_paid(
    gateway: RunningGateway, client: openai.AsyncOpenAI, batch_id: str
) -> None:
    await ended(client, await client.batches.retrieve(batch_id))
    outcomes = await until_answered(gateway, 2)
    spent = await until_spent(gateway, sum(each.cost_microusd for each in outcomes))
    outcomes = await of_lines(gateway, "outcome")
    (erased,) = [each for each in outcomes if each.error == ERASED]
    (answered,) = [each for each in outcomes if each.status == "ok"]
    assert len(outcomes) == 2
    assert (erased.status, erased.cost_microusd) == ("cancelled", 0)
    assert "cost" not in erased.detail
    assert spent == answered.cost_microusd > 0


async def test_a_cancelled_batch_that_was_never_sent_costs_nothing(
    tmp_path: Path, database_url: str, upstreams: Upstreams, let_go: Callable[[], None]
) -> None:
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await gateway.limit("org:acme", LIMIT)
        batch = await make(client, asked("openai", "ann", "bob"))
        await until_made(database_url)
        await client.batches.cancel(batch.id)
        let_go()
        await ended(client, batch)
        outcomes = await until_answered(gateway, 2)
        assert await until_spent(gateway, 0) == 0
    assert [each.cost_microusd for each in outcomes] == [0, 0]
    assert upstreams.openai.batches.made == 0
