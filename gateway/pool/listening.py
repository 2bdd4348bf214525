"""Listens to the KV events of one member: in order and without gaps, or not at all.

A publisher numbers its batches. Missing batches are requested again if the member has a replay
address. If it has none, or no longer has those batches, the contents of its cache are unknown: the
mirror is emptied and filled anew from the next event on. Events contain prompts, so they are
received on this machine only, over a Unix socket or loopback.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from gateway.errors import ConfigurationInvalid
from gateway.pool.kv_events import KvEventsMalformed, decode_batch
from gateway.pool.prefixes import PrefixIndex
from gateway.pool.tokens import CacheMirror


REPLAY_S = 2.0
END = (-1).to_bytes(8, "big", signed=True)
LOCAL = ("ipc://", "inproc://", "tcp://127.0.0.1:", "tcp://localhost:", "tcp://[::1]:")


def check_address(provider: str, address: str) -> None:
    """Raises ConfigurationInvalid unless it is on this machine."""
    if address and not address.startswith(LOCAL):
        reason = "events hold prompts: ipc:// or loopback only"
        raise ConfigurationInvalid(f"providers.{provider}", "events", reason)


class EventListener:
    """Follows one member; `run` ends only when it is cancelled."""

    def __init__(
        self,
        member: str,
        address: str,
        replay_address: str,
        index: PrefixIndex,
        mirror: CacheMirror,
    ) -> None:
        self._member = member
        self._address = address
        self._replay_address = replay_address
        self._index = index
        self._mirror = mirror
        self._zmq = _zmq()
        self._next: int | None = None
        """The number that the next batch must have."""
        self._last = -1

    async def run(self) -> None:
        """Receive batch after batch."""
        context = self._zmq.asyncio.Context()
        socket = context.socket(self._zmq.SUB)
        try:
            socket.connect(self._address)
            socket.subscribe(b"")
            while True:
                frames = await socket.recv_multipart()
                if len(frames) == 3 and len(frames[1]) == 8:  # noqa: PLR2004 - topic, number, batch
                    await self._hear(context, int.from_bytes(frames[1]), frames[2])
        finally:
            context.destroy(linger=0)

    def lost(self) -> None:
        """Earlier batches no longer count: the next one is not taken as their continuation."""
        self._next = None

    async def _hear(self, context: Any, number: int, payload: bytes) -> None:
        has_restarted = number <= self._last
        self._last = number
        if not has_restarted and self._next is not None and number < self._next:
            return  # The replay had it already.
        if has_restarted or number != self._next:
            await self._start_anew(context, number)
            if self._next is not None and number < self._next:
                return
        self._take(number, payload)

    async def _start_anew(self, context: Any, number: int) -> None:
        """Start from the oldest batch that the member still has, or from this one."""
        self._know_nothing()
        if self._replay_address:
            async for replayed, payload in self._replayed(context):
                if self._next is not None and replayed != self._next:
                    self._mirror.clear()
                self._take(replayed, payload)
        if self._next is not None and self._next < number:
            self._mirror.clear()

    def _know_nothing(self) -> None:
        self._mirror.clear()
        self._index.follow(self._member, "events")
        self._next = None

    async def _replayed(self, context: Any) -> AsyncIterator[tuple[int, bytes]]:
        socket = context.socket(self._zmq.DEALER)
        try:
            socket.connect(self._replay_address)
            await socket.send_multipart([b"", (0).to_bytes(8)])
            async with asyncio.timeout(REPLAY_S):
                while True:
                    frames = await socket.recv_multipart()
                    if len(frames) != 3 or frames[1] == END:  # noqa: PLR2004 - empty, number, batch
                        return
                    yield int.from_bytes(frames[1]), frames[2]
        except TimeoutError:
            return
        finally:
            socket.close(linger=0)

    def _take(self, number: int, payload: bytes) -> None:
        self._next = number + 1
        try:
            self._mirror.apply(decode_batch(payload))
        except KvEventsMalformed:
            self._mirror.clear()


def _zmq() -> Any:
    """Imported here: only pools whose members publish events need it."""
    try:
        import zmq.asyncio  # noqa: PLC0415
    except ModuleNotFoundError:
        reason = "hearing events needs the extra `events`: pip install 'gatewright[events]'"
        raise ConfigurationInvalid("providers", "events", reason) from None
    return zmq
