"""Makes answers whose callers may leave: one worker's share of them, each under a lease.

Requests that were let through wait here for their turn and are sent from here: they were decided,
reserved and recorded before their callers left. The answers of a worker that dies have failed, and
another worker says so. Whoever cancels, deletes or erases an answer removes its row: its worker
finds that out at the next beat, and cuts the upstream off.
"""

import asyncio
import secrets
from contextlib import suppress
from functools import partial
from typing import Any, Final

from gateway.background.beats import Beats
from gateway.background.ending import AGAIN_S, STOPPED_WORDS, Endings
from gateway.background.event_log import EventLog
from gateway.background.runs import LEASE_US, Place, Run, RunStore
from gateway.background.under_way import SecondHalf, SharedClock, UnderWay
from gateway.clock import Clock
from gateway.configuration.sections import ResponsesSettings
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.threads import Threads
from gateway.dialects.openai_responses.apart import queued
from gateway.dispatch.attempts import STOPPED
from gateway.errors import (
    Exhausted,
    GatewrightError,
    Unavailable,
    WorkerStopped,
)
from gateway.metrics import Metrics
from gateway.money.rates import Rates
from gateway.projects import project_of
from gateway.telemetry import Event, logger, raised_at
from gateway.thread import Thread


DRAIN_S: Final = 5.0
"""How long a worker that ends continues what is under way."""
LEAVE_S: Final = 2.0
"""And the time to record what it breaks off then."""
RETRY_S: Final = 5.0
_WAITED = "The answer has waited too long for its turn."
_ENDING = "This worker is about to end; ask again."
_FULL = "Too many answers wait in the background of this worker; try again shortly."


