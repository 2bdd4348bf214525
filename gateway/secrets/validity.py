"""Validity of certificates, authorities and revocation lists, and when to warn of their end."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

from gateway.clock import DAY_US, SECOND_US, WEEK_US


WARNED_SHARE: Final = 5
"""The last fraction of a lifetime in which its end is announced; never more than a week."""


class Term(Struct, frozen=True):
    """A period of validity."""

    begins_us: int
    ends_us: int

    @property
    def told_from_us(self) -> int:
        """When to start warning of its end.

        Authorities whose certificates live for three months renew them a month before the end, and
        those whose certificates live for a day some hours before.
        """
        return self.ends_us - min((self.ends_us - self.begins_us) // WARNED_SHARE, WEEK_US)

    def left_s(self, now_us: int) -> float:
        """Seconds until it ends; below 0 if it has ended."""
        return (self.ends_us - now_us) / SECOND_US


def next_end(terms: Sequence[Term], now_us: int) -> Term | None:
    """The next to end among those still valid, or the last one if all have ended.

    Expired entries among valid ones are what a renewal leaves in a file of authorities.
    """
    good = [each for each in terms if each.ends_us > now_us]
    if good:
        return min(good, key=_end)
    return max(terms, key=_end, default=None)


def _end(term: Term) -> int:
    return term.ends_us


class EndTeller:
    """Decides when to report ends: once a day when one is near, and at once when it has passed."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Term, bool, int]] = {}

    def line(self, name: str, terms: Sequence[Term], now_us: int) -> str:
        """A line about the next end among a name's terms; empty if there is nothing to report."""
        term = next_end(terms, now_us)
        if term is None or now_us < term.told_from_us:
            return ""
        is_over = now_us >= term.ends_us
        told = self._told.get(name)
        if told is not None and told[:2] == (term, is_over) and now_us - told[2] < DAY_US:
            return ""
        self._told[name] = (term, is_over, now_us)
        verb = "has ended" if is_over else "ends"
        return f"{verb} at {day(term.ends_us)}; its file holds no newer one"


def microseconds(moment: datetime) -> int:
    return round(moment.timestamp()) * SECOND_US


def day(moment_us: int) -> str:
    """A moment in the form that operators read, to the second."""
    return datetime.fromtimestamp(moment_us / SECOND_US, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
