"""Ends a background answer: as complete, as failed, or not at all where its row is gone."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import structs

from gateway.background.runs import Place, Run, RunStore, TakenAway
from gateway.background.under_way import UnderWay
from gateway.clock import Clock
from gateway.continuing.conversing import Turn
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.kept_conversations import KeptConversation
from gateway.continuing.threads import Threads, items_of, turn_of
from gateway.dialects.openai_responses.apart import failed, failed_there, status_of
from gateway.dispatch.attempts import is_stopped
from gateway.errors import (
    ConversationLocked,
    ConversationUnknown,
    GatewrightError,
    Unavailable,
    WorkerStopped,
)
from gateway.metrics import Metrics
from gateway.telemetry import Event, logger


AGAIN_S: Final = 1.0
INSISTS_S: Final = 600.0
"""How long to try to write an end; after that the answer has failed, and any worker may say so.

Longer than a lease: a database that was away also kept others from declaring it failed, and the
paid answer is complete here.
"""
STOPPED_WORDS: Final = "The worker that made this answer was ended before it was whole."
_CRASHED: Final = "The gateway failed to make this answer."
Done = TypeVar("Done")


class Endings:
    """Writes ends; holds the store."""

    def __init__(
        self, store: RunStore, threads: Threads, clock: Clock, metrics: Metrics, holder: str
    ) -> None:
        self._store = store
        self._threads = threads
        self._clock = clock
        self._metrics = metrics
        self._holder = holder
        self.unwritten: dict[Place, Run] = {}
        """Answers whose end could not be written: a beat reports them as failed."""
        self.is_hasty = False
        """Whether the worker is ending: what cannot be written at once is left to another one."""
        self._log: Any = logger()

    async def end(self, each: UnderWay, response: bytes) -> None:
        """End it with the complete response; empty if its stream said why it broke."""
        await each.log.flush()
        if not response:
            if not each.log.failure:
                raise GatewrightError(_CRASHED)
            await self._write(each, failed_there(each.answer.response, each.log.failure))
            return
        run = await self._insisted(lambda: self._store.find(each.place))
        if run is None or run.holder != self._holder:
            # Deleted under a hold its row is still there, and nobody's any more.
            with suppress(Unavailable):
                await self._store.drop(each.run)
            return
        await self._write(each, response, turn_of(each.half.passage, response))

    async def end_badly(self, each: UnderWay, error: BaseException) -> None:
        """End it as failed; its outcome is on record already, unless nothing was sent."""
        if not each.has_begun:
            with suppress(GatewrightError):
                await each.half.never_begun(error)
        if isinstance(error, asyncio.CancelledError):
            if not is_stopped(error):
                with suppress(Unavailable):
                    await self._store.drop(each.run)
                return
            error = WorkerStopped(STOPPED_WORDS)
        told = error if isinstance(error, GatewrightError) else GatewrightError(_CRASHED)
        await each.log.flush()
        await self._write(each, failed(each.answer.response, told))

    async def _write(self, each: UnderWay, response: bytes, turn: Turn | None = None) -> None:
        """Write an end; if somebody else was faster, nothing is kept and no turn is added."""
        each.is_ending = True
        answer = structs.replace(each.answer, response=response)
        try:
            is_mine = await self._insisted(partial(self._ended, answer, turn))
        except Unavailable as error:
            self.unwritten[each.place], request_id = each.run, each.run.request_id
            self._log.warning(Event.RESPONSE_NOT_KEPT, request_id=request_id, code=error.code)
            return
        finally:
            each.log.changed.set()
        if is_mine:
            self._metrics.count_background(status_of(response))
            more_bytes = answer.length_bytes - each.answer.length_bytes
            self._threads.note_kept(answer.project, max(0, more_bytes))

    async def _ended(self, answer: KeptAnswer, turn: Turn | None) -> bool:
        """Write it; whether it was still ours to end; raises Unavailable."""
        items, holder = items_of(answer.response), self._holder
        if turn is None:
            return await self._store.end(answer, items, holder=holder)

        async def write(changed: KeptConversation, now_us: int) -> bool:
            return await self._store.end_turn(answer, items, changed, now_us, holder=holder)

        try:
            await self._threads.conversations.add_turn(turn, write)
        except TakenAway:
            return False
        except ConversationUnknown:
            # What came before it may have been erased: it is not kept beside that.
            await self._threads.discard(answer.project, answer.answer_id)
            return False
        except ConversationLocked as error:
            code = error.code
            self._log.warning(Event.CONVERSATION_NOT_KEPT, request_id=turn.request_id, code=code)
            return await self._store.end(answer, items, holder=holder)
        return True

    async def _insisted(self, change: Callable[[], Awaitable[Done]]) -> Done:
        """Retry what must not be lost while the database is away; raises Unavailable."""
        until_s = self._clock.monotonic_s() + INSISTS_S
        while True:
            try:
                return await change()
            except Unavailable:
                if self.is_hasty or self._clock.monotonic_s() >= until_s:
                    raise
                await asyncio.sleep(AGAIN_S)
