"""What the journey needs from outside, as small protocols, each with a real and a useful fake.

Every port has one contract suite in `tests/contracts` that runs against both.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from gateway.errors import GatewrightError
from gateway.pacing.pings import Push
from gateway.types import (
    AuditRecord,
    ChatRequest,
    Completion,
    DialectName,
    Receipt,
    Reservation,
    Settlement,
    StreamEvent,
    Target,
    Usage,
)


def unwatched() -> None:
    """Nobody asks whether a call's bytes have left."""


class UpstreamCall(Struct, frozen=True):
    """One attempt, ready for the wire."""

    target: Target
    body: bytes
    stream: bool
    request_id: str
    clearance: frozenset[str]
    """Jurisdictions the plan left open; the egress refuses a target outside it."""
    deadline_s: float
    """Seconds left for the whole attempt."""
    dialect: DialectName = "openai_chat"
    """In which the body is written: an upstream may speak several, each at its own path."""
    tenant: str = ""
    data_class: str = ""
    """Of the request; with the tenant it says which cached prefixes an engine may let it meet."""
    service_tier: str = "standard"
    version: str = ""
    """The caller's protocol version, where the upstream speaks the caller's dialect."""
    betas: tuple[str, ...] = ()
    is_count: bool = False
    """Whether the body is to be counted and not answered; only where the provider does that."""
    leaves: Callable[[], None] = unwatched
    """Called when its bytes are about to leave: before, nobody can have been paid for it."""


Take = Callable[[bytes], bool]
"""Takes a piece of a body at once; True when it has enough for now."""


class UpstreamReply(Protocol):
    """An answer whose headers have arrived. Must be closed, also after an error or a cancel."""

    status: int
    retry_after_s: float | None
    is_event_stream: bool
    upstream_ids: tuple[str, ...]  # What the upstream calls this call: short words.

    @property
    def body_bytes(self) -> int:
        """How long its body is, where the head said so; else what has arrived of it."""
        ...

    @property
    def rate_limits(self) -> Mapping[str, str]:
        """What the upstream says of its limits, under its own header names; of refusals only."""
        ...

    async def read(self) -> bytes:
        """The whole body, bounded.

        Raises:
            UpstreamMalformed: it is larger than the limit.
            UpstreamUnreachable: the connection broke.
            UpstreamTimeout: the deadline passed.
        """
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives; raises like `read`, and ends early when the upstream does."""
        ...

    async def flow(self, take: Take) -> None:
        """Hand the body to `take` as it arrives, until that has enough or nothing more comes.

        `chunks` goes on where this ended, and says what went wrong; what `take` raises is raised.
        """
        ...

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        """An error that was said behind a good status, as a caller may be told it."""
        ...

    async def close(self) -> None:
        """Give the connection back, or cut it: that cancels what was not read to its end."""
        ...


class Provider(Protocol):
    """One upstream: where it is, which dialect it speaks, how it is called. Never retries."""

    name: str
    dialect: DialectName
    jurisdiction: str
    counts_tokens: bool
    """Whether it says how long a request is without answering it."""

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """The dialect in which this request is put to the target."""
        ...

    @property
    def unavailable_reason(self) -> str:
        """Empty when it can be called; else why not, e.g. `no credential`."""
        ...

    async def open(self, call: UpstreamCall) -> UpstreamReply:
        """Send and wait for the reply's headers.

        Raises:
            SovereigntyViolation: the target's jurisdiction is outside the clearance;
            nothing was sent.
            UpstreamUnreachable, UpstreamTimeout: no headers came.
        """
        ...

    async def probe(self) -> str:
        """Empty when the upstream answers a cheap question now, else why not."""
        ...

    async def close(self) -> None: ...


class ServedModel(Protocol):
    """What an in-house engine says about a model it serves."""

    @property
    def id(self) -> str: ...

    @property
    def digest(self) -> str:
        """Weights, tokenizer and template in one hash; empty when the engine does not say."""
        ...

    @property
    def precision(self) -> str:
        """In which formats, and on what, it computes; empty when the engine does not say."""
        ...

    @property
    def window_tokens(self) -> int:
        """0 when the engine does not say."""
        ...

    @property
    def told_capabilities(self) -> frozenset[str]:
        """What the engine says the model can do; empty when it does not say."""
        ...


class ModelHost(Provider, Protocol):
    """A provider of our own, which can be asked what it serves."""

    async def list_models(self) -> Sequence[ServedModel]:
        """Raises UpstreamFailed when there is no answer that can be understood."""
        ...


class StreamDecoder(Protocol):
    """Bytes of an upstream's event stream → events; keeps the unfinished rest."""

    def plain_words(self, data: bytes) -> list[str] | None:
        """The words of each event of a read that is whole events and says nothing else.

        It is one that need not be fed. None, which says nothing, leaves it to `feed`.
        """
        ...

    def feed(self, data: bytes) -> list[StreamEvent]:
        """Complete events in `data` and what was left before.

        Raises:
            UpstreamMalformed: an event is not what the dialect promises, or larger than the limit.
        """
        ...

    @property
    def is_told(self) -> bool:
        """Whether nothing is missing but its terminal event: why it stopped, and what it counts."""
        ...

    def conclude(self) -> list[StreamEvent]:
        """The terminal event of a stream that is told, and does not say so itself."""
        ...

    def close(self) -> list[StreamEvent]:
        """The stream ended: events in the unfinished rest, if it is one."""
        ...


