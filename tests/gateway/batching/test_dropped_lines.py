"""What is set aside for lines is noted no longer than it is held, whatever fails meanwhile."""

import asyncio
from typing import Any

import pytest

from gateway.batching.owed import Purse
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parts import stake_of
from gateway.clock import StoppedClock
from gateway.errors import NotReady
from gateway.money.budgets import Limit
from gateway.store.engine import Database
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.leases import LeaseTable
from gateway.store.money.parked_money import ParkedMoney
from gateway.types import AuditRecord
from tests.gateway.store.money.ledgers import ORG, ledger_on, sums


pytestmark = pytest.mark.anyio
LIMIT, HELD = 10_000, 700


async def nothing(_organisation: str, _request_id: str) -> AuditRecord | None:
    return None


async def test_what_could_not_be_left_to_another_worker_is_still_held(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was free for others while its note said that it came back: a crash then lost their cost
    from the books."""
    clock = StoppedClock()
    table = LeaseTable(database, clock)
    await table.set_limit(Limit(ORG[0], LIMIT))
    ledger = ledger_on(table, clock)
    await ledger.start()
    parked = ParkedMoney(database, clock, ledger.holder)
    late = LateBookings(database, clock)
    purse = Purse(late, parked, lambda name, held: stake_of(ledger, name, held))
    lines = ParkedReservations(ledger, purse, clock, nothing)
    reservation = await ledger.reserve(ORG, HELD, 90_000.0)
    await parked.note([stake_of(ledger, "r1", reservation)])
    lines._held["r1"] = reservation

    async def away(_: object) -> None:
        raise NotReady("away for a moment")

    with monkeypatch.context() as patches:
        patches.setattr(parked, "leave", away)
        with pytest.raises(NotReady):
            await lines.drop(["r1"])
    under_way: Any = await ledger.reserve(ORG, 500)
    flusher = ledger._flusher
    assert flusher is not None
    flusher.cancel()
    await asyncio.wait([flusher])
    await ledger_on(table, clock).start()

    assert await sums(table) == (under_way.amount_microusd, 0)
