"""Predicts a document's effect on recorded traffic and on one request. Nothing is sent anywhere.

A document is tried in its level's place, among the live documents of the other levels. Only the
requests of the organisation that looks are counted, also for the installation's own policy.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from admin.policy_room.places import Place
from admin.policy_room.reader import PolicyReader
from gateway.clock import DAY_US, Clock
from gateway.identity import accounts_of
from gateway.rollout.versions import Governing, Level, PolicySet
from gateway.routing.planning import decision_digest
from gateway.store.traffic.archive import Timed
from policies.explain import Explanation, explain
from policies.facts import Facts
from policies.program import PolicyDocument
from policies.replay import Impact, Reproduction, impact, reproduce


REQUESTS_MAX: Final = 10_000
DAYS: Final[Mapping[str, int]] = {"1": 1, "7": 7, "30": 30}
_KEPT_US: Final = 60 * 1_000_000
_KEPT_MAX: Final = 50


class Weight(Struct, frozen=True):
    """What a document would have done to the newest requests of some days."""

    days: int
    is_all: bool
    """Whether these are all requests of that time, not only the newest `REQUESTS_MAX`."""
    impact: Impact
    reproduced: int
    """Decisions that came out again under the documents that took them."""
    not_reproduced: tuple[str, ...]
    unknown: int
    """Decisions of documents that are not kept here."""
    weighed_us: int

    @property
    def changed(self) -> int:
        """Requests that would have gone elsewhere, been blocked or been let through."""
        return self.impact.rerouted + self.impact.newly_blocked + self.impact.newly_permitted

    def share(self, count: int) -> float:
        return count / self.impact.requests if self.impact.requests else 0.0


class Weigher:
    """Weighs documents; remembers the last results for a minute."""

    def __init__(self, reader: PolicyReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._known: OrderedDict[tuple[str, str, str, int], Weight] = OrderedDict()

    async def weigh(
        self, organisation: str, place: Place, document: PolicyDocument, days: int = 7
    ) -> Weight:
        """Decide what was recorded again, with this document in the level's place."""
        now_us = self._clock.utc_us()
        key = (organisation, place.name, document.digest, days)
        known = self._known.get(key)
        if known is not None and now_us - known.weighed_us < _KEPT_US:
            return known
        since_us = now_us - days * DAY_US
        recent = await self._reader.archive.newest(organisation, REQUESTS_MAX, since_us=since_us)
        mine = [each for each in recent if not place.name or place.name in each.recorded.accounts]
        digests = {each.recorded.document_digest for each in mine}
        former = {digest: await self._reader.store.document(digest) for digest in digests}
        acting = await self.acting(place, document)
        found, again = await asyncio.to_thread(_decide, acting, mine, former)
        is_all = len(recent) < REQUESTS_MAX
        weight = Weight(
            *(days, is_all, found, again.same, again.different, again.unknown_documents, now_us)
        )
        self._known[key] = weight
        while len(self._known) > _KEPT_MAX:
            self._known.popitem(last=False)
        return weight

    async def acting(self, place: Place, document: PolicyDocument | None) -> PolicySet:
        """The live documents of all levels, with this one in its level's place."""
        levels = await self._reader.store.levels()
        live = {name: Level(live=level.live) for name, level in levels.items()}
        if document is not None:
            live[place.name] = replace(live.get(place.name, Level()), live=document)
        return PolicySet(self._reader.base, live)

    async def explain(
        self, place: Place, document: PolicyDocument | None, facts: Facts
    ) -> Explanation:
        """What would be decided of these facts, and why in full."""
        acting = await self.acting(place, document)
        governing = _governing(acting, facts)
        return await asyncio.to_thread(explain, governing.document, facts)


def _governing(acting: PolicySet, facts: Facts) -> Governing:
    accounts = accounts_of(facts.organisation, facts.workspace, facts.project, facts.key_id)
    return acting.governing_accounts(accounts)


def _decide(
    acting: PolicySet,
    recent: Sequence[Timed],
    former: Mapping[str, PolicyDocument | None],
) -> tuple[Impact, Reproduction]:
    recorded = [each.recorded for each in recent]
    again = reproduce(recorded, former.get, decision_digest)
    found = impact(lambda each: acting.governing_accounts(each.accounts).document, recorded)
    return found, again
