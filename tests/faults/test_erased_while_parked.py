"""A line that is erased while it waits for a vendor has one outcome, and its cost is charged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import openai
import pytest
from sqlalchemy import select

from gateway.audit.projecting.export import segment_rows
from gateway.audit.reckoning import CRASHED, ERASED
from gateway.batching.loose_ends import LooseEnds
from gateway.clock import SystemClock
from gateway.errors import NotReady, UpstreamRefused
from gateway.money.budgets import Limit
from gateway.parcels import Parcel
from gateway.providers.parcels.openai import OpenAIParcels
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.batching.parcels import ParcelStore
from gateway.store.engine import open_database
from gateway.store.money.late_bookings import LateBookings, LateCost
from gateway.store.money.leases import LeaseTable
from gateway.store.schema.parcels import parcels
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, make
from tests.faults.test_erased_at_vendors import (
    Desk,
    asked,
    handed_over,
    running,
    until_looked_at,
    words_at,
)
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(180)]
LIMIT = 100_000_000


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.pacing.rhythm.LOOSE_ENDS_S", 0.1)
    look = LooseEnds.tend

    async def counted(ends: LooseEnds) -> None:
        await look(ends)
        Looks.count += 1

    monkeypatch.setattr(LooseEnds, "tend", counted)


class Looks:
    """How often some worker looked whether lines were left without an end."""

    count = 0

    @classmethod
    async def more(cls) -> None:
        """Until it did so five times more; parcels and batches had their turns, too."""
        wanted = cls.count + 5
        async with asyncio.timeout(60):
            while cls.count < wanted:
                await asyncio.sleep(0.02)


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
            await Looks.more()  # More looks: nothing is ended twice.
            outcomes = await of_lines(gateway, "outcome")
            intents = {each.request_id: each for each in await of_lines(gateway, "intent")}
            spent = LIMIT - (gateway.budget_left(("org:acme",)) or 0)
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


class Crashing(LateBookings):
    """After each booking the process ends before it can write why."""

    left = 3

    async def book(self, late: LateCost) -> bool:
        is_new = await super().book(late)
        if Crashing.left:
            Crashing.left -= 1
            raise NotReady("ended on purpose")
        return is_new


async def test_after_a_restart_the_end_user_pays_too_and_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it ends between the booking and the record of it: who goes on finds it paid."""
    database = open_database(database_url, pooled=False)
    table = LeaseTable(database, SystemClock())
    with handed_over(upstreams, "openai") as there:
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            await gateway.limit("org:acme", LIMIT)
            await table.set_limit(Limit("user:acme/*", LIMIT))
            while gateway.budget_left(("user:acme/nobody",)) is None:
                await asyncio.sleep(0.01)  # Until the worker has heard that end users pay.
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(there)
        await Desk(gateway).erase("ann")
        monkeypatch.setattr("gateway.batching.parts.LateBookings", Crashing)
        Crashing.left = 3
        async with running(tmp_path, database_url, upstreams) as (gateway, client):
            await ended(client, await client.batches.retrieve(batch.id))
            outcomes = await until_answered(gateway, 3)
            await until_spent(gateway, sum(each.cost_microusd for each in outcomes))
    rows = await table.budgets(None)
    await database.close()
    users = {row.limit.account: row.spent_microusd for row in rows if row.spent_microusd}
    assert users.pop("org:acme") == sum(each.cost_microusd for each in outcomes)
    assert Crashing.left == 2, "it was booked once"
    by_user: dict[str, int] = {}
    for each in outcomes:
        account = f"user:acme/{each.subject}"
        by_user[account] = by_user.get(account, 0) + each.cost_microusd
    assert users == by_user
    assert len(users) == 2


async def until_spent(gateway: RunningGateway, expected_microusd: int) -> int:
    """What the budget says, once nothing is set aside any more and the worker could be wrong."""
    await Looks.more()  # More looks: nothing is booked twice.
    async with asyncio.timeout(20):
        while (left := gateway.budget_left(("org:acme",))) != LIMIT - expected_microusd:
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


