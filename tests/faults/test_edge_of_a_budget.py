"""Callers compete for the last of a budget, over two workers with unreliable upstreams.

Thousands of tiny requests and some that ask for all there is, streams whose callers leave, races,
and upstreams that fail, break off and report impossible counts. Nothing is spent beyond the limit,
all of it can be spent, and afterwards budgets equal the sum of the outcomes.
"""

import asyncio
import os
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from sqlalchemy import select

from gateway.money.budgets import Limit
from gateway.store.schema.audit import audit_records
from gateway.store.schema.tables import budget_leases
from tests.faults.envelopes import PATHS, STYLES, Style, ask
from tests.faults.test_limits_under_streams import House, founded, reconciled
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, Upstreams
from tests.upstreams import Answer, RecordedRequest


pytestmark = [pytest.mark.anyio, pytest.mark.either, pytest.mark.timeout(1800)]
REQUESTS = int(os.environ.get("GATEWRIGHT_FAULT_PRESSING", "400"))
CALLERS = 24
LIMIT_MICROUSD = 15_000
LEAST_MICROUSD = 2_000
"""More than a tiny request sets aside."""
TINY, ALL = 5, 100_000
POLICY = f"""name = "races"
version = 1
[[preferences]]
name = "hedge"
route = "hedge"
targets = ["{CLAUDE_TARGET}", "{GPT_TARGET}"]
hedge_after_ms = 5
"""
MODELS = (CLAUDE_TARGET, GPT_TARGET, "auto:hedge")
ENDS = {200, 402, 403, 429, 500, 502, 503, 504, 529}


class Pressing:
    """Callers of one house."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._draw = random.Random(11)
        self._left = REQUESTS
        self.ended: Counter[int] = Counter()

    def answer(self, request: RecordedRequest) -> Answer:
        """Good half of the time; else anything."""
        del request
        draw = self._draw
        good = Answer(input_tokens=9, output_tokens=draw.randrange(1, TINY + 1))
        wild = (
            *(Answer(status=500), Answer(status=429), Answer(status=529)),
            *(Answer(fault="reset"), Answer(fault="cut"), Answer(fault="error_event")),
            Answer(input_tokens=10**9, output_tokens=10**9),
            Answer(input_tokens=9, output_tokens=-4),
            Answer(input_tokens=9, output_tokens=2, gap_s=0.03),
        )
        return draw.choice(wild) if draw.random() < 0.5 else good

    async def press(self, http: aiohttp.ClientSession, number: int) -> None:
        while self._left > 0:
            self._left -= 1
            with suppress(aiohttp.ClientError):
                await self._ask(http, self._house.ports[number % 2])

    async def _ask(self, http: aiohttp.ClientSession, port: int) -> None:
        draw = self._draw
        style: Style = draw.choice(STYLES)
        body = ask(
            style,
            model=draw.choice(MODELS),
            max_tokens=ALL if draw.random() < 0.1 else TINY,
            stream=draw.random() < 0.5,
            messages=[{"role": "user", "content": "Is it what it was? " * 4}],
        )
        headers = {"authorization": f"Bearer {self._house.keys[0].reveal()}"}
        url = f"http://127.0.0.1:{port}{PATHS[style]}"
        async with http.post(url, json=body, headers=headers) as reply:
            self.ended[reply.status] += 1
            if draw.random() < 0.2:
                await reply.content.readany()
                reply.close()
            else:
                await reply.read()


async def test_whoever_presses_on_a_budget_gets_all_of_it_and_no_more(
    tmp_path: Path, database_url: str, own_upstreams: Upstreams
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    more = f'[policy]\nfile = "{policy}"\n'
    async with founded(tmp_path, database_url, own_upstreams, more=more) as (house, database):
        pressing = Pressing(house)
        for upstream in own_upstreams.managed:
            upstream.answer_to = pressing.answer  # type: ignore[method-assign]
        account = f"key:{house.keys[0].key_id}"
        await house.table.set_limit(Limit(account, LIMIT_MICROUSD))
        await asyncio.sleep(1.0)  # Both hear of it.
        async with aiohttp.ClientSession() as http:
            await asyncio.gather(*(pressing.press(http, number) for number in range(CALLERS)))
        await house.stop()
        status, told = await reconciled(house.config_files[0])
        async with database.reading() as connection:
            leases = (await connection.execute(select(budget_leases))).all()
            records = (await connection.execute(select(audit_records))).mappings().all()

    (spent,) = [
        line["ledger_microusd"]
        for line in told
        if (line["account"], line["window"]) == (account, "total")
    ]
    assert LIMIT_MICROUSD - LEAST_MICROUSD < spent <= LIMIT_MICROUSD
    assert (status, leases) == (0, [])
    assert [line for line in told if line["difference_microusd"]] == []
    assert pressing.ended.keys() <= ENDS, pressing.ended
    assert pressing.ended[200] > 0
    ends = Counter(row["request_id"] for row in records if row["stage"] == "outcome")
    begun = {row["request_id"] for row in records if row["stage"] == "intent"}
    assert (begun - ends.keys(), [each for each in ends.values() if each > 1]) == (set(), [])
