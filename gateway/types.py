"""The nouns of the journey, in order of appearance; all frozen, one added per stage.

`ChatRequest → Principal → Inspection → (Facts → Decision) → Plan → Reservation → Attempt → Delta →
Usage → Settlement → AuditRecord → Receipt`. `Facts` and `Decision` are those of `policies`.
Nobody writes into somebody else's object: an audit record is evidence only if nothing could change
it afterwards. They are msgspec structs because building a frozen dataclass costs ten times as much.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gateway.price import Price
from gateway.recorded_facts import RecordedFacts
from gateway.thread import Thread


Conversing = Literal["openai_chat", "anthropic_messages", "openai_responses"]
DialectName = Literal[Conversing, "openai_embeddings", "openai_completions"]
Spoken = Literal["text", "thinking", "refusal", "tool_arguments", "opaque"]
Purpose = Literal["answer", "embedding"]
PURPOSES: Mapping[str, Purpose] = {"openai_embeddings": "embedding"}  # All others ask for answers.
Tier = Literal["cheap", "mid", "frontier"]
Stage = Literal["intent", "outcome", "admin"]
Translation = Literal["strict", "warn", "lenient"]
"""Refuse what would be left out, say so in a header, or only in the audit record."""
FORMATS = ("response_format", "text.format", "output_config.format", "output_format")
"""How callers of each dialect call the format of an answer; what was lost of one begins so."""
EVENT_END = b"\n\n"
"""The closing blank line of a server-sent event whose lines end with LF."""
OutcomeStatus = Literal["ok", "refused", "failed", "incomplete", "cancelled"]


class ChatRequest(Struct, frozen=True):
    """One request as it came in, plus the parsed view that decisions need."""

    request_id: str
    dialect: DialectName
    raw: bytes
    """The body's bytes, untouched: same-dialect upstreams get them patched, never re-encoded."""
    tree: Mapping[str, object]
    """The decoded JSON object; duplicate keys were refused, so it has the same meaning as `raw`."""
    model: str
    stream: bool
    max_output_tokens: int | None
    wants_stream_usage: bool
    """OpenAI's `stream_options.include_usage`; always true for Anthropic's dialect."""
    has_tools: bool
    has_images: bool
    has_documents: bool
    wants_json_schema: bool
    input_tokens_estimate: int
    """About as many as its text has in today's vocabularies; billed only where nobody counted."""
    input_tokens_most: int = 0
    """As many as it has at most: what is reserved and counted against rates before it is known."""
    destinations: tuple[tuple[str, str], ...] = ()
    """Addresses that the body names (images, documents, tool servers): where, and which."""
    version: str = ""
    """The protocol version that the caller pinned, e.g. `2023-06-01`; empty for none."""
    betas: tuple[str, ...] = ()
    """Features that the caller asked for by header and that may be passed on."""
    purpose: Purpose = "answer"
    thread: Thread | None = None  # None in dialects that have no threads.
    dropped: tuple[str, ...] = ()
    """What was left out before any target was chosen, e.g. a header that is not passed on."""
    end_user: str = ""
    """The end user that the body names, as a keyed digest: all that another dialect is told."""
    prompts: int = 1  # Texts that are continued at once, each as often as answers are asked for.
    longest_tokens_estimate: int = 0  # Of several texts the longest's; 0 where all input is one.


class Principal(Struct, frozen=True):
    """Who asks: a virtual key and its place in the tree."""

    key_id: str
    key_name: str
    organisation: str
    workspace: str
    project: str
    labels: tuple[str, ...]
    models: frozenset[str] | None
    """Targets this key may use; None means all that policy permits."""
    accounts: tuple[str, ...]
    """Budget accounts from the organisation down to the key: `org:acme`, `ws:acme/research`, …."""
    translation: Translation = "warn"
    """What happens when a target's dialect has no word for a part of the request."""


class Inspection(Struct, frozen=True):
    """What the classifiers saw. Types and counts only: never a value."""

    data_class: str
    """`S0` (public) to `S4` (secrets); `S4` too when the inspection failed or ran out of time."""
    findings: Mapping[str, int]
    complete: bool
    incomplete_reasons: tuple[str, ...]
    complexity: float
    complexity_tier: Tier
    classifier_version: str
    duration_us: int
    complexity_parts: tuple[tuple[str, float], ...] = ()
    """What words, domains and shape of the prompt added to the raw score; never a word itself."""
    calibration: str = ""
    """What the calibration table said of this organisation and route; empty where it has none."""
    injection: float = 0.0
    """How much untrusted text reads like orders to a model; 0 where nobody asked."""
    injection_suspected: bool = False


