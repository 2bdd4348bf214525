"""What a journey carries along: the arrival at the door, and the passage once it is let through.

All frozen; they only refer to the nouns of `gateway.types` and add none of their own.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from gateway.money.rates import NO_LIMITS, Permit
from gateway.ports import Dialect
from gateway.routing.planning import Ruling
from gateway.snapshot import Snapshot
from gateway.types import (
    ChatRequest,
    Inspection,
    Principal,
    Receipt,
    Reservation,
    Target,
)
from gateway.veiling.output_scan import OutputScan
from gateway.veiling.rewriting import AnswerRewriter, in_turn
from gateway.veiling.veil import Veil


NATIVE = "native_batch"
"""In a record: which way a line took, and as which batch of its vendor's."""
NATIVE_FILES = "native_files"
"""In a record: the vendor's files of that batch, with blanks between."""


class Errand(Struct, frozen=True):
    """What is sent for somebody who is not there: a line of a batch, for the key that made it."""

    batch_id: str
    line: int
    key_id: str
    waits_until_us: int = 0
    """Until when it may wait for an answer of a vendor's own batch API; 0 where it may not."""
    is_parked: bool = False
    """Whether it does; it was decided and written down like any other before."""
    vendor_batch: str = ""
    vendor_files: tuple[str, ...] = ()
    """Those of that batch, at a vendor that has files."""
    check_end: Callable[[], None] | None = None
    """Raises where another worker may write its outcome by now; None where this one is alone."""
    check_lease: Callable[[], None] | None = None
    """Raises where the line may be another worker's by now: nothing is sent for it then."""
    tell_answered: Callable[[], None] | None = None
    """Told once nothing more is sent for it: from then on it is short, and paid."""
    book: Callable[[int], Awaitable[None]] | None = None
    """Books what it costs where nothing could be set aside for it: a ledger's memory may be lost
    between that and the outcome, and nothing would tell that it was paid. Raises NotReady."""


class Arrival(Struct, frozen=True):
    """What the door knows before anything is parsed."""

    request_id: str
    endpoint: str
    dialect: Dialect
    headers: list[tuple[bytes, bytes]]
    """As they came, names in lower case; read by `identity` and never copied into a record."""
    arrived_us: int
    snapshot: Snapshot
    errand: Errand | None = None
    """None for a caller who waits."""
    trace: str = ""
    """The caller's span that this request belongs to (`TRACE-SPAN`), where it named one."""

    @property
    def detail(self) -> dict[str, str]:
        """What records say of it beside their own fields."""
        if self.errand is None:
            return {"trace": self.trace} if self.trace else {}
        detail = {"batch": self.errand.batch_id, "line": str(self.errand.line)}
        if self.errand.is_parked:
            detail["path"] = NATIVE
        if self.errand.vendor_batch:
            detail[NATIVE] = self.errand.vendor_batch
        if self.errand.vendor_files:
            detail[NATIVE_FILES] = " ".join(self.errand.vendor_files)
        return detail

    def lasted_us(self, utc_us: int) -> int:
        """Microseconds from here to a moment; 0 where the clock was set back in between."""
        return max(0, utc_us - self.arrived_us)

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
    output: OutputScan | None = None
    """Where policy says to scan the answer; afterwards it knows what that contained."""
    ruled_again: str = ""
    """By which policy once more, as its digest, after it had waited; empty where it had not."""

    @property
    def sent(self) -> ChatRequest:
        """What targets get: the request itself, or its veiled form."""
        return self.request if self.veil is None else self.veil.request

    def has_batch_price(self, target: Target) -> bool:
        """Whether a batch's price is truly paid: in the house, where a line waits for its turn."""
        return self.arrival.errand is not None and target.in_house

    @property
    def rewriting(self) -> AnswerRewriter | None:
        """What happens to the answer: scanned in the upstream's words, then unveiled."""
        if self.output is None and self.veil is None:
            return None
        return in_turn(self.output, self.veil)
