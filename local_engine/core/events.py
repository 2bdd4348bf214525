"""Events of cached blocks, in order: enough to rebuild the prefix cache's state elsewhere.

Events hold hashes and block numbers only. Hashes are salted, so an event says nothing about the
text behind it, and nothing that a member of another group could compare.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class BlockStored:
    """A full block became findable under its hash."""

    content_hash: bytes
    block_id: int


@dataclass(frozen=True, slots=True)
class BlockRemoved:
    """The block is about to hold something else."""

    content_hash: bytes
    block_id: int


@dataclass(frozen=True, slots=True)
class AllBlocksCleared:
    """Nothing cached before this can be found any more."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventLog:
    """The last events, numbered from 0; a reader that fell behind sees the gap and restarts."""

    def __init__(self, capacity: int = 10_000) -> None:
        self._events: deque[KvEvent] = deque(maxlen=capacity)
        self._num_events = self._num_taken = 0

    def append(self, event: KvEvent) -> None:
        self._events.append(event)
        self._num_events += 1

    def take_new(self) -> tuple[int, list[KvEvent]]:
        """The events not taken before, and the number of the first one."""
        count = min(self._num_events - self._num_taken, len(self._events))
        self._num_taken = self._num_events
        newest_first = list(islice(reversed(self._events), count))
        return self._num_events - count, newest_first[::-1]

    def since(self, number: int) -> Iterator[tuple[int, KvEvent]]:
        """Events from `number` on; the first one returned is later if older ones are gone."""
        first = self._num_events - len(self._events)
        for offset, event in enumerate(self._events):
            if first + offset >= number:
                yield first + offset, event
