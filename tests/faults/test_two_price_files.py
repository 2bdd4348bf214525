"""Two workers of one database whose price files differ, and one of them is edited meanwhile.

Each charges the prices it has when it admits a request. Records, receipts, budgets and reports
agree, and the list of workers says that their prices differ.
"""

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from admin.system.verdict import judged
from gateway.audit.projecting.projector import Projector
from gateway.clock import SystemClock
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database, open_database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.money.spending import Period, SpendingReader
from gateway.store.workers import WorkerTable
from tests.faults.envelopes import Caller, Reply, ask
from tests.faults.test_changes_meanwhile import PRICES
from tests.running_gateway import GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(120)]
READ, WRITTEN = 11, 7
LISTED = READ * 2 + WRITTEN * 10
"""Of one answer at the shipped prices, and at others times how dear they are."""
DEARER, DEAREST = 10, 30


def prices(times: int, as_of: str) -> str:
    """The file of `test_changes_meanwhile` at other amounts, and of another day."""
    text = re.sub(r"(input_microusd_per_mtok = )\d+", rf"\g<1>{2_000_000 * times}", PRICES)
    text = re.sub(r"(output_microusd_per_mtok = )\d+", rf"\g<1>{10_000_000 * times}", text)
    return text.replace("2026-11-01", as_of)


async def asked(gateway: RunningGateway, http: aiohttp.ClientSession, key: str) -> Reply:
    return await Caller(gateway, http, key).post("openai", ask("openai", model=GPT_TARGET))


async def test_each_worker_charges_by_the_prices_it_has_and_all_that_is_said_agrees(
    tmp_path: Path, database_url: str, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    file, may_go_on = tmp_path / "own.toml", asyncio.Event()
    file.write_text(prices(DEARER, "2026-11-02"))
    more = '\n[prices]\nfile = "own.toml"\n'
    database = open_database(database_url)
    async with (
        RunningGateway(tmp_path, database_url, upstreams) as one,
        RunningGateway(tmp_path, database_url, upstreams, more=more, worker="w1") as two,
    ):
        key = await one.issue_key()
        while key.split("_")[2] not in two.plane.snapshots.current().keys.records:
            await asyncio.sleep(0.01)
        for gateway in (one, two):
            await gateway.limit("org:acme", 10**9)
        upstreams.openai.answer(Answer(input_tokens=READ, output_tokens=WRITTEN))
        replies = [await asked(one, http, key), await asked(two, http, key)]
        reasons = await reasons_of(database)
        assert any("different prices: w0" in each and "w1" in each for each in reasons), reasons

        held = Answer(input_tokens=READ, output_tokens=WRITTEN, hold=may_go_on)
        upstreams.openai.answer_once(held)
        calls = len(upstreams.openai.calls)
        late = asyncio.create_task(asked(two, http, key))
        while len(upstreams.openai.calls) == calls:
            await asyncio.sleep(0.01)
        file.write_text(prices(DEAREST, "2026-11-03"))
        board = two.plane.snapshots.board
        while two.plane.snapshots.board is board:
            await asyncio.sleep(0.01)
        may_go_on.set()
        replies += [await late, await asked(two, http, key), await asked(one, http, key)]
        costs = [await told_of(each, one, two) for each in replies]
        day = "2026-11-0"
        assert [cost for cost, _ in costs] == [
            *(LISTED, LISTED * DEARER, LISTED * DEARER, LISTED * DEAREST, LISTED)
        ]
        assert [as_of for _, as_of in costs[1:4]] == [f"{day}2", f"{day}2", f"{day}3"]
        await agree(database, one, sum(cost for cost, _ in costs))
    await database.close()


async def told_of(reply: Reply, *gateways: RunningGateway) -> tuple[int, str]:
    """What the record says that its receipt names, and at prices of which day."""
    assert reply.status == 200
    (found,) = [
        record
        for record in await gateways[0].records(reply.request_id)
        if record.stage == "outcome"
    ]
    assert reply.headers["x-gatewright-cost-microusd"] == str(found.cost_microusd)
    assert reply.headers["x-gatewright-receipt"]
    return found.cost_microusd, found.price_as_of


async def reasons_of(database: Database) -> tuple[str, ...]:
    """What the list of workers says, once both have said how they are."""
    table, clock = WorkerTable(database), SystemClock()
    while len(found := await table.all()) < 2:
        await asyncio.sleep(0.05)
    return judged(found, max(each.revision for each in found), clock.utc_us()).reasons


async def agree(database: Database, gateway: RunningGateway, cost_microusd: int) -> None:
    """Reports, and the budget once all of it is reported, have the same sum."""
    await Projector(gateway.audit_folder, DatabaseAuditSink(database)).catch_up()
    reader, now_us = SpendingReader(database, BY_LABEL), SystemClock().utc_us()
    period = Period(now_us - 3_600_000_000, now_us + 3_600_000_000, "acme")
    (whole,) = await reader.totals(period, [])
    assert whole.cost_microusd == cost_microusd
    while (await reader.differences())[0].ledger_microusd != cost_microusd:
        await asyncio.sleep(0.05)
    (budget,) = await reader.differences()
    assert budget.difference_microusd == 0
