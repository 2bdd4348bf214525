"""Ends lines that waited for a vendor: each gets its outcome once, whoever reads the answer.

Money that an earlier process had set aside for a line is set aside again; where it does not fit any
more, the line's true cost is booked all the same, since the vendor has been asked.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct, structs
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batches import Batch, LineEnd
from gateway.batching.lines import FAILURES_MAX, Later, LineJourneys, Parked, errand_of
from gateway.batching.owed import OutcomeOf, Purse
from gateway.batching.parking import (
    Remnant,
    Ticket,
    decode_ticket,
    encode_ticket,
    remnant_of,
)
from gateway.batching.steps import check_until
from gateway.clock import Clock
from gateway.errors import (
    AuditUnavailable,
    BudgetExhausted,
    GatewrightError,
    NotReady,
    RequestInvalid,
)
from gateway.metrics import Metrics
from gateway.money.budgets import ReservationEndedError
from gateway.parcels import VendorResult, custom_id_of
from gateway.passage import Passage
from gateway.ports import Ledger
from gateway.secrets.content_keys import ContentKey
from gateway.store.batching.lines import Claim, LineStore
from gateway.store.batching.parcel_rows import ParcelRow, ParkedLine, TermOver
from gateway.store.batching.parcels import ParcelStore
from gateway.store.money.late_bookings import LateCost
from gateway.store.money.parked_money import Stake
from gateway.telemetry import Event, logger
from gateway.types import Reservation


Said = VendorResult | GatewrightError
"""What a vendor said of a line, or why it said nothing."""


class _Place(Struct, frozen=True):
    """Where a line is for which money is set aside."""

    organisation: str
    batch_id: str
    number: int


class _Ending(Struct, frozen=True):
    """What lines of one parcel that end together have in common."""

    batch: Batch
    vendor_id: str
    check_end: Callable[[], None]
    """Raises LeaseOver where their outcomes may not be written any more."""


class ParkedLines:
    """Lines that wait, as far as this worker holds money for them."""

    def __init__(
        self,
        store: ParcelStore,
        journeys: LineJourneys,
        ledger: Ledger,
        purse: Purse,
        clock: Clock,
        *,
        metrics: Metrics,
        outcome_of: OutcomeOf,
        new_request_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._journeys = journeys
        self._ledger = ledger
        self._purse = purse
        self._clock = clock
        self._metrics = metrics
        self._outcome_of = outcome_of
        self._new_request_id = new_request_id
        self._log = logger()
        self._held: dict[str, Reservation] = {}
        self._places: dict[str, _Place] = {}
        """Of those, and perhaps of some that have ended."""
        self._paid: set[str] = set()
        """Requests whose cost is booked, though their outcome could not be written yet."""

    async def park(self, claim: Claim, key: ContentKey, parked: Parked) -> None:
        """A line waits from now on; raises NotReady, and may then be called again."""
        ticket = parked.ticket
        raw = encode_ticket(ticket)
        stake = self._purse.stake(ticket.request_id, ticket.reservation)
        also = self._purse.parked.noting(stake)
        if await self._store.park(claim, key, ticket.provider, ticket.target, raw, also):
            self._keep(ticket, ticket.reservation, claim.batch.batch_id, claim.line.number)
        else:
            gone = GatewrightError("The line was taken over by another worker.")
            await self._journeys.undelivered(parked.passage, gone)

    async def hold(
        self, batch: Batch, key: ContentKey, row: ParcelRow, lines: Sequence[ParkedLine]
    ) -> list[tuple[ParkedLine, Ticket]]:
        """Lines with their tickets, whose money this worker now has set aside.

        Those whose tickets it cannot read are left out: they have ended.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended; they may be given again.
            TermOver: some are somebody else's to end.
        """
        held: list[tuple[ParkedLine, Ticket]] = []
        for line in lines:
            ticket = decode_ticket(line.ticket)
            if isinstance(ticket, Remnant):
                await self._lose(batch, key, row, line, ticket)
                continue
            held.append((line, ticket))
        await self._drop_lost([ticket.request_id for _, ticket in held])
        stakes: list[Stake] = []
        for line, ticket in held:
            if ticket.request_id not in self._held:
                reservation = await self._reserved(ticket)
                self._keep(ticket, reservation, batch.batch_id, line.line.number)
                stakes.append(self._purse.stake(ticket.request_id, reservation))
        await self._purse.parked.note(stakes)
        return held

    async def end(
        self, batch: Batch, key: ContentKey, row: ParcelRow, said: Mapping[int, Said]
    ) -> None:
        """Conclude lines of one parcel, and write down how each ended.

        Raises:
            AuditUnavailable, NotReady: some are still to be ended; they may be given again.
            TermOver: somebody else leads the parcel by now, and ends them.
        """
        if not said:
            return
        numbers = list(said)
        lines = await self._store.lines(batch.batch_id, key, numbers)
        held = await self.hold(batch, key, row, lines)
        requests = [ticket.request_id for _, ticket in held]
        check_end = await self._begin_ending(row, numbers, requests)
        at = _Ending(batch, row.vendor_id, check_end)
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
        try:
            await self._store.end(row, key, ends)
        except TermOver:
            # They are on record, and paid: whoever took the parcel over finds that.
            await self._purse.parked.forget(ended)
            raise
        await self._purse.parked.forget(ended)
        if failure is not None:
            raise failure

    async def charge(self, late: LateCost) -> None:
        """A line is gone: book what is owed where its money is not held here any more.

        It is not where an earlier process gave it back, or had it taken by a write-off. Where that
        counted it as spent, it is paid, and what is held again goes back.

        Raises:
            NotReady: the database does not answer; it may then be asked again.
        """
        request_id = late.request_id
        await self._drop_lost([request_id])
        if await self._purse.parked.begin_ending([request_id]):
            self._release(request_id)
        elif late.cost_microusd and request_id not in self._held:
            await self._purse.late.book(late)

    async def pay_twice(self, parcel_id: str, held: Sequence[tuple[ParkedLine, Ticket]]) -> int:
        """A vendor has lines once more, under another parcel: what was set aside is owed again.

        How much that is, of all of them; booked once for each, however often it is called.

        Raises:
            NotReady: the database does not answer; it may then be asked again.
        """
        now_us, total_microusd = self._clock.utc_us(), 0
        for line, ticket in held:
            kept = ticket.reservation
            name = custom_id_of(parcel_id, line.line.number)
            cost = LateCost(name, kept.accounts, kept.amount_microusd, now_us)
            await self._purse.late.book(cost)
            total_microusd += kept.amount_microusd
        return total_microusd

    async def give_up(self, request_id: str, cost_microusd: int) -> None:
        """A line is gone, and its outcome is written: book what that says on what is held.

        Raises:
            NotReady: it is booked, but the database does not know that yet; that errs upwards.
        """
        reservation = self._held.pop(request_id, None)
        if reservation is not None:
            self._ledger.settle(reservation, cost_microusd)
        await self._purse.parked.forget([request_id])

    def holds_any(self) -> bool:
        return bool(self._held)

    async def drop_ended(self, lines: LineStore) -> None:
        """Give back what is set aside here for lines that another worker has ended.

        Raises:
            NotReady: some is still to be given back.
        """
        self._places = {name: each for name, each in self._places.items() if name in self._held}
        by_batch: dict[str, dict[int, str]] = {}
        for request_id, place in self._places.items():
            by_batch.setdefault(place.batch_id, {})[place.number] = request_id
        for batch_id, requests in by_batch.items():
            states = await lines.states(batch_id, sorted(requests))
            ended = [
                request_id
                for number, request_id in requests.items()
                if states.get(number) != "parked"
                # Of a line that was erased nobody may have booked yet what it costs.
                and (number in states or await self._is_on_record(request_id))
            ]
            await self._purse.parked.forget(ended)
            for request_id in ended:
                self._release(request_id)

    async def let_go(self) -> None:
        """Give back what is set aside: this worker leaves, and the next one holds it again."""
        with suppress(NotReady):  # Then its leases are written off, but for what is noted here.
            await self._purse.parked.let_go()
        for request_id in list(self._held):
            self._release(request_id)

    def _keep(self, ticket: Ticket, reservation: Reservation, batch_id: str, number: int) -> None:
        self._held[ticket.request_id] = reservation
        organisation = ticket.principal.organisation
        self._places[ticket.request_id] = _Place(organisation, batch_id, number)

    def _release(self, request_id: str) -> None:
        """Of one whose time was over long ago the ledger knows nothing any more."""
        reservation = self._held.pop(request_id, None)
        if reservation is not None:
            with suppress(ReservationEndedError):
                self._ledger.release(reservation)

    async def _is_on_record(self, request_id: str) -> bool:
        organisation = self._places[request_id].organisation
        return await self._outcome_of(organisation, request_id) is not None

    async def _drop_lost(self, request_ids: Sequence[str]) -> None:
        """Of those lines, forget what is not set aside any more.

        It was in a lease that is written off by now, or for as long as a vendor was to take.
        """
        now_us = self._clock.utc_us()
        for request_id in request_ids:
            if (over := self._held.get(request_id)) and over.leased_until_us <= now_us:
                self._release(request_id)
        staked = {
            request_id
            for request_id in request_ids
            if (held := self._held.get(request_id)) is not None
            and self._purse.stake(request_id, held).slices
        }
        if staked:
            for request_id in staked - await self._purse.parked.known(staked):
                self._release(request_id)

    async def _begin_ending(
        self, row: ParcelRow, numbers: Sequence[int], request_ids: Sequence[str]
    ) -> Callable[[], None]:
        """From here on a crash counts as spent what is set aside for these lines.

        Gives what raises where it is too late for an outcome of theirs; raises TermOver.
        """
        paid: set[str] = set()

        async def settle_who_pays(connection: AsyncConnection) -> None:
            paid.update(await self._purse.parked.beginning_to_end(connection, request_ids))

        try:
            until_us = await self._store.begin_ending(row, numbers, settle_who_pays)
        except TermOver:
            # Whoever leads it has set money aside for them as well.
            for request_id in request_ids:
                self._release(request_id)
                self._paid.discard(request_id)
            await self._purse.parked.forget(request_ids)
            raise
        for request_id in paid & self._held.keys():
            # Somebody was stopped right here before: what was set aside then is spent.
            self._release(request_id)
            self._held[request_id] = await self._ledger.reserve((), 0)
        return partial(check_until, self._clock, until_us)

    async def _ended(
        self, at: _Ending, line: ParkedLine, ticket: Ticket, said: Said
    ) -> LineEnd | tuple[int, int]:
        record = None
        organisation = ticket.principal.organisation
        if line.is_ending:
            record = await self._outcome_of(organisation, ticket.request_id)
        reservation = self._held[ticket.request_id]
        try:
            passage = self._journeys.resume(
                at.batch, line.line, ticket, reservation, at.vendor_id, at.check_end
            )
        except RequestInvalid:
            # Its body was understood by the version that parked it, and is not by this one.
            return await self._lost(at, line, remnant_of(ticket))
        del self._held[ticket.request_id]
        if record is not None:
            # It was settled by the process that wrote it.
            self._ledger.release(reservation)
        failures = line.failures + 1
        if isinstance(said, GatewrightError):
            if record is None:
                await self._undelivered(passage, ticket, said)
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

    async def _undelivered(self, passage: Passage, ticket: Ticket, said: GatewrightError) -> None:
        try:
            await self._journeys.undelivered(passage, said)
        except AuditUnavailable:
            self._paid.add(ticket.request_id)
            raise
        self._paid.discard(ticket.request_id)

    async def _lose(
        self, batch: Batch, key: ContentKey, row: ParcelRow, line: ParkedLine, remnant: Remnant
    ) -> None:
        """End a line alone whose ticket cannot be read."""
        number = line.line.number
        self._log.warning(Event.BATCH_FAILED, batch=batch.batch_id, error_class="TicketUnreadable")
        check_end = await self._begin_ending(row, [number], [remnant.request_id])
        if not remnant.request_id:
            remnant = structs.replace(remnant, request_id=self._new_request_id())
        end = await self._lost(_Ending(batch, row.vendor_id, check_end), line, remnant)
        await self._store.end(row, key, {number: end})
        await self._purse.parked.forget([remnant.request_id])
        self._metrics.count_line(end.state)

    async def _lost(self, at: _Ending, line: ParkedLine, remnant: Remnant) -> LineEnd:
        """Its money is given back, and its outcome is on record."""
        record = None
        if line.is_ending:
            record = await self._outcome_of(at.batch.project[0], remnant.request_id)
        errand = errand_of(at.batch, line.line, at.vendor_id, at.check_end)
        is_recorded = record is not None
        end = await self._journeys.lost(at.batch, errand, remnant, is_recorded=is_recorded)
        self._release(remnant.request_id)
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
