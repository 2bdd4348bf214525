"""What the journey carries with it: the arrival at the door, and the passage once let through.

Both are frozen and only point at the nouns of `gateway.types`; they add none of their own.
"""

from msgspec import Struct

from gateway.ports import Dialect
from gateway.rates import NO_LIMITS, Permit
from gateway.routing import Ruling
from gateway.snapshot import Snapshot
from gateway.types import ChatRequest, Inspection, Principal, Receipt, Reservation
from gateway.veil import Veil


class Arrival(Struct, frozen=True):
    """What the door knows before anything is parsed."""

    request_id: str
    endpoint: str
    dialect: Dialect
    headers: list[tuple[bytes, bytes]]
    """As they came, names in lower case; read by `identity` and never copied into a record."""
    arrived_us: int
    snapshot: Snapshot

    def __repr__(self) -> str:
        return f"Arrival({self.request_id}, {self.endpoint})"


class Passage(Struct, frozen=True):
    """A request that was let through: all that the second half of the journey needs."""

    arrival: Arrival
    principal: Principal
    request: ChatRequest
    inspection: Inspection
    ruling: Ruling
    reservation: Reservation
    intent: Receipt
    permit: Permit = NO_LIMITS
    veil: Veil | None = None
    subject: str = ""
    """The end user as a keyed digest; empty where the request names none."""

    @property
    def sent(self) -> ChatRequest:
        """What targets get: the request itself, or its veiled form."""
        return self.request if self.veil is None else self.veil.request
