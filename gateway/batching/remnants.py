"""Remains of a parked line that can no longer be read: whose it is, and what is owed for it.

Its vendor may have been asked, so it is never free where that answered: it costs what the vendor
counted, at the price in its ticket, or what was reserved where that cannot be told.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from msgspec import structs

from gateway.admission.plausible_counts import believed_at_all
from gateway.audit.reckoning import OpenIntent
from gateway.batches import Batch
from gateway.batching.owed import OutcomeOf, late_cost
from gateway.batching.parked_reservations import ParkedReservations
from gateway.batching.parking import (
    Remnant,
    RemnantIntent,
    RemnantReservation,
    Ticket,
    remnant_of,
)
from gateway.batching.pipeline import SERVED_AS
from gateway.batching.unanswered import MAY_COST
from gateway.clock import MINUTE_US, Clock
from gateway.dialects.registry import DIALECTS
from gateway.errors import GatewrightError, NotReady, UpstreamFailed, UpstreamMalformed
from gateway.money.bills import Bill, charged
from gateway.parcels import VendorResult
from gateway.recording.evidence import Loss
from gateway.store.batching.parcel_rows import ParkedLine
from gateway.types import Usage


Said = VendorResult | GatewrightError
"""A vendor's result for a line, or why there is none."""
IntentOf = Callable[[str, str, int], Awaitable[OpenIntent | None]]
"""Organisation, batch and line → the newest intent on record of a line that was parked."""
ON_RECORD_US: Final = 10 * MINUTE_US
"""How long the intent of a parked line may take to reach the database."""


class Remnants:
    """Finds out whose a line is if its ticket does not tell."""

    def __init__(
        self,
        reservations: ParkedReservations,
        clock: Clock,
        *,
        intent_of: IntentOf,
        outcome_of: OutcomeOf,
        new_request_id: Callable[[], str],
    ) -> None:
        self._reservations = reservations
        self._clock = clock
        self._intent_of = intent_of
        self._outcome_of = outcome_of
        self._new_request_id = new_request_id

    async def of(self, batch: Batch, line: ParkedLine, ticket: Ticket | Remnant) -> Remnant:
        """What is known about a line, from its ticket, the log, or the money set aside here.

        If nothing is, it gets a new name, and nobody can tell its cost or whose it was.

        Raises:
            NotReady: its intent may be in the database in a moment.
        """
        remnant = remnant_of(ticket) if isinstance(ticket, Ticket) else ticket
        if remnant.request_id and remnant.reservation.accounts:
            return remnant
        number = line.line.number
        request_id, held = self._reservations.held_for(batch.batch_id, number)
        name = remnant.request_id or request_id
        intent = await self._intent(batch, line)
        if intent is not None and name in ("", intent.record.request_id):
            return _remnant_of(intent)
        if name and held is not None:
            kept = RemnantReservation(held.accounts, held.amount_microusd)
            return structs.replace(remnant, request_id=name, reservation=kept)
        if self._clock.utc_us() - line.parked_us < ON_RECORD_US:
            raise NotReady("the intent of a line is not in the database yet")
        return structs.replace(remnant, request_id=name or self._new_request_id())

    async def _intent(self, batch: Batch, line: ParkedLine) -> OpenIntent | None:
        """Its own intent: one that ended before this line began belongs to an earlier journey."""
        organisation = batch.project.organisation
        intent = await self._intent_of(organisation, batch.batch_id, line.line.number)
        if intent is None or line.is_ending:
            return intent
        ended = await self._outcome_of(organisation, intent.record.request_id)
        return intent if ended is None else None


def _remnant_of(intent: OpenIntent) -> Remnant:
    begun = intent.record
    late = late_cost(begun, begun.reserved_microusd)
    return Remnant(
        begun.request_id,
        begun.utc_us,
        RemnantIntent(intent.leaf_hash),
        RemnantReservation(late.accounts, late.cost_microusd),
        begun.subject,
    )


def loss_of(
    line: ParkedLine, ticket: Ticket | Remnant, remnant: Remnant, said: Said | None
) -> Loss:
    """What is owed for a line after its vendor's result; None if the vendor was never asked."""
    loss = Loss(remnant.intent.leaf_hash, line.target, line.provider, remnant.subject)
    reserved_microusd = remnant.reservation.amount_microusd
    if isinstance(said, VendorResult) and said.kind == "answered":
        if isinstance(ticket, Ticket):
            with suppress(GatewrightError):
                return _counted(loss, ticket, said)
    elif said not in MAY_COST:
        return loss
    is_unknown = not remnant.reservation.accounts
    return structs.replace(loss, cost_microusd=reserved_microusd, is_unknown=is_unknown)


def _counted(loss: Loss, ticket: Ticket, said: VendorResult) -> Loss:
    """The vendor's own count; raises GatewrightError if it is unreadable or impossible."""
    try:
        usage = DIALECTS[ticket.dialect].decode_reply(said.body).usage
    except UpstreamFailed as error:
        if not isinstance(error.counted, Usage):
            raise
        usage = error.counted
    target = ticket.plan.candidates[0].target
    if believed_at_all(usage, target).disbelieved:
        raise UpstreamMalformed("The upstream counted what cannot be.")
    usage = structs.replace(usage, service_tier=SERVED_AS)
    bill = Bill(target, usage)
    (cost_microusd,) = charged([bill], ticket.plan.worst_cost_microusd)
    return structs.replace(loss, cost_microusd=cost_microusd, usage=usage)
