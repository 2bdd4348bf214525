"""A platform engineer limits how fast a team may ask; its SDKs hear when to come back."""

import asyncio

import aiohttp
import pytest

from gateway.rates import RateLimit
from gateway.store.engine import open_database
from gateway.store.rate_limits import RateLimitTable
from tests.faults.envelopes import STYLES, Caller, Style, ask, check_error, only_outcome
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio


async def limit(gateway: RunningGateway, new: RateLimit) -> None:
    database = open_database(gateway.settings.database_url)
    await RateLimitTable(database).set(new)
    await database.close()
    while not gateway.plane._rates._book.of((new.account,)):  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("style", STYLES)
async def test_a_caller_above_its_limit_is_told_when_to_come_back_and_burns_nothing(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession, style: Style
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    await gateway.limit("org:acme", 10**9)
    await limit(gateway, RateLimit("ws:acme/research", requests_per_minute=1))
    body = ask(style, model=CLAUDE_TARGET)

    assert (await caller.post(style, body)).status == 200
    left = gateway.plane.budget_left(("org:acme",))
    reply = await caller.post(style, body)

    check_error(reply, style, "rate_limited")
    assert reply.status == 429
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert "x-should-retry" not in reply.headers
    await only_outcome(gateway, reply.request_id, "refused", "rate_limited")
    assert len(upstreams.anthropic.calls) == 1
    assert gateway.plane.budget_left(("org:acme",)) == left


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_ends_makes_room_for_the_next(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession, stream: bool
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    await limit(gateway, RateLimit("org:acme", None, 100_000, 1))
    body = ask("openai", model=CLAUDE_TARGET, stream=stream)
    hold = asyncio.Event()
    upstreams.anthropic.answer(Answer(hold=hold))

    first = asyncio.create_task(caller.post("openai", body))
    while not upstreams.anthropic.calls:
        await asyncio.sleep(0.01)
    refused = await caller.post("openai", body)
    hold.set()

    assert (refused.status, (await first).status) == (429, 200)
    for _ in range(3):
        assert (await caller.post("openai", body)).status == 200
