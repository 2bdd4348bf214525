"""Limits the bytes of long bodies that a worker holds: no caller may take all its memory.

A request keeps its body, and a parsed view of several times its size, until it is answered. Short
bodies are not counted: there is room for as many as may be served at once.
"""

from gateway.errors import Unavailable


UNCOUNTED_BYTES = 64 * 1024
FULL = "Too many long requests are being served by this worker; try again shortly."


class Room:
    """Shared by all doors of a worker."""

    __slots__ = ("_left_bytes",)

    def __init__(self, bytes_max: int) -> None:
        self._left_bytes = bytes_max

    def take(self, length_bytes: int) -> None:
        """Raises Unavailable if less is left."""
        if length_bytes > self._left_bytes:
            raise Unavailable(FULL, retry_after_s=1.0)
        self._left_bytes -= length_bytes

    def give_back(self, length_bytes: int) -> None:
        self._left_bytes += length_bytes