class Target(Struct, frozen=True):
    """A model at a place: what a plan may choose."""

    name: str
    provider: str
    model: str  # Its name in the upstream's own words.
    jurisdiction: str
    in_house: bool
    tier: Tier
    price: Price
    context_window_tokens: int
    output_tokens_max: int
    capabilities: frozenset[str]
    digest: str = ""
    """Weights, tokenizer and template of an in-house model; empty for managed ones."""
    vendor: str = ""  # Who made the model: chooses the estimator of its tokens.
    assurances: frozenset[str] = frozenset()
    seals: str = ""
    """In which dialect its vendor seals reasoning that it alone can read; empty for none."""
    parameters: Mapping[str, str] = {}  # The model's stance to each: `catalogue.Stance`.
    leaves_out_hosted: bool = False  # Tools of another vendor's, rather than refuse them.
    origin: str = ""  # Which server its provider asks, as a digest: `configuration.origins`.

    @property
    def purpose(self) -> Purpose:
        return purpose_of(self.capabilities)


def purpose_of(capabilities: frozenset[str]) -> Purpose:
    """A model makes vectors or answers, never both."""
    return "embedding" if "embeddings" in capabilities else "answer"


class Candidate(Struct, frozen=True):
    """One target of a plan with what it may cost at worst."""

    target: Target
    output_tokens_cap: int
    worst_cost_microusd: int
    body: bytes = b""
    """The request in this target's dialect, where it had to be converted to see that it can be."""
    dropped: tuple[str, ...] = ()
    """What that conversion left out."""


class Plan(Struct, frozen=True):
    """What dispatch may do: candidates in order, and the clearance that the egress checks again."""

    candidates: tuple[Candidate, ...]
    clearance: frozenset[str]
    """Jurisdictions that the decision left open; the egress opens no connection outside it."""
    deadline_s: float
    decision_digest: str
    decision_reason: str
    audit_content: Literal["encrypted", "redacted", "none"]
    translation: Translation = "warn"
    hedge_after_s: float | None = None
    """After this time without an answer the next candidate is asked as well."""
    cascade_above: float | None = None
    """An answer of the first tier that fails more likely than this goes one tier up."""
    service_tier: str = "standard"
    tenant: str = ""  # Whose prompts may share a replica's cache.
    data_class: str = ""
    reserved_for_s: float = 0.0  # How long its money is set aside; 0 as for any request.

    @property
    def worst_cost_microusd(self) -> int:
        """Of the dearest candidate; in a race or a cascade two are asked, and both are paid."""
        if len(self.candidates) == 1:
            return self.candidates[0].worst_cost_microusd
        worst = [each.worst_cost_microusd for each in self.candidates]
        asks_one = self.hedge_after_s is None and self.cascade_above is None
        return max(worst) if asks_one else sum(sorted(worst, reverse=True)[:2])


class Reservation(Struct, frozen=True):
    """Money set aside on every account of a principal; ends in exactly one settlement."""

    reservation_id: str
    accounts: tuple[str, ...]
    amount_microusd: int
    leased_until_us: int
    admitted_us: int = 0
    """It is charged to the windows of this moment."""


class Usage(Struct, frozen=True):
    """Tokens of one answer. `input_tokens` counts all input, cached parts included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False  # The upstream sent no usage, so we counted characters instead.
    service_tier: str = ""  # That served it: `default`, `priority`, `flex`, `batch`; or not said.
    web_searches: int = 0  # By the vendor's own tool, paid beside the tokens.
    disbelieved: int = 0  # What the upstream said it counted that cannot be; estimated instead.
    inference_geo: str = ""  # Of an answer bound to one country: `us`, or `other`.
    compactions: int = 0  # Times that its vendor summed up the conversation; in the counts.


class Attempt(Struct, frozen=True, omit_defaults=True):
    """One upstream call of a plan, as it ended; their costs add up to an outcome's."""

    target: str
    status: int  # The upstream's over HTTP; 0 when none arrived.
    error: str  # Code of our error tree; empty on success.
    duration_us: int
    first_byte_us: int  # To the head; of a stream to its first content, where any came.
    cost_microusd: int = 0
    estimated: bool = False
    """Whether what it cost is estimated: its upstream did not say what it counted."""
    upstream_ids: tuple[str, ...] = ()
    """What its upstream calls the call, in its answer's head: for a ticket, and for its logs."""


CUT_SHORT = "cut_short"
"""Our word for the error of a stream that came to its end without all of its answers."""


class Delta(Struct, frozen=True):
    """One piece of a streamed answer, in no dialect's words.

    `kind` says which fields mean something: `start` (message_id, model), `text` (text), `thinking`
    (text, signature), `refusal` (text), `tool_start` (index, tool_id, name), `tool_arguments`
    (index, text), `text_tool_start` (index, tool_id, name; the text of that call comes as `opaque`
    of the same index), `stop` (stop_reason, stop_sequence), `usage` (usage), `error` (text: the
    upstream's error type), `opaque` (index, text; but for such a call other dialects have no word
    for it), `part` (another part of the thinking begins).
    """

    kind: Literal[
        Spoken, "start", "part", "tool_start", "text_tool_start", "stop", "usage", "error"
    ]
    text: str = ""
    index: int = 0
    tool_id: str = ""
    name: str = ""
    signature: str = ""
    message_id: str = ""
    model: str = ""
    stop_reason: str = ""
    """`end`, `length`, `stop_sequence`, `tool_use`, `content_filter`, `pause`."""
    stop_sequence: str | None = None
    usage: Usage | None = None
    redacted: str = ""  # A thinking block that only its vendor can read.


