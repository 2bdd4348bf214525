"""One worker process of the overspending test: its own ledger, controlled by standard input.

Each line is a round as JSON; the answer is a line that says what was admitted, when, and at what
cost.
"""

import asyncio
import json
import random
import sys
import time
from contextlib import suppress
from typing import Any

from gateway.clock import SystemClock
from gateway.errors import BudgetExhausted
from gateway.store.engine import Database, open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable


async def _request(
    ledger: LeasedLedger, accounts: tuple[str, ...], draw: random.Random, log: list[list[int]]
) -> None:
    """Reserve the worst price, take a while, settle what it cost; now and then leave in between."""
    amount = draw.randrange(1, 2000)
    cost = draw.choice([0, amount // 3, amount])
    reservation = await ledger.reserve(accounts, amount)
    log.append([time.monotonic_ns(), amount])
    try:
        await asyncio.sleep(draw.random() * 0.01)
    except asyncio.CancelledError:
        log.append([time.monotonic_ns(), cost - amount])
        ledger.settle(reservation, cost)
        raise
    log.append([time.monotonic_ns(), cost - amount])
    ledger.settle(reservation, cost)


async def _race(ledger: LeasedLedger, order: dict[str, Any], worker: int) -> dict[str, Any]:
    draw = random.Random(f"{order['seed']}.{worker}")
    log: list[list[int]] = []
    accounts = tuple(order["accounts"])
    tasks = [
        asyncio.create_task(_request(ledger, accounts, random.Random(draw.random()), log))
        for _ in range(order["requests"])
    ]
    for task in tasks:
        if draw.random() < 0.1:
            asyncio.get_running_loop().call_later(draw.random() * 0.02, task.cancel)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    kinds = (BudgetExhausted, asyncio.CancelledError)
    strange = [repr(each) for each in ended if each is not None and not isinstance(each, kinds)]
    refused = sum(isinstance(each, BudgetExhausted) for each in ended)
    await ledger.flush()
    held = sum(part.reserved for part in ledger._held.by_key.values())
    return {"log": log, "refused": refused, "reserved": held, "strange": strange}


async def _last(ledger: LeasedLedger, order: dict[str, Any]) -> dict[str, Any]:
    """Whether exactly `left` can still be reserved once nothing is in flight any more."""
    accounts, left = tuple(order["accounts"]), order["left"]
    answers = []
    for amount in (left + 1, left):
        with suppress(BudgetExhausted):
            ledger.release(await ledger.reserve(accounts, amount))
            answers.append(amount)
    await ledger.flush()
    return {"admitted": answers}


async def _run(url: str, worker: int) -> None:
    database: Database = open_database(url)
    table = LeaseTable(database, SystemClock())
    # So patient that no busy machine makes a refusal: the test asks about money, not about time.
    ledger = LeasedLedger(
        table,
        SystemClock(),
        f"w{worker}",
        slice_microusd=20_000,
        flush_every_s=0.02,
        patience_s=5.0,
    )
    await ledger.start()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if order["do"] == "refresh":
            await ledger.refresh()
            answer: dict[str, Any] = {}
        elif order["do"] == "race":
            answer = await _race(ledger, order, worker)
        else:
            answer = await _last(ledger, order)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await ledger.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], int(sys.argv[2])))
