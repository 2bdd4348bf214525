"""A worker is killed in one month while lines wait for a vendor, and starts in the next.

Both are separate processes, whose clocks are set to the last minutes of this month and to the first
ones of the next. Budgets and `costs reconcile` say which month pays.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.money.budgets import Limit, window_end_us
from gateway.providers.parcels.scripted import ParcelFaults
from tests.conformance.test_batches import ended, make
from tests.faults.test_clocks_apart import OFF
from tests.faults.test_erased_at_vendors import asked, handed_over, until_looked_at
from tests.faults.test_killed_while_parked import HASTY, LIMIT, Books, outcomes_in
from tests.faults.test_kills import configured, issued, serving
from tests.faults.test_limits_under_streams import reconciled
from tests.faults.test_native_batches import MORE, NATIVE, speaking
from tests.free_ports import free_port
from tests.running_gateway import DEMO, Upstreams


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(300)]
BEFORE_S, AFTER_S = 600, 1200
ACCOUNT = f"proj:{DEMO.organisation}/{DEMO.workspace}/{DEMO.project}"


@pytest.fixture
async def upstreams() -> AsyncIterator[Upstreams]:
    async with Upstreams() as upstreams:
        yield upstreams


@pytest.mark.long
async def test_the_month_in_which_lines_were_let_through_pays_for_them(
    tmp_path: Path, database_url: str, upstreams: Upstreams
) -> None:
    now_us = SystemClock().utc_us()
    month_end_us = window_end_us("month", now_us)
    to_end_s = (month_end_us - now_us) // 1_000_000
    more, port = MORE.partition("30.0")[2], free_port()
    config = await configured(tmp_path, database_url, upstreams, port, more=more, managed=NATIVE)
    settings = load_settings(config)
    key, url, books = await issued(settings), f"http://127.0.0.1:{port}", Books(settings)
    await books.limit()
    await books.table.set_limit(Limit(ACCOUNT, LIMIT))
    await books.table.set_limit(Limit(ACCOUNT, LIMIT, "day"))
    await books.table.set_limit(Limit(ACCOUNT, LIMIT, "month"))
    with handed_over(upstreams, "openai") as vendor:
        evening = HASTY + OFF.format(off_s=to_end_s - BEFORE_S)
        async with serving(config, url, evening) as process, speaking(url, key) as client:
            batch = await make(client, asked("openai", "ann", "bob"))
            await until_looked_at(vendor)
            held = await books.until_only_parked_is_leased()
            process.kill()
            await process.wait()
        vendor.faults = ParcelFaults()
        morning = HASTY + OFF.format(off_s=to_end_s + AFTER_S)
        async with serving(config, url, morning) as process, speaking(url, key) as client:
            await ended(client, await client.batches.retrieve(batch.id))
            outcomes = await outcomes_in(settings, 2)
            total = sum(each.cost_microusd for each in outcomes)
            await books.until_spent(total)
            process.terminate()
            await process.wait()
    assert held > total > 0
    assert min(each.utc_us for each in outcomes) > month_end_us
    rows = [row for row in await books.table.budgets() if row.limit.account == ACCOUNT]
    assert {row.limit.window: row.spent_microusd for row in rows} == {
        "total": total,
        "day": 0,
        "month": 0,
    }
    assert {row.leased_microusd for row in rows} == {0}
    assert {row.window_start_us for row in rows} == {0, month_end_us}
    status, told = await reconciled(config)
    assert (status, {line["difference_microusd"] for line in told}) == (0, {0})
    await books.database.close()
