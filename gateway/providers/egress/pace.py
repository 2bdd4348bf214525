"""Limits streams that arrive faster than models speak: one allowance for the whole worker.

Every event of a stream is decoded and passed on by itself. An upstream that sends as fast as the
network allows would keep a worker busy with nothing else: each of its reads holds hundreds of
events.
"""

from typing import Final


HASTY_BYTES: Final = 16 * 1024
"""What a stream may bring in one read without waiting: some hundred events.

The fastest models send a megabyte per second, which is a fifth of this per turn of the loop.
"""
SLICE_BYTES: Final = 4 * 1024
"""How much of any excess is processed at once."""
FREE_BYTES: Final = 1024 * 1024
"""How much a stream may bring in this way and wait only for others' turns: an intermediary may hold
back a complete answer, and hardly any is longer."""
LINE_BYTES: Final = 40
"""Added for each line end: an empty event costs nearly as much as a word."""
PACE_BYTES_S: Final = 1024 * 1024
"""The rate of all hasty streams together, about a fifth of a worker's time."""


class Pace:
    """Schedules the slices of hasty streams; belongs to one event loop."""

    __slots__ = ("_free_s",)

    def __init__(self) -> None:
        self._free_s = 0.0

    def next_s(self, now_s: float, piece: bytes, hasty_bytes: int) -> float:
        """When the next slice may be processed, after a piece that was just taken.

        `hasty_bytes` is how much its stream has brought in this way.
        """
        if hasty_bytes <= FREE_BYTES:
            return now_s
        cost_bytes = len(piece) + LINE_BYTES * piece.count(b"\n")
        self._free_s = max(self._free_s, now_s) + cost_bytes / PACE_BYTES_S
        return self._free_s
