"""Streams and the response cache: one that is recorded as it passes, one that is replayed.

Both look like an upstream's stream to the code that carries them to the caller.
"""

from collections.abc import Callable
from typing import Protocol

from gateway.caching.response_cache import KeptReply, length_of
from gateway.dispatch.live_stream import LiveStream, Take, TakePlain
from gateway.tally import Tally
from gateway.types import Candidate, DialectName, StreamEvent


Keep = Callable[[tuple[StreamEvent, ...]], None]
"""What becomes of a stream's events once the last of them has passed."""


class Over(Protocol):
    def __call__(self, *, is_answered: bool) -> None:
        """It is kept, or never will be; whether it was answered as far as that matters."""
        ...


def no_one_waits(*, is_answered: bool) -> None:
    """Of a stream that nobody else waits for."""
    del is_answered


class NotedStream:
    """A live stream whose events are kept, if it is short enough and its end lets it be."""

    def __init__(
        self,
        live: LiveStream,
        length_bytes_max: int,
        keep: Keep,
        now_s: Callable[[], float],
        over: Over = no_one_waits,
    ) -> None:
        """`over` is called perhaps more than once; the first call counts."""
        self._live = live
        self._over = over
        self._now_s = now_s
        self._held_up_s = 0.0
        self._given_s: float | None = None
        """When something was given to its reader, who has not come back since."""
        self._left_bytes = length_bytes_max
        self._events: list[StreamEvent] = []
        self._keep = keep
        self.candidate, self.source, self.dropped = live.candidate, live.source, live.dropped

    async def next_batch(self) -> list[StreamEvent]:
        """As `LiveStream.next_batch`."""
        self._comes_back()
        events = await self._live.next_batch()
        self._note(events)
        self._given_s = self._now_s()
        return events

    def held_up_s(self) -> float:
        """How long it has waited for its reader so far."""
        return self._held_up_s + self._since_given_s()

    def _since_given_s(self) -> float:
        return 0.0 if self._given_s is None else self._now_s() - self._given_s

    def _comes_back(self) -> None:
        self._held_up_s += self._since_given_s()
        self._given_s = None

    async def flow(self, take: Take, _: TakePlain | None = None) -> None:
        """As `LiveStream.flow`; every event is wanted as one."""

        def see(events: list[StreamEvent]) -> bool:
            self._note(events)
            return take(events)

        self._comes_back()
        await self._live.flow(see)
        self._given_s = self._now_s()

    def counted_by(self, tally: Tally) -> None:
        """As `LiveStream.counted_by`."""
        self._live.counted_by(tally)

    async def close(self, cause: BaseException | None = None) -> None:
        """As `LiveStream.close`."""
        self._over(is_answered=False)
        await self._live.close(cause)

    def _note(self, events: list[StreamEvent]) -> None:
        if self._left_bytes < 0:
            return
        self._left_bytes -= length_of(events)
        if self._left_bytes < 0:
            self._events = []
            self._over(is_answered=True)
            return
        self._events += events
        ends = [event for event in events if event.is_terminal]
        if ends:
            if ends[0].is_repeatable:
                self._keep(tuple(self._events))
            self._left_bytes = -1
            self._over(is_answered=True)


class RepeatedStream:
    """A stream from the cache: all of it at once, and nothing to close."""

    def __init__(self, candidate: Candidate, reply: KeptReply) -> None:
        self.candidate = candidate
        self.source: DialectName = reply.source
        self.dropped = reply.dropped
        self._events = list(reply.events)

    async def next_batch(self) -> list[StreamEvent]:
        """All events the first time, nothing afterwards."""
        events, self._events = self._events, []
        return events

    async def flow(self, take: Take, take_plain: TakePlain | None = None) -> None:
        """Nothing arrives by itself."""

    def counted_by(self, tally: Tally) -> None:
        """Nobody is paid for it."""

    async def close(self, cause: BaseException | None = None) -> None:
        """Nothing is open."""
