"""Counts the waiting lines of batches, only as often as it costs next to nothing."""

from typing import Final

from msgspec import Struct

from gateway.clock import Clock
from gateway.store.batching.lines import LineStore


COUNTED_PER_S: Final = 2_000
"""A count of n lines is kept for n / 2000 s; a worker ends some 150 a second, so it stays close."""


class Waiting(Struct, frozen=True):
    """What is still to be sent, in all batches together."""

    waiting: int
    running: int
    oldest_us: int
    """When the oldest batch with a waiting line was made; 0 if none waits."""


class _Count(Struct, frozen=True):
    lines: int
    due_s: float
    """When to count again."""


class WaitingLines:
    """Counts for one process."""

    def __init__(self, lines: LineStore, clock: Clock) -> None:
        self._lines = lines
        self._clock = clock
        self._counts: dict[str, _Count] = {}

    async def look(self) -> Waiting:
        """The present numbers; those of a long batch may be a little old."""
        unsent = await self._lines.unsent()
        waiting = [each.batch_id for each in unsent if each.has_waiting]
        self._counts = {name: await self._count(name) for name in waiting}
        return Waiting(
            sum(each.lines for each in self._counts.values()),
            sum(each.running for each in unsent),
            min((each.created_us for each in unsent if each.has_waiting), default=0),
        )

    async def _count(self, batch_id: str) -> _Count:
        known, now_s = self._counts.get(batch_id), self._clock.monotonic_s()
        if known is not None and now_s < known.due_s:
            return known
        lines = await self._lines.count_waiting(batch_id)
        return _Count(lines, now_s + lines / COUNTED_PER_S)
