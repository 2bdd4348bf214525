"""A pool of our own engines knows what their caches hold by their own hashes; over real HTTP."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import uvicorn

from gateway.clock import StoppedClock
from gateway.errors import UpstreamUnreachable
from gateway.pool.exact import NEWS_AT_ONCE, CacheChain, CacheReport, ExactMirror
from gateway.pool.prefixes import PrefixIndex, Prompt, prompt_of
from gateway.pool.provider import PoolProvider
from gateway.ports import UpstreamCall
from gateway.providers.config import ProviderConfig
from gateway.providers.egress.client import Egress
from gateway.providers.engine import EngineProvider
from local_engine.serve.api.app import EngineApp
from local_engine.serve.wire import ClearCache
from tests.gateway.pool.test_provider import Host, Pool, with_body
from tests.gateway.providers.samples import HOME, make_call
from tests.local_engine.models import tiny_spec, write_model_directory
from tests.local_engine.served import Served, served


pytestmark = pytest.mark.anyio
TEXT = "word " * 900


def body(text: str = TEXT) -> bytes:
    message = {"role": "user", "content": text}
    return msgspec.json.encode({"model": "tiny", "messages": [message], "max_tokens": 1})


def call(tenant: str, text: str = TEXT) -> UpstreamCall:
    return msgspec.structs.replace(
        make_call(), body=body(text), tenant=tenant, data_class="S1", service_tier="standard"
    )


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def listening(place: Served) -> AsyncIterator[str]:
    """The engine's own application on a free port."""
    app = EngineApp()
    app.attach("tiny", place.engine)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None))
        running = asyncio.create_task(server.serve([bound]))
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            server.should_exit = True
            await running


async def test_a_pool_follows_its_own_engine_and_tells_tenants_apart(tmp_path: Path) -> None:
    directory = tmp_path / "tiny"
    write_model_directory(directory, tiny_spec(context_window=4096))
    egress = Egress()
    async with served(directory) as place, listening(place) as url:
        config = ProviderConfig("one", "engine", HOME, base_url=url)
        engine = EngineProvider(config, egress)
        pool = PoolProvider("house", {"one": engine}, StoppedClock().monotonic_s)
        prefixes = pool.router.prefixes
        try:
            assert await pool.probe() == ""
            await until(lambda: prefixes.precision("one") == "exact")

            async def send(tenant: str) -> Prompt:
                reply = await pool.open(call(tenant))
                assert reply.status == 200, await reply.read()
                await reply.read()
                await reply.close()
                return prompt_of(tenant.encode(), body(), pool.rules.bytes_per_token)

            prompt = await send("acme")
            # Long after what was sent is believed no longer, what the engine said still stands.
            far_s = 10_000.0
            await until(lambda: prefixes.depths(prompt.blocks, far_s)[0] >= len(prompt.blocks) - 1)
            other = prompt_of(b"globex", body(), pool.rules.bytes_per_token)
            assert prefixes.depths(other.blocks, far_s) == [0]

            place.engine._link._send(ClearCache())
            await until(lambda: prefixes.depths(prompt.blocks, far_s) == [0])
        finally:
            await pool.close()
            await egress.close()