class StreamEvent(Struct, frozen=True):
    """One server-sent event of an upstream: its exact bytes and what it means."""

    raw: bytes
    """With its closing blank line, for a client of the same dialect; each answer's part of a chunk
    that goes on with several."""
    deltas: tuple[Delta, ...]
    is_terminal: bool = False  # `[DONE]`, `message_stop`: a stream without one is broken.
    is_unexplained: bool = False
    """Of a terminal event: nobody had said why the answer stopped. Some servers never do."""
    is_usage_only: bool = False
    """An event that exists only because we asked for usage; hidden from clients that did not."""
    has_content: bool = False
    """Whether the caller sees part of the answer in it: after that, no other target is tried."""
    is_closing: bool = False
    """Says why the answer stopped: held back until the terminal event shows that it is whole."""
    settles: tuple[int, ...] | None = None
    """Of several answers those it goes on with or ends; None where it may be the end of all."""
    said: bytes = b""
    """Of an error its JSON, for whoever judges it: no caller sees it."""
    searches: int = 0
    """By the vendor's own tool that it shows to be done; below zero where one costs nothing."""
    is_repeatable: bool = False
    """Of a terminal event: as `Completion` has it."""


class Completion(Struct, frozen=True):
    """A whole answer in no dialect's words, plus the upstream's bytes."""

    raw: bytes
    message_id: str
    model: str
    text: str
    tool_calls: tuple["ToolCall", ...]
    stop_reason: str
    stop_sequence: str | None
    usage: Usage
    thinking: tuple[Delta, ...] = ()
    refusal: str = ""
    vectors: int = 0  # Instead of an answer in words.
    is_repeatable: bool = False
    """All of its answers ended for reasons that we know, and none was withheld or refused: it is no
    mishap that would last if it were given again."""


class ToolCall(Struct, frozen=True):
    """A tool the model wants called; `arguments_json` is text as the model wrote it.

    Of a call that `is_text` these are an object with that text, and only callers who brought such a
    tool are told of it.
    """

    tool_id: str
    name: str
    arguments_json: str
    is_text: bool = False


class Settlement(Struct, frozen=True):
    """How a reservation ended."""

    reservation_id: str
    reserved_microusd: int
    cost_microusd: int


class AuditRecord(Struct, frozen=True, omit_defaults=True):
    """One line of evidence. Append-only in shape: no field is renamed, new ones have defaults."""

    stage: Stage
    request_id: str
    organisation: str
    utc_us: int
    workspace: str = ""
    project: str = ""
    key_id: str = ""
    actor: str = ""
    """Who did an admin action: the authenticated principal, never a request field."""
    action: str = ""
    endpoint: str = ""
    dialect: str = ""
    model_requested: str = ""
    target: str = ""
    provider: str = ""
    jurisdiction: str = ""
    decision: str = ""
    """Digest of the decision; the facts below reproduce it."""
    decision_reason: str = ""
    policy_digest: str = ""
    snapshot: str = ""
    data_class: str = ""
    findings: Mapping[str, int] = {}
    inspection_complete: bool = True
    complexity_ppm: int = 0
    candidates: tuple[str, ...] = ()
    clearance: tuple[str, ...] = ()
    reserved_microusd: int = 0
    intent: str = ""
    """Leaf hash of the request's intent, in its outcome."""
    status: str = ""
    http_status: int = 0
    error: str = ""
    attempts: tuple[Attempt, ...] = ()
    usage: Usage | None = None
    cost_microusd: int = 0
    price_as_of: str = ""
    duration_us: int = 0
    dropped: tuple[str, ...] = ()
    detail: Mapping[str, str] = {}
    facts: RecordedFacts | None = None
    """With what the record says besides, all that policy looked at."""
    subject: str = ""
    """The end user that the caller named, as a keyed digest: found again, not read."""
    classifier: str = ""
    complexity_parts_ppm: Mapping[str, int] = {}
    calibration: str = ""
    output_findings: Mapping[str, int] = {}
    """In the answer, by label, where policy says to scan it."""


class Receipt(Struct, frozen=True):
    """Where a record lies and what it hashes to; enough for `gatewright audit verify --receipt`."""

    worker: str
    segment: int
    offset_bytes: int
    leaf_hash: str
    """Hex SHA-256."""

    def __str__(self) -> str:
        return f"{self.worker}.{self.segment}.{self.offset_bytes}.{self.leaf_hash}"
