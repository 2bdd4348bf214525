"""Limits how many requests wait for a body or a model at once, and the memory of long bodies.

A request keeps its body, and what was parsed of it, until it is answered. Short bodies are not
counted: there is room for them in any case, for as many requests as may wait at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from local_engine.serve.api.errors import Unavailable


UNCOUNTED_BYTES = 64 * 1024


class Room:
    """Entered by each request. Health checks wait for nothing, and need no room."""

    __slots__ = ("_left", "_left_bytes")

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self._left = requests_max
        self._left_bytes = bytes_max

    @contextmanager
    def place(self) -> Iterator["Place"]:
        """A place for one request until it is answered; raises `Unavailable` if none is left."""
        if not self._left:
            raise _busy("The engine serves as many requests as it may.")
        place = Place(self)
        self._left -= 1
        try:
            yield place
        finally:
            self._left += 1
            self._left_bytes += place.held_bytes

    def take_bytes(self, length_bytes: int) -> None:
        """Reserve bytes; raises `Unavailable` if fewer are left."""
        if length_bytes > self._left_bytes:
            raise _busy("The engine holds as many long requests as it may.")
        self._left_bytes -= length_bytes


class Place:
    """The part of the room that one request holds."""

    __slots__ = ("_arrived_bytes", "_room", "held_bytes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._arrived_bytes = self.held_bytes = 0

    def hold(self, length_bytes: int) -> None:
        """Note that this much more of the body has arrived; raises `Unavailable` without room.

        What has arrived counts, not what a head announces: that would take others' room for
        nothing.
        """
        self._arrived_bytes += length_bytes
        if self._arrived_bytes > UNCOUNTED_BYTES:
            self._room.take_bytes(self._arrived_bytes - self.held_bytes)
            self.held_bytes = self._arrived_bytes


def _busy(message: str) -> Unavailable:
    return Unavailable(message, code="busy", retry_after_s=1)
