"""What was answered, on its way to where it can be continued: now, or when the database is back.

A caller has the id of its answer, and goes on with it: what a database that was away for a while
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
from gateway.errors import Unavailable
from gateway.projects import Project
from gateway.telemetry import Event, logger


WAITS_S: Final = 600.0
"""So long something waits for the database; after that it is not kept."""
WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all that waits, about; what comes then is not kept."""


class Finished(Struct):
    """What is to be kept of one request."""

    request_id: str
    answer: KeptAnswer
    keeps: bool
    turn: Turn | None
    """What its conversation gets; None for nothing, or nothing more."""
    is_again: bool = False
    """Whether it was tried, and nobody knows what was written of it then."""
    until_s: float = inf
    """How long it waits."""


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
        """Its caller has it in any case: what is not kept is written down."""
        try:
            await self._write(finished)
        except Unavailable as error:
            self._wait(finished, error)
        finally:
            if not self.has(finished.request_id):
                await self._conversations.let_go(finished.request_id)

    def has(self, request_id: str) -> bool:
        """Whether something of this request waits here: its turn goes on so long."""
        return request_id in self._waiting

    async def tend(self) -> None:
        """Try again what waits."""
        for finished in [*self._waiting.values()]:
            self._forget(finished)
            try:
                await self._write(finished)
            except Unavailable as error:
                # Behind the others: it may be this one that cannot be written.
                self._wait(finished, error)
                return
            finally:
                if not self.has(finished.request_id):
                    await self._conversations.let_go(finished.request_id)

    async def conclude(self) -> None:
        """The worker ends: what cannot be written now is not kept."""
        for finished in self._waiting.values():
            finished.until_s = -inf
        try:
            while self._waiting:
                await self.tend()
        finally:
            for request_id in self._waiting:
                self._log.warning(Event.RESPONSE_NOT_KEPT, request_id=request_id)

    async def _write(self, finished: Finished) -> None:
        """Raises Unavailable; what was written by then is not written again."""
        answer, is_there = finished.answer, True
        if finished.turn is not None:
            # What came before it may have been erased: then it is not kept beside that.
            is_there = not await self._store.is_erased(answer)
            is_there = is_there and await self._conversations.append(
                finished.turn, is_again=finished.is_again
            )
            finished.turn = None
        if not (finished.keeps and is_there) or (finished.is_again and await self._stands(answer)):
            return
        items = [name for name, _ in named_items(answer.response)]
        if await self._store.keep(answer, items):
            self.kept(answer.project, answer.length_bytes)

    async def _stands(self, answer: KeptAnswer) -> bool:
        place = answer.project, answer.answer_id
        return await self._store.find(*place, answer.created_us) is not None

    def _wait(self, finished: Finished, error: Unavailable) -> None:
        now_s = self._clock.monotonic_s()
        finished.until_s = min(finished.until_s, now_s + WAITS_S)
        finished.is_again = True
        length_bytes = self._waiting_bytes + finished.answer.length_bytes
        if now_s >= finished.until_s or length_bytes > WAITING_BYTES_MAX:
            request_id = finished.request_id
            self._log.warning(Event.RESPONSE_NOT_KEPT, request_id=request_id, code=error.code)
            return
        self._waiting[finished.request_id] = finished
        self._waiting_bytes = length_bytes

    def _forget(self, finished: Finished) -> None:
        del self._waiting[finished.request_id]
        self._waiting_bytes -= finished.answer.length_bytes
