"""Decides which lines a vendor's own batch API may answer, and keeps a ticket of each meanwhile.

A line is parked after its own decision, with its intent on record and its price reserved. The
ticket holds what the second half of its journey needs: whichever process reads the vendor's answer
ends the line as if it had waited itself.
"""

import msgspec
from msgspec import Struct, structs

from gateway.admission.hosted_tools import searches_at_most
from gateway.caching.response_cache import granted
from gateway.passage import Arrival, Errand, Passage
from gateway.ports import UpstreamBody, UpstreamCall
from gateway.routing.planning import Ruling
from gateway.thread import Thread
from gateway.types import (
    ChatRequest,
    DialectName,
    Inspection,
    Plan,
    Principal,
    Receipt,
    Reservation,
)
from policies.decision import Decision
from policies.facts import Facts


PERCENT = 100
GRACE_S = 7200.0
"""How long money stays set aside after a batch's window: to read results, and give up late ones."""
PLAIN_TIERS = frozenset({None, "auto", "default", "standard_only"})
"""The service tiers that a parked line may name; a line with another tier is sent live."""


class Ticket(Struct, frozen=True):
    """What is stored of a parked line's journey; sealed, since its body is content."""

    request_id: str
    arrived_us: int
    principal: Principal
    inspection: Inspection
    facts: Facts
    """Facts without the targets, which are in the intent."""
    decision: Decision
    plan: Plan
    reservation: Reservation
    intent: Receipt
    subject: str
    end_user: str
    thread: Thread | None
    dialect: DialectName
    """The dialect of the body that the vendor gets."""
    version: str
    betas: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Ticket({self.request_id})"  # The plan holds the body.

    @property
    def target(self) -> str:
        return self.plan.candidates[0].target.name

    @property
    def provider(self) -> str:
        return self.plan.candidates[0].target.provider

    def call(self, deadline_s: float) -> UpstreamCall:
        """The call that the egress checks, and sends together with others."""
        plan = self.plan
        return UpstreamCall(
            target=plan.candidates[0].target,
            body=plan.candidates[0].body,
            stream=False,
            request_id=self.request_id,
            clearance=plan.clearance,
            deadline_s=deadline_s,
            dialect=self.dialect,
            version=self.version,
            betas=self.betas,
            tenant=plan.tenant,
            data_class=plan.data_class,
            service_tier=plan.service_tier,
        )


class RemnantIntent(Struct, frozen=True):
    """The parts of an intent on record."""

    leaf_hash: str = ""


class RemnantReservation(Struct, frozen=True):
    """The parts of what was set aside."""

    accounts: tuple[str, ...] = ()
    amount_microusd: int = 0
    admitted_us: int = 0


class Remnant(Struct, frozen=True):
    """The part of a ticket that can be read if another version of the gateway wrote it."""

    request_id: str = ""
    arrived_us: int = 0
    intent: RemnantIntent = RemnantIntent()
    reservation: RemnantReservation = RemnantReservation()
    subject: str = ""


_TICKET = msgspec.msgpack.Decoder(Ticket)
_REMNANT = msgspec.msgpack.Decoder(Remnant)


def encode_ticket(ticket: Ticket) -> bytes:
    return msgspec.msgpack.encode(ticket)


def decode_ticket(raw: bytes) -> Ticket | Remnant:
    """The ticket; if this version cannot read its form, what is left of it."""
    try:
        return _TICKET.decode(raw)
    except msgspec.MsgspecError:
        return _remnant(raw)


def remnant_of(ticket: Ticket) -> Remnant:
    kept = ticket.reservation
    return Remnant(
        ticket.request_id,
        ticket.arrived_us,
        RemnantIntent(ticket.intent.leaf_hash),
        RemnantReservation(kept.accounts, kept.amount_microusd, kept.admitted_us),
        ticket.subject,
    )


def _remnant(raw: bytes) -> Remnant:
    try:
        return _REMNANT.decode(raw)
    except msgspec.MsgspecError:
        return Remnant()


def may_wait(request: ChatRequest, principal: Principal, ruling: Ruling, arrival: Arrival) -> bool:
    """Whether this line needs no live call for its answer.

    Lines stay here if policy veils, scans, isolates or asks them twice, or may answer from the
    cache.
    """
    plan, obligations = ruling.plan, ruling.decision.obligations
    thread, price = request.thread, plan.candidates[0].target.price
    changes_text = obligations.pseudonymise or obligations.redact or obligations.scan_output
    asks_twice = plan.cascade_above is not None or plan.hedge_after_s is not None
    policies = arrival.snapshot.policies
    return not (
        changes_text
        or asks_twice
        or plan.audit_content != "encrypted"
        or plan.candidates[0].target.in_house
        or price.batch_percent >= PERCENT
        or (thread is not None and thread.goes_on)
        or request.tree.get("service_tier") not in PLAIN_TIERS
        or request.tree.get("speed") is not None
        or granted(policies, principal, ruling).keeps_s
    )


def deferred(
    arrival: Arrival,
    errand: Errand,
    request: ChatRequest,
    ruling: Ruling,
    body: UpstreamBody,
    reserved_for_s: float,
) -> tuple[Arrival, Ruling]:
    """The plan of a line that waits: one target, one body, at the price of a batch.

    A vendor's searches cost the same in a batch as elsewhere.
    """
    first = ruling.plan.candidates[0]
    price = first.target.price
    searches = 0
    if price.web_search_microusd:
        searches = searches_at_most(request) * price.web_search_microusd
    tokens = first.worst_cost_microusd - searches
    candidate = structs.replace(
        first,
        body=body.body,
        dropped=body.dropped,
        worst_cost_microusd=searches - (-tokens * price.batch_percent // PERCENT),
    )
    plan = structs.replace(ruling.plan, candidates=(candidate,), reserved_for_s=reserved_for_s)
    waiting = structs.replace(arrival, errand=structs.replace(errand, is_parked=True))
    return waiting, structs.replace(ruling, plan=plan)


def ticket_of(passage: Passage, dialect: DialectName) -> Ticket:
    """The ticket of a passage that waits."""
    request, ruling = passage.request, passage.ruling
    is_same = dialect == request.dialect
    return Ticket(
        request_id=request.request_id,
        arrived_us=passage.arrival.arrived_us,
        principal=passage.principal,
        inspection=passage.inspection,
        facts=structs.replace(ruling.facts, targets=()),
        decision=ruling.decision,
        plan=ruling.plan,
        reservation=passage.reservation,
        intent=passage.intent,
        subject=passage.subject,
        end_user=request.end_user,
        thread=request.thread,
        dialect=dialect,
        version=request.version if is_same else "",
        betas=request.betas if is_same else (),
    )


def resumed(ticket: Ticket, arrival: Arrival, body: bytes, reservation: Reservation) -> Passage:
    """The original passage of a line that waited; `body` is the caller's."""
    request = arrival.dialect.decode_request(body, ticket.request_id, arrival.headers)
    request = structs.replace(request, thread=ticket.thread, end_user=ticket.end_user)
    ruling = Ruling(ticket.facts, ticket.decision, ticket.plan)
    return Passage(
        arrival,
        ticket.principal,
        request,
        ticket.inspection,
        ruling,
        reservation,
        ticket.intent,
        subject=ticket.subject,
    )
