"""Beats: report which answers are still made here, stop unwanted ones, end orphaned ones."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from math import inf
from typing import Any, Final

from msgspec import structs

from gateway.background.runs import LEASE_US, Place, Run, RunStore
from gateway.background.under_way import SharedClock, UnderWay
from gateway.continuing.kept_answers import KeptAnswer
from gateway.continuing.threads import Threads
from gateway.dialects.openai_responses.apart import failed
from gateway.dispatch.attempts import TAKEN_OVER
from gateway.errors import GatewrightError, Unavailable, WorkerStopped
from gateway.metrics import Metrics
from gateway.money.rates import Rates
from gateway.secrets.content_keys import ContentDamaged, KeyClosed
from gateway.telemetry import Event, logger


LOOK_S: Final = 5.0
"""How often to look for answers that nobody makes any more, while there are none."""
SILENT_S: Final = LEASE_US / 4e6
"""After a beat that was kept from the database for so long, whoever it is waits a while."""
AMNESTY_S: Final = LEASE_US / 2e6
"""So long others have to say that they live, once the database is back for all.

Also after a start: whoever was not there does not know whether the database was.
"""
RENEW_S: Final = 60.0
"""How often shared limits are told that a request is still under way."""
EVENTS_KEPT_S: Final = 900.0
"""How much longer than the longest answer events can be read."""
_LOST: Final = "The worker that made this answer has ended before it was whole."
_UNWRITTEN: Final = "The answer could not be kept when it ended."


class Beats:
    """Of one life of a worker; what it has under way is told with each beat."""

    def __init__(
        self,
        store: RunStore,
        threads: Threads,
        rates: Rates,
        metrics: Metrics,
        *,
        shared: SharedClock,
        worker: str,
        holder: str,
        deadline_s: float,
    ) -> None:
        self._store = store
        self._threads = threads
        self._rates = rates
        self._metrics = metrics
        self._shared = shared
        self._worker, self._holder = worker, holder
        self._events_last_us = round((deadline_s + EVENTS_KEPT_S) * 1e6)
        self._look_s = 0.0
        self._begun_s: float | None = None
        """When the first beat began since one was done."""
        self._has_left_earlier = False
        self._amnesty_until_s = inf
        self._log: Any = logger()

    async def beat(
        self,
        under_way: Mapping[Place, UnderWay],
        beginning: Mapping[Place, int],
        unwritten: MutableMapping[Place, Run],
    ) -> None:
        """One of them; `beginning` is what is about to be under way.

        `unwritten` is what has ended here, and is under way for everybody else.

        Raises:
            NotReady: the database does not answer.
        """
        if self._begun_s is None:
            self._begun_s = self._shared.monotonic_s()
        await self._shared.follow()
        if not self._has_left_earlier:
            await self._store.leave_earlier_lives(self._worker, self._holder)
            self._has_left_earlier = True
            self._amnesty_until_s = self._shared.monotonic_s() + AMNESTY_S
        for run in [*unwritten.values()]:
            end = partial(self._store.end, holder=run.holder)
            await self._end_left(run, Unavailable(_UNWRITTEN), end)
            del unwritten[run.place]
        if under_way or beginning:
            await self._keep(under_way, beginning, unwritten)
        now_s = self._shared.monotonic_s()
        if now_s - self._begun_s >= SILENT_S:
            # Nobody could say that he lives, and all leases look lapsed at once.
            self._amnesty_until_s = now_s + AMNESTY_S
        self._begun_s = None
        if now_s >= self._look_s:
            # Some at once: between them beats say that this worker is alive.
            is_amnesty = now_s < self._amnesty_until_s
            has_found = await self._look(left_only=is_amnesty)
            next_s = min(now_s + LOOK_S, self._amnesty_until_s) if is_amnesty else now_s + LOOK_S
            self._look_s = now_s if has_found else next_s

    async def _keep(
        self,
        under_way: Mapping[Place, UnderWay],
        beginning: Mapping[Place, int],
        unwritten: Mapping[Place, Run],
    ) -> None:
        known, about_to_be = {**under_way}, {*beginning}
        for each in known.values():
            await each.log.flush()
        asked_us = self._shared.utc_us()
        mine = await self._store.keep(self._holder)
        now_s = self._shared.monotonic_s()
        for place, each in known.items():
            if place not in mine:
                if not each.is_ending:
                    each.break_off(*((TAKEN_OVER,) if asked_us >= each.leased_until_us else ()))
                continue
            each.leased_until_us = mine[place]
            if now_s - each.renewed_s >= RENEW_S:
                each.renewed_s = now_s
                self._rates.renew(each.half.passage.permit)
        known_now = under_way.keys() | beginning.keys() | unwritten.keys()
        for place in {*mine} - known.keys() - about_to_be - known_now:
            # It was refused to its caller: whether it had been written was not known then.
            await self._threads.discard(*place)

    async def _look(self, *, left_only: bool) -> bool:
        """End answers that others left; whether there were any."""
        lapsed = await self._store.lapsed(left_only=left_only)
        for run in lapsed:
            await self._end_left(
                run, WorkerStopped(_LOST), partial(self._store.end_lapsed, run=run)
            )
        await self._store.forget_events(self._shared.utc_us() - self._events_last_us)
        return bool(lapsed)

    async def _end_left(
        self, run: Run, error: GatewrightError, end: Callable[[KeptAnswer], Awaitable[bool]]
    ) -> None:
        """Record that an answer that nobody makes any more has failed, and end its turn."""
        try:
            kept = await self._threads.find_kept(*run.place)
        except (KeyClosed, ContentDamaged):
            # Nobody can read it, and whoever reads it is told so.
            await self._store.abandon(run)
        else:
            if kept is None:
                await self._store.drop(run)
            elif await end(structs.replace(kept, response=failed(kept.response, error))):
                self._metrics.count_background("failed")
                request_id = run.request_id
                self._log.warning(Event.BACKGROUND_LEFT, request_id=request_id, worker=run.worker)
            elif await self._store.find(run.place) is not None:
                return  # Its holder has come back.
        if run.conversation_id:
            await self._threads.conversations.end_turn(
                run.project, run.conversation_id, run.request_id
            )
