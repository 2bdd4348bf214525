"""Limits how many requests wait for a body or a model at once, and the memory of long bodies.

A request keeps its body, and what was parsed of it, until it is answered. Short bodies are not
counted: there is room for them in any case, for as many requests as may wait at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from local_engine.serve.api.errors import Unavailable


UNCOUNTED_BYTES = 64 * 1024


class Room:
    """Entered by each of them. Who asks how the engine is waits for nothing, and needs none."""

    __slots__ = ("_left", "_left_bytes")

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self._left = requests_max
        self._left_bytes = bytes_max

    @contextmanager
    def place(self) -> Iterator["Place"]:
        """One request's, until it is answered; raises `Unavailable` where there is none left."""
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
        """Raises `Unavailable` where fewer are left."""
        if length_bytes > self._left_bytes:
            raise _busy("The engine holds as many long requests as it may.")
        self._left_bytes -= length_bytes


class Place:
    """What one request holds of the room."""

    __slots__ = ("_arrived_bytes", "_room", "held_bytes")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._arrived_bytes = self.held_bytes = 0

    def hold(self, length_bytes: int) -> None:
        """So much more of the body has arrived; raises `Unavailable` where it has no room.

        What has arrived counts, and not what a head promises: that would take others' room for
        nothing.
        """
        self._arrived_bytes += length_bytes
        if self._arrived_bytes > UNCOUNTED_BYTES:
            self._room.take_bytes(self._arrived_bytes - self.held_bytes)
            self.held_bytes = self._arrived_bytes


def _busy(message: str) -> Unavailable:
    return Unavailable(message, code="busy", retry_after_s=1)
