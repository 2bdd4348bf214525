"""A worker that stops gives its slices back, also to a database that is busy or away just then."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.clock import StoppedClock
from gateway.errors import NotReady
from gateway.money.budgets import Limit
from gateway.store.engine import Database
from gateway.store.money import leaving
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.slices import Claim, Grant, LeaseHolder
from gateway.telemetry import Event
from tests.gateway.store.money.ledgers import ORG, LossyTable, ledger_on, spend, sums


pytestmark = pytest.mark.anyio
LIMIT, SLICE, SPENT = 1_000_000, 5_000, 400


class BusyTable(LossyTable):
    """One that cannot be reached for its next exchanges."""

    refusals = 0

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        if self.refusals:
            self.refusals -= 1
            raise NotReady("too many write to the database now")
        return await super().exchange(holder, claims)


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> BusyTable:
    return BusyTable(database, clock)


async def used(table: BusyTable, clock: StoppedClock) -> LeasedLedger:
    """A worker that holds a slice, of which something is spent and not reported."""
    await table.set_limit(Limit(ORG[0], LIMIT))
    ledger = ledger_on(table, clock, slice_microusd=SLICE)
    await ledger.start()
    await spend(ledger, SPENT)
    assert await sums(table) == (0, SLICE + SPENT)
    return ledger


async def until_busy(ledger: LeasedLedger) -> None:
    """Its reports have ended: what it asks from here on is to leave."""
    assert ledger._flusher is not None
    ledger._flusher.cancel()
    await asyncio.wait([ledger._flusher])


@pytest.mark.parametrize("losses", [0, 2])
async def test_to_a_database_that_is_busy_at_first(
    table: BusyTable, clock: StoppedClock, capsys: pytest.CaptureFixture[str], losses: int
) -> None:
    """Or whose answers are lost, so that nobody knows what it took."""
    ledger = await used(table, clock)
    await until_busy(ledger)
    table.refusals, table.losses = 3, losses
    await ledger.close()
    assert (table.refusals, table.losses) == (0, 0)
    assert await sums(table) == (SPENT, 0)
    assert Event.LEDGER_LEFT_LEASED not in "".join(capsys.readouterr())


async def test_of_one_that_stays_away_it_says_so_and_its_next_start_takes_them_as_spent(
    table: BusyTable,
    clock: StoppedClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaving, "LEAVING_S", 0.25)
    ledger = await used(table, clock)
    await until_busy(ledger)
    table.refusals = 1_000_000
    await ledger.close()
    assert 2 <= 1_000_000 - table.refusals < 100, "it tries again, and not for ever"
    assert Event.LEDGER_LEFT_LEASED in "".join(capsys.readouterr())
    table.refusals = 0
    assert await sums(table) == (0, SLICE + SPENT)
    again = ledger_on(table, clock)
    await again.start()
    assert await sums(table) == (SLICE + SPENT, 0)
    await again.close()


@pytest.mark.parametrize("reports", [False, True])
async def test_of_one_that_hangs_it_does_not_wait_for_the_end_of_a_command(
    table: BusyTable,
    clock: StoppedClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    reports: bool,
) -> None:
    """Whoever stops it kills it sooner: neither what it asks to leave nor a report under way."""
    monkeypatch.setattr(leaving, "LEAVING_S", 0.25)
    ledger = await used(table, clock)
    if not reports:
        await until_busy(ledger)
    asked = asyncio.Event()

    async def hang(holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        asked.set()
        return await asyncio.Future()

    table.exchange = hang  # type: ignore[method-assign]
    if reports:
        ledger._hurry.set()
        await asked.wait()
    await ledger.close()
    assert asked.is_set()
    assert Event.LEDGER_LEFT_LEASED in "".join(capsys.readouterr())
    assert ledger._flusher is not None
    assert ledger._flusher.done()


async def test_what_a_worker_could_not_give_back_others_have_when_its_lease_is_over(
    table: BusyTable, clock: StoppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than it held: that counts as spent, so that nothing of it is spent twice."""
    monkeypatch.setattr(leaving, "LEAVING_S", 0.25)
    ledger = await used(table, clock)
    await until_busy(ledger)
    table.refusals = 1_000_000
    await ledger.close()
    table.refusals = 0
    clock.advance(table.lease_us / 1e6 + 31.0)
    other = ledger_on(table, clock, "w2")
    await other.start()
    await spend(other, 7)
    await other.close()
    assert await sums(table) == (SLICE + SPENT + 7, 0)