class Runner:
    """One worker's share."""

    def __init__(
        self,
        store: RunStore,
        threads: Threads,
        *,
        clocks: tuple[Clock, SharedClock],
        settings: ResponsesSettings,
        rates: Rates,
        metrics: Metrics,
        worker: str,
    ) -> None:
        """`clocks` are the worker's own, and the database's."""
        self._store, self._threads = store, threads
        (clock, shared) = self._clock, self._shared = clocks
        self._settings = settings
        self._worker = worker
        self._holder = f"{worker}.{secrets.token_hex(8)}"
        self._endings = Endings(store, threads, clock, metrics, self._holder)
        self._beats = Beats(
            store,
            threads,
            rates,
            metrics,
            shared=shared,
            worker=worker,
            holder=self._holder,
            deadline_s=settings.background_deadline_s,
        )
        self._slots = asyncio.Semaphore(max(1, settings.background_running_max))
        self._under_way: dict[Place, UnderWay] = {}
        self._beginning: dict[Place, int] = {}
        """The bytes held by answers that are about to be under way."""
        self._is_closing = False
        self._log: Any = logger()
        metrics.background_answers(self._standing)

    def _standing(self, state: str) -> int:
        is_sent = state == "in_progress"
        return sum(each.has_begun == is_sent for each in self._under_way.values())

    def check_room(self, length_bytes: int) -> None:
        """Check that one more can be taken on here.

        Raises:
            Exhausted: too many are under way, or what they hold is too much.
            WorkerStopped
        """
        self._check_open(_ENDING)
        settings = self._settings
        held = [*self._beginning.values(), *(each.held_bytes for each in self._under_way.values())]
        if (
            len(held) >= settings.background_running_max + settings.background_waiting_max
            or sum(held) + length_bytes > settings.background_bytes_max
        ):
            raise Exhausted(_FULL, retry_after_s=RETRY_S)

    async def accept(self, half: SecondHalf) -> KeptAnswer:
        """Take a request on; returns its answer as it can be read from now on.

        Raises:
            Exhausted: there is no room for it here, or its project has too many under way.
            Unavailable: nobody could be told of it.
        """
        passage, request = half.passage, half.passage.request
        self.check_room(len(request.raw))
        thread = request.thread or Thread()
        run = Run(
            project_of(passage.principal),
            thread.answer_id,
            request.request_id,
            self._worker,
            self._holder,
            conversation_id=thread.conversation_id if thread.adds else "",
        )
        answer = self._threads.answer_of(passage, queued(request))
        log = EventLog(run, self._store, self._clock, is_followed=thread.is_followed)
        each = UnderWay(half, run, answer, log)
        self._beginning[run.place] = len(request.raw)
        try:
            await self._begin(each)
        finally:
            del self._beginning[run.place]
        each.renewed_s = self._clock.monotonic_s()
        each.due_s = each.renewed_s + self._settings.background_deadline_s
        self._under_way[run.place] = each
        each.task = asyncio.create_task(self._live(each), name=run.request_id)
        each.task.add_done_callback(partial(self._is_over, each))
        return answer

    async def _begin(self, each: UnderWay) -> None:
        beginning = asyncio.ensure_future(self._written(each))
        try:
            await asyncio.shield(beginning)
        except asyncio.CancelledError:
            # Its caller left and does not know its name: it would be made for nobody.
            await asyncio.wait([beginning])
            if beginning.exception() is None:
                with suppress(Unavailable):
                    await self._threads.discard(*each.place)
            raise

    async def _written(self, each: UnderWay) -> None:
        most = self._settings.background_project_max
        await self._shared.follow()
        each.leased_until_us = self._shared.utc_us() + LEASE_US
        if not await self._store.begin(each.answer, each.run, most):
            reason = f"This project has {most} answers under way in the background."
            raise Exhausted(reason, retry_after_s=RETRY_S)
        self._threads.note_kept(each.answer.project, each.answer.length_bytes)
        try:
            await each.log.open(each.answer.response)
        except Unavailable:
            with suppress(Unavailable):
                await self._threads.discard(*each.place)
            raise

    async def _live(self, each: UnderWay) -> None:
        each.is_live = True
        try:
            response = await self._in_turn(each)
            await _whole(self._endings.end(each, response))
        except (GatewrightError, asyncio.CancelledError) as error:
            await _whole(self._endings.end_badly(each, error))
        except BaseException as error:
            await _whole(self._endings.end_badly(each, error))
            raise
        finally:
            await _whole(self._threads.let_go(each.run.request_id))

    async def _in_turn(self, each: UnderWay) -> bytes:
        """The complete response, empty if its stream broke; raises GatewrightError."""
        self._check_open()
        has_waited = self._slots.locked()
        try:
            async with asyncio.timeout(each.due_s - self._clock.monotonic_s()):
                await self._slots.acquire()
        except TimeoutError:
            raise Unavailable(_WAITED) from None
        try:
            has_waited |= await self._started(each)
            self._check_open()
            if has_waited:
                # What holds may have changed meanwhile.
                await each.half.rule_again()
            left_s = max(each.due_s - self._clock.monotonic_s(), 1.0)
            each.has_begun = True
            await each.log.start(each.answer.response)
            check = partial(each.check_lease, self._shared)
            return await each.half.answer(left_s, each.log.write, check)
        finally:
            self._slots.release()

    async def _started(self, each: UnderWay) -> bool:
        """Wait for the database, or all waiting answers would fail at once; whether it had to."""
        has_waited = False
        while True:
            until_us = self._shared.utc_us() + LEASE_US
            try:
                is_ours = await self._store.start(each.run)
            except Unavailable:
                if self._is_closing or self._clock.monotonic_s() >= each.due_s:
                    raise
                has_waited = True
                await asyncio.sleep(AGAIN_S)
            else:
                if not is_ours:
                    raise asyncio.CancelledError
                # Its lease was over, perhaps, while nobody could renew it.
                each.leased_until_us = max(each.leased_until_us, until_us)
                return has_waited

    def _check_open(self, words: str = STOPPED_WORDS) -> None:
        if self._is_closing:
            raise WorkerStopped(words)

    def _is_over(self, each: UnderWay, task: asyncio.Task[None]) -> None:
        self._under_way.pop(each.place, None)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._log.warning(
                Event.BACKGROUND_FAILED,
                request_id=each.run.request_id,
                error_class=type(error).__name__,
                where=raised_at(error),
            )

    def stop(self, place: Place) -> None:
        """Break off an unwanted answer, if it is made here; other workers notice at a beat."""
        each = self._under_way.get(place)
        if each is not None and not each.is_ending:
            each.break_off()

    def changed(self, place: Place) -> asyncio.Event | None:
        """The event that is set when more is kept of an answer that is made here."""
        each = self._under_way.get(place)
        return None if each is None else each.log.changed

    async def tend(self) -> None:
        """One beat; raises NotReady."""
        await self._beats.beat(self._under_way, self._beginning, self._endings.unwritten)

    def begin_no_more(self) -> None:
        """The worker is told to end: what still waits fails, what was sent continues."""
        if self._is_closing:
            return
        self._is_closing = True
        for each in [*self._under_way.values()]:
            if not each.has_begun:
                each.break_off(STOPPED)

    async def close(self) -> None:
        """Give what is under way some time to end, then break it off."""
        self.begin_no_more()
        if not self._under_way:
            return
        await self._wait(DRAIN_S)
        self._endings.is_hasty = True
        for each in [*self._under_way.values()]:
            each.break_off(STOPPED)
        await self._wait(LEAVE_S)

    async def _wait(self, most_s: float) -> None:
        if tasks := [each.task for each in self._under_way.values()]:
            await asyncio.wait(tasks, timeout=most_s)


async def _whole(work: Any) -> None:
    """Run all of it, even if it is broken off meanwhile: that takes effect afterwards."""
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.shield(doing)
    except asyncio.CancelledError:
        await asyncio.wait([doing])
        raise
