"""Works through batches: claims lines under a lease, sends them, and records how each ended.

Any number of workers do this side by side on one database. A line is sent by one of them at a time;
if that one dies, another sends it again, and only the newest claim can end a line, so each result
is there exactly once. Where everything is full a batch rests, longer each time, and goes on.
"""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

from msgspec import Struct

from gateway.batches import DAMAGED, Batch, LineEnd
from gateway.batching.chores import BatchChores
from gateway.batching.lines import FAILURES_MAX, Later, LineJourneys, Parked
from gateway.batching.parked_lines import ParkedLines
from gateway.batching.steps import AGAIN_S, Steps, check_until, given_up, insisted
from gateway.batching.waiting_lines import WaitingLines
from gateway.clock import SECOND_US, Clock
from gateway.dispatch.attempts import TAKEN_OVER
from gateway.errors import AuditUnavailable, NotReady, Unauthenticated
from gateway.metrics import Metrics
from gateway.secrets.content_keys import ContentKey, KeyClosed
from gateway.store.batching.batches import BatchStore
from gateway.store.batching.leads import LeadOver
from gateway.store.batching.lines import Claim, LineStore
from gateway.store.batching.turns import BatchTurns, Standing
from gateway.store.database_clock import APART_US
from gateway.telemetry import Event, logger, raised_at


REST_S_MAX = 60.0
STALLS_COUNTED = 6
CHORES_MAX = 2
FAILED_REST_S = 5.0


class Share(Struct, frozen=True):
    """The worker that processes batches, and how much it does at once."""

    worker: str
    concurrent_lines: int
    new_request_id: Callable[[], str]


class Stores(Struct, frozen=True):
    """The parts of batches that are in the database."""

    batches: BatchStore
    turns: BatchTurns
    lines: LineStore


