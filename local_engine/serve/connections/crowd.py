"""Limits the number of connections, and chooses which one is closed for a new one.

Opening a connection does not tell who the caller is. When there are too many, one without a request
is closed: first the oldest that has not sent a head yet, then the one that has been idle longest
between two requests. A request that is being served is never ended for a newcomer.
"""

import asyncio
import resource
from typing import Final, Protocol

from local_engine.serve.metrics import ConnectionMetrics


_RESERVED_SHARE: Final = 4
"""One file of so many is for what is no caller: the model, the worker, the log."""


class Member(Protocol):
    """A connection."""

    transport: asyncio.Transport


def connections_permitted(asked: int) -> int:
    """So many, or fewer where this process may not open as many files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return asked
    return min(asked, max(files - files // _RESERVED_SHARE, 2))


class Crowd:
    """The connections of one listener; belongs to one event loop."""

    def __init__(self, most: int) -> None:
        self.metrics = ConnectionMetrics(lambda: len(self._all), most)
        self._most = most
        self._all: set[Member] = set()
        self._unheard: dict[Member, None] = {}
        self._resting: dict[Member, None] = {}

    def enter(self, member: Member) -> None:
        """A connection came; where there are too many another one, or itself, is ended."""
        if len(self._all) >= self._most:
            self.metrics.count_end("crowded")
            oldest = next(iter(self._unheard or self._resting), None)
            if oldest is None:
                member.transport.abort()
                return
            self.leave(oldest)
            oldest.transport.abort()
        self._all.add(member)
        self._unheard[member] = None

    def ask(self, member: Member) -> None:
        """The head of a request is there."""
        self._unheard.pop(member, None)
        self._resting.pop(member, None)

    def rest(self, member: Member) -> None:
        """It was answered."""
        if member in self._all:
            self._resting[member] = None

    def leave(self, member: Member) -> None:
        """It is gone."""
        self._all.discard(member)
        self.ask(member)

    def end_unheard(self) -> None:
        """The server ends; who has not asked for anything does not hold it up."""
        for member in tuple(self._unheard):
            member.transport.abort()

    def end_all(self) -> None:
        """The server has ended."""
        for member in tuple(self._all):
            member.transport.abort()
