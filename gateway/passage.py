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
"""In a record: the way that a line took, and the vendor's batch that it was part of."""
NATIVE_FILES = "native_files"
"""In a record: the vendor's files of that batch, separated by blanks."""


class Errand(Struct, frozen=True):
    """A line of a batch, sent for the key that made it, while nobody waits."""

    batch_id: str
    line: int
    key_id: str
    waits_until_us: int = 0
    """How long it may wait for an answer of a vendor's own batch API; 0 where it may not."""
    is_parked: bool = False
    """Whether it waits for one; it was decided on and recorded like any other before."""
    vendor_batch: str = ""
    vendor_files: tuple[str, ...] = ()
    """The files of that batch, at a vendor that has files."""
    check_end: Callable[[], None] | None = None
    """Raises if another worker may write its outcome by now; None where there is no other."""
    check_lease: Callable[[], None] | None = None
    """Raises if another worker may have taken the line over: then nothing is sent for it."""
    tell_answered: Callable[[], None] | None = None
    """Called once nothing more is sent for it: the rest takes little time, and it is paid."""
    book: Callable[[int], Awaitable[None]] | None = None
    """Books its cost where nothing could be reserved for it: a ledger's memory may be lost before
    the outcome is written, and nothing would show that it was paid. Raises NotReady."""


class Arrival(Struct, frozen=True):
    """What the door knows before anything is parsed."""

    request_id: str
    endpoint: str
    dialect: Dialect
    headers: list[tuple[bytes, bytes]]
    """As received, names in lower case; read by `identity` and never copied into a record."""
    arrived_us: int
    snapshot: Snapshot
    errand: Errand | None = None
    """None for a caller who waits."""
    trace: str = ""
    """The caller's span that this request belongs to (`TRACE-SPAN`), where it named one."""

    @property
    def detail(self) -> dict[str, str]:
        """What records say of it besides their own fields."""
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
        """Microseconds from the arrival to `utc_us`; 0 if the clock was set back in between."""
        return max(0, utc_us - self.arrived_us)

    def __repr__(self) -> str:
        return f"Arrival({self.request_id}, {self.endpoint})"


class Passage(Struct, frozen=True):
    """A request that was let through, with all that the second half of the journey needs."""

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
    """Set where policy says to scan the answer; afterwards it knows what the answer contained."""
    ruled_again: str = ""
    """Digest of the policy that ruled again after it had waited; empty where it had not."""

    @property
    def sent(self) -> ChatRequest:
        """What targets get: the request itself, or its veiled form."""
        return self.request if self.veil is None else self.veil.request

    def has_batch_price(self, target: Target) -> bool:
        """Whether a batch's price applies: it does in-house, where a line waits for its turn."""
        return self.arrival.errand is not None and target.in_house

    @property
    def rewriting(self) -> AnswerRewriter | None:
        """How the answer is rewritten: scanned in the upstream's words, then unveiled."""
        if self.output is None and self.veil is None:
            return None
        return in_turn(self.output, self.veil)
