"""Rate-limit headers: how much of a key's limits is left, in each vendor's format."""

import math
from datetime import UTC, datetime

from gateway.clock import SECOND_US
from gateway.ports import Allowance, Standing


_SECONDS_PER_MINUTE = 60


def openai_headers(standing: Standing) -> dict[str, str]:
    """`x-ratelimit-…`, where a reset is a duration such as `1m0s`."""
    headers = {}
    for name, allowance in _kinds(standing):
        headers[f"x-ratelimit-limit-{name}"] = str(allowance.limit)
        headers[f"x-ratelimit-remaining-{name}"] = str(allowance.left)
        headers[f"x-ratelimit-reset-{name}"] = _duration(allowance.full_in_s)
    return headers


def anthropic_headers(standing: Standing, utc_us: int) -> dict[str, str]:
    """`anthropic-ratelimit-…`, where a reset is a point in time (RFC 3339)."""
    headers = {}
    for name, allowance in _kinds(standing):
        headers[f"anthropic-ratelimit-{name}-limit"] = str(allowance.limit)
        headers[f"anthropic-ratelimit-{name}-remaining"] = str(allowance.left)
        full = datetime.fromtimestamp(math.ceil(utc_us / SECOND_US + allowance.full_in_s), UTC)
        headers[f"anthropic-ratelimit-{name}-reset"] = full.strftime("%Y-%m-%dT%H:%M:%SZ")
    return headers


def _kinds(standing: Standing) -> list[tuple[str, Allowance]]:
    both = (("requests", standing.requests), ("tokens", standing.tokens))
    return [(name, allowance) for name, allowance in both if allowance is not None]


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds), _SECONDS_PER_MINUTE)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
