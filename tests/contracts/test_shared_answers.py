"""Answers that workers share, in a real Redis or Valkey: found by their own, no one else."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from redis.asyncio import Redis
from structlog.testing import capture_logs

from gateway.caching.response_cache import KeptReply
from gateway.caching.sealed_replies import ReplySeal
from gateway.clock import StoppedClock
from gateway.configuration.sections import ResponseCacheSettings
from gateway.secrets.envelope import KEY_BYTES, MasterKey
from gateway.secrets.secret import Secret
from gateway.store.shared_answers import RETRY_S, SharedAnswers
from gateway.types import Completion, Delta, StreamEvent, ToolCall, Usage
from tests.gateway.dialects.samples import target
from tests.redis_server import Server


pytestmark = pytest.mark.anyio
KEY = bytes(range(32))
SAID = b"the merger is called Bluebird"
CALL = ToolCall("call_1", "look", '{"at":"noon"}')
COMPLETION = Completion(
    *(SAID, "msg_1", "model", "Bluebird", (CALL,), "end", None, Usage(5, 7)),
    thinking=(Delta("thinking", text="hm", signature="s"),),
)
WHOLE = KeptReply(
    target("tools", "vision", parameters={"top_k": "refused"}),
    *("openai_chat", ("seed",), "req_1", 0.0, COMPLETION),
)
EVENTS = (
    StreamEvent(b"data: 1\n\n", (Delta("text", text="Blue"),), has_content=True),
    StreamEvent(b"data: [DONE]\n\n", (Delta("stop", stop_reason="end"),), is_terminal=True),
)
STREAMED = structs.replace(WHOLE, completion=None, events=EVENTS)


class World:
    """Workers of one installation and the place that they share."""

    def __init__(self, server: Server, parts: AsyncExitStack) -> None:
        self.server = server
        self.clock = StoppedClock()
        self.counted: Counter[str] = Counter()
        self.master = MasterKey(Secret(secrets.token_bytes(KEY_BYTES)))
        self.redis: Any = Redis.from_url(server.url)
        self._parts = parts
        parts.push_async_callback(self.redis.aclose)

    def worker(
        self,
        url: str = "",
        *,
        master: MasterKey | None = None,
        clock: StoppedClock | None = None,
        longest: int = 1 << 20,
        deadline_s: float = 30.0,
    ) -> SharedAnswers:
        settings = ResponseCacheSettings(
            reply_bytes_max=longest, url=url or self.server.url, deadline_s=deadline_s
        )
        clock = clock or self.clock
        seal = ReplySeal(master or self.master, clock)
        made = SharedAnswers(settings, seal, clock, lambda result: self.counted.update([result]))
        self._parts.push_async_callback(made.close)
        return made


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    server = Server(tmp_path)
    await server.start()
    async with AsyncExitStack() as parts:
        yield World(server, parts)
    await server.stop()


async def kept(
    worker: SharedAnswers, reply: KeptReply = WHOLE, organisation: str = "acme", key: bytes = KEY
) -> None:
    """Keep a reply, and wait until it has arrived."""
    worker.keep(organisation, key, reply, 60)
    await asyncio.gather(*worker._under_way)


@pytest.mark.parametrize("reply", [WHOLE, STREAMED])
async def test_what_one_worker_keeps_another_finds_as_it_was(
    world: World, reply: KeptReply
) -> None:
    await kept(world.worker(), reply)

    assert await world.worker().find("acme", KEY) == reply
    assert world.counted == {}


async def test_an_answer_is_as_old_for_another_worker_as_it_is(world: World) -> None:
    world.clock.advance(100)
    reply = structs.replace(WHOLE, kept_s=90.0)
    await kept(world.worker(), reply)
    started_later = StoppedClock()
    started_later.advance(130)
    started_later._monotonic_s = 7.0

    found = await world.worker(clock=started_later).find("acme", KEY)

    assert found == structs.replace(WHOLE, kept_s=7.0 - 40.0)
    ahead = await world.worker(clock=StoppedClock()).find("acme", KEY)
    assert ahead == WHOLE


async def test_who_runs_the_place_reads_nothing_and_nothing_stays_longer_than_policy_says(
    world: World,
) -> None:
    await kept(world.worker())

    [name] = await world.redis.keys("*")
    everything = name + await world.redis.get(name)

    for plain in (SAID, b"Bluebird", b"acme", b"req_1", b"openai", b"target", KEY):
        assert plain not in everything
    assert 0 < await world.redis.ttl(name) <= 60


async def test_nobody_finds_what_another_organisation_request_or_installation_kept(
    world: World,
) -> None:
    await kept(world.worker())
    elsewhere = MasterKey(Secret(secrets.token_bytes(KEY_BYTES)))

    assert await world.worker().find("globex", KEY) is None
    assert await world.worker().find("acme", KEY[::-1]) is None
    assert await world.worker(master=elsewhere).find("acme", KEY) is None
    assert world.counted == {}


@pytest.mark.parametrize(
    "harm",
    [
        lambda value: value[:-1] + bytes([value[-1] ^ 1]),
        lambda value: bytes([value[0] ^ 1]) + value[1:],
        lambda value: value[:20],
        lambda value: b"x",
        lambda value: value + b"x",
        lambda value: bytes(8 << 20),
    ],
)
async def test_what_was_changed_there_is_no_answer(
    world: World, harm: Callable[[bytes], bytes]
) -> None:
    await kept(world.worker())
    [name] = await world.redis.keys("*")
    await world.redis.set(name, harm(await world.redis.get(name)))

    assert await world.worker().find("acme", KEY) is None
    assert world.counted == {"unreadable": 1}


async def test_what_was_put_in_anothers_place_is_no_answer(world: World) -> None:
    worker = world.worker()
    await kept(worker)
    [mine] = await world.redis.keys("*")
    await kept(worker, organisation="globex")
    await kept(worker, key=KEY[::-1])
    for theirs in set(await world.redis.keys("*")) - {mine}:
        await world.redis.set(mine, await world.redis.get(theirs))
        assert await worker.find("acme", KEY) is None
    assert world.counted == {"unreadable": 2}


async def test_another_kind_of_value_under_its_name_is_no_answer(world: World) -> None:
    worker = world.worker()
    await kept(worker)
    [name] = await world.redis.keys("*")
    await world.redis.delete(name)
    await world.redis.lpush(name, "a list")

    assert await worker.find("acme", KEY) is None


async def test_a_long_answer_is_not_shared(world: World) -> None:
    await kept(world.worker(longest=100))

    assert await world.redis.dbsize() == 0


async def test_without_the_server_there_is_no_answer_and_no_error_and_afterwards_all_is_well(
    world: World,
) -> None:
    worker = world.worker()
    await kept(worker)
    await world.server.stop()

    with capture_logs() as lines:
        assert await worker.find("acme", KEY) is None
        await kept(worker)
    assert [line["event"] for line in lines] == ["cache:degraded"]
    assert "onnect" in lines[0]["reason"]
    assert not worker.is_there

    await world.server.start()
    assert await worker.find("acme", KEY) is None, "it is left alone for a while"
    world.clock.advance(RETRY_S)
    await kept(worker)
    assert await worker.find("acme", KEY) == WHOLE
    assert worker.is_there


async def test_nobody_waits_for_a_server_that_says_nothing_nor_asks_it_again_at_once(
    world: World,
) -> None:
    asked = 0

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        worker = world.worker(f"redis://127.0.0.1:{port}/0", deadline_s=0.005)

        assert await worker.find("acme", KEY) is None
        [late] = worker._under_way
        assert not late.done(), "its caller went on before"
        for _ in range(10):
            assert await worker.find("acme", KEY) is None
            worker.keep("acme", KEY, WHOLE, 60)
        await late
        await worker.close()
        assert asked == 1
