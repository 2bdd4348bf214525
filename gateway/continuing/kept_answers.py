"""Kept answers: their definition, and the contract of every store of them."""

from collections.abc import Collection, Sequence
from typing import Final, Protocol

from msgspec import Struct

from gateway.projects import Project


DELETED_MAX: Final = 1_000
"""Of so many a project's deletions are noted at once that found nothing."""
DELETED_US: Final = 900_000_000
"""And for so long: longer than an answer waits at its worker to be kept."""


class KeptAnswer(Struct, frozen=True):
    """An answer that its project may read again and continue."""

    answer_id: str
    project: Project
    key_id: str
    previous_id: str
    data_class: str
    created_us: int
    expires_us: int
    input_items: bytes
    """Everything that was asked up to this answer, as a JSON list of items."""
    response: bytes
    """The answer as its caller saw it, as a JSON object."""
    asked_us: int = 0
    """When it was asked, by the database's clock; known until it is kept. So are the other two."""
    subject: str = ""
    """The end user as a keyed digest; empty where the request named none."""
    sources: tuple[str, ...] = ()
    """Other answers that it repeats something of, besides `previous_id`."""

    @property
    def length_bytes(self) -> int:
        """About its stored size; encryption adds only a few bytes."""
        return len(self.input_items) + len(self.response)

    def __repr__(self) -> str:
        return f"KeptAnswer({self.answer_id})"  # The rest is content.


class AnswerStore(Protocol):
    """Answers that are kept for their project, encrypted."""

    async def keep(self, answer: KeptAnswer, items: Collection[str] = ()) -> bool:
        """`items` are the ids of what was answered, by which a request may say it again.

        False, and nothing is kept, where it `is_erased`. One that stands there stays as it is.

        Raises:
            Unavailable: it cannot be stored.
            RequestInvalid: it never can.
        """
        ...

    async def is_erased(self, answer: KeptAnswer) -> bool:
        """Whether its end user, or something that it continues, was erased since it was asked.

        Raises:
            Unavailable
        """
        ...

    async def find(self, project: Project, answer_id: str, now_us: int) -> KeptAnswer | None:
        """The answer; None if it does not exist in this project, or no longer."""
        ...

    async def holding(self, project: Project, items: Collection[str], now_us: int) -> Sequence[str]:
        """The ids of this project's answers in which these items stand, oldest first."""
        ...

    async def forget(self, project: Project, answer_id: str) -> bool:
        """Delete it; whether it existed."""
        ...

    async def note_deleted(self, project: Project, answer_id: str, now_us: int) -> None:
        """Note that its project has deleted an answer that is not stored yet, if there is room."""
        ...

    async def is_deleted(self, project: Project, answer_id: str) -> bool:
        """Whether such a deletion was noted recently."""
        ...

    async def forget_expired(self, now_us: int) -> int:
        """Delete expired answers and notes of deletions; how many answers that were."""
        ...

    async def forget_beyond(self, project: Project, length_bytes_max: int) -> int:
        """Forget a project's oldest answers until the others fit; how many were forgotten."""
        ...


class MemoryAnswers:
    """An `AnswerStore` that lives in memory: for tests and dry runs, a restart forgets it."""

    def __init__(self) -> None:
        self._answers: dict[tuple[Project, str], KeptAnswer] = {}
        self._items: dict[tuple[Project, str], frozenset[str]] = {}
        self._deleted: dict[tuple[Project, str], int] = {}

    async def keep(self, answer: KeptAnswer, items: Collection[str] = ()) -> bool:
        self._answers[answer.project, answer.answer_id] = answer
        self._items[answer.project, answer.answer_id] = frozenset(items)
        return True

    async def is_erased(self, answer: KeptAnswer) -> bool:
        """Nobody is erased here."""
        del answer
        return False

    async def find(self, project: Project, answer_id: str, now_us: int) -> KeptAnswer | None:
        found = self._answers.get((project, answer_id))
        return found if found is not None and found.expires_us > now_us else None

    async def holding(self, project: Project, items: Collection[str], now_us: int) -> Sequence[str]:
        return [
            kept.answer_id
            for key, kept in self._answers.items()
            if key[0] == project and kept.expires_us > now_us and self._items[key] & set(items)
        ]

    async def forget(self, project: Project, answer_id: str) -> bool:
        return self._answers.pop((project, answer_id), None) is not None

    async def note_deleted(self, project: Project, answer_id: str, now_us: int) -> None:
        if sum(its == project for its, _ in self._deleted) < DELETED_MAX:
            self._deleted.setdefault((project, answer_id), now_us)

    async def is_deleted(self, project: Project, answer_id: str) -> bool:
        return (project, answer_id) in self._deleted

    async def forget_expired(self, now_us: int) -> int:
        for key in [key for key, us in self._deleted.items() if us <= now_us - DELETED_US]:
            del self._deleted[key]
        expired = [key for key, kept in self._answers.items() if kept.expires_us <= now_us]
        for key in expired:
            del self._answers[key]
        return len(expired)

    async def forget_beyond(self, project: Project, length_bytes_max: int) -> int:
        its = [each for key, each in self._answers.items() if key[0] == project]
        over, length_bytes = [], 0
        for each in sorted(its, key=lambda each: each.created_us, reverse=True):
            length_bytes += each.length_bytes
            if length_bytes > length_bytes_max:
                over.append(each)
        for each in over:
            del self._answers[project, each.answer_id]
        return len(over)