class Teller(Host):
    """A scripted engine of ours that says what it is told to say."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tells_cache = True
        self.reports: asyncio.Queue[CacheReport | None] = asyncio.Queue()
        self.asked: list[tuple[str, int]] = []

    async def cache_news(self, epoch: str, since: int) -> CacheReport:
        self.asked.append((epoch, since))
        report = await self.reports.get()
        if report is None:
            raise UpstreamUnreachable("gone")
        return report

    async def chain_of(self, call: UpstreamCall) -> CacheChain:
        length = len(call.body) // 128
        chain = b"".join(each.to_bytes(8) for each in range(1, length + 1))
        return CacheChain(16, 16 * length, chain)


def news(*pieces: tuple[int, int]) -> bytes:
    return b"".join(bytes([kind]) + block.to_bytes(8) for kind, block in pieces)


async def test_what_an_engine_says_is_taken_over_and_silence_ends_it() -> None:
    host = Teller("a")
    pool = Pool(host)
    prefixes = pool.provider.router.prefixes
    pool.provider.following.start()
    long = b'{"messages":["' + b"x" * 2_100 + b'"]}'
    prompt = pool.prompt(long, make_call().tenant)
    # Of sixteen blocks of tokens, 3, 7, 11 and 15 end where the four blocks of bytes do.
    two, more = [(1, n) for n in range(1, 8)], [(1, n) for n in range(8, 17)]

    def depth() -> int:
        return prefixes.depths(prompt.blocks, 10_000.0)[0]

    await host.reports.put(CacheReport("e1", 7, is_whole=True, news=news(*two)))
    await until(lambda: prefixes.precision("a") == "exact")
    reply = await pool.provider.open(with_body(long))
    await reply.close()
    await until(lambda: depth() == 2)
    await host.reports.put(CacheReport("e1", 16, is_whole=False, news=news(*more)))
    await until(lambda: depth() == 4)
    await host.reports.put(CacheReport("e1", 17, is_whole=False, news=news((0, 7))))
    await until(lambda: depth() == 1)
    await host.reports.put(CacheReport("e1", 18, is_whole=False, news=news((2, 0))))
    await until(lambda: depth() == 0)
    await host.reports.put(CacheReport("e2", 1, is_whole=True, news=news((1, 3))))
    await until(lambda: depth() == 1)
    pool.provider.following.lost("a")
    assert depth() == 0
    await host.reports.put(None)
    await until(lambda: prefixes.precision("a") == "approximate")
    assert host.asked[:3] == [("", 0), ("e1", 7), ("e1", 16)]
    await pool.provider.close()


async def test_a_member_that_was_away_for_a_moment_is_asked_for_all_of_its_cache_again() -> None:
    """Its answer to what was asked before then comes on top of what is not known any more."""
    host = Teller("a")
    pool = Pool(host)
    prefixes = pool.provider.router.prefixes
    pool.provider.following.start()
    long = b'{"messages":["' + b"x" * 2_100 + b'"]}'
    prompt = pool.prompt(long, make_call().tenant)
    whole = news(*((1, n) for n in range(1, 17)))

    def depth() -> int:
        return prefixes.depths(prompt.blocks, 10_000.0)[0]

    await host.reports.put(CacheReport("e1", 16, is_whole=True, news=whole))
    await until(lambda: prefixes.precision("a") == "exact")
    reply = await pool.provider.open(with_body(long))
    await reply.close()
    await until(lambda: depth() == 4)
    pool.provider.following.lost("a")
    assert depth() == 0
    await host.reports.put(CacheReport("e1", 17, is_whole=False, news=news((1, 99))))
    await until(lambda: len(host.asked) == 3)
    assert host.asked == [("", 0), ("e1", 16), ("", 0)]
    await host.reports.put(CacheReport("e1", 17, is_whole=True, news=whole))
    await until(lambda: depth() == 4)
    await pool.provider.close()


async def test_others_have_their_turns_while_much_news_of_a_cache_is_noted() -> None:
    count = 5 * NEWS_AT_ONCE
    news = b"".join(b"\x01" + at.to_bytes(8) for at in range(count))
    heard: asyncio.Queue[CacheReport] = asyncio.Queue()
    heard.put_nowait(CacheReport("e", 1, is_whole=True, news=news))

    class Teller:
        async def cache_news(self, epoch: str, since: int) -> CacheReport:
            return await heard.get()

        async def chain_of(self, call: UpstreamCall) -> CacheChain:
            raise UpstreamUnreachable("not asked")

    mirror = ExactMirror("m", Teller(), PrefixIndex(["m"]))
    following = asyncio.ensure_future(mirror.run())
    known = most = 0
    while known < count:
        await asyncio.sleep(0)
        most, known = max(most, len(mirror._held) - known), len(mirror._held)
    following.cancel()
    assert most <= NEWS_AT_ONCE
