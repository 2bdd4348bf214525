"""A token bucket: limits how many may pass at once, and how many a second."""

from gateway.clock import Clock


class Flow:
    """Limits actions that anybody may cause as often as they like."""

    def __init__(self, clock: Clock, at_once_max: int, per_second_max: float) -> None:
        self._clock = clock
        self._at_once_max = at_once_max
        self._per_second_max = per_second_max
        self._left = float(at_once_max)
        self._seen_s = clock.monotonic_s()

    def take(self) -> bool:
        """Count one; False if there were too many."""
        self._gain()
        if self._left < 1:
            return False
        self._left -= 1
        return True

    @property
    def is_full(self) -> bool:
        """Whether the full number may be caused at once again."""
        self._gain()
        return self._left >= self._at_once_max

    def _gain(self) -> None:
        now_s = self._clock.monotonic_s()
        gained = (now_s - self._seen_s) * self._per_second_max
        self._left, self._seen_s = min(self._at_once_max, self._left + gained), now_s
