"""Parks lines for a vendor, and ends them: one outcome for each, whoever reads the answer."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from msgspec import Struct, structs
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import Batch, LineEnd
from gateway.batching.lines import FAILURES_MAX, Later, LineJourneys, Parked, errand_of
from gateway.batching.owed import OutcomeOf
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parking import (
    Remnant,
    Ticket,
    decode_ticket,
    encode_ticket,
    remnant_of,
)
from gateway.batching.remnants import Remnants, Said, loss_of
from gateway.batching.steps import check_until
from gateway.batching.unanswered import TWICE, UNWANTED
from gateway.clock import Clock
from gateway.errors import (
    AuditUnavailable,
    GatewrightError,
    RequestInvalid,
)
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.recording.evidence import Loss
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.lines import Claim
from gateway.store.batching.parcel_rows import ParcelRow, ParkedLine, TermOver
from gateway.store.batching.parked_lines import ParkedLineStore
from gateway.store.money.late_bookings import LateCost
from gateway.telemetry import Event, logger


HELD_AT_ONCE: Final = 50
"""Lines of a parcel that are opened before others have their turn; it may have ten thousand."""
NOTHING_SAID: Mapping[int, Said] = MappingProxyType({})
"""For lines that their vendor was not asked about."""


class _Ending(Struct, frozen=True):
    """The common facts of one parcel's lines that end together."""

    batch: Batch
    vendor_id: str
    check_end: Callable[[], None]
    """Raises LeaseOver if their outcomes may not be written any more."""
    vendor_files: tuple[str, ...] = ()


class _Lost(Struct, frozen=True):
    """A line of which too little can be read, and its vendor's result."""

    line: ParkedLine
    ticket: Ticket | Remnant
    said: Said | None


class Twice(Struct, frozen=True):
    """A second copy of a line at a vendor, besides the one that counts."""

    request_id: str
    """The request that its cost is booked for."""
    batch: Batch
    line: ParkedLine
    ticket: Ticket
    vendor_id: str
    at_us: int
    """The moment whose budget windows pay for it."""


