"""The events of an answer being made, kept for its followers, and the reason if it broke."""

import asyncio
from typing import Final

from gateway.background.runs import Events, Run, RunStore
from gateway.clock import Clock
from gateway.dialects.openai_responses.apart import Numbering
from gateway.errors import Unavailable


FLUSH_S: Final = 0.25
"""How long events accumulate, so that not every word is a write to the database."""
PIECE_BYTES: Final = 64 * 1024
EVENTS_BYTES_MAX: Final = 64 * 1024 * 1024
"""For one answer; of what comes after that, followers get only the end."""
_SAYS_FAILURE: Final = (b"response.failed", b"event: error")


class EventLog:
    """The events of one answer. A stream's relay writes to `write`; no caller slows it down."""

    def __init__(self, run: Run, store: RunStore, clock: Clock, *, is_followed: bool) -> None:
        self._run = run
        self._store = store
        self._clock = clock
        self._is_followed = is_followed
        self._numbering = Numbering()
        self._gathered: list[bytes] = []
        self._gathered_bytes = self._kept_bytes = 0
        self._waiting: Events | None = None
        """Events that the database has not stored yet, or not for certain."""
        self._first = self._pieces = 0
        self._last = -1
        self._flushed_s = clock.monotonic_s()
        self._turn = asyncio.Lock()
        self.changed = asyncio.Event()
        """Set, and replaced by a new one, each time something was kept."""

    @property
    def failure(self) -> bytes:
        """The event by which the stream reported that it broke; empty if it did not."""
        return self._numbering.failure

    async def open(self, response: bytes) -> None:
        """Keep the events of an answer that was taken on; raises Unavailable."""
        if self._is_followed:
            self._gather(self._numbering.opening(response))
            await self._put()

    async def start(self, response: bytes) -> None:
        """Begin: the answer's turn has come."""
        if self._is_followed:
            self._gather(self._numbering.started(response))
            await self.flush()

    async def write(self, data: bytes) -> None:
        """Take events as they come; while the database is away, they accumulate."""
        if not self._is_followed:
            if any(each in data for each in _SAYS_FAILURE):
                self._numbering.numbered(data)
            return
        self._gather(self._numbering.numbered(data))
        passed_s = self._clock.monotonic_s() - self._flushed_s
        if passed_s >= FLUSH_S or self._gathered_bytes >= PIECE_BYTES:
            await self.flush()

    async def flush(self) -> None:
        """Keep what has accumulated; what cannot be kept now is kept the next time."""
        try:
            await self._put()
        except Unavailable:
            return

    def _gather(self, content: bytes) -> None:
        if content and self._kept_bytes + self._gathered_bytes < EVENTS_BYTES_MAX:
            self._gathered.append(content)
            self._gathered_bytes += len(content)
            self._last = self._numbering.next - 1
        elif content:
            # No gap before what would come next: nothing comes any more but the end.
            self._is_followed = False

    async def _put(self) -> None:
        async with self._turn:
            self._flushed_s = self._clock.monotonic_s()
            while self._waiting is not None or self._gathered:
                if self._waiting is None:
                    self._waiting = self._piece()
                await self._store.note(self._run, self._waiting)
                self._waiting = None
                self.changed.set()
                self.changed = asyncio.Event()

    def _piece(self) -> Events:
        content, self._gathered = b"".join(self._gathered), []
        self._kept_bytes += self._gathered_bytes
        self._gathered_bytes = 0
        piece = Events(self._pieces, self._first, self._last, content)
        self._pieces, self._first = self._pieces + 1, self._last + 1
        return piece
