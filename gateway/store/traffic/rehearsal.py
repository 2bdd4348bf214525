"""Rehearses a draft: what it would have done to the traffic that is recorded in the database.

It gathers records, documents and budgets, decides everything again as recorded, then with the draft
in its level's place. The deciding is a loop without I/O in a thread of its own, so that a process
that serves people meanwhile is not held up.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.rollout.versions import Level, PolicySet
from gateway.routing.planning import decision_digest
from gateway.store.engine import Database
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.money.leases import LeaseTable
from gateway.store.policies.documents import PolicyStore
from gateway.store.traffic.archive import DecisionArchive
from policies.program import PolicyDocument
from policies.replay import Impact, Recorded, Reproduction, impact, reproduce


REQUESTS_MAX: Final = 2_000_000


class Rehearsal(Struct, frozen=True):
    """What a draft would have done, and how well recorded decisions could be reproduced."""

    impact: Impact
    again: Reproduction
    took_s: float
    """Processor time for deciding everything under the draft."""

    @property
    def decisions_per_s(self) -> float:
        return self.impact.requests / max(self.took_s, 1e-9)


class Rehearser:
    """Reads one database; writes nothing."""

    def __init__(
        self, database: Database, records: DatabaseAuditSink, clock: Clock, base: PolicyDocument
    ) -> None:
        """`base` is the configuration's own document (`gateway.assembly.configured_policy`)."""
        self._base = base
        self._policies = PolicyStore(database, clock)
        self._archive = DecisionArchive(records, self._policies)
        self._budgets = LeaseTable(database, clock)

    async def rehearse(
        self,
        draft: PolicyDocument,
        since_us: int,
        *,
        level: str | None,
    ) -> Rehearsal:
        """Decide what was recorded since then under the draft.

        Without a `level` the draft governs alone; with one it replaces that level's live document,
        below and above those of the other levels, for the projects that the level governs.

        Raises:
            RequestInvalid: more than REQUESTS_MAX requests were recorded.
        """
        recorded = [each async for each in _bounded(self._archive.recorded(since_us))]
        known = {
            digest: await self._policies.document(digest)
            for digest in {each.document_digest for each in recorded}
        }
        governing = draft if level is None else await self._in_place(draft, level)
        if level:
            recorded = [each for each in recorded if level in each.accounts]
        budgets = await self._budgets.budgets()
        limits: dict[str, int] = {}
        for budget in budgets:
            # If an account has several windows, the replay is compared with the narrowest.
            account, limit = budget.limit.account, budget.limit.limit_microusd
            limits[account] = min(limits.get(account, limit), limit)
        return await asyncio.to_thread(_decide, governing, recorded, known, limits)

    async def _in_place(
        self, draft: PolicyDocument, level: str
    ) -> Callable[[Recorded], PolicyDocument]:
        live = {
            name: Level(live=each.live) for name, each in (await self._policies.levels()).items()
        }
        live[level] = replace(live.get(level, Level()), live=draft)
        acting = PolicySet(self._base, live)
        return lambda each: acting.governing_accounts(each.accounts).document


async def _bounded(recorded: AsyncIterator[Recorded]) -> AsyncIterator[Recorded]:
    count = 0
    async for each in recorded:
        count += 1
        if count > REQUESTS_MAX:
            raise RequestInvalid(f"more than {REQUESTS_MAX} requests; choose a shorter time")
        yield each


def _decide(
    draft: PolicyDocument | Callable[[Recorded], PolicyDocument],
    recorded: Sequence[Recorded],
    known: Mapping[str, PolicyDocument | None],
    limits: dict[str, int],
) -> Rehearsal:
    again = reproduce(recorded, known.get, decision_digest)
    began_s = time.thread_time()
    found = impact(draft, recorded, limits)
    return Rehearsal(found, again, time.thread_time() - began_s)
