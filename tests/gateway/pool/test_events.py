"""KV events over a real ZeroMQ publisher in vLLM's form, old and new, with gaps and restarts."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from gateway.errors import ConfigurationInvalid, UpstreamTimeout
from gateway.pool.kv_events import Cleared, KvEventsMalformed, Removed, Stored, decode_batch
from gateway.pool.listening import check_address
from gateway.pool.prefixes import BLOCK_BYTES, UNTOLD_S
from gateway.pool.tokens import TokenMap, start_of, token_chain
from gateway.ports import UpstreamCall
from tests.gateway.pool.test_provider import Host, Pool, with_body


zmq = pytest.importorskip("zmq")
zmq_asyncio = pytest.importorskip("zmq.asyncio")

pytestmark = pytest.mark.anyio
BLOCK_TOKENS = 16
BODY = b'{"messages":[{"role":"user","content":"' + b"word " * 600 + b'"}]}'


class Cache:
    """An engine's prefix cache that publishes what happens to it, as vLLM does."""

    def __init__(self, folder: Path, *, has_replay: bool = True) -> None:
        self.address = f"ipc://{folder}/events"
        self.replay_address = f"ipc://{folder}/replay" if has_replay else ""
        self._context = zmq_asyncio.Context()
        self._publisher: Any = None
        self._replay: Any = None
        self._answering: asyncio.Task[None] | None = None
        self.sent: list[tuple[int, bytes]] = []
        self.next = 0

    async def __aenter__(self) -> Self:
        self._publisher = self._context.socket(zmq.XPUB)
        self._publisher.bind(self.address)
        if self.replay_address:
            self._replay = self._context.socket(zmq.ROUTER)
            self._replay.bind(self.replay_address)
            self._answering = asyncio.create_task(self._answer_replays())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.gather(self._answering, return_exceptions=True)
        self._context.destroy(linger=0)

    async def has_listener(self) -> None:
        """Wait until somebody has subscribed."""
        async with asyncio.timeout(10):
            assert await self._publisher.recv() == b"\x01"

    async def publish(self, *events: dict[str, Any], lost: bool = False) -> None:
        """A batch of events; a lost one gets a number and is kept for a replay only."""
        payload = msgspec.msgpack.encode({"ts": 1.0, "events": events, "data_parallel_rank": 0})
        self.sent.append((self.next, payload))
        if not lost:
            await self._publisher.send_multipart([b"kv", self.next.to_bytes(8), payload])
        self.next += 1

    async def _answer_replays(self) -> None:
        while True:
            who, _, start = await self._replay.recv_multipart()
            for number, payload in self.sent:
                if number >= int.from_bytes(start):
                    await self._replay.send_multipart([who, b"", number.to_bytes(8), payload])
            await self._replay.send_multipart([who, b"", (2**64 - 1).to_bytes(8), b""])


def stored(
    token_ids: Sequence[int], names: Sequence[int], parent: int | None = None, salt: str = ""
) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": list(names),
        "parent_block_hash": parent,
        "token_ids": list(token_ids),
        "block_size": BLOCK_TOKENS,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [(salt,) if salt else None] * len(names),
    }


def removed(*names: int) -> dict[str, Any]:
    return {"type": "BlockRemoved", "block_hashes": list(names), "medium": "GPU"}


CLEARED = {"type": "AllBlocksCleared"}


@pytest.fixture
async def cache(tmp_path: Path) -> AsyncIterator[Cache]:
    async with Cache(tmp_path) as running:
        yield running


async def listening(cache: Cache) -> Pool:
    """A pool of two, the first of which publishes."""
    teller, other = Host("a"), Host("b")
    teller.event_addresses = (cache.address, cache.replay_address)
    pool = Pool(teller, other)
    assert await pool.provider.probe() == ""
    await cache.has_listener()
    return pool


async def until_depth(pool: Pool, wanted: int, body: bytes = BODY, tenant: str = "acme") -> None:
    """Wait until so many leading blocks are known to be at the publisher."""
    async with asyncio.timeout(10):
        while depth_of(pool, body, tenant) != wanted:
            await asyncio.sleep(0.01)


def depth_of(pool: Pool, body: bytes = BODY, tenant: str = "acme") -> int:
    prompt = pool.prompt(body, tenant)
    # Beyond what is merely believed of what was sent there.
    return pool.provider.router.prefixes.depths(prompt.blocks, UNTOLD_S * 100)[0]


def call_of(body: bytes = BODY, tenant: str = "acme") -> UpstreamCall:
    return msgspec.structs.replace(with_body(body), tenant=tenant)


