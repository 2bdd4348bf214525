"""One timer for many deadlines: all are equally long, so they end in the order they began.

A timer per request would be set and cancelled each time, although hardly any ever fires.
"""

import asyncio
from collections.abc import Callable


class Deadlines:
    """Callbacks that are due `after_s` after they were added; belongs to one event loop."""

    __slots__ = ("_after_s", "_due", "_timer")

    def __init__(self, after_s: float) -> None:
        self._after_s = after_s
        self._due: dict[object, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, owner: object, ring: Callable[[], None]) -> None:
        """Call `ring` when the time of `owner` is over, unless it is removed before."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._after_s
        self._due[owner] = (end_s, ring)
        if self._timer is None:
            self._timer = loop.call_at(end_s, self._look)

    def remove(self, owner: object) -> None:
        self._due.pop(owner, None)

    def longest(self) -> object | None:
        """The owner that was added first, of those still there."""
        return next(iter(self._due), None)

    def _look(self) -> None:
        """Ring those whose time is over; the first of the others sets the next look."""
        loop = asyncio.get_running_loop()
        self._timer = None
        now_s = loop.time()
        while self._due:
            owner, (end_s, ring) = next(iter(self._due.items()))
            if end_s > now_s:
                self._timer = loop.call_at(end_s, self._look)
                return
            del self._due[owner]
            ring()