class StreamEncoder(Protocol):
    """Events → bytes in the caller's dialect."""

    @property
    def response(self) -> bytes:
        """After `finish`: the whole answer, in dialects whose last event holds it; else empty."""
        ...

    @property
    def is_cut_on_failure(self) -> bool:
        """Whether the body is left unfinished after `fail`: its dialect has no event for errors."""
        ...

    def encode(self, events: list[StreamEvent]) -> bytes:
        """Everything but the terminal event; may be empty."""
        ...

    def plain(self, push: Push) -> Push | None:
        """What writes events that say nothing but words, and go to the caller as they came.

        None where events are not passed on as they come.
        """
        ...

    def finish(self, comment: str, usage: Usage) -> bytes:
        """What was held back, a comment line for those who read the wire, the terminal event.

        `usage` is what the answer is charged for: told where the upstream told none.
        """
        ...

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        """An error event; no terminal event may follow it."""
        ...

    def ping(self) -> bytes:
        """Something harmless to send while waiting."""
        ...


class Allowance(Struct, frozen=True):
    """One limit of a key, and how it stood when a request was let through or refused."""

    limit: int
    left: int
    full_in_s: float  # Until all of it is there again, if nothing more is asked for.


class Standing(Struct, frozen=True):
    """A key's own limits per minute; None where it has none."""

    requests: Allowance | None = None
    tokens: Allowance | None = None


class UpstreamBody(Struct, frozen=True):
    """A request in an upstream's dialect, and what had no place there."""

    body: bytes
    dropped: tuple[str, ...] = ()
    is_less: bool = False  # Something is left out that another target could do for the caller.


class Dialect(Protocol):
    """A wire format, both ways. Pure: no I/O, no clock."""

    name: DialectName

    def decode_request(
        self, raw: bytes, request_id: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> ChatRequest:
        """Parse and check what a client sent; `headers` in lower case, as ASGI has them.

        Raises:
            RequestInvalid: malformed JSON, duplicate keys, wrong types, missing or
            contradictory fields.
        """
        ...

    def encode_request(
        self, request: ChatRequest, target: Target, output_tokens_cap: int
    ) -> UpstreamBody:
        """A request of any dialect in this one, for `target`, with its output capped.

        Raises:
            FeatureUnsupported: it holds something this dialect cannot say without
            changing its meaning.
        """
        ...

    def mend_request(self, body: bytes, error: GatewrightError) -> UpstreamBody | None:
        """What an upstream refused, without the part for which it did.

        None where that is not why, or where nothing can be left out.
        """
        ...

    def decode_reply(self, raw: bytes) -> Completion:
        """Raises UpstreamMalformed unless `raw` is a whole answer."""
        ...

    def encode_reply(
        self, completion: Completion, source: DialectName, request: ChatRequest
    ) -> bytes:
        """The upstream's own bytes where `source` is this dialect, else the same in this one."""
        ...

    def unmet(self, request: ChatRequest, text: str) -> str:
        """Where an answer's text differs from the JSON or the schema that was asked for.

        Empty if it does not, or if nothing was asked.
        """
        ...

    def decode_error(self, status: int, raw: bytes, retry_after_s: float | None) -> GatewrightError:
        """An upstream's error body → our tree; keeps status and `retry-after`, not addresses."""
        ...

    def encode_error(self, error: GatewrightError, request_id: str) -> tuple[int, bytes]:
        """Our tree → HTTP status and body as this dialect's SDK understands them."""
        ...

    def encode_standing(self, standing: Standing, utc_us: int) -> dict[str, str]:
        """How a key's own limits stand, in the headers of this dialect's vendor."""
        ...

    def stream_decoder(self, answers: int = 1) -> StreamDecoder: ...  # So many were asked for.

    def stream_encoder(self, request: ChatRequest, source: DialectName) -> StreamEncoder:
        """An encoder for the caller; passes bytes through where `source` is this dialect."""
        ...


class Ledger(Protocol):
    """Budgets: reserve → settle | release, in integer micro-dollars, on every level of the tree."""

    async def reserve(
        self,
        accounts: tuple[str, ...],
        amount_microusd: int,
        lease_s: float = 0.0,
        admitted_us: int | None = None,
    ) -> Reservation:
        """Set the amount aside on every account that has a limit, or on none.

        It stays aside for `lease_s`, or for as long as requests usually may take. For a request
        that was let through before, at `admitted_us`, nothing is set aside in windows and of limits
        that have begun since: they are not charged with it.

        Raises:
            BudgetExhausted: it does not fit; the message names the level, not the
            amounts of others.
        """
        ...

    def settle(self, reservation: Reservation, cost_microusd: int) -> Settlement:
        """Book the true cost, even above what was reserved, and give the rest back. Once only."""
        ...

    def release(self, reservation: Reservation) -> Settlement:
        """Give all of it back. Once only."""
        ...

    async def left_now_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """What `left_microusd` says, after asking where that was heard a minute ago or longer.

        Raises:
            NotReady: it has to be asked, and nobody answers.
        """
        ...

    def left_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """The least that is left on any limited account, as last heard; None for no limit."""
        ...

    def limits_end_users(self, organisation: str) -> bool:
        """Whether each end user of this organisation has a limit."""
        ...


class AuditLog(Protocol):
    """The evidence. A record is durable when what `append` gives was waited for."""

    def append(self, record: AuditRecord, content: bytes | None = None) -> Awaitable[Receipt]:
        """Write a record, with encrypted content if given, and wait until it cannot be lost.

        Raises:
            AuditUnavailable: no device could write within its deadline.
        """
        ...
