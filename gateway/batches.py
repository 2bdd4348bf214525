"""Files and batches: the nouns of work that is sent line by line and fetched later.

A file and a batch belong to one project and to nobody else. A batch has the same states as the
vendors' own batches; its lines wait, run, and end exactly once.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from gateway.projects import Project


FilePurpose = Literal["batch", "batch_output"]
BatchKind = Literal["file", "messages"]
"""Made from a file, with files as results, or from messages, with results read line by line."""
BatchState = Literal[
    "validating",
    "failed",
    "in_progress",
    "finalizing",
    "completed",
    "expired",
    "cancelling",
    "cancelled",
]
Ending = Literal["completed", "expired", "cancelled"]
LineState = Literal["waiting", "running", "parked", "succeeded", "errored", "canceled", "expired"]
UNDER_WAY: frozenset[LineState] = frozenset({"running", "parked"})
"""States of lines that will be ended, here or at a vendor."""

ID_BYTES = 24
"""192 bits: nobody can guess an id, and using one still takes a key of its project."""
FLAWS_MAX = 100
"""The most flaws that are reported of a file; more would help nobody."""
CUSTOM_ID_LENGTH_MAX = 512
UNREADABLE = "The gateway cannot read what it kept of this line."
DAMAGED = "batch_damaged"
"""Code of a flaw of a batch: what its maker sent besides its lines is lost, or all of it."""
ACTIVE: tuple[BatchState, ...] = ("validating", "in_progress", "finalizing", "cancelling")
OPEN: tuple[BatchState, ...] = ("validating", "in_progress")
"""States in which a batch can still be cancelled."""


class KeptFile(Struct, frozen=True):
    """A file of a project; its content is read separately, piece by piece."""

    file_id: str
    project: Project
    key_id: str
    purpose: FilePurpose
    name: str
    size_bytes: int
    created_us: int
    expires_us: int
    is_damaged: bool = False
    """Whether its name, or all of it, can no longer be decrypted; then the name is empty."""

    def __repr__(self) -> str:
        return f"KeptFile({self.file_id})"  # Its name is content.


class PageOf(Struct, frozen=True):
    """The part of a list that is asked for, newest first unless `oldest_first`."""

    limit: int
    after: str = ""
    """The id after which it begins."""
    before: str = ""
    """The id before which it ends."""
    oldest_first: bool = False


class Flaw(Struct, frozen=True):
    """A reason why a file cannot be a batch."""

    code: str
    message: str
    line: int | None = None
    parameter: str | None = None


class Line(Struct, frozen=True):
    """One request of a batch."""

    number: int
    """Its place in the batch, from 1."""
    custom_id: str
    body: bytes
    is_damaged: bool = False
    """Whether its name or its body can no longer be decrypted, and is empty here."""

    def __repr__(self) -> str:
        return f"Line({self.number})"  # The rest is content.


class LineEnd(Struct, frozen=True):
    """How a sent line ended: with an answer, or with an error in its dialect's words."""

    state: Literal["succeeded", "errored"]
    status: int
    request_id: str
    body: bytes
    target: str = ""
    decision: str = ""
    receipt: str = ""
    cost_microusd: int = 0

    @property
    def told(self) -> dict[str, object]:
        """What an answer's headers say that a vendor's result line has no field for."""
        if not self.target:
            return {}
        told = {
            "target": self.target,
            "decision": self.decision,
            "receipt": self.receipt,
            "cost_microusd": self.cost_microusd,
        }
        return {"gatewright": told}

    def __repr__(self) -> str:
        return f"LineEnd({self.request_id}, {self.status})"  # The rest is content.


class EndedLine(Struct, frozen=True):
    """A line with its end; None where it has none, and its state says why."""

    number: int
    custom_id: str
    state: LineState
    end: LineEnd | None
    is_damaged: bool = False
    """Whether it has an end that can no longer be decrypted."""
    was_tried: bool = False
    """Whether it was handed on without an answer: a vendor may have had it."""

    def __repr__(self) -> str:
        return f"EndedLine({self.number}, {self.state})"


class LineCounts(Struct, frozen=True):
    """How many lines of a batch are in which state."""

    waiting: int = 0
    running: int = 0
    succeeded: int = 0
    errored: int = 0
    canceled: int = 0
    expired: int = 0
    parked: int = 0
    """Lines at a vendor's own batch API, or about to be."""

    @property
    def unsent(self) -> int:
        """Lines that failed, one way or another."""
        return self.errored + self.canceled + self.expired

    @property
    def open(self) -> int:
        return self.waiting + self.running + self.parked

    @property
    def total(self) -> int:
        return self.open + self.succeeded + self.unsent


class AnswerSums(Struct, frozen=True):
    """The usage that the answers of a batch report, added up."""

    answers: int = 0
    model: str = ""
    """The model that all of them name; empty where they differ, or one names none."""
    is_counted: bool = True
    """Whether each of them reports its tokens; otherwise no sum is exact."""
    input_tokens: int = 0
    cached_tokens: int = 0
    """Part of the input, as `reasoning_tokens` are part of the output."""
    output_tokens: int = 0
    reasoning_tokens: int = 0


class Told(Struct, frozen=True):
    """What is known of a batch besides its lines; it is content, and sealed as such.

    All of it is its maker's word but `sums`, which are there once it is over.
    """

    metadata: Mapping[str, str] = {}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Headers of the request that made it, as far as they concern its lines."""
    output_keep_s: int = 0
    """How long its maker wants its result files to be kept; 0 for as long as possible."""
    sums: AnswerSums = AnswerSums()

    def __repr__(self) -> str:
        return "Told(…)"


class Batch(Struct, frozen=True):
    """A batch as its project sees it. Times are 0 until they are known."""

    batch_id: str
    kind: BatchKind
    project: Project
    key_id: str
    endpoint: str
    state: BatchState
    created_us: int
    expires_us: int
    keep_until_us: int
    ending: Ending = "completed"
    """Its state once its last line has ended."""
    input_file_id: str = ""
    output_file_id: str = ""
    error_file_id: str = ""
    started_us: int = 0
    finalizing_us: int = 0
    cancelling_us: int = 0
    ended_us: int = 0
    stopped: str = ""
    """Code of the error that ended lines which were never sent."""
    counts: LineCounts = LineCounts()
    told: Told = Told()
    flaws: tuple[Flaw, ...] = ()
    is_damaged: bool = False
    """Whether `told` or `flaws` could not be decrypted; then they are empty."""

    def __repr__(self) -> str:
        return f"Batch({self.batch_id}, {self.state})"

    @property
    def may_be_cancelled(self) -> bool:
        """Also a damaged batch that is being finished: without its key, that would never end."""
        return self.state in OPEN or (self.is_damaged and self.state == "finalizing")

    @property
    def is_over(self) -> bool:
        return self.state not in ACTIVE