async def tokens_of(pool: Pool, body: bytes = BODY) -> list[int]:
    return list(await pool.hosts["a"].tokens_of(call_of(body)))


async def taught(pool: Pool, cache: Cache, tenant: str = "acme") -> list[int]:
    """The tokens of the prompt, after the pool has found them out; names are 0, 1, 2, …."""
    token_ids = await tokens_of(pool)
    count = len(token_ids) // BLOCK_TOKENS
    # It has to have heard of the size of a block before it can learn anything.
    await cache.publish(stored([7] * BLOCK_TOKENS, [9_999], salt=f"salt of {tenant}"))
    async with asyncio.timeout(10):
        while not pool.provider.following._mirrors["a"].block_tokens:
            await asyncio.sleep(0.01)
    pool.provider.following.sent(
        "a", call_of(tenant=tenant), pool.prompt(BODY, tenant), len(BODY) - 1
    )
    assert pool.provider.following._learning is not None
    await pool.provider.following._learning
    return token_ids[: count * BLOCK_TOKENS]


BLOCKS = (len(BODY) - 1) // BLOCK_BYTES


async def test_what_a_cache_holds_is_known_block_by_block(cache: Cache) -> None:
    pool = await listening(cache)
    token_ids = await taught(pool, cache)
    names = list(range(len(token_ids) // BLOCK_TOKENS))
    half = len(names) // 2
    salt = "salt of acme"
    await cache.publish(stored(token_ids[: half * BLOCK_TOKENS], names[:half], salt=salt))
    await until_depth(pool, BLOCKS // 2)
    await cache.publish(
        stored(token_ids[half * BLOCK_TOKENS :], names[half:], names[half - 1], salt)
    )
    await until_depth(pool, BLOCKS)
    assert depth_of(pool, tenant="another") == 0
    await cache.publish(removed(*names[half:], 123_456))
    await until_depth(pool, BLOCKS // 2)
    await cache.publish(CLEARED)
    await until_depth(pool, 0)
    await pool.provider.close()


async def test_what_was_stored_before_it_was_learnt_is_found(cache: Cache) -> None:
    pool = await listening(cache)
    token_ids = await tokens_of(pool)
    names = list(range(len(token_ids) // BLOCK_TOKENS))
    whole = token_ids[: len(names) * BLOCK_TOKENS]
    await cache.publish(stored(whole, names, salt="salt of acme"))
    await taught(pool, cache)
    await until_depth(pool, BLOCKS)
    await pool.provider.close()


async def test_missed_events_are_asked_for_again(cache: Cache) -> None:
    pool = await listening(cache)
    token_ids = await taught(pool, cache)
    names = list(range(len(token_ids) // BLOCK_TOKENS))
    await cache.publish(stored(token_ids, names, salt="salt of acme"), lost=True)
    await cache.publish(removed(*names[len(names) // 2 :]))
    await until_depth(pool, BLOCKS // 2)
    assert pool.provider.router.prefixes.precision("a") == "events"
    await pool.provider.close()


async def test_without_a_replay_a_gap_empties_what_was_known(tmp_path: Path) -> None:
    async with Cache(tmp_path, has_replay=False) as cache:
        pool = await listening(cache)
        token_ids = await taught(pool, cache)
        names = list(range(len(token_ids) // BLOCK_TOKENS))
        await cache.publish(stored(token_ids, names, salt="salt of acme"))
        await until_depth(pool, BLOCKS)
        await cache.publish(CLEARED, lost=True)
        await cache.publish(removed(12))
        await until_depth(pool, 0)
        await cache.publish(stored(token_ids, names, salt="salt of acme"))
        await until_depth(pool, BLOCKS)
        await pool.provider.close()


async def test_an_engine_that_starts_again_begins_with_an_empty_cache(cache: Cache) -> None:
    pool = await listening(cache)
    token_ids = await taught(pool, cache)
    names = list(range(len(token_ids) // BLOCK_TOKENS))
    await cache.publish(stored(token_ids, names, salt="salt of acme"))
    await until_depth(pool, BLOCKS)
    cache.next = 0
    cache.sent.clear()
    await cache.publish(stored([1] * BLOCK_TOKENS, [1], salt="salt of acme"))
    await until_depth(pool, 0)
    await pool.provider.close()


async def test_a_member_that_went_down_holds_nothing_and_junk_is_not_believed(
    cache: Cache,
) -> None:
    pool = await listening(cache)
    token_ids = await taught(pool, cache)
    names = list(range(len(token_ids) // BLOCK_TOKENS))
    await cache.publish(stored(token_ids, names, salt="salt of acme"))
    await until_depth(pool, BLOCKS)
    await cache._publisher.send_multipart([b"kv", cache.next.to_bytes(8), b"\xc1 junk"])
    cache.next += 1
    await until_depth(pool, 0)
    await cache.publish(stored(token_ids, names, salt="salt of acme"))
    await until_depth(pool, BLOCKS)
    pool.hosts["a"].probe_verdict = "it is not ready"
    await pool.provider.probe()
    assert depth_of(pool) == 0
    await pool.provider.close()


async def test_a_member_that_was_out_of_reach_for_a_moment_tells_again_what_it_holds(
    cache: Cache,
) -> None:
    pool = await listening(cache)
    token_ids = await taught(pool, cache)
    names = list(range(len(token_ids) // BLOCK_TOKENS))
    await cache.publish(stored(token_ids, names, salt="salt of acme"))
    await until_depth(pool, BLOCKS)
    pool.provider.following.lost("a")
    assert depth_of(pool) == 0
    await cache.publish(stored([1] * BLOCK_TOKENS, [8_888], salt="salt of acme"))
    await until_depth(pool, BLOCKS)
    await pool.provider.close()


async def test_an_engine_that_does_not_cut_prompts_costs_nothing(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(_: object, __: object) -> Sequence[int]:
        raise UpstreamTimeout("late")

    pool = await listening(cache)
    await cache.publish(stored([7] * BLOCK_TOKENS, [9_999]))
    monkeypatch.setattr(Host, "tokens_of", silent)
    async with asyncio.timeout(10):
        while not pool.provider.following._mirrors["a"].block_tokens:
            await asyncio.sleep(0.01)
    reply = await pool.provider.open(call_of())
    await reply.close()
    assert depth_of(pool) == 0
    await pool.provider.close()


def test_both_forms_of_a_batch_mean_the_same() -> None:
    maps = {"ts": 1.0, "events": [stored(range(32), [5, 6], 4, "s"), removed(5), CLEARED]}
    lists = [
        1.0,
        [
            ["BlockStored", [5, 6], 4, list(range(32)), 16, None, "GPU", None, [["s"], None]],
            ["BlockRemoved", [5]],
            ["AllBlocksCleared"],
        ],
    ]
    expected = [Stored((5, 6), 4, tuple(range(32)), 16, "s"), Removed((5,)), Cleared()]
    assert decode_batch(msgspec.msgpack.encode(maps)) == expected
    assert decode_batch(msgspec.msgpack.encode(lists)) == expected
    elsewhere = {**removed(1), "medium": "CPU"}
    another_group = {**removed(1), "group_idx": 1}
    assert decode_batch(msgspec.msgpack.encode([1.0, [elsewhere, another_group]])) == []


@pytest.mark.parametrize(
    "batch",
    [
        b"\xc1",
        msgspec.msgpack.encode(7),
        msgspec.msgpack.encode([1.0, [["BlockMoved", 1]]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", [1], None, [1, 2], 16]]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", [1], None, [1, 2], 0]]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", [1], None, [2**63, 2], 2]]]),
        msgspec.msgpack.encode([1.0, [["BlockStored", [1], None, [1, 2], float("inf")]]]),
        b"\x91" * 100_000,
        msgspec.msgpack.encode([1.0, [["BlockRemoved", ["x"]]]]),
        msgspec.msgpack.encode([1.0, [{"type": "BlockRemoved"}]]),
        msgspec.msgpack.encode([1.0, [["BlockRemoved", 7]]]),
        b"\x00" * (8 * 1024 * 1024 + 1),
    ],
)
def test_another_form_is_refused_as_a_whole(batch: bytes) -> None:
    with pytest.raises(KvEventsMalformed):
        decode_batch(batch)


def test_chains_cover_salt_and_all_tokens_before() -> None:
    one = token_chain(start_of("a"), list(range(48)), 16)
    assert len(one) == 3
    assert token_chain(start_of("a"), list(range(40)), 16) == one[:2]
    assert token_chain(one[0], list(range(16, 48)), 16) == one[1:]
    assert not set(one) & set(token_chain(start_of("b"), list(range(48)), 16))


def test_a_prompt_shorter_than_a_block_of_tokens_hangs_on_nothing() -> None:
    pool = Pool()
    prompt = pool.prompt(BODY, "acme")
    tokens = TokenMap()
    assert tokens.learn(prompt, len(BODY), "s", [1, 2, 3], 16) == []
    assert not tokens.knows(prompt)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:5557", "tcp://*:5557", "pgm://x", "ipc:x"])
def test_events_are_heard_on_this_machine_only(address: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="events hold prompts"):
        check_address("a", address)
    for local in ("", "ipc:///run/engine/events", "tcp://127.0.0.1:5557"):
        check_address("a", local)