async def tries(database_url: str) -> int:
    """How often the only parcel was refused."""
    database = open_database(database_url)
    try:
        async with database.reading() as connection:
            rows = (await connection.execute(select(parcels.c.tries))).scalars().all()
            return int(rows[0]) if rows else 0
    finally:
        await database.close()


@pytest.mark.parametrize("status", [429, 529])
async def test_nor_does_one_whose_parcel_was_refused(
    tmp_path: Path,
    database_url: str,
    upstreams: Upstreams,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
) -> None:
    """However long the erasure takes, its parcel is not given up before."""
    monkeypatch.setattr("gateway.batching.parcel_journeys.WAITS_MAX", 1_000)
    vendor = upstreams.openai.batches
    vendor.faults = ParcelFaults(submit_status=status)
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await gateway.limit("org:acme", LIMIT)
        batch = await make(client, asked("openai", "ann", "bob"))
        while not await tries(database_url):
            await asyncio.sleep(0.05)
        await Desk(gateway).erase("ann")
        vendor.faults = ParcelFaults()
        await check_only_bobs_is_paid(gateway, client, batch.id)
    assert vendor.made == len(vendor.lines) == 1


class Sending:
    """The first parcel stays on its way until the test lets it arrive, or be refused."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.status = 0
        submit = OpenAIParcels.submit

        async def slow(parcels: OpenAIParcels, parcel: Parcel, deadline_s: float) -> str:
            is_first = not self.begun.is_set()
            self.begun.set()
            await self.goes_on.wait()
            if is_first and self.status:
                raise UpstreamRefused("full", upstream_status=self.status, retry_after_s=0.1)
            return await submit(parcels, parcel, deadline_s)

        monkeypatch.setattr(OpenAIParcels, "submit", slow)


async def test_nor_does_one_that_was_being_sent_when_its_parcel_was_refused(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending(monkeypatch)
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await gateway.limit("org:acme", LIMIT)
        batch = await make(client, asked("openai", "ann", "bob"))
        await sending.begun.wait()
        await Desk(gateway).erase("ann")
        await Looks.more()  # Some looks: while nobody knows, nothing is ended.
        assert await of_lines(gateway, "outcome") == []
        sending.status = 529
        sending.goes_on.set()
        await check_only_bobs_is_paid(gateway, client, batch.id)


async def test_one_that_was_being_sent_and_arrived_costs_what_was_set_aside(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    sending = Sending(monkeypatch)
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        await gateway.limit("org:acme", LIMIT)
        batch = await make(client, asked("openai", "ann", "bob"))
        await sending.begun.wait()
        await Desk(gateway).erase("ann")
        sending.goes_on.set()
        await ended(client, batch)
        outcomes = await until_answered(gateway, 2)
        while ERASED not in {each.error for each in outcomes}:
            await asyncio.sleep(0.1)
            outcomes = await of_lines(gateway, "outcome")
        await until_spent(gateway, sum(each.cost_microusd for each in outcomes))
    (erased,) = [each for each in outcomes if each.error == ERASED]
    assert erased.cost_microusd > 0


async def test_an_upload_whose_order_is_refused_does_not_stay_at_the_vendor(
    tmp_path: Path, database_url: str, upstreams: Upstreams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an erasure would say that the vendor never had what lies there."""
    vendor = upstreams.openai.batches
    monkeypatch.setattr(vendor, "_make_batch", lambda _: (429, b"{}", False))
    async with running(tmp_path, database_url, upstreams) as (gateway, client):
        batch = await make(client, asked("openai", "ann", "bob"))
        while not await tries(database_url):
            await asyncio.sleep(0.05)
        desk = Desk(gateway)
        await desk.erase("ann")
        monkeypatch.undo()
        case = await desk.until_ended()
        assert [each.state for each in case.copies] == ["unsent"]
        assert "the heron of ann" not in words_at("openai", vendor)
        await ended(client, batch)


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