class ParkedLines:
    """Parks lines, and ends them."""

    def __init__(
        self,
        store: ParkedLineStore,
        journeys: LineJourneys,
        reservations: ParkedReservations,
        clock: Clock,
        *,
        metrics: Metrics,
        outcome_of: OutcomeOf,
        remnants: Remnants,
    ) -> None:
        self._store = store
        self._journeys = journeys
        self._reservations = reservations
        self._clock = clock
        self._metrics = metrics
        self._outcome_of = outcome_of
        self._remnants = remnants
        self._log = logger()

    async def park(self, claim: Claim, key: ContentKey, parked: Parked) -> None:
        """Park a line, which waits from now on.

        Raises:
            AuditUnavailable, NotReady: call again, until it tells whose the line is.
        """
        ticket = parked.ticket
        raw = encode_ticket(ticket)
        also = self._reservations.noting(ticket)
        place = (claim.batch.batch_id, claim.line.number)
        if await self._store.park(claim, key, ticket.provider, ticket.target, raw, also):
            self._reservations.keep_parked(ticket, *place)
        elif (
            await self._outcome_of(claim.batch.project.organisation, ticket.request_id) is not None
        ):
            # A commit whose confirmation was lost had parked it, and somebody else has ended it
            # since.
            self._reservations.keep(ticket, ticket.reservation, *place)
            await self._reservations.drop([ticket.request_id])
        else:
            nothing = await self._reservations.given_back(ticket.reservation)
            passage = structs.replace(parked.passage, reservation=nothing)
            gone = GatewrightError("The line was taken over by another worker.")
            await self._journeys.undelivered(passage, gone)

    async def hold(
        self,
        batch: Batch,
        key: ContentKey,
        row: ParcelRow,
        numbers: Sequence[int],
        said: Mapping[int, Said] = NOTHING_SAID,
    ) -> list[tuple[ParkedLine, Ticket]]:
        """Lines with their tickets, whose money this worker has now set aside.

        Lines that it cannot read completely are left out: they have ended, with what was `said`.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended; they may be given again.
            TermOver: some are for another worker to end.
        """
        held: list[tuple[ParkedLine, Ticket]] = []
        for start in range(0, len(numbers), HELD_AT_ONCE):
            some: list[tuple[ParkedLine, Ticket]] = []
            few = numbers[start : start + HELD_AT_ONCE]
            for line in await self._store.lines(batch.batch_id, key, few):
                ticket = decode_ticket(line.ticket)
                if line.line.is_damaged or isinstance(ticket, Remnant):
                    lost = _Lost(line, ticket, said.get(line.line.number))
                    await self._lose(batch, key, row, lost)
                else:
                    some.append((line, ticket))
            await self._reservations.hold(batch.batch_id, some)
            held += some
        return held

    async def end(
        self,
        batch: Batch,
        key: ContentKey,
        row: ParcelRow,
        said: Mapping[int, Said],
        vendor_files: tuple[str, ...] = (),
    ) -> None:
        """Conclude lines of one parcel, and record how each ended.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended; they may be given again.
            TermOver: another worker leads the parcel by now, and ends them.
        """
        if not said:
            return
        numbers = list(said)
        held = await self.hold(batch, key, row, numbers, said)
        requests = [ticket.request_id for _, ticket in held]
        check_end = await self._begin_ending(row, numbers, requests)
        at = _Ending(batch, row.vendor_id, check_end, vendor_files)
        found = await asyncio.gather(
            *(self._ended(at, line, ticket, said[line.line.number]) for line, ticket in held),
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
        ended = [ticket.request_id for line, ticket in held if line.line.number in ends]
        await self._store.end(row, key, ends, self._reservations.forgetting(ended))
        if failure is not None:
            raise failure

    async def tell_twice(self, twice: Twice) -> None:
        """Record the additional cost of a line that was sent twice; raises AuditUnavailable."""
        line, kept = twice.line, twice.ticket.reservation
        errand = errand_of(twice.batch, line.line, twice.vendor_id, None)
        loss = Loss("", line.target, line.provider, twice.ticket.subject, kept.amount_microusd)
        remnant = Remnant(twice.request_id, twice.at_us)
        await self._journeys.lost(twice.batch, errand, remnant, loss, TWICE)

    async def _begin_ending(
        self, row: ParcelRow, numbers: Sequence[int], request_ids: Sequence[str]
    ) -> Callable[[], None]:
        """From here on a crash counts the money set aside for these lines as spent.

        Returns a check that raises when it is too late to write their outcomes; raises TermOver.
        """
        paid: set[str] = set()

        async def settle_who_pays(connection: AsyncConnection) -> None:
            paid.update(await self._reservations.begin_ending(connection, request_ids))

        try:
            until_us = await self._store.begin_ending(row, numbers, settle_who_pays)
        except TermOver:
            await self._reservations.drop(request_ids)
            raise
        await self._reservations.hold_nothing(paid)
        return partial(check_until, self._clock, until_us)

    async def _ended(
        self, at: _Ending, line: ParkedLine, ticket: Ticket, said: Said
    ) -> LineEnd | tuple[int, int]:
        record = None
        organisation = ticket.principal.organisation
        if line.is_ending:
            record = await self._outcome_of(organisation, ticket.request_id)
        reservation = self._reservations.of(ticket.request_id)
        errand = errand_of(at.batch, line.line, at.vendor_id, at.check_end, at.vendor_files)
        errand = structs.replace(errand, book=self._reservations.booking(ticket))
        try:
            passage = self._journeys.resume(at.batch, line.line, ticket, reservation, errand)
        except RequestInvalid:
            # The version that parked it understood its body, and this one does not.
            return await self._lost(at, _Lost(line, ticket, said), remnant_of(ticket))
        if record is None:
            self._reservations.hand_over(ticket.request_id)
        else:
            # It was settled by the process that wrote it.
            self._reservations.release(ticket.request_id)
        failures = line.failures + 1
        if isinstance(said, GatewrightError):
            if record is None:
                await self._undelivered(passage, ticket, said)
            # A line that no vendor was given, because its batch was over by then, was not tried.
            was_tried = said is not UNWANTED or bool(at.vendor_id)
            return self._clock.utc_us(), failures if was_tried else line.failures
        try:
            end = await self._journeys.deliver(passage, ticket, said, record)
        except AuditUnavailable:
            self._reservations.mark_paid(ticket.request_id)
            raise
        self._reservations.mark_ended(ticket.request_id)
        if isinstance(end, Later):
            is_last = not end.is_full and failures >= FAILURES_MAX
            return end.end if is_last else (self._clock.utc_us(), failures)
        return end

    async def _undelivered(self, passage: Passage, ticket: Ticket, said: GatewrightError) -> None:
        try:
            await self._journeys.undelivered(passage, said)
        except AuditUnavailable:
            self._reservations.mark_paid(ticket.request_id)
            raise
        self._reservations.mark_ended(ticket.request_id)

    async def _lose(self, batch: Batch, key: ContentKey, row: ParcelRow, lost: _Lost) -> None:
        """End a single line that cannot be read, or whose ticket cannot."""
        number = lost.line.line.number
        self._log.warning(Event.BATCH_FAILED, batch=batch.batch_id, error_class="TicketUnreadable")
        remnant = await self._remnants.of(batch, lost.line, lost.ticket)
        check_end = await self._begin_ending(row, [number], [remnant.request_id])
        end = await self._lost(_Ending(batch, row.vendor_id, check_end), lost, remnant)
        also = self._reservations.forgetting([remnant.request_id])
        await self._store.end(row, key, {number: end}, also)
        self._metrics.count_line(end.state)

    async def _lost(self, at: _Ending, lost: _Lost, remnant: Remnant) -> LineEnd:
        """Book what is owed for it, give the rest back, and record its outcome."""
        line, request_id = lost.line, remnant.request_id
        errand = errand_of(at.batch, line.line, at.vendor_id, at.check_end, at.vendor_files)
        whose = at.batch.project.organisation
        if line.is_ending and await self._outcome_of(whose, request_id) is not None:
            # The process that wrote it has booked it, or is counted as having done so.
            self._reservations.release(request_id)
            return await self._journeys.lost(at.batch, errand, remnant, None)
        loss = loss_of(line, lost.ticket, remnant, lost.said)
        kept, cost_microusd = remnant.reservation, loss.cost_microusd
        began_us = kept.admitted_us or remnant.arrived_us or line.parked_us
        await self._reservations.charge(
            LateCost(request_id, kept.accounts, cost_microusd, began_us)
        )
        end = await self._journeys.lost(at.batch, errand, remnant, loss)
        await self._reservations.give_up(request_id, cost_microusd)
        return end
