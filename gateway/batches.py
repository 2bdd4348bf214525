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
"""Made of a file whose results are files, or of messages whose results are read line by line."""
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
"""States of lines that somebody is about to end, here or at a vendor."""

ID_BYTES = 24
"""192 bits: nobody guesses an id, and who learns one still needs a key of its project."""
FLAWS_MAX = 100
"""What is told of a file that is no batch; more would help nobody."""
CUSTOM_ID_LENGTH_MAX = 512
UNREADABLE = "The gateway cannot read what it kept of this line."
DAMAGED = "batch_damaged"
"""Code of a flaw of a batch: what its maker said beside its lines is lost, or all of it."""
ACTIVE: tuple[BatchState, ...] = ("validating", "in_progress", "finalizing", "cancelling")
OPEN: tuple[BatchState, ...] = ("validating", "in_progress")
"""States in which a batch can still be cancelled."""


class KeptFile(Struct, frozen=True):
    """A file of a project; its content is read apart, piece by piece."""

    file_id: str
    project: Project
    key_id: str
    purpose: FilePurpose
    name: str
    size_bytes: int
    created_us: int
    expires_us: int
    is_damaged: bool = False
    """Whether its name, or all of it, cannot be opened any more; the name is empty then."""

    def __repr__(self) -> str:
        return f"KeptFile({self.file_id})"  # Its name is content.


class PageOf(Struct, frozen=True):
    """Which part of a list is asked for, newest first unless `oldest_first`."""

    limit: int
    after: str = ""
    """The id behind which it begins."""
    before: str = ""
    """The id before which it ends."""
    oldest_first: bool = False


class Flaw(Struct, frozen=True):
    """Why a file is no batch."""

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
    """Whether its name or its body cannot be opened any more, and is empty here."""

    def __repr__(self) -> str:
        return f"Line({self.number})"  # The rest is content.


class LineEnd(Struct, frozen=True):
    """How a line that was sent ended: an answer, or an error in its dialect's words."""

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
        """What the headers of an answer say that no vendor's line has a word for."""
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
    """Whether it has an end that cannot be opened any more."""
    was_tried: bool = False
    """Whether it had been handed on: a vendor may have had it, and no answer came."""

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
    """With a vendor's own batch API, or about to be."""

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
    """What the answers of a batch say of themselves, added up."""

    answers: int = 0
    model: str = ""
    """What all of them name; empty where they differ, or one names none."""
    is_counted: bool = True
    """Whether each of them says its tokens; where not, no sum is exact."""
    input_tokens: int = 0
    cached_tokens: int = 0
    """Of the input, as `reasoning_tokens` are of the output."""
    output_tokens: int = 0
    reasoning_tokens: int = 0


class Told(Struct, frozen=True):
    """What is known of a batch beside its lines; content, and sealed like it.

    All of it is its maker's word but `sums`, which are there once it is over.
    """

    metadata: Mapping[str, str] = {}
    headers: tuple[tuple[bytes, bytes], ...] = ()
    """Of the request that made it: those that mean something to its lines."""
    output_keep_s: int = 0
    """How long its maker wants the files of its results kept; 0 for as long as they may be."""
    sums: AnswerSums = AnswerSums()

    def __repr__(self) -> str:
        return "Told(…)"


class Batch(Struct, frozen=True):
    """A batch as its project sees it. Times are 0 until they have come."""

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
    """What it becomes once its last line has ended."""
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
    """Whether `told` or `flaws` could not be opened; they are empty then."""

    def __repr__(self) -> str:
        return f"Batch({self.batch_id}, {self.state})"

    @property
    def may_be_cancelled(self) -> bool:
        """One that is damaged also while it is finished: without its key that never ends."""
        return self.state in OPEN or (self.is_damaged and self.state == "finalizing")

    @property
    def is_over(self) -> bool:
        return self.state not in ACTIVE
