"""Answers that workers share in Valkey or Redis: the second level behind a worker's own memory.

Nobody waits for it: no answer within the deadline counts as a miss, answers are stored beside the
request, and after a failure the server is left alone for `RETRY_S`. It needs one primary; what it
holds is sealed (`gateway.caching`), bounded in length, and expires.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from redis.exceptions import RedisError

from gateway.caching.response_cache import KeptReply
from gateway.caching.sealed_replies import ReplySeal
from gateway.clock import Clock
from gateway.configuration.sections import ResponseCacheSettings
from gateway.store.shared_place import shared_place, why_away
from gateway.telemetry import Event, logger


RETRY_S: Final = 1.0
LATE_S: Final = 0.25
"""When a call is given up. Its caller went on long before; a connection may be ready by then."""
UNDER_WAY_MAX: Final = 64
PREFIX: Final = b"gatewright:answers:"
_FAILED: Final = (RedisError, OSError, TimeoutError)


class SharedAnswers:
    """See `gateway.caching.response_cache.AnswerPlace`; closed by its owner."""

    def __init__(
        self,
        settings: ResponseCacheSettings,
        seal: ReplySeal,
        clock: Clock,
        count: Callable[[str], None],
        password: str = "",
    ) -> None:
        self._redis = shared_place(
            settings.url, password, connections_max=UNDER_WAY_MAX, timeout_s=LATE_S
        )
        self._seal = seal
        self._clock = clock
        self._count = count
        self._deadline_s = settings.deadline_s
        self._bytes_max = settings.reply_bytes_max
        self._away_until_s = 0.0
        self._under_way: set[asyncio.Task[Any]] = set()
        self._log: Any = logger()
        self.is_there = True
        """False after a failure, until something succeeds."""

    async def find(self, organisation: str, key: bytes) -> KeptReply | None:
        if self._is_left_alone():
            return None
        name = PREFIX + self._seal.name(organisation, key)
        # Only part of it, however long a value somebody stored.
        asked = self._begin(self._redis.getrange(name, 0, self._bytes_max))
        await asyncio.wait({asked}, timeout=self._deadline_s)
        if not asked.done():
            self._lose(TimeoutError(), self._deadline_s)
            return None
        sealed = asked.result()
        if not sealed:
            return None
        reply = self._seal.open(organisation, key, sealed)
        if reply is None:
            self._count("unreadable")
        return reply

    def keep(self, organisation: str, key: bytes, reply: KeptReply, keeps_s: int) -> None:
        if self._is_left_alone():
            return
        sealed = self._seal.seal(organisation, key, reply)
        if len(sealed) <= self._bytes_max:
            name = PREFIX + self._seal.name(organisation, key)
            _ = self._begin(self._redis.set(name, sealed, ex=keeps_s))

    async def close(self) -> None:
        """Wait for values that are being stored, then close."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=LATE_S)
        with suppress(*_FAILED):
            await self._redis.aclose()

    def _is_left_alone(self) -> bool:
        is_away = self._clock.monotonic_s() < self._away_until_s
        return is_away or len(self._under_way) >= UNDER_WAY_MAX

    def _begin(self, call: Awaitable[Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(self._answered(call), name="shared-answers")
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _answered(self, call: Awaitable[Any]) -> Any:
        """The result of a call; None if it failed."""
        try:
            async with asyncio.timeout(LATE_S):
                found = await call
        except _FAILED as error:
            self._lose(error, LATE_S)
            return None
        if not self.is_there and self._clock.monotonic_s() >= self._away_until_s:
            self.is_there = True
            self._log.info(Event.CACHE_RECOVERED, component="cache")
        return found

    def _lose(self, error: BaseException, waited_s: float) -> None:
        self._away_until_s = self._clock.monotonic_s() + RETRY_S
        if self.is_there:
            self.is_there = False
            reason = why_away(error, waited_s)
            self._log.warning(Event.CACHE_DEGRADED, component="cache", reason=reason)
