"""An application team asks what it asked before, and another worker knows the answer."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from redis.asyncio import Redis

from gateway.store.identity.keys import Place
from tests.faults.envelopes import STYLES, Caller, Style, ask
from tests.faults.restoring import erased_by_two
from tests.journeys.test_application_team_asks_the_same_again import (
    BOTH_SHAPES,
    MODELS,
    POLICY,
    calls,
    without_comments,
)
from tests.redis_server import Server
from tests.running_gateway import RunningGateway, Upstreams


pytestmark = pytest.mark.anyio
CARD = "My card is 4111 1111 1111 1111."
MORE = """
[policy]
file = "{policy}"
[response_cache]
url = "{url}"
deadline_s = 30.0
"""

Workers = tuple[RunningGateway, RunningGateway]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def redis(server: Server) -> AsyncIterator[Redis]:
    redis: Redis = Redis.from_url(server.url)
    yield redis
    await redis.aclose()


@pytest.fixture
async def workers(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, server: Server
) -> AsyncIterator[Workers]:
    (tmp_path / "policy.toml").write_text(POLICY)
    more = MORE.format(policy=tmp_path / "policy.toml", url=server.url)
    async with (
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more) as one,
        RunningGateway(tmp_path, sqlite_url, upstreams, more=more, worker="w1") as other,
    ):
        yield one, other


async def callers(
    workers: Workers, http: aiohttp.ClientSession, place: Place | None = None
) -> tuple[Caller, Caller]:
    """The same key at both workers."""
    one, other = workers
    key = await (one.issue_key(place) if place else one.issue_key())
    while key.split("_")[2] not in other.plane.snapshots.current().keys.records:
        await asyncio.sleep(0.01)
    return Caller(one, http, key), Caller(other, http, key)


async def until_kept(redis: Redis, count: int) -> None:
    while await redis.dbsize() < count:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("style", STYLES)
@BOTH_SHAPES
async def test_what_one_worker_was_told_another_says_again(
    style: Style,
    stream: bool,
    workers: Workers,
    redis: Redis,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    here, there = await callers(workers, http)
    body = ask(style, stream=stream, model=MODELS[style])

    first = await here.post(style, body)
    await until_kept(redis, 1)
    again = await there.post(style, body)
    from_memory = await there.post(style, body)

    assert (first.status, again.status) == (200, 200)
    assert first.headers["x-gatewright-cache"] == "miss"
    assert again.headers["x-gatewright-cache"] == "hit"
    assert from_memory.headers["x-gatewright-cache"] == "hit"
    assert without_comments(again) == without_comments(first)
    assert calls(upstreams) == 1
    outcome = (await workers[1].records(again.request_id))[1]
    assert (outcome.status, outcome.cost_microusd, outcome.attempts) == ("ok", 0, ())
    assert outcome.detail["cache_of"] == first.request_id
    counted = await (await http.get(f"{workers[1].url}/metrics")).text()
    assert 'gatewright_response_cache_total{result="shared"} 1.0' in counted
    assert 'gatewright_response_cache_total{result="hit"} 2.0' in counted


async def test_another_project_and_a_caller_who_wants_no_kept_answer_are_told_anew(
    workers: Workers, redis: Redis, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    here, there = await callers(workers, http)
    _, theirs = await callers(workers, http, Place("acme", "research", "other"))
    body = ask("openai", model=MODELS["openai"])
    await here.post("openai", body)
    await until_kept(redis, 1)

    foreign = await theirs.post("openai", body)
    headers = there.headers("openai") | {"cache-control": "no-cache"}
    unwilling = await there.post("openai", body, headers)

    assert foreign.headers["x-gatewright-cache"] == "miss"
    assert unwilling.headers["x-gatewright-cache"] == "miss"
    assert calls(upstreams) == 3


async def test_what_policy_does_not_let_be_kept_never_gets_there(
    workers: Workers, redis: Redis, http: aiohttp.ClientSession
) -> None:
    here, _ = await callers(workers, http)
    card = [{"role": "user", "content": CARD}]

    secret = await here.post("openai", ask("openai", messages=card))
    named = await here.post("openai", ask("openai", model=MODELS["openai"], user="someone"))
    refused = {**here.headers("openai"), "cache-control": "no-store"}
    unkept = await here.post("openai", ask("openai", model=MODELS["openai"]), refused)
    plain = await here.post("openai", ask("openai", model=MODELS["openai"], temperature=0.5))
    await until_kept(redis, 1)

    assert [each.status for each in (secret, named, unkept, plain)] == [200] * 4
    assert await redis.dbsize() == 1


async def test_answers_go_on_when_the_place_is_gone_or_what_lies_there_was_changed(
    workers: Workers,
    redis: Redis,
    server: Server,
    upstreams: Upstreams,
    http: aiohttp.ClientSession,
) -> None:
    here, there = await callers(workers, http)
    body = ask("openai", model=MODELS["openai"])
    await here.post("openai", body)
    await until_kept(redis, 1)
    [name] = await redis.keys("*")
    await redis.setrange(name, 40, b"poison")

    poisoned = await there.post("openai", body)
    await server.stop()
    without = await there.post("openai", ask("openai", model=MODELS["openai"], temperature=0.5))
    remembered = await here.post("openai", body)

    assert (poisoned.status, poisoned.headers["x-gatewright-cache"]) == (200, "miss")
    assert (without.status, without.headers["x-gatewright-cache"]) == (200, "miss")
    assert (remembered.status, remembered.headers["x-gatewright-cache"]) == (200, "hit")
    assert calls(upstreams) == 3
    counted = await (await http.get(f"{workers[1].url}/metrics")).text()
    assert 'gatewright_response_cache_total{result="unreadable"} 1.0' in counted


@pytest.mark.timeout(120)
async def test_what_an_organisation_said_is_given_by_no_worker_once_that_is_erased(
    workers: Workers, redis: Redis, upstreams: Upstreams, http: aiohttp.ClientSession
) -> None:
    """Another organisation's stays, and what is asked anew may be given again."""
    here, there = await callers(workers, http)
    strange, _ = await callers(workers, http, Place("rival", "research", "assistant"))
    body = ask("openai", stream=False, model=MODELS["openai"])
    for caller, kept in ((here, 1), (strange, 2)):
        assert (await caller.post("openai", body)).headers["x-gatewright-cache"] == "miss"
        await until_kept(redis, kept)
    assert (await here.post("openai", body)).headers["x-gatewright-cache"] == "hit"
    revisions = [each.plane.snapshots.revision for each in workers]

    await erased_by_two(workers[0], "--organisation", "acme", "--ticket", "DPO-12")
    for worker, before in zip(workers, revisions, strict=True):
        while worker.plane.snapshots.revision == before or not worker.plane._cache._erased_us:
            await asyncio.sleep(0.02)

    assert (await there.post("openai", body)).headers["x-gatewright-cache"] == "miss"
    assert (await strange.post("openai", body)).headers["x-gatewright-cache"] == "hit"
    assert (await there.post("openai", body)).headers["x-gatewright-cache"] == "hit"
    assert calls(upstreams) == 3


async def test_what_another_server_answered_is_not_given_as_this_ones(
    tmp_path: Path, sqlite_url: str, upstreams: Upstreams, server: Server, redis: Redis
) -> None:
    """A provider of the same name asks another address since: a start of the configuration."""
    (tmp_path / "policy.toml").write_text(POLICY)
    more = MORE.format(policy=tmp_path / "policy.toml", url=server.url)
    body = ask("openai", model=MODELS["openai"])
    told = []
    async with Upstreams() as moved, aiohttp.ClientSession() as http:
        for at in (upstreams, moved, moved):
            async with RunningGateway(tmp_path, sqlite_url, at, more=more) as gateway:
                caller = Caller(gateway, http, await gateway.issue_key())
                told.append((await caller.post("openai", body)).headers["x-gatewright-cache"])
                await until_kept(redis, 1)
        assert told == ["miss", "miss", "hit"]
        assert (calls(upstreams), calls(moved)) == (1, 1)
