"""An operator who runs no control plane: what ends by itself ends by the workers."""

import asyncio
from pathlib import Path

import pytest

from gateway.clock import DAY_US, StoppedClock, SystemClock
from gateway.money.budgets import Limit
from gateway.store.engine import open_database
from gateway.store.money.leases import LeaseTable
from gateway.store.money.raises import BudgetRaises, RaiseWish
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = pytest.mark.anyio
HAD, WANTED = 100_000_000, 250_000_000


async def test_a_limit_that_was_larger_for_a_time_is_again_what_it_was(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams
) -> None:
    database, before = open_database(sqlite_url), StoppedClock(SystemClock().utc_us() - DAY_US)
    table, raises = LeaseTable(database, before), BudgetRaises(database, before)
    await table.set_limit(Limit("org:acme", HAD, "month"))
    wish = RaiseWish("org:acme", "month", WANTED, before.utc_us() + 1, "a busy minute")
    asked = await raises.ask("acme", wish, "petra", seen_microusd=HAD)
    await raises.approve("acme", asked.id, "paul", "as planned")

    async with RunningGateway(tmp_path, sqlite_url, upstreams) as gateway:
        while (await table.budgets_of(["org:acme"]))[0].limit.limit_microusd != HAD:
            await asyncio.sleep(0.01)
        ended = [each for each in await gateway.records() if each.action == "budget.raise_ended"]
    assert [each.actor for each in ended] == ["schedule"]
    await database.close()
