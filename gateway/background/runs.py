"""Background answers in the making: owner, worker, and the contract of every store of them.

An answer has a row as long as it is being made. Whoever ends it removes the row and writes the end
in one change, so that it ends once: complete, failed, cancelled or deleted, whoever comes first.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, Protocol

from msgspec import Struct

from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.kept_conversations import KeptConversation
from gateway.projects import Project


LEASE_US: Final = 20_000_000
"""An answer whose worker has been silent for this long has failed."""

RunState = Literal["queued", "in_progress"]

Place = tuple[Project, str]
"""An answer's place: its project, and its id there."""


class Run(Struct, frozen=True):
    """An answer that is under way."""

    project: Project
    answer_id: str
    request_id: str
    worker: str
    """The worker's name; its next process knows that everything earlier was left behind."""
    holder: str
    """One process of that worker."""
    conversation_id: str = ""
    """The conversation that is locked until this ends; empty for none."""
    state: RunState = "queued"

    @property
    def place(self) -> Place:
        return self.project, self.answer_id


class Events(Struct, frozen=True):
    """Some events of one answer, in order and without gaps."""

    number: int
    """Number of the first of these among all kept events of the answer, from 0."""
    first_sequence: int
    last_sequence: int
    content: bytes
    """As the caller gets them: each ends with a blank line."""

    def __repr__(self) -> str:
        return f"Events({self.number})"  # The rest is content.


class TakenAway(Exception):
    """Somebody else has ended the answer: nothing more of it is written."""


class RunStore(Protocol):
    """Answers under way, on all workers of one database."""

    async def begin(self, answer: KeptAnswer, run: Run, count_max: int) -> bool:
        """Add an answer; whether there was room, as a project may have only so many.

        Raises:
            PreviousResponseUnknown: what it goes on from was erased meanwhile.
            Unavailable
        """
        ...

    async def start(self, run: Run) -> bool:
        """Note that it no longer waits; False if it is no longer this holder's."""
        ...

    async def find(self, place: Place) -> Run | None:
        """The answer; None if it is no longer under way."""
        ...

    async def keep(self, holder: str) -> Mapping[Place, int]:
        """Report that a holder is alive; until when it holds its answers that nobody deleted."""
        ...

    async def end(
        self, answer: KeptAnswer, items: Collection[str] = (), *, holder: str = ""
    ) -> bool:
        """Write how an answer ended; False if it has ended already, or no longer exists.

        It is forgotten instead where it `is_erased`.

        With a `holder` only where it is still that one's.
        """
        ...

    async def end_turn(
        self,
        answer: KeptAnswer,
        items: Collection[str],
        turn: KeptConversation,
        now_us: int,
        *,
        holder: str,
    ) -> bool:
        """The same together with the turn of a conversation: both are written, or neither.

        False where the conversation is not as it was found, or not there any more.

        Raises:
            TakenAway: the answer is not this holder's any more.
            ConversationUnknown: it `is_erased`; nothing is written.
        """
        ...

    async def drop(self, run: Run) -> None:
        """Remove the row of an answer that was deleted or has expired under a legal hold."""
        ...

    async def abandon(self, run: Run) -> None:
        """Remove the row, whatever its answer says, as nobody can decrypt that."""
        ...

    async def lapsed(self, *, left_only: bool = False) -> Sequence[Run]:
        """Some of the answers whose holder has been silent for too long.

        With `left_only` none whose holder may be alive: only what an earlier life left behind.
        """
        ...

    async def end_lapsed(self, answer: KeptAnswer, run: Run) -> bool:
        """Write how one of those ended, unless its holder has come back."""
        ...

    async def leave_earlier_lives(self, worker: str, holder: str) -> None:
        """Note that nobody holds what earlier processes of this worker held."""
        ...

    async def note(self, run: Run, events: Events) -> bool:
        """Keep events; False if the answer is no longer this holder's."""
        ...

    async def events(self, place: Place, after: int) -> Sequence[Events]:
        """Some of the events that end after this sequence number, in order."""
        ...

    async def last_event(self, place: Place) -> int:
        """The number of the last kept event of an answer; -1 for none."""
        ...

    async def forget_events(self, before_us: int) -> int:
        """Forget those that were noted before; how many pieces went."""
        ...
