"""What is owed all the same is booked on an account that has nothing left."""

import pytest

from gateway.clock import StoppedClock
from gateway.money.budgets import Limit
from gateway.store.engine import Database
from tests.gateway.store.money.ledgers import LossyTable, ledger_on
from tests.gateway.store.money.test_leased_ledger import ORG, state_of


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("is_reported", [False, True])
async def test_nothing_is_reserved_where_everything_is_spent_and_some_is_set_aside(
    database: Database, *, is_reported: bool
) -> None:
    clock = StoppedClock()
    table = LossyTable(database, clock)
    await table.set_limit(Limit(ORG[0], 100, "total"))
    ledger = ledger_on(table, clock)
    await ledger.start()
    _open = await ledger.reserve(ORG, 40)
    other = await ledger.reserve(ORG, 50)
    ledger.settle(other, 90)  # More than was set aside: the account is overdrawn.
    if is_reported:
        await ledger.flush()
    owed = await ledger.reserve(ORG, 0)
    ledger.settle(owed, 7)
    await ledger.flush()
    assert (await state_of(table))[0] == 97
    await ledger.close()
