"""A budget owner sets a limit; whatever is asked at once, it is not overspent."""

import asyncio
from collections import Counter
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

from gateway.clock import SystemClock
from gateway.money.budgets import window_end_us
from gateway.money.catalogue import worst_cost
from gateway.store.engine import open_database
from gateway.store.money.leased_ledger import LeasedLedger
from gateway.store.money.leases import LeaseTable
from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error, only_outcome
from tests.running_gateway import CLAUDE_TARGET, GPT_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

QUESTION: Any = [{"role": "user", "content": "What does a receipt prove?"}]
CALLS, WORTH = 50, 10


async def worst_cost_of(gateway: RunningGateway, caller: Caller, body: dict[str, object]) -> int:
    """What one such request reserves, as its intent says."""
    reply = await caller.post("openai", body)
    assert reply.status == 200
    return (await gateway.records(reply.request_id))[0].reserved_microusd


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_exhausted_budget_sends_nothing_and_stays_as_it_is(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
    stream: bool,
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    await gateway.limit("ws:acme/research", 3)

    reply = await caller.post(style, ask(style, model=CLAUDE_TARGET, stream=stream))

    check_error(reply, style, "insufficient_quota")
    assert reply.headers["x-should-retry"] == "false"
    assert "retry-after" not in reply.headers
    await only_outcome(gateway, reply.request_id, "refused", "insufficient_quota")
    assert not upstreams.anthropic.calls
    assert gateway.budget_left(("ws:acme/research",)) == 3


async def test_both_sdks_tell_an_exhausted_budget_without_retrying(
    gateway: RunningGateway, upstreams: Upstreams
) -> None:
    key = await gateway.issue_key()
    await gateway.limit("org:acme", 3)
    before = len(await gateway.records())
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        with pytest.raises(openai.RateLimitError) as first:
            await client.chat.completions.create(model=GPT_TARGET, messages=QUESTION)
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key=key) as claude:
        with pytest.raises(anthropic.APIStatusError) as second:
            await claude.messages.create(model=GPT_TARGET, max_tokens=50, messages=QUESTION)

    assert (first.value.code, first.value.type) == ("insufficient_quota", "insufficient_quota")
    assert second.value.status_code == 402
    assert len(await gateway.records()) == before + 2
    assert not upstreams.openai.calls


async def test_a_days_budget_says_when_there_is_more_and_no_sdk_waits_for_it(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    key = await gateway.issue_key()
    caller, body = Caller(gateway, http, key), ask("openai", model=CLAUDE_TARGET)
    await gateway.limit("org:acme", await worst_cost_of(gateway, caller, body), "day")
    hold = asyncio.Event()
    upstreams.anthropic.answer(Answer(hold=hold))
    before = len(upstreams.anthropic.calls)
    first = asyncio.create_task(caller.post("openai", body))
    while len(upstreams.anthropic.calls) == before:
        await asyncio.sleep(0.01)
    refused = [await caller.post(style, ask(style, model=CLAUDE_TARGET)) for style in STYLES]
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=key) as client:
        with pytest.raises(openai.RateLimitError) as told:
            await client.chat.completions.create(**body)  # type: ignore[call-overload]
    hold.set()
    await first
    left_s = (window_end_us("day", SystemClock().utc_us()) - SystemClock().utc_us()) / 1e6

    assert [reply.headers["x-should-retry"] for reply in refused] == ["false"] * len(STYLES)
    assert all(left_s <= float(reply.headers["retry-after"]) < left_s + 60 for reply in refused)
    assert " There is more from " in told.value.message
    assert "A platform administrator can raise it." in told.value.message


async def test_many_requests_at_once_do_not_overspend_on_each_database(
    gateway_on_each_database: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    gateway = gateway_on_each_database
    caller = Caller(gateway, http, await gateway.issue_key())
    body = ask("openai", model=CLAUDE_TARGET)
    worst = await worst_cost_of(gateway, caller, body)
    limit = worst * WORTH
    await gateway.limit("org:acme", limit)
    hold = asyncio.Event()
    upstreams.anthropic.answer(Answer(hold=hold))
    before = len(upstreams.anthropic.calls)

    asking = [asyncio.create_task(caller.post("openai", body)) for _ in range(CALLS)]
    refused = 0
    for done in asyncio.as_completed(asking):
        reply = await done
        refused += reply.status == 429
        if refused == CALLS - WORTH:
            hold.set()
    statuses = Counter(task.result().status for task in asking)

    assert statuses == {200: WORTH, 429: CALLS - WORTH}
    assert len(upstreams.anthropic.calls) == before + WORTH
    cost = sum(r.cost_microusd for r in (await gateway.records())[2:] if r.stage == "outcome")
    while gateway.budget_left(("org:acme",)) != limit - cost:
        await asyncio.sleep(0.01)


async def test_the_first_decision_after_a_rest_knows_what_other_workers_spent_meanwhile(
    gateway: RunningGateway, http: aiohttp.ClientSession
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    await gateway.limit("org:acme", 10**9)
    database = open_database(gateway.settings.database_url)
    try:
        clock = SystemClock()
        other = LeasedLedger(LeaseTable(database, clock), clock, "other")
        await other.start()
        other.settle(await other.reserve(("org:acme",), 10**8), 10**8)
        await other.close()
    finally:
        await database.close()
    assert gateway.budget_left(("org:acme",)) == 10**9, "as it heard last"

    reply = await caller.post("openai", ask("openai", model=CLAUDE_TARGET))

    intent = (await gateway.records(reply.request_id))[0]
    assert intent.facts is not None
    assert intent.facts.budget_left_microusd == 9 * 10**8


async def test_a_failed_request_costs_nothing(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    await gateway.limit("proj:acme/research/assistant", 10**9)
    upstreams.anthropic.answer(Answer(status=500))

    for style in STYLES:
        assert (await caller.post(style, ask(style, model=CLAUDE_TARGET))).status == 500

    while gateway.budget_left(("proj:acme/research/assistant",)) != 10**9:
        await asyncio.sleep(0.01)


async def test_an_upstream_that_says_more_than_was_asked_is_paid_in_full(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """The cap was sent along; what an upstream bills all the same is booked, and then it ends."""
    caller = Caller(gateway, http, await gateway.issue_key())
    body = ask("openai", model=CLAUDE_TARGET)
    worst = await worst_cost_of(gateway, caller, body)
    await gateway.limit("org:acme", worst * 2)
    upstreams.anthropic.answer(Answer(output_tokens=1_000_000))

    first = await caller.post("openai", body)
    second = await caller.post("openai", body)

    assert (first.status, second.status) == (200, 429)
    outcome = (await gateway.records(first.request_id))[-1]
    target = gateway.plane.snapshots.current().board.targets[CLAUDE_TARGET]
    assert outcome.cost_microusd >= worst_cost(target.price, 0, 1_000_000)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_upstream_without_usage_is_not_free(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession, stream: bool
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    whole = b'{"id":"x","model":"m","choices":[{"index":0,"message":{"content":"' + b"word " * 99
    chunk = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"' + b"word " * 99
    events = (chunk + b'"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n")
    upstreams.openai.answer(
        Answer(events=events) if stream else Answer(body=whole + b'"},"finish_reason":"stop"}]}')
    )

    reply = await caller.post("openai", ask("openai", model=GPT_TARGET, stream=stream))

    outcome = (await gateway.records(reply.request_id))[-1]
    assert outcome.status == "ok"
    assert outcome.usage is not None
    assert outcome.usage.estimated
    assert 80 <= outcome.usage.output_tokens <= 120
    assert outcome.usage.input_tokens > 0
    assert outcome.cost_microusd > 0
