"""Follows our own engine's prefix cache by the same block hashes that the engine uses.

The engine's hashes are chained from a salt of tenant and data class that never leaves it: they say
nothing about a text, and the same text of two tenants has no hash in common. The engine that got a
prompt is asked once, on behalf of the same tenant, which hashes stand for that prompt.
"""

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from msgspec import Struct

from gateway.errors import GatewrightError, UpstreamFailed
from gateway.pool.prefixes import PrefixIndex, Prompt
from gateway.pool.tokens import TokenMap
from gateway.ports import UpstreamCall


HASH_BYTES: Final = 8
NEWS_BYTES: Final = 1 + HASH_BYTES
RETRY_S: Final = 1.0
NEWS_MAX: Final = 4_000_000
"""Bytes of one answer: more than any engine has blocks for."""
CHAIN_MAX: Final = 512 * 1024
"""Bytes of one conversation's hashes: a million tokens in blocks of sixteen."""
NEWS_AT_ONCE: Final = 2_000
"""After so many reports noted in a row, other work has its turn."""


class CacheReport(Struct, frozen=True):
    """An engine's report on its cache; with `is_whole` it holds this and nothing else."""

    epoch: str
    next: int
    is_whole: bool
    news: bytes


class CacheChain(Struct, frozen=True):
    """A conversation's full blocks as short hashes; empty if no other call may share them."""

    block_tokens: int
    num_tokens: int
    chain: bytes

    @property
    def hashes(self) -> Sequence[int]:
        starts = range(0, len(self.chain) - HASH_BYTES + 1, HASH_BYTES)
        return [int.from_bytes(self.chain[at : at + HASH_BYTES]) for at in starts]


class CacheTeller(Protocol):
    """An engine of ours, as far as its cache is concerned."""

    async def cache_news(self, epoch: str, since: int) -> CacheReport:
        """The changes since then, a moment later if there are none.

        Raises:
            UpstreamFailed: it cannot be reached, or does not report them.
        """
        ...

    async def chain_of(self, call: UpstreamCall) -> CacheChain:
        """The hashes of a call's conversation in its caller's group.

        Raises:
            GatewrightError: it does not report them, or may not be asked.
        """
        ...


class ExactMirror:
    """Mirrors the contents of one engine's cache in the prefix index."""

    def __init__(self, member: str, teller: CacheTeller, index: PrefixIndex) -> None:
        self._member = member
        self.teller = teller
        """Replaced when its credential changes."""
        self._index = index
        self._tokens = TokenMap()
        self._held: set[int] = set()
        self._epoch, self._next = "", 0

    async def run(self) -> None:
        """Follow the engine until cancelled. While it does not report, its cache is estimated."""
        while True:
            epoch = self._epoch
            try:
                report = await self.teller.cache_news(epoch, self._next)
                # Changes are of no use if the state that they follow was given up meanwhile.
                if report.is_whole or self._epoch == epoch:
                    await self._take(report)
            except UpstreamFailed:
                self.clear()
                self._index.follow(self._member, "approximate")
                await asyncio.sleep(RETRY_S)

    def clear(self) -> None:
        """The cache is empty or unknown: next time its complete contents are asked for."""
        self._held.clear()
        self._epoch, self._next = "", 0
        self._index.cleared(self._member)

    def wants(self, prompt: Prompt) -> bool:
        """Whether a prompt's hashes are worth asking for."""
        return bool(self._epoch) and not self._tokens.knows(prompt)

    async def learn(self, call: UpstreamCall, prompt: Prompt, length_bytes: float) -> None:
        """Find out which of the engine's blocks a prompt's blocks of bytes correspond to."""
        try:
            found = await self.teller.chain_of(call)
        except GatewrightError:
            return  # Assumed to be there for a while.
        if not found.block_tokens:
            return
        blocks = found.num_tokens / found.block_tokens
        hanging = self._tokens.hang(prompt, length_bytes, found.hashes, blocks)
        held = [each for each in hanging if each in self._held]
        self._index.stored(self._member, self._tokens.blocks_of(held))

    async def _take(self, report: CacheReport) -> None:
        if report.is_whole or report.epoch != self._epoch:
            self._held.clear()
            self._index.follow(self._member, "exact")
        self._epoch, self._next = report.epoch, report.next
        news = report.news
        for at in range(0, len(news) - NEWS_BYTES + 1, NEWS_BYTES):
            if at and not at % (NEWS_AT_ONCE * NEWS_BYTES):
                await asyncio.sleep(0)
            block = int.from_bytes(news[at + 1 : at + NEWS_BYTES])
            match news[at]:
                case 1:  # Stored.
                    self._held.add(block)
                    self._index.stored(self._member, self._tokens.blocks_of([block]))
                case 0:  # Removed.
                    self._held.discard(block)
                    self._index.removed(self._member, self._tokens.blocks_of([block]))
                case _:  # Cleared.
                    self._held.clear()
                    self._index.cleared(self._member)
