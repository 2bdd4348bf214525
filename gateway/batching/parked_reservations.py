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
    """The place of a line for which money is set aside."""

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
        """Places of held and of paid lines, and perhaps of some that have ended."""
        self._unfitting: set[str] = set()
        """Held lines for which there was no money to set aside."""
        self._paid: set[str] = set()
        """Requests whose cost is booked, though their outcome could not be written yet.

        It may now be another worker's to write, so that nobody returns to them here.
        """

    def noting(self, ticket: Ticket) -> Callable[[AsyncConnection], Awaitable[None]]:
        """Returns what notes a line's money in the transaction that parks it."""
        return self._purse.parked.noting(self._stake(ticket.request_id, ticket.reservation))

    def keep(self, ticket: Ticket, reservation: Reservation, batch_id: str, number: int) -> None:
        """From now on this worker holds it."""
        self._held[ticket.request_id] = reservation
        organisation = ticket.principal.organisation
        self._places[ticket.request_id] = _Place(organisation, batch_id, number)

    def keep_parked(self, ticket: Ticket, batch_id: str, number: int) -> None:
        """The same for a line that this worker has just parked, or learns that it had parked.

        Before it learned that, its own parcel may have taken the line up: money is set aside once.
        """
        request_id, reservation = ticket.request_id, ticket.reservation
        if request_id in self._unfitting:
            self.release(request_id)  # No money was left besides what is set aside here.
        held = self._held.get(request_id)
        if held is None and request_id not in self._paid:
            self.keep(ticket, reservation, batch_id, number)
        elif held is None or held.reservation_id != reservation.reservation_id:
            self._end(reservation)

    async def given_back(self, reservation: Reservation) -> Reservation:
        """Give back what was set aside for another worker's line; its place becomes empty.

        Also if it was given back before.
        """
        self._end(reservation)
        return await self._ledger.reserve((), 0)

    async def hold(self, batch_id: str, lines: Sequence[tuple[ParkedLine, Ticket]]) -> None:
        """Set money aside for those of these lines without any here; raises NotReady."""
        await self._drop_lost([ticket.request_id for _, ticket in lines])
        stakes: list[Stake] = []
        for line, ticket in lines:
            if ticket.request_id not in self._held:
                reservation = await self._reserved(ticket)
                if ticket.request_id in self._held:
                    # This process learned meanwhile that it was parked here.
                    self._unfitting.discard(ticket.request_id)
                    self._end(reservation)
                    continue
                self.keep(ticket, reservation, batch_id, line.line.number)
                stakes.append(self._stake(ticket.request_id, reservation))
        await self._purse.parked.note(stakes)

    def held_for(self, batch_id: str, number: int) -> tuple[str, Reservation | None]:
        """The request of a line for which this worker has set money aside; empty if there is none.

        Until a restart it also knows this for lines with unreadable tickets.
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
        """Returns what books the cost of a line without money set aside; None for all others.

        Nothing is noted for it, so that whoever ends it after a crash could not tell whether the
        previous run's ledger had reported its cost. Booked by its name, it is booked once.
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
        """Release a reservation; long after its time the ledger has forgotten it."""
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
        self.release(request_id)  # For a line that was found to be parked while it was being ended.

    def mark_ended(self, request_id: str) -> None:
        """Its outcome is written."""
        self._paid.discard(request_id)

    async def begin_ending(
        self, connection: AsyncConnection, request_ids: Sequence[str]
    ) -> set[str]:
        """From here on a crash counts what is set aside as spent; returns those already counted."""
        return await self._purse.parked.beginning_to_end(connection, request_ids)

    async def hold_nothing(self, request_ids: set[str]) -> None:
        """A worker was stopped while ending these: their money was counted as spent."""
        for request_id in request_ids & self._held.keys():
            self.release(request_id)
            self._held[request_id] = await self._ledger.reserve((), 0)

    async def drop(self, request_ids: Sequence[str]) -> None:
        """Drop lines for which their parcel's new leader has set money aside as well.

        Raises:
            NotReady: it is still held, and may be dropped again.
        """
        # A note that outlives its money would bring it back after a crash, in place of what others
        # hold by then.
        await self._purse.parked.leave(request_ids)
        for request_id in request_ids:
            self.release(request_id)
            self._paid.discard(request_id)

    async def forget(self, request_ids: Sequence[str]) -> None:
        """They have ended: forget what is noted for them."""
        await self._purse.parked.forget(request_ids)

    def forgetting(
        self, request_ids: Sequence[str]
    ) -> Callable[[AsyncConnection], Awaitable[None]]:
        """Returns what does the same in the transaction that ends them."""
        return self._purse.parked.forgetting(request_ids)

    async def charge(self, late: LateCost) -> None:
        """A line is gone: book what is owed if its money is no longer held here.

        An earlier process may have given it back, or a write-off taken it. If that counted it as
        spent, it is paid, and what is held again goes back.

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
        """Pay for lines that a vendor has twice, under another parcel: their money is owed again.

        Returns the sum for all of them; it is booked only once for each, in the windows of `at_us`,
        however often this is called.

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
        """A line is gone, and its outcome is written: book its cost against what is held.

        Raises:
            NotReady: it is booked, but the database does not know that yet; that errs upwards.
        """
        reservation = self._held.pop(request_id, None)
        if reservation is not None:
            self._ledger.settle(reservation, cost_microusd)
        await self.forget([request_id])

    def holds_any(self) -> bool:
        """Whether `drop_ended` may have something to forget."""
        return bool(self._held or self._paid)

    async def drop_ended(self, lines: LineStore) -> None:
        """Forget lines that another worker has ended, and give back their money.

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
                # The cost of an erased line may not have been booked yet.
                and (number in states or await self._is_on_record(request_id))
            ]
            await self.forget(ended)
            for request_id in ended:
                self.release(request_id)
                self.mark_ended(request_id)

    async def let_go(self) -> None:
        """Give back what is set aside: this worker leaves, and the next one sets it aside again."""
        # If that fails, its leases are written off, except for what is noted here.
        await given_up(self._purse.parked.let_go())
        for request_id in list(self._held):
            self.release(request_id)

    async def _is_on_record(self, request_id: str) -> bool:
        organisation = self._places[request_id].organisation
        return await self._outcome_of(organisation, request_id) is not None

    async def _drop_lost(self, request_ids: Sequence[str]) -> None:
        """Of those lines, forget those whose money is not set aside any more.

        It was in a lease that is written off by now, or the time for which it was set aside is
        over.
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
                # Notes of other levels would come back after a crash, in place of what others hold
                # there by then.
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
    """The moment whose windows are charged, even if an older version wrote the ticket."""
    return ticket.reservation.admitted_us or ticket.arrived_us
