"""Background answers as their callers see them: progress, events, and cancelling.

All of it comes from the database, so that any worker can serve it, whichever makes the answer.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from msgspec import structs

from gateway.background.runner import Runner
from gateway.background.runs import Place, Run, RunStore
from gateway.clock import Clock
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.threads import Threads
from gateway.dialects.openai_responses.apart import (
    UNENDED,
    ending,
    is_apart,
    numbers_in,
    status_of,
    with_status,
)
from gateway.dialects.openai_responses.errors import error_event
from gateway.dialects.openai_responses.pass_through import PING
from gateway.errors import (
    ChangedMeanwhile,
    FeatureUnsupported,
    RequestInvalid,
    ResponseUnknown,
    Unavailable,
)
from gateway.pacing.pings import Direct, Write
from gateway.projects import project_of
from gateway.types import Principal


POLL_S: Final = 0.5
"""How often to look for events of an answer that another worker makes."""
FOLLOWERS_MAX: Final = 256
"""How many callers of one worker may follow events at once; each asks the database."""
TRIES: Final = 16


class Followers:
    """Reads, follows and cancels; any worker's answers."""

    def __init__(
        self, store: RunStore, threads: Threads, runner: Runner, clock: Clock, ping_every_s: float
    ) -> None:
        self._store = store
        self._threads = threads
        self._runner = runner
        self._clock = clock
        self._ping_every_s = ping_every_s
        self._following: WeakSet[Any] = WeakSet()
        """Streams that were given to callers, also those that nobody has read from yet."""

    async def read(self, principal: Principal, answer_id: str) -> bytes:
        """An answer as it is now; raises ResponseUnknown."""
        kept = await self._threads.find(principal, answer_id)
        for _ in range(TRIES):
            if not is_apart(kept.response) or status_of(kept.response) not in UNENDED:
                return kept.response
            run = await self._store.find((kept.project, answer_id))
            if run is not None:
                return with_status(kept.response, run.state)
            # It has ended between both looks.
            kept = await self._threads.find(principal, answer_id)
        return kept.response

    async def cancel(self, principal: Principal, answer_id: str) -> bytes:
        """Cancel an answer that is under way; one that has ended stays as it is.

        Raises:
            ResponseUnknown
            FeatureUnsupported: it is not made in the background.
        """
        for _ in range(TRIES):
            kept = await self._threads.find(principal, answer_id)
            if not is_apart(kept.response):
                raise FeatureUnsupported("Only answers made in the background can be cancelled.")
            if status_of(kept.response) not in UNENDED:
                return kept.response
            place = (kept.project, answer_id)
            run = await self._store.find(place)
            cancelled = structs.replace(kept, response=with_status(kept.response, "cancelled"))
            if await self._store.end(cancelled):
                await self._cut_off(place, run)
                return cancelled.response
        raise ChangedMeanwhile("The response changes again and again; try again.")

    async def forget(self, principal: Principal, answer_id: str) -> None:
        """Forget an answer; one that is under way is cut off. Raises ResponseUnknown."""
        place = (project_of(principal), answer_id)
        run = await self._store.find(place)
        await self._threads.forget(principal, answer_id)
        await self._cut_off(place, run)

    async def _cut_off(self, place: Place, run: Run | None) -> None:
        self._runner.stop(place)
        if run is None or not run.conversation_id:
            return
        # Its worker does so as well, unless it was killed: nobody else would know of the turn.
        with suppress(Unavailable):
            await self._threads.conversations.end_turn(
                run.project, run.conversation_id, run.request_id
            )

    async def follow(
        self, principal: Principal, answer_id: str, after: int
    ) -> AsyncIterator[bytes]:
        """The events of an answer after this number, from now to its end.

        Raises, before the first of them:
            ResponseUnknown
            RequestInvalid: it has no events, or has them no more.
            Unavailable: too many callers hear events here.
        """
        kept = await self._threads.find(principal, answer_id)
        place = (kept.project, answer_id)
        if not is_apart(kept.response):
            raise _unfollowed("Only a response that is made in the background can be streamed")
        first = await self._store.events(place, -1)
        if not first:
            raise _unfollowed("It was not made with `stream`, or its events are gone; read it")
        if first[0].first_sequence > after + 1:
            raise _unfollowed("Its first events are gone; read it whole")
        if sum(each.ag_frame is not None for each in self._following) >= FOLLOWERS_MAX:
            raise Unavailable("Too many callers follow answers here.", retry_after_s=1.0)
        events = self._events(place, after)
        self._following.add(events)
        return events

    async def relay(self, place: Place, write: Write, direct: Direct) -> bool:
        """Write all of an answer's events to its caller, whose leaving cancels nothing."""
        del direct
        async for piece in self._events(place, -1):
            await write(piece)
        return True

    async def _events(self, place: Place, after: int) -> AsyncGenerator[bytes]:
        """Events as they are kept, with pings in between, and then the end."""
        last, heard_s = after, self._clock.monotonic_s()
        while True:
            changed = self._runner.changed(place)
            try:
                said, end = await self._heard(place, last)
            except Unavailable:
                # Nothing is lost by it: whoever follows goes on when the database is back.
                said, end, changed = [], None, None
            if said:
                last = said[-1][0]
                heard_s = self._clock.monotonic_s()
                yield b"".join([event for _, event in said])
                continue
            if end is not None:
                if end:
                    yield end
                return
            if self._clock.monotonic_s() - heard_s >= self._ping_every_s:
                heard_s = self._clock.monotonic_s()
                yield PING
            await _woken(changed)

    async def _heard(
        self, place: Place, after: int
    ) -> tuple[list[tuple[int, bytes]], bytes | None]:
        """What came after an event, or else the end; None while more may come."""
        is_over = await self._store.find(place) is None
        said = await self._said(place, after)
        return said, await self._end(place, after) if is_over and not said else None

    async def _said(self, place: Place, after: int) -> list[tuple[int, bytes]]:
        return [
            (number, event)
            for piece in await self._store.events(place, after)
            for number, event in numbers_in(piece.content)
            if number > after
        ]

    async def _end(self, place: Place, after: int) -> bytes:
        """The last event; empty if the follower has had that as well."""
        kept: KeptAnswer | None = await self._threads.find_kept(*place)
        if kept is None:
            return error_event(ResponseUnknown("There is no such response any more."), after + 1)
        number = 1 + await self._store.last_event(place)
        if after >= number:
            return b""
        return ending(kept.response, number)


async def _woken(changed: asyncio.Event | None) -> None:
    """Wait until something may have come: told at once here, else by looking again."""
    if changed is None:
        await asyncio.sleep(POLL_S)
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(POLL_S):
            await changed.wait()


def _unfollowed(reason: str) -> RequestInvalid:
    return RequestInvalid(f"{reason}.", parameter="stream")
