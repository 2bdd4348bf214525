"""How long a destination that asked for a pause (`Retry-After`) is left alone."""

from typing import Final

from gateway.clock import Clock


PAUSE_S_MAX: Final = 900.0
"""Nobody keeps a worker silent for longer, whatever it asks for."""


class Pause:
    """Begins where a receiver said `Retry-After`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s = float("-inf")

    @property
    def is_on(self) -> bool:
        return self._clock.monotonic_s() < self._until_s

    def begin(self, wait_s: float | None) -> None:
        """For as long as it asked; None where it asked for nothing."""
        self._until_s = self._clock.monotonic_s() + min(wait_s or 0.0, PAUSE_S_MAX)
