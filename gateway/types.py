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
"""Where a part would be left out: refuse, say so in a header, or only in the audit record."""
FORMATS = ("response_format", "text.format", "output_config.format", "output_format")
"""Each dialect's name for the format of an answer; reports of its lost parts begin with it."""
EVENT_END = b"\n\n"
"""The closing blank line of a server-sent event whose lines end with LF."""
OutcomeStatus = Literal["ok", "refused", "failed", "incomplete", "cancelled"]


class ChatRequest(Struct, frozen=True):
    """One request as received, plus the parsed view that decisions need."""

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
    """About the tokens of its text in today's vocabularies; billed only where nobody counted."""
    input_tokens_most: int = 0
    """The most it can have: reserved, and counted against rates, until the true count is known."""
    destinations: tuple[tuple[str, str], ...] = ()
    """Addresses that the body names (images, documents, tool servers): where, and the address."""
    version: str = ""
    """The protocol version that the caller pinned, e.g. `2023-06-01`; empty for none."""
    betas: tuple[str, ...] = ()
    """Features that the caller asked for by header and that may be passed on."""
    purpose: Purpose = "answer"
    thread: Thread | None = None  # None in dialects that have no threads.
    dropped: tuple[str, ...] = ()
    """What was left out before any target was chosen, e.g. a header that is not passed on."""
    end_user: str = ""
    """The end user that the body names, as a keyed digest; another dialect gets nothing else."""
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
    """How much untrusted text reads like orders to a model; 0 where no policy asked."""
    injection_suspected: bool = False


class Target(Struct, frozen=True):
    """A model at a place: what a plan may choose."""

    name: str
    provider: str
    model: str  # The upstream's own name for it.
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
    """The dialect in which its vendor seals reasoning that it alone can read; empty for none."""
    parameters: Mapping[str, str] = {}  # The model's stance to each: `catalogue.Stance`.
    leaves_out_hosted: bool = False  # Whether another vendor's tools are dropped, not refused.
    origin: str = ""  # Digest of the server that its provider asks: `configuration.origins`.

    @property
    def purpose(self) -> Purpose:
        return purpose_of(self.capabilities)


def purpose_of(capabilities: frozenset[str]) -> Purpose:
    """A model makes vectors or answers, never both."""
    return "embedding" if "embeddings" in capabilities else "answer"


class Candidate(Struct, frozen=True):
    """One target of a plan, with its worst price."""

    target: Target
    output_tokens_cap: int
    worst_cost_microusd: int
    body: bytes = b""
    """The request in this target's dialect, if a conversion was needed to see that it can be."""
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
    """If an answer of the first tier is more likely to fail than this, the next tier is asked."""
    service_tier: str = "standard"
    tenant: str = ""  # Whose prompts may share a replica's cache.
    data_class: str = ""
    reserved_for_s: float = 0.0  # How long its money is reserved; 0 for the usual time.

    @property
    def worst_cost_microusd(self) -> int:
        """That of the dearest candidate; in a race or cascade, of two, since both are paid."""
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
    """The cost is charged to the windows of this moment."""


class Usage(Struct, frozen=True):
    """Tokens of one answer. `input_tokens` counts all input, cached parts included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False  # The upstream sent no usage, so we counted characters instead.
    service_tier: str = ""  # Which served it: `default`, `priority`, `flex`, `batch`; or unknown.
    web_searches: int = 0  # By the vendor's own tool, paid in addition to the tokens.
    disbelieved: int = 0  # An impossible count of the upstream; estimated instead.
    inference_geo: str = ""  # The country that an answer was bound to: `us`, or `other`.
    compactions: int = 0  # How often its vendor summarised the conversation; in the counts.


class Attempt(Struct, frozen=True, omit_defaults=True):
    """One upstream call of a plan, as it ended; their costs add up to an outcome's."""

    target: str
    status: int  # The upstream's over HTTP; 0 when none arrived.
    error: str  # Code of our error tree; empty on success.
    duration_us: int
    first_byte_us: int  # Until the head; for a stream until its first content, if any came.
    cost_microusd: int = 0
    estimated: bool = False
    """Whether its cost is estimated, because the upstream reported no count."""
    upstream_ids: tuple[str, ...] = ()
    """The upstream's own ids of the call, from its answer's head: for tickets, and for its logs."""


CUT_SHORT = "cut_short"
"""Our code for a stream that reached its end without all of its answers."""


class Delta(Struct, frozen=True):
    """One piece of a streamed answer, independent of any dialect.

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
    """With its closing blank line, for a client of the same dialect; where one chunk continues
    several answers, each answer's part of it."""
    deltas: tuple[Delta, ...]
    is_terminal: bool = False  # `[DONE]`, `message_stop`: a stream without one is broken.
    is_unexplained: bool = False
    """For a terminal event: nothing had said why the answer stopped. Some servers never do."""
    is_usage_only: bool = False
    """The event exists only because we asked for usage; hidden from clients that did not."""
    has_content: bool = False
    """Whether it shows the caller part of the answer: after that, no other target is tried."""
    is_closing: bool = False
    """It says why the answer stopped: held back until the terminal event shows it is complete."""
    settles: tuple[int, ...] | None = None
    """Which of several answers it continues or ends; None where it may be the end of all."""
    said: bytes = b""
    """An error's JSON, for the code that judges it: no caller sees it."""
    searches: int = 0
    """Searches by the vendor's own tool that it reports as done; negative where one is free."""
    is_repeatable: bool = False
    """For a terminal event: as in `Completion`."""


class Completion(Struct, frozen=True):
    """A complete answer, independent of any dialect, plus the upstream's bytes."""

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
    vectors: int = 0  # Their number, in an answer that is vectors instead of text.
    is_repeatable: bool = False
    """Whether it may be cached: all of its answers ended for known reasons, none was withheld or
    refused, so that no mishap is given out again."""


class ToolCall(Struct, frozen=True):
    """A tool that the model wants to be called; `arguments_json` is text as the model wrote it.

    For a call that `is_text` it is an object with that text; only callers who brought such a tool
    are told of it.
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
    """One line of evidence. Its format only grows: no field is renamed, new ones have defaults."""

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
    """Together with the record's other fields, all that policy looked at."""
    subject: str = ""
    """The end user that the caller named, as a keyed digest: it can be found, but not read."""
    classifier: str = ""
    complexity_parts_ppm: Mapping[str, int] = {}
    calibration: str = ""
    output_findings: Mapping[str, int] = {}
    """Findings in the answer, by label, where policy says to scan it."""


class Receipt(Struct, frozen=True):
    """A record's place and hash; enough for `gatewright audit verify --receipt`."""

    worker: str
    segment: int
    offset_bytes: int
    leaf_hash: str
    """Hex SHA-256."""

    def __str__(self) -> str:
        return f"{self.worker}.{self.segment}.{self.offset_bytes}.{self.leaf_hash}"
