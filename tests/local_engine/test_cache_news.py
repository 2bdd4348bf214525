"""What an engine tells of its prefix cache: all that happens, nothing of a text, group by group."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from local_engine.core.events import AllBlocksCleared, BlockRemoved, BlockStored, EventLog
from local_engine.serve.cache_log import NEWS_BYTES, CacheLog, CacheReport, encode_news
from local_engine.serve.wire import ClearCache
from tests.local_engine.served import Served, client_of, served


pytestmark = pytest.mark.anyio
TEXT = "The same words for everybody, and many of them. " * 6


@pytest.fixture
async def place(tiny_model_for_module: Path) -> AsyncIterator[Served]:
    async with served(tiny_model_for_module) as running:
        yield running


@pytest.fixture
async def client(place: Served) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(place.engine) as found:
        yield found


def caller(tenant: str, data_class: str = "S1") -> dict[str, str]:
    headers = {"x-gatewright-tenant": tenant, "x-gatewright-data-class": data_class}
    return {name: value for name, value in headers.items() if value}


async def ask(client: httpx.AsyncClient, headers: dict[str, str]) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": TEXT}], "max_tokens": 1}
    reply = await client.post("/v1/chat/completions", json=body, headers=headers)
    assert reply.status_code == 200, reply.text


async def chain(client: httpx.AsyncClient, headers: dict[str, str]) -> list[bytes]:
    body = {"messages": [{"role": "user", "content": TEXT}]}
    reply = await client.post("/cache/chain", json=body, headers=headers)
    assert reply.status_code == 200
    found = msgspec.msgpack.decode(reply.content)
    hashes = found["chain"]
    assert len(hashes) in {0, 8 * (found["num_tokens"] // found["block_tokens"])}
    return [hashes[at : at + 8] for at in range(0, len(hashes), 8)]


async def news(client: httpx.AsyncClient, **asked: Any) -> CacheReport:
    reply = await client.post("/cache/events", json=asked)
    assert reply.headers["content-type"] == "application/msgpack"
    return msgspec.msgpack.decode(reply.content, type=CacheReport)


def stored(report: CacheReport) -> set[bytes]:
    pieces = [report.news[at : at + NEWS_BYTES] for at in range(0, len(report.news), NEWS_BYTES)]
    assert all(piece[:1] == b"\x01" for piece in pieces)
    return {piece[1:] for piece in pieces}


async def test_what_is_cached_is_told_under_the_hashes_that_a_caller_is_told(
    client: httpx.AsyncClient, place: Served
) -> None:
    assert (await news(client)).news == b""
    await ask(client, caller("acme"))
    acme = await chain(client, caller("acme"))
    report = await news(client)
    assert report.is_whole
    assert len(acme) > 3
    assert set(acme[:-1]) <= stored(report)
    held = place.scheduler.blocks.pool._found
    assert stored(report) == {each[:8] for each in held}

    again = await news(client, epoch=report.epoch, since=report.next)
    assert (again.is_whole, again.news, again.next) == (False, b"", report.next)


async def test_a_bare_prompt_has_hashes_of_its_own(client: httpx.AsyncClient) -> None:
    """A text completion's prompt: no template stands around it."""
    headers = caller("acme")
    body = {"model": "tiny", "prompt": TEXT, "max_tokens": 1}
    reply = await client.post("/v1/completions", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    told = await client.post("/cache/chain", json={"prompt": TEXT}, headers=headers)
    found = msgspec.msgpack.decode(told.content)
    hashes = [found["chain"][at : at + 8] for at in range(0, len(found["chain"]), 8)]

    assert found["num_tokens"] == reply.json()["usage"]["prompt_tokens"]
    assert len(hashes) > 3
    assert set(hashes[:-1]) <= stored(await news(client))
    assert set(hashes).isdisjoint(await chain(client, headers))
    for asked in ({}, {"prompt": TEXT, "messages": []}, {"prompt": ""}):
        refused = await client.post("/cache/chain", json=asked, headers=headers)
        assert refused.status_code == 400


async def test_no_two_groups_have_a_hash_in_common_and_those_of_one_are_told_none(
    client: httpx.AsyncClient,
) -> None:
    groups = [caller("acme"), caller("acme", "S2"), caller("globex")]
    chains = [await chain(client, group) for group in groups]
    assert all(len(each) > 3 for each in chains)
    assert len({each for found in chains for each in found}) == sum(map(len, chains))
    assert await chain(client, groups[0]) == chains[0]
    assert await chain(client, {}) == []
    assert await chain(client, caller("acme", "S4")) == []


async def test_a_reader_waits_for_news_and_hears_of_a_cleared_cache(
    client: httpx.AsyncClient, place: Served
) -> None:
    report = await news(client)
    waiting = asyncio.create_task(news(client, epoch=report.epoch, since=report.next, wait_s=10))
    await asyncio.sleep(0)
    await ask(client, caller("acme"))
    heard = await waiting
    assert not heard.is_whole
    assert len(stored(heard)) > 3

    place.engine._link._send(ClearCache())
    cleared = await news(client, epoch=heard.epoch, since=heard.next, wait_s=10)
    assert cleared.news[-NEWS_BYTES:] == b"\x02" + bytes(8)
    assert (await news(client)).news == b""


async def test_who_fell_behind_gets_all_that_is_held() -> None:
    log = CacheLog(capacity=2)
    hashes = [bytes([number]) * 32 for number in range(4)]
    log.add(0, encode_news(BlockStored(each, 1) for each in hashes))
    log.add(4, encode_news([BlockRemoved(hashes[0], 1)]))
    recent = await log.read(log.epoch, 3, 0.0)
    assert (recent.is_whole, len(recent.news)) == (False, 2 * NEWS_BYTES)
    behind = await log.read(log.epoch, 1, 0.0)
    assert behind.is_whole
    assert stored(behind) == {each[:8] for each in hashes[1:]}
    assert (await log.read("another", 5, 0.0)).is_whole

    epoch = log.epoch
    log.add(9, encode_news([AllBlocksCleared()]))
    after_a_gap = await log.read(epoch, 5, 0.0)
    assert (after_a_gap.is_whole, after_a_gap.news, after_a_gap.next) == (True, b"", 10)


def test_new_events_are_taken_once_and_lost_ones_show_as_a_gap() -> None:
    log = EventLog(capacity=3)
    events = [BlockStored(bytes([number]), number) for number in range(6)]
    for event in events[:2]:
        log.append(event)
    assert log.take_new() == (0, events[:2])
    assert log.take_new() == (2, [])
    for event in events[2:]:
        log.append(event)
    assert log.take_new() == (3, events[3:])
