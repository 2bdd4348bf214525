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
    """The default of `UpstreamCall.leaves`: nobody is told when a call's bytes leave."""


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
    """The body's dialect: an upstream may speak several, each at its own path."""
    tenant: str = ""
    data_class: str = ""
    """The request's; with the tenant it decides which cached prefixes an engine may reuse."""
    service_tier: str = "standard"
    version: str = ""
    """The caller's protocol version, where the upstream speaks the caller's dialect."""
    betas: tuple[str, ...] = ()
    is_count: bool = False
    """Whether the body is to be counted and not answered; only where the provider can do that."""
    leaves: Callable[[], None] = unwatched
    """Called when its bytes are about to leave: before that, it cannot have cost anything."""


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
        """The length of its body, if the head says so; else what has arrived of it."""
        ...

    @property
    def rate_limits(self) -> Mapping[str, str]:
        """The upstream's limits, under its own header names; of refusals only."""
        ...

    async def read(self) -> bytes:
        """The complete body, bounded.

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

        `chunks` continues where this ended and raises what went wrong; errors of `take` are raised.
        """
        ...

    def told(self, status: int, said: bytes) -> tuple[int, bytes]:
        """Status and body for the caller, of an error that the upstream sent with a good status."""
        ...

    async def close(self) -> None:
        """Return the connection, or cut it: that cancels an answer that was not read to its end."""
        ...


class Provider(Protocol):
    """One upstream: its place, its dialect, and how to call it. Never retries."""

    name: str
    dialect: DialectName
    jurisdiction: str
    counts_tokens: bool
    """Whether it can count a request's tokens without answering it."""

    def speaks(self, request: ChatRequest, target: Target) -> DialectName:
        """The dialect in which this request is sent to the target."""
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
        """The formats and the device that it computes with; empty when the engine does not say."""
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
    """An in-house provider, which can be asked what it serves."""

    async def list_models(self) -> Sequence[ServedModel]:
        """Raises UpstreamFailed when there is no answer that can be understood."""
        ...


class StreamDecoder(Protocol):
    """Bytes of an upstream's event stream → events; keeps the unfinished rest."""

    def plain_words(self, data: bytes) -> list[str] | None:
        """The text of each event, if `data` is complete events that hold nothing but text.

        Such data need not be fed. With None, the caller gives it to `feed`.
        """
        ...

    def feed(self, data: bytes) -> list[StreamEvent]:
        """The complete events in `data` and the rest of earlier data.

        Raises:
            UpstreamMalformed: an event is not what the dialect promises, or larger than the limit.
        """
        ...

    @property
    def is_told(self) -> bool:
        """Whether only the terminal event is missing: stop reason and usage have been told."""
        ...

    def conclude(self) -> list[StreamEvent]:
        """A terminal event for a stream that is told, and sends none itself."""
        ...

    def close(self) -> list[StreamEvent]:
        """The stream ended: the events in the unfinished rest, if it holds one."""
        ...


class StreamEncoder(Protocol):
    """Events → bytes in the caller's dialect."""

    @property
    def response(self) -> bytes:
        """After `finish`: the complete answer, in dialects whose last event has it; else empty."""
        ...

    @property
    def is_cut_on_failure(self) -> bool:
        """Whether the body is left unfinished after `fail`: its dialect has no event for errors."""
        ...

    def encode(self, events: list[StreamEvent]) -> bytes:
        """Everything but the terminal event; may be empty."""
        ...

    def plain(self, push: Push) -> Push | None:
        """The function that writes events of plain text, which go to the caller unchanged.

        None where events are not passed on unchanged.
        """
        ...

    def finish(self, comment: str, usage: Usage) -> bytes:
        """What was held back, a comment line for people who read the wire, the terminal event.

        `usage` is what the answer is charged for: it is sent where the upstream sent none.
        """
        ...

    def fail(self, error: GatewrightError, request_id: str) -> bytes:
        """An error event; no terminal event may follow it."""
        ...

    def ping(self) -> bytes:
        """Something harmless to send while waiting."""
        ...


class Allowance(Struct, frozen=True):
    """One limit of a key, with its state when a request was let through or refused."""

    limit: int
    left: int
    full_in_s: float  # Until all of it is available again, if no more requests come.


class Standing(Struct, frozen=True):
    """A key's own limits per minute; None where it has none."""

    requests: Allowance | None = None
    tokens: Allowance | None = None


class UpstreamBody(Struct, frozen=True):
    """A request in an upstream's dialect, and what that dialect cannot express."""

    body: bytes
    dropped: tuple[str, ...] = ()
    is_less: bool = False  # Whether something is left out that another target could do.


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
        """The body that an upstream refused, without the part that was the reason.

        None where no part was the reason, or none can be left out.
        """
        ...

    def decode_reply(self, raw: bytes) -> Completion:
        """Raises UpstreamMalformed unless `raw` is a complete answer."""
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
        """The state of a key's own limits, in the headers of this dialect's vendor."""
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
        """Reserve the amount on every account that has a limit, or on none.

        It stays reserved for `lease_s`, or for as long as requests usually may take. For a request
        that was let through before, at `admitted_us`, windows and limits that have begun since are
        left out: they are not charged for it.

        Raises:
            BudgetExhausted: it does not fit; the message names the level, not the
            amounts of others.
        """
        ...

    def settle(self, reservation: Reservation, cost_microusd: int) -> Settlement:
        """Book the true cost, even above the reservation, and release the rest. Once only."""
        ...

    def release(self, reservation: Reservation) -> Settlement:
        """Release all of it. Once only."""
        ...

    async def left_now_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """As `left_microusd`, but a figure that is a minute old or older is asked for again.

        Raises:
            NotReady: it has to be asked for, and nobody answers.
        """
        ...

    def left_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """The least that is left on any limited account, as last known; None for no limit."""
        ...

    def limits_end_users(self, organisation: str) -> bool:
        """Whether each end user of this organisation has a limit."""
        ...


class AuditLog(Protocol):
    """The evidence. A record is durable once the result of `append` has been awaited."""

    def append(self, record: AuditRecord, content: bytes | None = None) -> Awaitable[Receipt]:
        """Write a record, with encrypted content if given, and wait until it cannot be lost.

        Raises:
            AuditUnavailable: no device could write within its deadline.
        """
        ...
