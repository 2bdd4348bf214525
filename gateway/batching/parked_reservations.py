"""Money that this worker has reserved for lines that wait for a vendor.

What an earlier process had reserved for a line is reserved again, in those of its windows that are
not over; where it does not fit any more, the line's true cost is booked all the same, since the
vendor has been asked.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.batching.owed import OutcomeOf, Purse
from gateway.batching.parking import Ticket
from gateway.batching.steps import given_up
from gateway.clock import Clock
from gateway.errors import BudgetExhausted
from gateway.money.budgets import ReservationEndedError
from gateway.parcels import custom_id_of
from gateway.ports import Ledger
from gateway.store.batching.lines import LineStore
from gateway.store.batching.parcel_rows import ParkedLine
from gateway.store.money.late_bookings import LateCost
from gateway.store.money.parked_money import Stake
from gateway.types import Reservation


class _Place(Struct, frozen=True):
    """Where a line is for which money is set aside."""

    organisation: str
    batch_id: str
    number: int


class ParkedReservations:
    """Reservations of parked lines, by request, as far as this worker holds them."""

    def __init__(self, ledger: Ledger, purse: Purse, clock: Clock, outcome_of: OutcomeOf) -> None:
        self._ledger = ledger
        self._purse = purse
        self._clock = clock
        self._outcome_of = outcome_of
        self._held: dict[str, Reservation] = {}
        self._places: dict[str, _Place] = {}
        """Of those and of what is paid, and perhaps of some that have ended."""
        self._unfitting: set[str] = set()
        """Of those that are held the ones for which there was nothing to set aside."""
        self._paid: set[str] = set()
        """Requests whose cost is booked, though their outcome could not be written yet.

        It may be another worker's to write by now, so that nobody comes back to them here."""

    def noting(self, ticket: Ticket) -> Callable[[AsyncConnection], Awaitable[None]]:
        """What notes a line's money in the transaction that parks it."""
        return self._purse.parked.noting(self._stake(ticket.request_id, ticket.reservation))

    def keep(self, ticket: Ticket, reservation: Reservation, batch_id: str, number: int) -> None:
        """This worker has it from now on."""
        self._held[ticket.request_id] = reservation
        organisation = ticket.principal.organisation
        self._places[ticket.request_id] = _Place(organisation, batch_id, number)

    def keep_parked(self, ticket: Ticket, batch_id: str, number: int) -> None:
        """The same of a line that this worker has just parked, or hears that it had parked.

        Unheard, its own parcel may have taken the line up meanwhile: money is set aside once.
        """
        request_id, reservation = ticket.request_id, ticket.reservation
        if request_id in self._unfitting:
            self.release(request_id)  # There was nothing left besides what is set aside here.
        held = self._held.get(request_id)
        if held is None and request_id not in self._paid:
            self.keep(ticket, reservation, batch_id, number)
        elif held is None or held.reservation_id != reservation.reservation_id:
            self._end(reservation)

    async def given_back(self, reservation: Reservation) -> Reservation:
        """What was set aside for a line that is another's goes back: nothing is in its place.

        Also where it went back before.
        """
        self._end(reservation)
        return await self._ledger.reserve((), 0)

    async def hold(self, batch_id: str, lines: Sequence[tuple[ParkedLine, Ticket]]) -> None:
        """Set aside what is not set aside here for these lines; raises NotReady."""
        await self._drop_lost([ticket.request_id for _, ticket in lines])
        stakes: list[Stake] = []
        for line, ticket in lines:
            if ticket.request_id not in self._held:
                reservation = await self._reserved(ticket)
                if ticket.request_id in self._held:
                    # That it was parked here was heard meanwhile.
                    self._unfitting.discard(ticket.request_id)
                    self._end(reservation)
                    continue
                self.keep(ticket, reservation, batch_id, line.line.number)
                stakes.append(self._stake(ticket.request_id, reservation))
        await self._purse.parked.note(stakes)

    def held_for(self, batch_id: str, number: int) -> tuple[str, Reservation | None]:
        """The request of a line for which this worker has money set aside; an empty name for none.

        It knows that of lines whose ticket says nothing any more, until it is restarted.
        """
        for request_id, held in self._held.items():
            place = self._places[request_id]
            if (place.batch_id, place.number) == (batch_id, number):
                return request_id, held
        return "", None

    def of(self, request_id: str) -> Reservation:
        return self._held[request_id]

    def hand_over(self, request_id: str) -> None:
        """It is settled or released elsewhere."""
        del self._held[request_id]
        self._unfitting.discard(request_id)

    def booking(self, ticket: Ticket) -> Callable[[int], Awaitable[None]] | None:
        """What books the cost of a line for which nothing is set aside; None for all others.

        Nothing is noted for it, so that whoever ends it after a crash could not tell whether the
        ledger of the run before had reported its cost. Booked by its name, it is booked once.
        """
        if ticket.request_id not in self._unfitting:
            return None

        async def book(cost_microusd: int) -> None:
            if cost_microusd:
                accounts, admitted_us = ticket.reservation.accounts, _admitted_us(ticket)
                late = LateCost(ticket.request_id, accounts, cost_microusd, admitted_us)
                await self._purse.late.book(late)

        return book

    def release(self, request_id: str) -> None:
        """Of one whose time was over long ago the ledger knows nothing any more."""
        reservation = self._held.pop(request_id, None)
        self._unfitting.discard(request_id)
        if reservation is not None:
            self._end(reservation)

    def _end(self, reservation: Reservation) -> None:
        with suppress(ReservationEndedError):
            self._ledger.release(reservation)

    def mark_paid(self, request_id: str) -> None:
        """Its cost is booked, and its outcome is still to be written."""
        self._paid.add(request_id)
        self.release(request_id)  # Of a line that was heard to be parked while it was ended.

    def mark_ended(self, request_id: str) -> None:
        """Its outcome is written."""
        self._paid.discard(request_id)

    async def begin_ending(
        self, connection: AsyncConnection, request_ids: Sequence[str]
    ) -> set[str]:
        """From here on a crash counts as spent what is set aside; for which of these it has."""
        return await self._purse.parked.beginning_to_end(connection, request_ids)

    async def hold_nothing(self, request_ids: set[str]) -> None:
        """Somebody was stopped when they had begun to end these: what was set aside is spent."""
        for request_id in request_ids & self._held.keys():
            self.release(request_id)
            self._held[request_id] = await self._ledger.reserve((), 0)

    async def drop(self, request_ids: Sequence[str]) -> None:
        """Whoever leads their parcel by now has set money aside for them as well.

        Raises:
            NotReady: it is still held, and may be dropped again.
        """
        # Noted for longer than it is held, it would come back in a crash, in place of what others
        # hold by then.
        await self._purse.parked.leave(request_ids)
        for request_id in request_ids:
            self.release(request_id)
            self._paid.discard(request_id)

    async def forget(self, request_ids: Sequence[str]) -> None:
        """They have ended: nothing is noted for them any more."""
        await self._purse.parked.forget(request_ids)

    def forgetting(
        self, request_ids: Sequence[str]
    ) -> Callable[[AsyncConnection], Awaitable[None]]:
        """What does the same in the transaction that ends them."""
        return self._purse.parked.forgetting(request_ids)

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
            self.release(request_id)
        elif request_id not in self._held or request_id in self._unfitting:
            if late.cost_microusd:
                await self._purse.late.book(late)
            self.release(request_id)

    async def pay_twice(
        self, parcel_id: str, held: Sequence[tuple[ParkedLine, Ticket]], at_us: int
    ) -> int:
        """A vendor has lines once more, under another parcel: what was set aside is owed again.

        How much that is, of all of them; booked once for each in the windows of `at_us`, however
        often it is called.

        Raises:
            NotReady: the database does not answer; it may then be asked again.
        """
        total_microusd = 0
        for line, ticket in held:
            kept = ticket.reservation
            name = custom_id_of(parcel_id, line.line.number)
            cost = LateCost(name, kept.accounts, kept.amount_microusd, at_us)
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
        await self.forget([request_id])

    def holds_any(self) -> bool:
        """Whether there is something that `drop_ended` may have to forget."""
        return bool(self._held or self._paid)

    async def drop_ended(self, lines: LineStore) -> None:
        """Forget lines that another worker has ended: what is set aside for them goes back.

        Raises:
            NotReady: some is still to be given back.
        """
        kept = self._held.keys() | self._paid
        self._places = {name: each for name, each in self._places.items() if name in kept}
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
            await self.forget(ended)
            for request_id in ended:
                self.release(request_id)
                self.mark_ended(request_id)

    async def let_go(self) -> None:
        """Give back what is set aside: this worker leaves, and the next one holds it again."""
        # Where that fails its leases are written off, but for what is noted here.
        await given_up(self._purse.parked.let_go())
        for request_id in list(self._held):
            self.release(request_id)

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
                self.release(request_id)
        held = {each: self._held[each] for each in request_ids if each in self._held}
        stakes = [self._stake(*each) for each in held.items()]
        staked = [stake for stake in stakes if stake.slices]
        if staked:
            known = await self._purse.parked.known(staked)
            lost = [stake.request_id for stake in staked if stake.request_id not in known]
            if lost:
                # What is noted of other levels would come back in a crash, in place of what others
                # hold there by then.
                await self._purse.parked.leave(lost)
            for request_id in lost:
                self.release(request_id)

    async def _reserved(self, ticket: Ticket) -> Reservation:
        kept, admitted_us = ticket.reservation, _admitted_us(ticket)
        now_us = self._clock.utc_us()
        left_s = max(0.0, (kept.leased_until_us - now_us) / 1e6)
        if ticket.request_id in self._paid:
            return await self._ledger.reserve((), 0, left_s)
        try:
            return await self._ledger.reserve(
                kept.accounts, kept.amount_microusd, left_s, admitted_us
            )
        except BudgetExhausted:
            nothing = await self._ledger.reserve(kept.accounts, 0, left_s, admitted_us)
            self._unfitting.add(ticket.request_id)
            return nothing

    def _stake(self, request_id: str, reservation: Reservation) -> Stake:
        return self._purse.stake(request_id, reservation)


def _admitted_us(ticket: Ticket) -> int:
    """Of which moment the windows are charged, also where an older version wrote the ticket."""
    return ticket.reservation.admitted_us or ticket.arrived_us
