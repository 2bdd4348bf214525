"""Recent figures of a pool's members, for people to look at.

Routing needs only the newest figures. People want to see tokens a second, so a few samples are
kept.
"""

from collections import deque
from typing import Any, Final

from msgspec import Struct

from gateway.oversight.workers import MemberState
from gateway.pool.figures import Figures
from gateway.pool.members import Member


LOOKS_KEPT: Final = 6


class Look(Struct, frozen=True):
    """Figures, and when they were taken."""

    at_s: float
    figures: Figures


class Observations:
    """The last looks at each engine, by its name."""

    def __init__(self) -> None:
        self._looks: dict[str, deque[Look]] = {}

    def note(self, name: str, figures: Figures, now_s: float) -> None:
        looks = self._looks.setdefault(name, deque(maxlen=LOOKS_KEPT))
        if looks and _began_anew(looks[-1].figures, figures):
            looks.clear()  # Its counters began again: nothing before can be compared.
        looks.append(Look(now_s, figures))

    def told(self, name: str, now_s: float) -> dict[str, Any]:
        """An engine's own figures, as fields of a `MemberReport`; empty if it reported none."""
        looks = self._looks.get(name)
        if not looks:
            return {}
        first, last = looks[0], looks[-1]
        old, told, took_s = first.figures, last.figures, last.at_s - first.at_s
        hits = _grown(old.prefix_hit_tokens, told.prefix_hit_tokens)
        asked = _grown(old.prefix_query_tokens, told.prefix_query_tokens)
        read = _grown(old.read_tokens, told.read_tokens)
        generated = _grown(old.generated_tokens, told.generated_tokens)
        return {
            "waiting": round(told.waiting),
            "running": round(told.running),
            "blocks_total": _whole(told.blocks),
            "blocks_used": _whole(told.blocks and told.blocks * told.cache_use),
            "cache_use_share": told.cache_use,
            "prefix_hit_share": min(hits / asked, 1.0) if hits is not None and asked else None,
            "read_tokens_per_s": _rate(read, took_s),
            "generated_tokens_per_s": _rate(generated, took_s),
            "preemptions": _whole(told.preemptions),
            "figures_age_s": max(now_s - last.at_s, 0.0),
            "memory": told.memory,
        }


def state_of(member: Member, now_s: float) -> MemberState:
    """A member's state in one word: the one that most affects whether it gets calls."""
    if not member.is_up:
        return "down"
    if member.is_draining:
        return "draining"
    if member.weight < 1.0:
        return "slow"
    return "warming" if member.ready_share(now_s) < 1.0 else "up"


def _began_anew(before: Figures, after: Figures) -> bool:
    pairs = (
        (before.generated_tokens, after.generated_tokens),
        (before.read_tokens, after.read_tokens),
        (before.prefix_query_tokens, after.prefix_query_tokens),
    )
    return any(old is not None and (new is None or new < old) for old, new in pairs)


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _rate(grown: float | None, took_s: float) -> float | None:
    return None if grown is None or took_s <= 0 else grown / took_s


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
