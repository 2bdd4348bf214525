"""Finished answers on their way to the store: written now, or when the database is back.

A caller has the id of its answer, and will continue it: what a database that was away for a while
did not take waits here, in memory and bounded. The record of the request does not depend on it.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from msgspec import Struct

from gateway.clock import Clock
from gateway.continuing.conversing import Conversations, Turn
from gateway.continuing.items import named_items
from gateway.continuing.kept_answers import AnswerStore, KeptAnswer
from gateway.errors import GatewrightError, RequestInvalid, Unavailable
from gateway.projects import Project
from gateway.telemetry import Event, logger


WAITS_S: Final = 600.0
"""So long something waits for the database; after that it is not kept."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all that waits, about; what comes then is not kept."""
OVERHEAD_BYTES: Final = 2048
"""About the memory that one takes besides its texts; for short answers, most of it."""


class Finished(Struct):
    """What has to be stored of one request."""

    request_id: str
    answer: KeptAnswer
    keeps: bool
    turn: Turn | None
    """What is added to its conversation; None for nothing, or nothing more."""
    is_again: bool = False
    """Whether it was tried before, and it is unknown how much was written then."""
    is_dropped: bool = False
    """Whether its answer was deleted meanwhile; perhaps while it is being written."""
    until_s: float = inf
    """How long it waits."""
    length_bytes: int = 0
    """About the memory that it takes while it waits."""

    def __post_init__(self) -> None:
        turn = self.turn
        items = [] if turn is None else [*turn.asked, *turn.answered]
        self.length_bytes = OVERHEAD_BYTES + self.answer.length_bytes + sum(map(len, items))

    def is_of(self, project: Project, answer_id: str) -> bool:
        """Whether its answer is this one, and has to be kept."""
        answer = self.answer
        return self.keeps and (answer.project, answer.answer_id) == (project, answer_id)


class Keeping:
    """Writes what is finished; holds the store."""

    def __init__(self, store: AnswerStore, conversations: Conversations, clock: Clock) -> None:
        self._store = store
        self._conversations = conversations
        self._clock = clock
        self._waiting: dict[str, Finished] = {}
        self._waiting_bytes = 0
        self._log = logger()
        self.kept: Callable[[Project, int], None] = lambda _project, _length_bytes: None
        """Told of each answer that was kept."""

    async def keep(self, finished: Finished) -> None:
        """Store it. The caller has the answer in any case: a failure is logged."""
        try:
            await self._write(finished)
        except Unavailable as error:
            self._wait(finished, error)
        except RequestInvalid as error:
            self._say_lost(finished, error)
        finally:
            if not self.has(finished.request_id):
                await self._conversations.let_go(finished.request_id)

    def has(self, request_id: str) -> bool:
        """Whether something of this request waits here: until it is stored, its turn continues."""
        return request_id in self._waiting

    def drop(self, project: Project, answer_id: str) -> bool:
        """Drop an answer that its project deletes; whether it was waiting here."""
        its = [each for each in self._waiting.values() if each.is_of(project, answer_id)]
        for finished in its:
            finished.is_dropped = True
        return bool(its)

    async def tend(self) -> None:
        """Try again to store what waits; each try runs to its end, even if this is cancelled."""
        for finished in [*self._waiting.values()]:
            if not await self._has_ended(finished):
                return

    async def conclude(self) -> None:
        """The worker ends: try each once more; what cannot be written now is lost."""
        for finished in self._waiting.values():
            finished.until_s = -inf
        try:
            for finished in [*self._waiting.values()]:
                await self._has_ended(finished)
        finally:
            for finished in self._waiting.values():
                self._say_lost(finished)

    async def _has_ended(self, finished: Finished) -> bool:
        """Try one of those that wait; False if the database is away."""
        # Behind the others from now on: this may be the one that cannot be written.
        self._waiting[finished.request_id] = self._waiting.pop(finished.request_id)
        try:
            await self._write(finished)
        except Unavailable as error:
            self._forget(finished)
            self._wait(finished, error)
            return False
        except RequestInvalid as error:
            # What the database refuses now it refuses for ever.
            self._forget(finished)
            self._say_lost(finished, error)
        else:
            self._forget(finished)
        finally:
            if not self.has(finished.request_id):
                await self._conversations.let_go(finished.request_id)
        return True

    async def _write(self, finished: Finished) -> None:
        """Write it; what a failed try has written is not written again.

        Raises:
            Unavailable
            RequestInvalid: the database cannot hold it.
        """
        answer, is_there = finished.answer, True
        if finished.turn is not None:
            # What came before it may have been erased: then it is not kept beside that.
            is_there = not await self._store.is_erased(answer)
            is_there = is_there and await self._conversations.append(
                finished.turn, is_again=finished.is_again
            )
            finished.turn = None
        if not (finished.keeps and is_there):
            return
        place = answer.project, answer.answer_id
        if not await self._is_settled(finished):
            items = [name for name, _ in named_items(answer.response)]
            if not await self._store.keep(answer, items):
                return
            self.kept(answer.project, answer.length_bytes)
        # After it was written: of both, one sees what the other did.
        if finished.is_dropped or (finished.is_again and await self._store.is_deleted(*place)):
            await self._store.forget(*place)

    async def _is_settled(self, finished: Finished) -> bool:
        """Whether its answer was deleted meanwhile, or is already stored."""
        if finished.is_dropped or not finished.is_again:
            return finished.is_dropped
        answer = finished.answer
        place = answer.project, answer.answer_id
        return await self._store.find(*place, answer.created_us) is not None

    def _wait(self, finished: Finished, error: Unavailable) -> None:
        now_s = self._clock.monotonic_s()
        finished.until_s = min(finished.until_s, now_s + WAITS_S)
        finished.is_again = True
        length_bytes = self._waiting_bytes + finished.length_bytes
        if now_s >= finished.until_s or length_bytes > WAITING_BYTES_MAX:
            self._say_lost(finished, error)
            return
        self._waiting[finished.request_id] = finished
        self._waiting_bytes = length_bytes

    def _forget(self, finished: Finished) -> None:
        del self._waiting[finished.request_id]
        self._waiting_bytes -= finished.length_bytes

    def _say_lost(self, finished: Finished, error: Exception | None = None) -> None:
        told = {"code": error.code} if isinstance(error, GatewrightError) else {}
        self._log.warning(Event.RESPONSE_NOT_KEPT, request_id=finished.request_id, **told)
