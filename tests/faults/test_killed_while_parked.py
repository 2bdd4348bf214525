"""A worker is killed while lines wait for a vendor: each is paid once, erased ones too."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import func, select

from gateway.audit.reckoning import ERASED
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.configuration.settings import Settings
from gateway.money.budgets import Limit
from gateway.providers.parcels.scripted import ParcelFaults
from gateway.store.engine import Database, open_database
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget, Claim, LeaseHolder
from gateway.store.schema.tables import parked_money
from gateway.types import AuditRecord
from tests.conformance.test_batches import ended, make
from tests.faults.test_erased_at_vendors import Desk, asked, handed_over, until_looked_at
from tests.faults.test_kills import configured, issued, serving
from tests.faults.test_native_batches import MORE, NATIVE, records_in, speaking
from tests.free_ports import free_port
from tests.running_gateway import BRISK_PROCESS, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]
LIMIT = 100_000_000
HASTY = f"{BRISK_PROCESS}gateway.pacing.rhythm.LOOSE_ENDS_S = 1.0\n"
"""Lines that were left without an end are looked for again and again."""
ENDED = """
import os, signal
from gateway.store.batching.parked_lines import ParkedLineStore

end = ParkedLineStore.end

async def ends(*given):
    await end(*given)
    os.kill(os.getpid(), signal.SIGKILL)

ParkedLineStore.end = ends
"""
"""A data plane that is killed right after lines have ended."""
ACCOUNTS = ("org:acme", "ws:acme/research")


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


class Books:
    """What the database says of budgets, seen from outside of any worker."""

    def __init__(self, settings: Settings) -> None:
        self.database: Database = open_database(settings.database_url, pooled=False)
        self.table = LeaseTable(self.database, SystemClock())

    async def limit(self) -> None:
        for account in ACCOUNTS:
            await self.table.set_limit(Limit(account, LIMIT))

    async def budgets(self) -> dict[str, Budget]:
        return {row.limit.account: row for row in await self.table.budgets()}

    async def parked(self) -> tuple[int, int]:
        """How many stakes there are, and what they hold of one account."""
        query = select(func.count(), func.coalesce(func.sum(parked_money.c.amount_microusd), 0))
        async with self.database.reading() as connection:
            query = query.where(parked_money.c.account == ACCOUNTS[0])
            count, amount = (await connection.execute(query)).one()
        return count, int(amount)

    async def until_only_parked_is_leased(self) -> int:
        """What lies idle in slices went back: now a crash can take what lines hold and no more."""
        async with asyncio.timeout(60):
            while True:
                count, held = await self.parked()
                found = await self.budgets()
                if count and all(found[name].leased_microusd == held for name in ACCOUNTS):
                    return held
                await asyncio.sleep(0.05)

    async def until_spent(self, expected_microusd: int) -> None:
        """By both accounts, and nothing is held for any line; for more than one look."""
        async with asyncio.timeout(60):
            agreed = 0
            while agreed < 10:
                found = await self.budgets()
                spent = [found[name].spent_microusd for name in ACCOUNTS]
                is_right = spent == [expected_microusd] * 2 and await self.parked() == (0, 0)
                agreed = agreed + 1 if is_right else 0
                await asyncio.sleep(0.1)


async def outcomes_in(settings: Settings, count: int) -> list[AuditRecord]:
    folder = settings.path(settings.audit.directory)
    async with asyncio.timeout(120):
        while True:
            found = [each for each in await records_in(folder) if each.stage == "outcome"]
            of_lines = [each for each in found if "batch" in each.detail]
            if len(of_lines) >= count:
                return of_lines
            await asyncio.sleep(0.2)


class Later(SystemClock):
    """Of somebody whose clock is as much ahead as a lease takes to be over."""

    def utc_us(self) -> int:
        return super().utc_us() + 120_000_000


async def by_another_worker(books: Books) -> None:
    """Somebody else asks for the same budget when the lease has been over for long enough."""
    table = LeaseTable(books.database, Later())
    claims = [Claim(row.limit.key, -1, 0, 0, 0, is_last=True) for row in await table.budgets()]
    await table.exchange(LeaseHolder("w9", "other"), claims)


@pytest.mark.parametrize(("erases", "who"), [(True, "its next start"), (False, "another worker")])
async def test_lines_of_a_killed_worker_are_paid_once(
    tmp_path: Path, database_url: str, upstreams: Upstreams, erases: bool, who: str
) -> None:
    port = free_port()
    more = MORE.partition("30.0")[2]
    config = await configured(tmp_path, database_url, upstreams, port, more=more, managed=NATIVE)
    settings = load_settings(config)
    key, url, books = await issued(settings), f"http://127.0.0.1:{port}", Books(settings)
    await books.limit()
    with handed_over(upstreams, "openai") as vendor:
        async with serving(config, url, HASTY) as process, speaking(url, key) as client:
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(vendor)
            held = await books.until_only_parked_is_leased()
            process.kill()
            await process.wait()
        assert held > 0
        if erases:
            desk: Any = SimpleNamespace(settings=settings)
            await Desk(desk).erase("ann")
        else:
            vendor.faults = ParcelFaults()
        if who == "another worker":
            await by_another_worker(books)
            assert {row.spent_microusd for row in await books.table.budgets()} == {0}
        async with serving(config, url, HASTY), speaking(url, key) as client:
            await ended(client, await client.batches.retrieve(batch.id))
            # Of ann's line one; of bob's one that went back, and one that was answered alone.
            outcomes = await outcomes_in(settings, 3 if erases else 2)
            total = sum(each.cost_microusd for each in outcomes)
            await books.until_spent(total)
    assert total > 0
    assert len(outcomes) == len({each.request_id for each in outcomes})
    errors = [each.error for each in outcomes]
    assert errors.count(ERASED) == erases
    await books.database.close()


@pytest.mark.long
async def test_of_lines_that_had_just_ended_when_their_worker_was_killed_nothing_stays_noted(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    """Nobody comes back to a line that has ended: what is noted of it would stay for ever."""
    port = free_port()
    more = MORE.partition("30.0")[2]
    config = await configured(tmp_path, database_url, upstreams, port, more=more, managed=NATIVE)
    settings = load_settings(config)
    key, url, books = await issued(settings), f"http://127.0.0.1:{port}", Books(settings)
    await books.limit()
    with handed_over(upstreams, "openai") as vendor:
        async with serving(config, url, HASTY + ENDED) as process, speaking(url, key) as client:
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(vendor)
            held = await books.until_only_parked_is_leased()
            vendor.faults = ParcelFaults()
            assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL
        async with serving(config, url, HASTY), speaking(url, key) as client:
            batch = await ended(client, await client.batches.retrieve(batch.id))
            # What had not been reported when it was killed counts as spent, as after any crash.
            await books.until_spent(held)
    assert (batch.status, len(await outcomes_in(settings, 2))) == ("completed", 2)
    found = await books.budgets()
    assert [found[name].leased_microusd for name in ACCOUNTS] == [0, 0]
    await books.database.close()
