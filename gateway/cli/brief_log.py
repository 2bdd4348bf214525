"""The log of commands: held while one of them writes, and released while it does anything else.

One command holds it at a time. A command that reads a long log for a minute, or destroys keys, must
not delay what cannot wait: a leaked key must be revocable while content is erased.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.audit.writer import SegmentedAuditLog
from gateway.types import AuditRecord, Receipt


IDLE_S: Final = 0.05
"""Each time the log is taken, a segment begins; records close together share one."""
TURN_S: Final = 1.0
"""How often a writer of many records lets others in, who look ten times a second."""
REST_S: Final = 0.15


class BriefLog:
    """An AuditLog on shared segments, which it takes only while it has records."""

    def __init__(self, worker: str, take: Callable[[], Awaitable[SegmentedAuditLog]]) -> None:
        """`take` raises StartupRefused if the segments are not available; so does `append` then."""
        self.worker = worker
        self._take = take
        self._turn = asyncio.Lock()
        self._log: SegmentedAuditLog | None = None
        self._taken_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._letting_go: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take it once, so that a lack of permission is noticed before anything is begun."""
        async with self._turn:
            await self._held()
            self._await_idleness()

    async def append(self, record: AuditRecord, content: bytes | None = None) -> Receipt:
        """As in `ports.AuditLog`; also raises StartupRefused."""
        async with self._turn:
            log = await self._held()
            try:
                return await log.append(record, content)
            finally:
                self._await_idleness()

    async def close(self) -> None:
        """Release it; the next record takes it again."""
        async with self._turn:
            await self._let_go()

    async def _held(self) -> SegmentedAuditLog:
        if self._timer is not None:
            self._timer.cancel()
        now_s = asyncio.get_running_loop().time()
        if self._log is not None and now_s - self._taken_s >= TURN_S:
            await self._let_go()
            await asyncio.sleep(REST_S)
        if self._log is None:
            self._log = await self._take()
            self._taken_s = asyncio.get_running_loop().time()
        return self._log

    async def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        log, self._log = self._log, None
        if log is not None:
            await log.close()

    def _await_idleness(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(IDLE_S, self._begin_letting_go)

    def _begin_letting_go(self) -> None:
        self._letting_go = asyncio.get_running_loop().create_task(self.close())
