"""Counts how often each rule held lately, by evaluating it on a day's newest recorded requests.

A record names its decision by digest, not by rule, so rules are evaluated again on the recorded
facts. This is limited to the newest requests of a day, kept for a minute, and said on the page.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from gateway.clock import Clock
from gateway.oversight.searching import VALUES_MAX, Filter, Term, render
from gateway.store.traffic.archive import DecisionArchive, Timed
from policies.decide import decide
from policies.program import PolicyDocument


Key = TypeVar("Key")
Value = TypeVar("Value")
WINDOW_US: Final = 24 * 3600 * 1_000_000
REQUESTS_MAX: Final = 2_000
KEPT_US: Final = 60 * 1_000_000
COUNTS_KEPT_MAX: Final = 200


class Hits(Struct, frozen=True):
    """How often one rule held, when last, and for which requests; 0 and empty for never."""

    count: int = 0
    last_us: int = 0
    newest: tuple[str, ...] = ()
    """The newest of their ids, the last first: as many as one filter takes."""

    @property
    def last_id(self) -> str:
        return self.newest[0] if self.newest else ""

    @property
    def listed(self) -> str:
        """The filter of a list of the newest; empty where it never held."""
        return render(Filter((Term("id", self.newest),))) if self.newest else ""

    def with_older(self, utc_us: int, request_id: str) -> "Hits":
        """And one more request, older than all of these."""
        newest = (*self.newest, request_id) if len(self.newest) < VALUES_MAX else self.newest
        return Hits(self.count + 1, max(self.last_us, utc_us), newest)


class HitCount(Struct, frozen=True):
    """The rules of one document among the newest requests of a day."""

    requests: int
    """How many were asked about: those of the level, among the newest `REQUESTS_MAX`."""
    is_all: bool
    """Whether that is all of the day."""
    counted_us: int
    by_rule: Mapping[str, Hits]
    listed_max: int = VALUES_MAX
    """So many requests of a rule a list shows."""


class HitCounter:
    """Counts, and remembers for a minute."""

    def __init__(self, archive: DecisionArchive, clock: Clock) -> None:
        self._archive = archive
        self._clock = clock
        self._recent: OrderedDict[str, tuple[int, list[Timed]]] = OrderedDict()
        self._counts: OrderedDict[tuple[str, str, str], HitCount] = OrderedDict()

    async def count(self, organisation: str, level: str, document: PolicyDocument) -> HitCount:
        """Of an organisation's requests those that a level governs (`""`: all of them)."""
        now_us = self._clock.utc_us()
        key = (organisation, level, document.digest)
        known = self._counts.get(key)
        if known is not None and now_us - known.counted_us < KEPT_US:
            return known
        read_us, recent = await self._newest(organisation, now_us)
        mine = [each for each in recent if not level or level in each.recorded.accounts]
        by_rule = await asyncio.to_thread(_asked, document, mine)
        found = HitCount(len(mine), len(recent) < REQUESTS_MAX, read_us, by_rule)
        _keep(self._counts, key, found)
        return found

    async def _newest(self, organisation: str, now_us: int) -> tuple[int, list[Timed]]:
        known = self._recent.get(organisation)
        if known is None or now_us - known[0] >= KEPT_US:
            since_us = now_us - WINDOW_US
            recent = await self._archive.newest(organisation, REQUESTS_MAX, since_us=since_us)
            known = (now_us, recent)
            # What is kept of requests is large, so of a few organisations only.
            _keep(self._recent, organisation, known, most=4)
        return known


def _keep(
    kept: OrderedDict[Key, Value], key: Key, value: Value, most: int = COUNTS_KEPT_MAX
) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def _asked(document: PolicyDocument, recent: Sequence[Timed]) -> dict[str, Hits]:
    """A constraint's hits are all it held for; a preference's those whose order it gave."""
    counts: dict[str, Hits] = {}
    for each in sorted(recent, key=lambda one: one.utc_us, reverse=True):
        decision = decide(document, each.recorded.facts)
        first = decision.matched_preference
        for name in (*decision.matched_constraints, *((first,) if first else ())):
            known = counts.get(name, Hits())
            counts[name] = known.with_older(each.utc_us, each.recorded.request_id)
    return counts
