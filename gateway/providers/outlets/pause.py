"""How long a destination that asked for a pause (`Retry-After`) is left alone."""

from typing import Final

from gateway.clock import Clock


PAUSE_S_MAX: Final = 900.0
"""No destination keeps a worker silent for longer, whatever it asks for."""


class Pause:
    """Begins when a receiver answers with `Retry-After`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = float("-inf")

    @property
    def is_on(self) -> bool:
        return self._clock.monotonic_s() < self._until_s

    def begin(self, wait_s: float | None) -> None:
        """Begin a pause of the requested length; None if none was requested."""
        self._until_s = self._clock.monotonic_s() + min(wait_s or 0.0, PAUSE_S_MAX)
