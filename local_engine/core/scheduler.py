"""Who computes next: one sequence at a time, first come first served, behind a bounded queue."""

from collections import deque
from dataclasses import dataclass

from local_engine.core.sequence import Chunk, Sequence


class QueueFull(RuntimeError):
    """The waiting queue is full; the caller should come back after `retry_after_s`."""

    def __init__(self, num_waiting: int) -> None:
        super().__init__(f"{num_waiting} sequences are waiting already")
        self.retry_after_s = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One unit of work for the runner."""

    sequence: Sequence
    chunk: Chunk


class Scheduler:
    """Hands out steps of at most `token_budget` tokens, so that an abort is noticed soon."""

    def __init__(self, *, max_waiting: int, token_budget: int) -> None:
        self._max_waiting = max_waiting
        self._token_budget = token_budget
        self._waiting: deque[Sequence] = deque()
        self._running: Sequence | None = None

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return int(self._running is not None)

    @property
    def has_work(self) -> bool:
        return self._running is not None or bool(self._waiting)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence; raises `QueueFull` instead of letting the queue grow."""
        # While nothing runs, the first in the queue is as good as running.
        places = self._max_waiting + 1 - self.num_running
        if len(self._waiting) >= places:
            raise QueueFull(len(self._waiting))
        self._waiting.append(sequence)

    def schedule(self) -> Step | None:
        """The next step of the running sequence, or of the first waiting one."""
        if self._running is None and self._waiting:
            self._running = self._waiting.popleft()
        if self._running is None:
            return None
        return Step(self._running, self._running.next_chunk(self._token_budget))

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that ended or was aborted, wherever it stands."""
        if self._running is sequence:
            self._running = None
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
