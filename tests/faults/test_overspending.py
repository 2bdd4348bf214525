"""Two hundred requests at once on several worker processes: no overspending, no false refusal.

`make faults` does the full run, a hundred seeds on four workers.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.clock import SystemClock
from gateway.money.budgets import Limit
from gateway.store.engine import open_database
from gateway.store.money.leases import LeaseTable
from tests.databases import PostgresServer


pytestmark = [pytest.mark.anyio, pytest.mark.postgres, pytest.mark.timeout(1800)]
SEEDS = int(os.environ.get("GATEWRIGHT_FAULT_SEEDS", "3"))
WORKERS = int(os.environ.get("GATEWRIGHT_FAULT_WORKERS", "2"))
CONCURRENT = 200
WORTH = 37
"""The limit is worth so many of the two hundred."""


@asynccontextmanager
async def racers(url: str) -> AsyncIterator[list[Process]]:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.budget_racer", url, str(number)),
            stdin=PIPE,
            stdout=PIPE,
            limit=1 << 24,
        )
        for number in range(WORKERS)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            await process.wait()


async def ask(processes: list[Process], **order: Any) -> list[dict[str, Any]]:
    """Give all of them one order at once; their answers."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
    answers = []
    for process in processes:
        assert process.stdout is not None
        answers.append(json.loads(await process.stdout.readline()))
    return answers


async def test_two_hundred_at_once_on_several_workers_spend_the_limit_and_no_more(
    postgres_server: PostgresServer,
) -> None:
    url = postgres_server.create_migrated()
    database = open_database(url)
    table = LeaseTable(database, SystemClock())
    limit, admitted, refused = WORTH * 1000, 0, 0
    async with racers(url) as processes:
        for seed in range(SEEDS):
            accounts = (f"org:s{seed}", f"proj:s{seed}/a/b", "key:unlimited", f"user:s{seed}/ann")
            await table.set_limit(Limit(accounts[0], limit))
            await table.set_limit(Limit(accounts[0], limit * 2, "day"))
            await table.set_limit(Limit(accounts[1], limit * 2, "month"))
            await table.set_limit(Limit(f"user:s{seed}/*", limit * 3, "day"))
            await ask(processes, do="refresh")

            answers = await ask(
                processes,
                do="race",
                seed=seed,
                accounts=accounts,
                requests=CONCURRENT // WORKERS,
            )
            log = sorted(entry for answer in answers for entry in answer["log"])
            used, highest = 0, 0
            for _, change in log:
                used += change
                highest = max(highest, used)
            assert highest <= limit, f"seed {seed}: overspent"
            assert [answer["strange"] for answer in answers] == [[]] * WORKERS
            assert [answer["reserved"] for answer in answers] == [0] * WORKERS

            # What is over is over: all that was not spent can be had, to the micro-dollar.
            last = await ask(processes[:1], do="last", accounts=accounts, left=limit - used)
            assert last == [{"admitted": [limit - used]}], f"seed {seed}: refused falsely"
            admitted += sum(change > 0 for _, change in log)
            refused += sum(answer["refused"] for answer in answers)
    leased = {row.limit.account: row.leased_microusd for row in await table.budgets(None)}
    assert {account: left for account, left in leased.items() if left} == {}
    await database.close()
    postgres_server.drop(url)
    assert refused > 0
    print(  # noqa: T201 - the figures of `make faults`
        f"\n{SEEDS} seeds x {CONCURRENT} concurrent x {WORKERS} workers: {admitted} admitted,"
        f" {refused} refused, overspend 0, false refusals after settling 0, leaked 0"
    )
