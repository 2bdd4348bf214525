"""The retry policy: one budget for all extra attempts, and waits with full jitter.

A retry, a fallback and a hedge each cost the upstreams one more call. The budget allows one extra
attempt per ten requests and keeps a small reserve for quiet times, so that an outage is never
answered with a multiple of the load. Pure except for random numbers.
"""

from collections.abc import Callable
from secrets import SystemRandom

from msgspec import Struct


_RANDOM = SystemRandom()


class RetryRules(Struct, frozen=True):
    """Bounds on extra attempts."""

    share: float = 0.1
    """Extra attempts per request."""
    per_s: float = 10.0
    """Extra attempts that are always allowed: in quiet times a tenth of the traffic is nothing."""
    reserve: float = 20.0
    """Extra attempts that can be saved up at most, and that a worker starts with."""
    backoff_s: float = 0.05
    backoff_s_max: float = 1.0
    wait_s_max: float = 1.0
    """The longest `retry-after` that is waited for here; a longer one is left to the caller."""


class RetryBudget:
    """A token budget: requests and time earn tokens, every extra attempt costs one."""

    def __init__(self, rules: RetryRules | None = None) -> None:
        self.rules = rules or RetryRules()
        self._tokens = self.rules.reserve
        self._earned_s: float | None = None

    def earn(self, now_s: float) -> None:
        """A request came."""
        quiet_s = 0.0 if self._earned_s is None else max(now_s - self._earned_s, 0.0)
        self._earned_s = now_s
        earned = self.rules.share + self.rules.per_s * quiet_s
        self._tokens = min(self._tokens + earned, self.rules.reserve)

    def spend(self) -> bool:
        """Take a token for one more attempt; False if there is none."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def give_back(self) -> None:
        """Return the token of an attempt that was not made after all."""
        self._tokens = min(self._tokens + 1.0, self.rules.reserve)


def backoff_s(
    tries: int,
    retry_after_s: float | None,
    rules: RetryRules,
    draw: Callable[[], float] = _RANDOM.random,
) -> float:
    """Seconds before the next try: full jitter, and never before the upstream's own `retry-after`.

    Full jitter draws from the whole interval (Brooker, "Exponential Backoff And Jitter", 2015).
    """
    longest = min(rules.backoff_s * 2.0 ** min(tries, 16), rules.backoff_s_max)
    return max(draw() * longest, retry_after_s or 0.0)