class BatchRunner:
    """One worker's share of all batches."""

    def __init__(
        self,
        stores: Stores,
        journeys: LineJourneys,
        chores: BatchChores,
        clock: Clock,
        *,
        parked: ParkedLines,
        metrics: Metrics,
        share: Share,
    ) -> None:
        self._batches, self._turns, self._lines = stores.batches, stores.turns, stores.lines
        self._waiting = WaitingLines(stores.lines, clock)
        self._parked = parked
        self._journeys = journeys
        self._do = chores
        self._clock = clock
        self._metrics = metrics
        self._worker = share.worker
        self.holder = self._holder = f"{share.worker}.{secrets.token_hex(8)}"
        self._slots = share.concurrent_lines
        self._new_request_id = share.new_request_id
        self.wake = asyncio.Event()
        self.has_parked = asyncio.Event()
        self._sending, self._chores = Steps(self.wake), Steps(self.wake)
        self._sent = count()
        self._claims: dict[str, Claim] = {}
        """Claims of the lines that are being sent."""
        self._parking: list[Claim] = []
        """Those about to wait for a vendor: they notice by themselves if they are lost."""
        self._ending: list[Claim] = []
        """Those that their upstream has answered."""
        self._kept_until_us = 0
        self._known: dict[str, tuple[Batch, ContentKey]] = {}
        self._recovering: set[str] = set()
        """Tasks that only put back a line whose task crashed: they get one chance."""
        self._widths: dict[str, float] = {}
        """How many lines of a batch are worth sending at once; less after each refusal."""
        self._has_begun = False
        self._log: Any = logger()

    async def tend(self) -> None:
        """Continue with everything that can continue now."""
        if not self._has_begun:
            await self._lines.free_earlier_lives(self._worker, self._holder)
            await self._turns.leave_earlier_lives(self._worker, self._holder)
            self._has_begun = True
        self._reap()
        standings = await self._turns.active()
        ids = {each.batch_id for each in standings}
        self._known = {name: known for name, known in self._known.items() if name in ids}
        self._widths = {name: width for name, width in self._widths.items() if name in ids}
        for standing in standings:
            await self._unless_closed(standing, self._advance(standing))
        await self._serve([each for each in standings if self._can_be_served(each)])

    async def keep(self) -> None:
        """Signal that this worker is alive, take over from those that are not, and count."""
        kept_until_us = await self._lines.keep(self._holder, self._under_way())
        await self._break_off_lost()
        # Last, because lines that others took over are not kept, and must not be sent meanwhile.
        self._kept_until_us = kept_until_us
        await self._turns.keep_tending(self._holder)
        await self._lines.free_lapsed()
        waiting = await self._waiting.look()
        self._metrics.waiting_lines(
            waiting.waiting,
            waiting.running,
            (self._clock.utc_us() - waiting.oldest_us) / SECOND_US if waiting.oldest_us else 0.0,
        )

    async def close(self) -> None:
        """Cancel what is under way; the next worker sends it again.

        Answered lines continue: they are paid, and recorded or about to be.
        """
        ending = [
            name
            for name, claim in self._claims.items()
            if any(each is claim for each in self._ending)
        ]
        await asyncio.gather(self._sending.cancel(ending), self._chores.cancel())
        await given_up(self._leave())

    async def _leave(self) -> None:
        await self._lines.free(self._holder)
        await self._turns.keep_tending(self._holder, is_leaving=True)

    def _can_be_served(self, standing: Standing) -> bool:
        now_us = self._clock.utc_us()
        return (
            standing.state == "in_progress"
            and standing.has_waiting
            and not standing.key_is_over
            and standing.expires_us > now_us
        )

    async def _advance(self, standing: Standing) -> None:
        """Move a batch to its next state, if it is time."""
        batch_id = standing.batch_id
        if batch_id in self._chores:
            return
        if standing.state == "in_progress":
            if standing.key_is_over:
                await self._batches.wind_up(batch_id, "completed", Unauthenticated.code)
                self._log.warning(Event.BATCH_STOPPED, batch=batch_id, code=Unauthenticated.code)
                self.wake.set()
            elif standing.expires_us <= self._clock.utc_us():
                await self._batches.wind_up(batch_id, "expired")
                self.wake.set()
            elif not standing.has_waiting and not standing.has_running:
                await self._batches.wind_up(batch_id, "completed")
                self.wake.set()
        elif len(self._chores) < CHORES_MAX and not standing.has_running:
            await self._begin_chore(standing)

    async def _begin_chore(self, standing: Standing) -> None:
        batch_id = standing.batch_id
        is_new = standing.state == "validating"
        states = ("validating",) if is_new else ("finalizing", "cancelling")
        if not await self._turns.take(batch_id, self._holder, states):
            return
        batch = await self._batches.led(batch_id)
        if batch is None or batch.state != standing.state:
            return
        await self._batches.content_key(batch)  # If it is lost, another batch gets the place.
        chore = self._do.check(batch, self._holder) if is_new else self._finish(batch)
        self._chores.begin(batch_id, batch_id, self._lead(chore))

    async def _lead(self, chore: Coroutine[Any, Any, None]) -> None:
        """Run a chore as long as this worker leads the batch, and nobody cancels it."""
        with suppress(LeadOver):
            await chore

    async def _finish(self, batch: Batch) -> None:
        await self._do.finish(batch, self._holder)
        self._log.info(Event.BATCH_ENDED, batch=batch.batch_id, status=batch.ending)

    async def _serve(self, standings: list[Standing]) -> None:
        """Send lines of the batches that waited longest, a share of the free slots of each."""
        for index, standing in enumerate(standings):
            free = self._slots - len(self._sending)
            if free <= 0:
                return
            share = max(1, free // (len(standings) - index))
            under_way = sum(
                claim.batch.batch_id == standing.batch_id for claim in self._claims.values()
            )
            width = int(self._widths.get(standing.batch_id, self._slots))
            count = min(share, width - under_way)
            if count > 0:
                await self._unless_closed(standing, self._claim(standing.batch_id, count))

    async def _unless_closed(self, standing: Standing, step: Coroutine[Any, Any, None]) -> None:
        """Take a step; a batch whose row cannot be decrypted does not hold up others."""
        try:
            await step
        except KeyClosed:
            return  # The reader of the row has logged it, once.
        except NotReady as error:
            self._log.warning(
                Event.BATCH_FAILED,
                batch=standing.batch_id,
                error_class=type(error).__name__,
                where=raised_at(error),
            )

    async def _claim(self, batch_id: str, count: int) -> None:
        known = await self._know(batch_id)
        if known is not None:
            batch, key = known
            if batch.is_damaged:
                # Its lines would be sent without the headers that concern them.
                await self._batches.wind_up(batch_id, "completed", DAMAGED)
                self._log.warning(Event.BATCH_STOPPED, batch=batch_id, code=DAMAGED)
                self.wake.set()
                return
            for claim in await self._lines.claim(batch, key, self._holder, count):
                self._begin_sending(claim, self._send(claim, key))

    async def _know(self, batch_id: str) -> tuple[Batch, ContentKey] | None:
        """The unchanging parts of a batch: its owner, its endpoint, its key."""
        if batch_id not in self._known:
            batch = await self._batches.led(batch_id)
            key = await self._batches.content_key(batch) if batch is not None else None
            if batch is None or key is None:
                return None
            self._known[batch_id] = (batch, key)
        return self._known[batch_id]

    async def _send(self, claim: Claim, key: ContentKey) -> None:
        if claim.line.is_damaged:
            batch = claim.batch.batch_id
            self._log.warning(Event.BATCH_FAILED, batch=batch, error_class="LineUnreadable")
        request_id = self._new_request_id()
        outcome = await self._journeys.send(
            claim.batch,
            claim.line,
            request_id,
            is_first_try=not claim.failures,
            check_lease=partial(self._check_lease, claim),
            tell_answered=partial(self._ending.append, claim),
        )
        if isinstance(outcome, Parked):
            self._widen(claim.batch.batch_id)
            self._parking.append(claim)
            try:
                await self._park(claim, key, outcome)
            finally:
                self._parking.remove(claim)
        elif isinstance(outcome, Later):
            await self._put_off(claim, key, outcome)
        else:
            self._widen(claim.batch.batch_id)
            await self._end(claim, key, outcome)

    def _check_lease(self, claim: Claim) -> None:
        """A worker that was paused must not send what another may have sent meanwhile."""
        until_us = max(claim.leased_until_us, self._kept_until_us) - APART_US
        check_until(self._clock, until_us)

    def _under_way(self) -> dict[str, dict[int, list[str]]]:
        """The task names of lines that are being sent, by batch and line number."""
        by_batch: dict[str, dict[int, list[str]]] = {}
        for name, claim in self._claims.items():
            names = by_batch.setdefault(claim.batch.batch_id, {})
            names.setdefault(claim.line.number, []).append(name)
        return by_batch

    async def _break_off_lost(self) -> None:
        """Cancel lines that others took over, so that they cost no more than so far.

        Also those that this worker claimed again itself, after others had found it silent.
        """
        for batch_id, names in self._under_way().items():
            newest = {number: max(some, key=self._times_claimed) for number, some in names.items()}
            claims = {number: self._times_claimed(name) for number, name in newest.items()}
            lost = await self._lines.lost(batch_id, claims)
            over = [
                name
                for number, some in names.items()
                for name in some
                if (number in lost or name != newest[number]) and not self._is_parking(name)
            ]
            for name in over:
                self._sending.break_off(name, TAKEN_OVER)
            if over:
                self._log.warning(Event.BATCH_TAKEN_OVER, batch=batch_id, count=len(over))

    def _times_claimed(self, name: str) -> int:
        return self._claims[name].claims

    def _is_parking(self, name: str) -> bool:
        return any(each is self._claims[name] for each in self._parking)

    async def _put_off(self, claim: Claim, key: ContentKey, later: Later) -> None:
        """Put a line back: overload only delays it, a failing upstream uses up a try."""
        batch_id, failures = claim.batch.batch_id, claim.failures
        if not later.is_full:
            failures += 1
            if failures >= FAILURES_MAX:
                await self._end(claim, key, later.end)
                return
            due_us = self._in_us(FAILED_REST_S * failures)
            await insisted(lambda: self._lines.put_back(claim, due_us, failures=failures))
            return
        if later.is_alone:
            due_us = self._in_us(REST_S_MAX)
            await insisted(lambda: self._lines.put_back(claim, due_us, failures=failures))
            return
        self._widths[batch_id] = max(1.0, self._widths.get(batch_id, self._slots) / 2)
        stalls = await insisted(lambda: self._lines.stalls(batch_id))
        rest_s = min(2.0 ** min(stalls, STALLS_COUNTED), REST_S_MAX)
        due_us = self._in_us(min(max(rest_s, later.after_s or 0.0), REST_S_MAX))
        await insisted(
            lambda: self._lines.put_back(claim, due_us, failures=failures, rests_until_us=due_us)
        )

    async def _park(self, claim: Claim, key: ContentKey, parked: Parked) -> None:
        """Park completely or not at all: half-way, nobody would know whether the line waits."""
        while True:
            parking = asyncio.ensure_future(self._parked.park(claim, key, parked))
            try:
                await asyncio.shield(parking)
            except (AuditUnavailable, NotReady):
                await asyncio.sleep(AGAIN_S)
            except asyncio.CancelledError:
                await asyncio.wait([parking])
                raise
            else:
                self.has_parked.set()
                return

    def _widen(self, batch_id: str) -> None:
        width = self._widths.get(batch_id)
        if width is not None:
            self._widths[batch_id] = min(width + 1 / width, float(self._slots))

    async def _end(self, claim: Claim, key: ContentKey, end: LineEnd) -> None:
        if await insisted(lambda: self._lines.end(claim, key, end)):
            self._metrics.count_line(end.state)

    def _in_us(self, seconds: float) -> int:
        return self._clock.utc_us() + round(seconds * SECOND_US)

    def _begin_sending(self, claim: Claim, work: Coroutine[Any, Any, None]) -> str:
        name = f"{claim.batch.batch_id}/{claim.line.number}/{next(self._sent)}"
        self._claims[name] = claim
        self._sending.begin(name, claim.batch.batch_id, work)
        return name

    def _reap(self) -> None:
        """Forget what is done; a line whose task crashed gets one more chance."""
        for name, has_crashed in self._sending.reap():
            claim = self._claims.pop(name)
            self._ending = [each for each in self._ending if each is not claim]
            if has_crashed and name not in self._recovering:
                self._recovering.add(self._begin_sending(claim, self._after_crash(claim)))
            self._recovering.discard(name)
        self._chores.tidy()

    async def _after_crash(self, claim: Claim) -> None:
        known = await insisted(lambda: self._know(claim.batch.batch_id))
        if known is not None:
            request_id = self._new_request_id()
            later = self._journeys.crashed(claim.batch, request_id)
            await self._put_off(claim, known[1], later)
