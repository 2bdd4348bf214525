"""Ends what a retired worker left open, from what the database has of it.

Where its segments are out of reach, nobody knows more. What a line's batch or its vendor is still
working on is left alone: it ends with that.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from msgspec import Struct, structs

from gateway.audit.reckoning import ERASED, GONE, OF_WORKER, OpenIntent, closing
from gateway.batches import UNDER_WAY
from gateway.batching.owed import OutcomeOf, late_cost, unsent
from gateway.clock import Clock
from gateway.passage import NATIVE
from gateway.ports import AuditLog
from gateway.store.batching.lines import LineStore
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.store.engine import Database
from gateway.store.evidence.retiring import Retiring
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.money.late_bookings import LateBookings
from gateway.store.money.parked_money import ParkedMoney
from gateway.store.money.slices import LeaseHolder
from gateway.types import AuditRecord


SETTLE_S: Final = 20.0
"""How long until another worker's record of a line is in the database."""
_NOBODY: Final = LeaseHolder("", "")
"""Whoever ends a retired worker's requests holds no money."""


class LeftBehind(Struct, frozen=True):
    """What a worker left, by what can be done about it."""

    requests: int = 0
    lines: int = 0
    """Lines of batches that continued without their intent or were erased."""
    waiting: int = 0
    """Lines that another worker is processing, or that are at a vendor."""
    unreadable: int = 0
    """Requests of whose intent the database only knows the place."""
    since_us: int = 0
    """When the oldest of all began."""


class LeftOpen:
    """What one database knows of it; `audit` is where outcomes are written."""

    def __init__(
        self,
        retiring: Retiring,
        lines: LineStore,
        unsent: UnsentLines,
        *,
        late: LateBookings,
        parked: ParkedMoney,
        audit: AuditLog,
        outcome_of: OutcomeOf,
        clock: Clock,
    ) -> None:
        self._retiring = retiring
        self._lines = lines
        self._unsent = unsent
        self._late = late
        self._parked = parked
        self._audit = audit
        self._outcome_of = outcome_of
        self._clock = clock

    async def look(self, worker: str) -> LeftBehind:
        """What is left; ends nothing."""
        found = LeftBehind()
        async for intent, outcome in self._open(worker):
            found = _added(found, intent, outcome)
        return found

    async def end(self, worker: str, settle_s: float) -> LeftBehind:
        """End what can be ended; lines at a second look, `settle_s` after the first.

        Only then is another worker's latest record of a line in the database.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended.
        """
        lines: set[str] = set()
        async for intent, outcome in self._open(worker):
            if intent is not None and outcome is not None and "batch" in outcome.detail:
                lines.add(intent.record.request_id)
        if lines:
            await asyncio.sleep(settle_s)
        found = LeftBehind()
        async for intent, outcome in self._open(worker):
            due = outcome
            if due is not None and "batch" in due.detail and due.request_id not in lines:
                due = None
            if due is not None and intent is not None:
                await self._end(intent.record, due, worker)
            found = _added(found, intent, due)
        return found

    async def _end(self, begun: AuditRecord, outcome: AuditRecord, worker: str) -> None:
        if await self._outcome_of(outcome.organisation, outcome.request_id) is None:
            if outcome.error == ERASED and begun.detail.get("path") == NATIVE:
                await self._charge(begun, outcome.cost_microusd)
            detail = {**outcome.detail, OF_WORKER: worker}
            await self._audit.append(structs.replace(outcome, detail=detail))

    async def _charge(self, begun: AuditRecord, cost_microusd: int) -> None:
        """Charge a line, whose money is not written off with its worker's leases.

        Unless somebody was stopped while ending it: then it was already counted as spent. It stays
        noted, so that a crash before the outcome changes nothing.
        """
        paid = await self._parked.begin_ending([begun.request_id])
        if cost_microusd and not paid:
            await self._late.book(late_cost(begun, cost_microusd))

    async def _open(
        self, worker: str
    ) -> AsyncIterator[tuple[OpenIntent | None, AuditRecord | None]]:
        """Intents (None if unreadable), and their outcomes (None for one that waits)."""
        async for projected in self._retiring.open(worker):
            if not projected.raw_json:
                yield None, None
                continue
            intent = OpenIntent(projected.record, projected.leaf_hash)
            is_line = "batch" in intent.record.detail
            yield intent, await self._of_line(intent) if is_line else self._closing(intent, GONE)

    async def _of_line(self, intent: OpenIntent) -> AuditRecord | None:
        detail = intent.record.detail
        batch, number = detail["batch"], int(detail["line"])
        state = (await self._lines.states(batch, [number])).get(number)
        if state in UNDER_WAY:
            return None
        is_parked = detail.get("path") == NATIVE
        if state is not None or not await self._lines.were_erased(batch, is_parked=is_parked):
            return self._closing(intent, GONE)
        outcome = structs.replace(self._closing(intent, ERASED), status="cancelled")
        if not is_parked:
            return outcome
        debt = await self._unsent.debt(batch, number)
        if debt == "unknown":
            return None
        return unsent(outcome) if debt == "none" else outcome

    def _closing(self, intent: OpenIntent, why: str) -> AuditRecord:
        return closing(intent, self._clock.utc_us(), why)


def left_open(
    database: Database, sink: DatabaseAuditSink, audit: AuditLog, clock: Clock
) -> LeftOpen:
    """Build it for one database; outcomes are written to `audit`."""
    return LeftOpen(
        Retiring(database, sink, clock),
        LineStore(database, clock),
        UnsentLines(database, clock),
        late=LateBookings(database, clock),
        parked=ParkedMoney(database, clock, _NOBODY),
        audit=audit,
        outcome_of=sink.outcome,
        clock=clock,
    )


def _added(found: LeftBehind, intent: OpenIntent | None, outcome: AuditRecord | None) -> LeftBehind:
    if intent is None:
        return structs.replace(found, unreadable=found.unreadable + 1)
    begun = intent.record
    since_us = min(found.since_us or begun.utc_us, begun.utc_us)
    found = structs.replace(found, since_us=since_us)
    if outcome is None:
        return structs.replace(found, waiting=found.waiting + 1)
    if "batch" in begun.detail:
        return structs.replace(found, lines=found.lines + 1)
    return structs.replace(found, requests=found.requests + 1)
