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
"""An answer whose worker has said nothing for so long has failed."""

RunState = Literal["queued", "in_progress"]

Place = tuple[Project, str]
"""Where an answer is found: its project, and its id there."""


class Run(Struct, frozen=True):
    """An answer that is under way."""

    project: Project
    answer_id: str
    request_id: str
    worker: str
    """By its name; who has the name next knows that all from before is left behind."""
    holder: str
    """One life of that worker."""
    conversation_id: str = ""
    """The conversation that is locked until this ends; empty for none."""
    state: RunState = "queued"

    @property
    def place(self) -> Place:
        return self.project, self.answer_id


class Events(Struct, frozen=True):
    """Some events of one answer, in order and without gaps."""

    number: int
    """Of these among all that are kept of it, from 0."""
    first_sequence: int
    last_sequence: int
    content: bytes
    """As a caller gets them: each ends with a blank line."""

    def __repr__(self) -> str:
        return f"Events({self.number})"  # The rest is content.


class TakenAway(Exception):
    """Somebody else has ended an answer: nothing of it is written any more."""


class RunStore(Protocol):
    """Answers under way, on all workers of one database."""

    async def begin(self, answer: KeptAnswer, run: Run, count_max: int) -> bool:
        """Whether there was room: a project has no more than so many.

        Raises:
            PreviousResponseUnknown: what it goes on from was erased meanwhile.
            Unavailable
        """
        ...

    async def start(self, run: Run) -> bool:
        """It waits no longer; False where it is not this holder's any more."""
        ...

    async def find(self, place: Place) -> Run | None:
        """None where it is under way no more."""
        ...

    async def keep(self, holder: str) -> Mapping[Place, int]:
        """Say that a holder is alive; until when it has what it has, of what nobody deleted."""
        ...

    async def end(
        self, answer: KeptAnswer, items: Collection[str] = (), *, holder: str = ""
    ) -> bool:
        """Write an answer as it ended; False where it has ended, or is not there any more.

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
        """It is under way no more, where its answer was deleted or has expired under a hold."""
        ...

    async def abandon(self, run: Run) -> None:
        """It is under way no more, whatever its answer says: nobody can open that."""
        ...

    async def lapsed(self, *, left_only: bool = False) -> Sequence[Run]:
        """Those whose holder has said nothing for too long; some of them.

        With `left_only` none whose holder may be alive: only what an earlier life left behind.
        """
        ...

    async def end_lapsed(self, answer: KeptAnswer, run: Run) -> bool:
        """Write how one of those ended, unless its holder has come back."""
        ...

    async def leave_earlier_lives(self, worker: str, holder: str) -> None:
        """What a worker of this name had before has nobody now."""
        ...

    async def note(self, run: Run, events: Events) -> bool:
        """Keep events; False where the answer is not this holder's any more."""
        ...

    async def events(self, place: Place, after: int) -> Sequence[Events]:
        """Some of those that end after this sequence number, in order."""
        ...

    async def last_event(self, place: Place) -> int:
        """The number of the last event that is kept of an answer; -1 for none."""
        ...

    async def forget_events(self, before_us: int) -> int:
        """Forget those that were noted before; how many pieces went."""
        ...
