"""The engine's clock: the engine stands alone and cannot import the gateway's."""

import time


def unix_time_s() -> int:
    """Whole seconds since 1970, for `created` fields and log lines."""
    return time.time_ns() // 1_000_000_000


def monotonic_s() -> float:
    """Seconds for measuring durations."""
    return time.monotonic()
