"""Impossible token counts of an answer are not believed, and block nobody's budget."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from gateway.clock import SystemClock
from gateway.store.engine import open_database
from gateway.store.money.leases import LeaseTable
from tests.faults.envelopes import STYLES, Caller, Reply, Style, ask
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio
TARGETS: dict[Style, str] = {"openai": GPT_TARGET, "anthropic": CLAUDE_TARGET}
ABSURD = 10**19
IMPOSSIBLE = 9 * 10**8
"""A number like any other, and some hundred times what the largest window holds."""


@pytest.fixture
async def billed(
    tmp_path: Path, sqlite_url: str, own_upstreams: Upstreams
) -> AsyncIterator[RunningGateway]:
    async with RunningGateway(tmp_path, sqlite_url, own_upstreams) as running:
        yield running


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("style", STYLES)
async def test_an_absurd_count_stops_neither_the_reports_nor_anybody_else(
    style: Style,
    stream: bool,
    billed: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    await billed.limit("org:acme", 1_000_000_000)
    caller = Caller(billed, http, await billed.issue_key())
    for upstream in own_upstreams.managed:
        upstream.answer_once(Answer(output_tokens=ABSURD))

    absurd = await caller.post(style, ask(style, model=TARGETS[style], stream=stream))
    good = await caller.post(style, ask(style, model=TARGETS[style]))

    costs = [await cost_of(billed, each) for each in (absurd, good)]
    # The words are fine; what they cost is estimated.
    assert (absurd.status, good.status) == (200, 200)
    intent = (await billed.records(absurd.request_id))[0]
    assert 0 < costs[0] <= intent.reserved_microusd < 10_000
    assert 0 < costs[1] < 1_000
    async with asyncio.timeout(20):
        while await spent(billed) != sum(costs):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("figure", ["input_tokens", "output_tokens", "cache_read_tokens"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("style", STYLES)
async def test_a_count_that_its_request_cannot_have_is_estimated_and_told(
    style: Style,
    stream: bool,
    figure: str,
    billed: RunningGateway,
    own_upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    """Before, one such answer put an organisation's budget below zero for the rest of its month."""
    await billed.limit("org:acme", 1_000_000_000)
    caller = Caller(billed, http, await billed.issue_key())
    for upstream in own_upstreams.managed:
        upstream.answer_once(Answer(**{figure: IMPOSSIBLE}))  # type: ignore[arg-type]

    told = await caller.post(style, ask(style, model=TARGETS[style], stream=stream))
    good = await caller.post(style, ask(style, model=TARGETS[style]))

    assert (told.status, good.status) == (200, 200)
    intent, outcome = await billed.records(told.request_id)
    assert outcome.usage is not None
    assert outcome.usage.estimated
    assert outcome.usage.disbelieved >= IMPOSSIBLE
    assert max(outcome.usage.input_tokens, outcome.usage.output_tokens) < 1_000
    assert 0 < outcome.cost_microusd <= intent.reserved_microusd
    metrics = await (await http.get(f"{billed.url}/metrics")).text()
    assert f'gatewright_usage_disbelieved_total{{target="{TARGETS[style]}"}} 1.0' in metrics
    honest = (await billed.records(good.request_id))[-1]
    assert honest.usage is not None
    assert (honest.usage.estimated, honest.usage.disbelieved) == (False, 0)


async def cost_of(gateway: RunningGateway, reply: Reply) -> int:
    """What its one outcome says."""
    records = await gateway.records(reply.request_id)
    (outcome,) = [each for each in records if each.stage == "outcome"]
    return outcome.cost_microusd


async def spent(gateway: RunningGateway) -> int:
    """What was reported of the organisation's budget."""
    database = open_database(gateway.settings.database_url)
    try:
        (budget,) = await LeaseTable(database, SystemClock()).budgets_of(["org:acme"])
    finally:
        await database.close()
    return budget.spent_microusd
