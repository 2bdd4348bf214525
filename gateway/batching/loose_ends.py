"""Ends intents of lines that nobody will return to: erased while they waited, or cut off.

An erased line that no vendor had accepted costs nothing; any other may have been worked on, and
costs what was reserved. The worker that wrote an intent looks after it, also for an earlier process
of its own: it alone knows which are open. For a worker that never came back, whoever holds the lock
of its segments does. What waits for a vendor or is under way is left alone.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from gateway.audit.open_intents import OpenIntents, OpenLine
from gateway.audit.reckoning import CRASHED, ERASED, GONE, OpenIntent, closing, read_intents
from gateway.batches import UNDER_WAY
from gateway.batching.owed import OutcomeOf, late_cost, unsent
from gateway.batching.parked_reservations import ParkedReservations
from gateway.clock import Clock
from gateway.passage import NATIVE
from gateway.ports import AuditLog
from gateway.store.batching.lines import LineStore
from gateway.store.batching.unsent_lines import UnsentLines
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord


class LooseEnds:
    """Looks for unfinished lines in the log of one worker."""

    cut: ClassVar[str] = CRASHED
    """Why a line continues without its intent."""

    def __init__(
        self,
        intents: OpenIntents,
        folder: Path,
        lines: LineStore,
        unsent: UnsentLines,
        reservations: ParkedReservations,
        *,
        audit: AuditLog,
        outcome_of: OutcomeOf,
        clock: Clock,
    ) -> None:
        """`folder` holds the worker's segments."""
        self._intents = intents
        self._folder = folder
        self._lines = lines
        self._unsent = unsent
        self._reservations = reservations
        self._audit = audit
        self._outcome_of = outcome_of
        self._clock = clock
        self._suspects: dict[str, str] = {}
        """Requests that looked unfinished last time, and the reason."""
        self._log = logger()

    async def tend(self) -> int:
        """End what looked unfinished at this look and the previous one; returns how many that were.

        One look is not enough: another worker may be about to end the line, and what it writes into
        its log is in the database only a moment later.

        Raises:
            AuditUnavailable, NotReady, OSError: some are still to be ended.
        """
        opened = self._intents.lines()
        loose = await self._loose(opened)
        due = {name: why for name, why in loose.items() if self._suspects.get(name) == why}
        self._suspects = loose
        away: dict[tuple[str, int], OSError] = {}
        found = await asyncio.to_thread(self._read, [opened[name] for name in due], away)
        ended = 0
        for intent in found:
            request_id, organisation = intent.record.request_id, intent.record.organisation
            if await self._outcome_of(organisation, request_id) is None:
                if not await self._end(intent, due[request_id]):
                    continue
                ended += 1
            self._intents.close(request_id)
        if ended:
            self._log.warning(Event.AUDIT_CUT_OFF, worker=self._folder.name, count=ended)
        for error in away.values():
            raise error
        return ended

    def _read(
        self, lines: list[OpenLine], away: dict[tuple[str, int], OSError]
    ) -> list[OpenIntent]:
        spots = [each.spot for each in lines]
        return [intent for _, intent in read_intents(self._folder, spots, away)]

    async def _loose(self, opened: Mapping[str, OpenLine]) -> dict[str, str]:
        """Requests whose line is gone, or continues without them; and why."""
        by_batch: dict[str, dict[str, int]] = {}
        for request_id, each in opened.items():
            by_batch.setdefault(each.batch, {})[request_id] = each.line
        loose: dict[str, str] = {}
        for batch, lines in by_batch.items():
            states = await self._lines.states(batch, sorted(set(lines.values())))
            for request_id, number in lines.items():
                state = states.get(number)
                if state is None:
                    loose[request_id] = ERASED
                elif state not in UNDER_WAY:
                    loose[request_id] = self.cut
        return loose

    async def _end(self, intent: OpenIntent, why: str) -> bool:
        """Whether it could be ended: a line that is being sent has no known cost yet."""
        begun = intent.record
        is_parked = begun.detail.get("path") == NATIVE
        if why == ERASED and not await self._lines.were_erased(
            begun.detail["batch"], is_parked=is_parked
        ):
            why = self.cut
        outcome = closing(
            intent, self._clock.utc_us(), why, "cancelled" if why == ERASED else "incomplete"
        )
        # An earlier journey of the same line may have been a live call: its intent says so.
        if why == ERASED and is_parked:
            debt = await self._unsent.debt(begun.detail["batch"], int(begun.detail["line"]))
            if debt == "unknown":
                return False
            outcome = unsent(outcome) if debt == "none" else outcome
            await self._charge(begun, outcome.cost_microusd)
        await self._audit.append(outcome)
        await self._reservations.give_up(outcome.request_id, outcome.cost_microusd)
        return True

    async def _charge(self, begun: AuditRecord, cost_microusd: int) -> None:
        """Charge it before it is recorded: after a crash in between both are done, each once."""
        await self._reservations.charge(late_cost(begun, cost_microusd))


class LeftByGone(LooseEnds):
    """The same for a worker that never came back, while its segments' lock is held."""

    cut = GONE
