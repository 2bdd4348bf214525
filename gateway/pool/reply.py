"""A member's reply, which gives its load back when it is closed."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

from gateway.errors import (
    GatewrightError,
)
from gateway.pool.members import Load
from gateway.pool.prefixes import Prompt
from gateway.pool.speeds import SpeedWatch
from gateway.ports import Take, UpstreamReply


class Listener(Protocol):
    """Told when a reply ends: the pool."""

    now_s: Callable[[], float]
    speeds: SpeedWatch

    def ended(self, load: Load, prompt: Prompt, error: BaseException | None) -> None:
        """A call is over; with an error if it failed."""
        ...


class PoolReply:
    """A member's reply that gives its load back when it is closed."""

    def __init__(self, pool: Listener, reply: UpstreamReply, load: Load, prompt: Prompt) -> None:
        self._pool = pool
        self._reply = reply
        self._load: Load | None = load
        self._member_load = load
        self._prompt = prompt
        self._answered_s = 0.0
        self._pieces = 0
        self.status = reply.status
        self.retry_after_s = reply.retry_after_s
        self.is_event_stream = reply.is_event_stream
        self.rate_limits = reply.rate_limits
        self.upstream_ids = reply.upstream_ids

    @property
    def body_bytes(self) -> int:
        return self._reply.body_bytes

    @property
    def member(self) -> str:
        """The replica that answers."""
        return self._member_load.member.name

    async def read(self) -> bytes:
        try:
            return await self._reply.read()
        except GatewrightError as error:
            self._end(error)
            raise

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.chunks():
                self._count()
                yield chunk
        except GatewrightError as error:
            self._end(error)
            raise

    async def flow(self, take: Take) -> None:
        def count(piece: bytes) -> bool:
            self._count()
            return take(piece)

        try:
            await self._reply.flow(count)
        except GatewrightError as error:
            self._end(error)
            raise

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        return self._reply.told(status, said)

    def _count(self) -> None:
        if not self._pieces:
            self._answered_s = self._pool.now_s()
            self._member_load.member.answered(self._member_load, self._answered_s)
        self._pieces += 1

    async def close(self) -> None:
        try:
            await self._reply.close()
        finally:
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        load, self._load = self._load, None
        if load is None:
            return
        if error is None and self._pieces > 1:
            took_ms = 1e3 * (self._pool.now_s() - self._answered_s)
            self._pool.speeds.note(load.member, took_ms / (self._pieces - 1))
        self._pool.ended(load, self._prompt, error)
