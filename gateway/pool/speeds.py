"""Notices a replica that silently became slow: compared with its peers, not with its own past.

Each member's milliseconds per generated token, smoothed, are compared with the median of the
others. A member that is slower by a fifth for two minutes gets a weight equal to its speed; once it
is as fast again, it gets its weight back.
"""

from collections.abc import Sequence
from statistics import median

from gateway.pool.members import Member, PoolRules


SAMPLES_MIN = 5
EWMA = 0.1


class SpeedWatch:
    """Token times of the members of one pool."""

    def __init__(self, members: Sequence[Member], rules: PoolRules) -> None:
        self._members = members
        self._rules = rules
        self._token_ms: dict[str, float] = {}
        self._samples: dict[str, int] = {}

    def note(self, member: Member, token_ms: float) -> None:
        """An answer ended; `token_ms` is the time per token."""
        known = self._token_ms.get(member.name)
        self._token_ms[member.name] = (
            token_ms if known is None else known + EWMA * (token_ms - known)
        )
        self._samples[member.name] = self._samples.get(member.name, 0) + 1

    def token_ms(self, member: Member) -> float | None:
        """The recent time per token of its answers; None before the first answer."""
        return self._token_ms.get(member.name)

    def tend(self, now_s: float) -> list[Member]:
        """Update every member's weight; returns those whose weight fell just now, for an alarm."""
        fallen: list[Member] = []
        for member in self._members:
            slowness = self._slowness(member)
            if slowness < self._rules.slow_ratio:
                member.slow_since_s, member.weight = None, 1.0
                continue
            if member.slow_since_s is None:
                member.slow_since_s = now_s
            if now_s - member.slow_since_s >= self._rules.slow_after_s:
                if member.weight == 1.0:
                    fallen.append(member)
                member.weight = 1.0 / slowness
        return fallen

    def _slowness(self, member: Member) -> float:
        """Its time per token as a multiple of its peers'; 1 while too little is known."""
        own = self._token_ms.get(member.name)
        peers = [
            self._token_ms[other.name]
            for other in self._members
            if other is not member and self._samples.get(other.name, 0) >= SAMPLES_MIN
        ]
        if own is None or self._samples[member.name] < SAMPLES_MIN or not peers:
            return 1.0
        return own / max(median(peers), 1e-6)
