"""The contents of the prefix cache for a balancer of engines: short salted hashes, in order.

Each entry is an operation and the first bytes of a block's hash. Hashes are chained from a salt
that only the worker can derive: nobody learns from them what a block holds, nor whether two groups
hold the same. A reader that fell behind, or meets a new worker, gets everything.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterable

import msgspec

from local_engine.core.events import AllBlocksCleared, BlockStored, KvEvent


HASH_BYTES = 8
NEWS_BYTES = 1 + HASH_BYTES
REMOVED, STORED, CLEARED = b"\x00", b"\x01", b"\x02"
CAPACITY = 65_536
_NOTHING = bytes(HASH_BYTES)


def encode_news(events: Iterable[KvEvent]) -> bytes:
    """Events as news."""
    return b"".join(map(_one, events))


def _one(event: KvEvent) -> bytes:
    if isinstance(event, AllBlocksCleared):
        return CLEARED + _NOTHING
    kind = STORED if isinstance(event, BlockStored) else REMOVED
    return kind + event.content_hash[:HASH_BYTES]


class CacheReport(msgspec.Struct, frozen=True):
    """News for one reader; with `is_whole` they are all that is cached, and nothing else is."""

    epoch: str
    next: int
    is_whole: bool
    news: bytes


class CacheLog:
    """The newest news of one worker, and what follows from all of them."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.epoch = secrets.token_hex(8)
        """Another worker's numbers mean nothing here."""
        self._news: deque[bytes] = deque(maxlen=capacity)
        self._held: dict[bytes, None] = {}
        self._next = 0
        self._changed = asyncio.Event()

    def add(self, number: int, news: bytes) -> None:
        """Take over what the worker said; a gap makes everybody start anew."""
        if number != self._next:
            self.epoch = secrets.token_hex(8)
        for at in range(0, len(news), NEWS_BYTES):
            piece = news[at : at + NEWS_BYTES]
            self._news.append(piece)
            kind, content_hash = piece[:1], piece[1:]
            if kind == STORED:
                self._held[content_hash] = None
            elif kind == REMOVED:
                self._held.pop(content_hash, None)
            else:
                self._held.clear()
        self._next = number + len(news) // NEWS_BYTES
        self._changed.set()

    async def read(self, epoch: str, since: int, wait_s: float) -> CacheReport:
        """What is new since then; waits for some, and says after a while that there is none."""
        if epoch == self.epoch and since == self._next:
            self._changed.clear()
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                pass
        first = self._next - len(self._news)
        if epoch != self.epoch or not first <= since <= self._next:
            held = b"".join(STORED + each for each in self._held)
            return CacheReport(self.epoch, self._next, is_whole=True, news=held)
        news = [self._news[at] for at in range(since - first, len(self._news))]
        return CacheReport(self.epoch, self._next, is_whole=False, news=b"".join(news))
