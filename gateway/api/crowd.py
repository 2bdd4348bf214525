"""Limits the connections of a listener, because the log and the database need open files, too.

Somebody who only opens connections is not asked who they are. When there are too many, a connection
without a request makes room for a new one: first the oldest that has not sent a head yet, then the
one that has been idle longest between two requests. One that is being served is never ended for it.
"""

import asyncio
import resource
from collections.abc import Sized
from typing import Final, Protocol, cast

from gateway.api.deadlines import Deadlines


RESERVED_SHARE: Final = 4
"""One open file in this many is not for callers but for upstreams, segments, the database."""
RESERVED_LEAST: Final = 64
"""At least this many are, however few files there are: an idle worker has half of them open."""


class Caller(Protocol):
    """A caller's connection."""

    transport: asyncio.Transport


def connections_permitted() -> int:
    """How many callers this process may have, by its limit of open files; 0 for any number."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    reserved = max(files // RESERVED_SHARE, RESERVED_LEAST)
    return 0 if files == resource.RLIM_INFINITY else max(files - reserved, 1)


class Crowd:
    """The connections of one listener without a request; belongs to one event loop."""

    __slots__ = ("_fresh", "_most", "_resting")

    def __init__(self, most: int, resting: Deadlines) -> None:
        self._most = most
        self._fresh: dict[Caller, None] = {}
        self._resting = resting

    def enter(self, caller: Caller, all_of_them: Sized) -> None:
        """Note a new connection; if there are too many, another one, or this one, is ended."""
        if self._most and len(all_of_them) > self._most:
            oldest = next(iter(self._fresh), None) or cast(Caller | None, self._resting.longest())
            if oldest is None:
                caller.transport.abort()
                return
            self.leave(oldest)
            self._resting.remove(oldest)
            oldest.transport.abort()
        self._fresh[caller] = None

    def leave(self, caller: Caller) -> None:
        """Note that a connection has a request, or is gone."""
        self._fresh.pop(caller, None)
