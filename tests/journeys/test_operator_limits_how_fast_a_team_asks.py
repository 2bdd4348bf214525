"""A platform engineer limits how fast a team may ask; its SDKs hear when to come back."""

import asyncio
from datetime import datetime

import aiohttp
import pytest

from gateway.money.rates import RateLimit
from gateway.store.engine import open_database
from gateway.store.money.rate_limits import RateLimitTable
from tests.faults.envelopes import STYLES, Caller, Reply, Style, ask, check_error, only_outcome
from tests.running_gateway import CLAUDE_TARGET, RunningGateway, Upstreams
from tests.upstreams import Answer


pytestmark = pytest.mark.anyio

KINDS = ("requests", "tokens")
WORDS = ("limit", "remaining", "reset")


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
    left = gateway.budget_left(("org:acme",))
    reply = await caller.post(style, body)

    check_error(reply, style, "rate_limited")
    assert reply.status == 429
    assert 1 <= int(reply.headers["retry-after"]) <= 60
    assert "x-should-retry" not in reply.headers
    await only_outcome(gateway, reply.request_id, "refused", "rate_limited")
    assert len(upstreams.anthropic.calls) == 1
    assert gateway.budget_left(("org:acme",)) == left


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_key_with_limits_of_its_own_reads_in_its_vendors_headers_how_they_stand(
    gateway: RunningGateway,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
    style: Style,
    stream: bool,
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    key_id = caller.key.split("_")[2]
    theirs = (("x-ratelimit-limit-requests", "7"), ("anthropic-ratelimit-requests-limit", "7"))
    upstreams.anthropic.answer(Answer(headers=theirs))
    await limit(gateway, RateLimit(f"key:{key_id}", requests_per_minute=2, tokens_per_minute=5000))
    body = ask(style, model=CLAUDE_TARGET, stream=stream)

    served = [await caller.post(style, body) for _ in range(2)]
    refused = await caller.post(style, body)

    assert [reply.status for reply in (*served, refused)] == [200, 200, 429]
    told = [limits_of(reply) for reply in (*served, refused)]
    if style == "openai":
        names = {f"x-ratelimit-{what}-{kind}" for what in WORDS for kind in KINDS}
        left = [headers["x-ratelimit-remaining-requests"] for headers in told]
        assert told[0]["x-ratelimit-limit-tokens"] == "5000"
        assert all(each["x-ratelimit-reset-requests"].endswith("s") for each in told)
    else:
        names = {f"anthropic-ratelimit-{kind}-{what}" for what in WORDS for kind in KINDS}
        left = [headers["anthropic-ratelimit-requests-remaining"] for headers in told]
        assert told[0]["anthropic-ratelimit-tokens-limit"] == "5000"
        for each in told:
            datetime.fromisoformat(each["anthropic-ratelimit-requests-reset"])
    assert [set(headers) for headers in told] == [names] * 3
    assert left == ["1", "0", "0"]
    for what in ("x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"):
        assert told[0].get(what, "2") == "2", "the upstream's figures are no caller's"


async def test_a_key_without_limits_of_its_own_hears_nothing_of_the_others(
    gateway: RunningGateway, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    caller = Caller(gateway, http, await gateway.issue_key())
    await limit(gateway, RateLimit("ws:acme/research", requests_per_minute=100))

    reply = await caller.post("openai", ask("openai", model=CLAUDE_TARGET))

    assert (reply.status, limits_of(reply)) == (200, {})


def limits_of(reply: Reply) -> dict[str, str]:
    return {name: value for name, value in reply.headers.items() if "ratelimit" in name}


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
