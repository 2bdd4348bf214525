"""Ends lines that waited for a vendor: each gets its outcome once, whoever reads the answer.

Money that an earlier process had set aside for a line is set aside again; where it does not fit any
more, the line's true cost is booked all the same, since the vendor has been asked.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from msgspec import structs

from gateway.batches import Batch, LineEnd
from gateway.batching.lines import FAILURES_MAX, Later, LineJourneys, Parked
from gateway.batching.parking import (
    Remnant,
    Ticket,
    decode_ticket,
    encode_ticket,
    remnant_of,
)
from gateway.clock import Clock
from gateway.errors import AuditUnavailable, BudgetExhausted, GatewrightError, RequestInvalid
from gateway.metrics import Metrics
from gateway.parcels import VendorResult
from gateway.ports import Ledger
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.lines import Claim
from gateway.store.batching.parcels import ParcelStore, ParkedLine
from gateway.store.money.late_bookings import LateBookings, LateCost
from gateway.telemetry import Event, logger
from gateway.types import AuditRecord, Reservation


OutcomeOf = Callable[[str, str], Awaitable[AuditRecord | None]]
"""Organisation and request → the outcome on record."""
Said = VendorResult | GatewrightError
"""What a vendor said of a line, or why it said nothing."""


class ParkedLines:
    """Lines that wait, as far as this worker holds money for them."""

    def __init__(
        self,
        store: ParcelStore,
        journeys: LineJourneys,
        ledger: Ledger,
        late: LateBookings,
        clock: Clock,
        *,
        metrics: Metrics,
        outcome_of: OutcomeOf,
        new_request_id: Callable[[int], str],
    ) -> None:
        self._store = store
        self._journeys = journeys
        self._ledger = ledger
        self._late = late
        self._clock = clock
        self._metrics = metrics
        self._outcome_of = outcome_of
        self._new_request_id = new_request_id
        self._log = logger()
        self._held: dict[str, Reservation] = {}
        self._paid: set[str] = set()
        """Requests whose cost is booked, though their outcome could not be written yet."""

    async def park(self, claim: Claim, key: ContentKey, parked: Parked) -> None:
        """A line waits from now on; raises NotReady, and may then be called again."""
        ticket = parked.ticket
        raw = encode_ticket(ticket)
        if await self._store.park(claim, key, ticket.provider, ticket.target, raw):
            self._held[ticket.request_id] = ticket.reservation
        else:
            gone = GatewrightError("The line was taken over by another worker.")
            await self._journeys.undelivered(parked.passage, gone)

    async def hold(
        self, batch: Batch, key: ContentKey, vendor_id: str, lines: Sequence[ParkedLine]
    ) -> list[tuple[ParkedLine, Ticket]]:
        """Lines with their tickets, whose money this worker now has set aside.

        Those whose tickets it cannot read are left out: they have ended.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended; they may be given again.
        """
        held: list[tuple[ParkedLine, Ticket]] = []
        for line in lines:
            ticket = decode_ticket(line.ticket)
            if isinstance(ticket, Remnant):
                await self._lose(batch, key, vendor_id, line, ticket)
                continue
            if ticket.request_id not in self._held:
                self._held[ticket.request_id] = await self._reserved(ticket)
            held.append((line, ticket))
        return held

    async def end(
        self, batch: Batch, key: ContentKey, vendor_id: str, said: Mapping[int, Said]
    ) -> None:
        """Conclude lines of one parcel, and write down how each ended.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended; they may be given again.
        """
        if not said:
            return
        numbers = list(said)
        lines = await self._store.lines(batch.batch_id, key, numbers)
        held = await self.hold(batch, key, vendor_id, lines)
        await self._store.begin_ending(batch.batch_id, numbers)
        found = await asyncio.gather(
            *(
                self._ended(batch, vendor_id, line, ticket, said[line.line.number])
                for line, ticket in held
            ),
            return_exceptions=True,
        )
        ends: dict[int, LineEnd | tuple[int, int]] = {}
        failure: BaseException | None = None
        for (line, _), end in zip(held, found, strict=True):
            if isinstance(end, BaseException):
                failure = failure or end
                continue
            ends[line.line.number] = end
            if isinstance(end, LineEnd):
                self._metrics.count_line(end.state)
        await self._store.end(batch.batch_id, key, ends)
        if failure is not None:
            raise failure

    async def charge(self, late: LateCost) -> None:
        """A line is gone: book what is owed where an earlier process gave its money back.

        Raises:
            NotReady: the database does not answer; it may then be asked again.
        """
        if late.cost_microusd and late.request_id not in self._held:
            await self._late.book(late)

    def give_up(self, request_id: str, cost_microusd: int) -> None:
        """A line is gone, and its outcome is written: book what that says on what is held."""
        reservation = self._held.pop(request_id, None)
        if reservation is not None:
            self._ledger.settle(reservation, cost_microusd)

    def let_go(self) -> None:
        """Give back what is set aside: this worker leaves, and the next one holds it again."""
        held, self._held = self._held, {}
        for reservation in held.values():
            self._ledger.release(reservation)

    async def _ended(
        self, batch: Batch, vendor_id: str, line: ParkedLine, ticket: Ticket, said: Said
    ) -> LineEnd | tuple[int, int]:
        record = None
        organisation = ticket.principal.organisation
        if line.is_ending:
            record = await self._outcome_of(organisation, ticket.request_id)
        reservation = self._held[ticket.request_id]
        try:
            passage = self._journeys.resume(batch, line.line, ticket, reservation, vendor_id)
        except RequestInvalid:
            # Its body was understood by the version that parked it, and is not by this one.
            return await self._lost(batch, vendor_id, line, remnant_of(ticket))
        del self._held[ticket.request_id]
        if record is not None:
            # It was settled by the process that wrote it.
            self._ledger.release(reservation)
        failures = line.failures + 1
        if isinstance(said, GatewrightError):
            if record is None:
                await self._journeys.undelivered(passage, said)
            return self._clock.utc_us(), failures
        try:
            end = await self._journeys.deliver(passage, ticket, said, record)
        except AuditUnavailable:
            self._paid.add(ticket.request_id)
            raise
        self._paid.discard(ticket.request_id)
        if isinstance(end, Later):
            is_last = not end.is_full and failures >= FAILURES_MAX
            return end.end if is_last else (self._clock.utc_us(), failures)
        return end

    async def _lose(
        self, batch: Batch, key: ContentKey, vendor_id: str, line: ParkedLine, remnant: Remnant
    ) -> None:
        """End a line alone whose ticket cannot be read."""
        number = line.line.number
        self._log.warning(Event.BATCH_FAILED, batch=batch.batch_id, error_class="TicketUnreadable")
        await self._store.begin_ending(batch.batch_id, [number])
        if not remnant.request_id:
            now_us = self._clock.utc_us()
            remnant = structs.replace(remnant, request_id=self._new_request_id(now_us))
        end = await self._lost(batch, vendor_id, line, remnant)
        await self._store.end(batch.batch_id, key, {number: end})
        self._metrics.count_line(end.state)

    async def _lost(
        self, batch: Batch, vendor_id: str, line: ParkedLine, remnant: Remnant
    ) -> LineEnd:
        """Its money is given back, and its outcome is on record."""
        record = None
        if line.is_ending:
            record = await self._outcome_of(batch.project[0], remnant.request_id)
        is_recorded = record is not None
        end = await self._journeys.lost(
            batch, line.line, remnant, vendor_id, is_recorded=is_recorded
        )
        reservation = self._held.pop(remnant.request_id, None)
        if reservation is not None:
            self._ledger.release(reservation)
        return end

    async def _reserved(self, ticket: Ticket) -> Reservation:
        kept = ticket.reservation
        now_us = self._clock.utc_us()
        left_s = max(0.0, (kept.leased_until_us - now_us) / 1e6)
        if ticket.request_id in self._paid:
            return await self._ledger.reserve((), 0, left_s)
        try:
            return await self._ledger.reserve(kept.accounts, kept.amount_microusd, left_s)
        except BudgetExhausted:
            return await self._ledger.reserve(kept.accounts, 0, left_s)
