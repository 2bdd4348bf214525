"""The ledger that workers share: slices leased from the database, reservations made in memory.

The usual request touches no database. What is leased is already counted there, so no interleaving
of workers admits more than a limit allows. Where it errs, it errs against overspending: a worker
that crashes loses its slices, and what it had not reported of them counts as spent; a slice whose
lease ran out is not used; money that another worker holds is waited for briefly, then the request
is refused. When a budget runs low, exactly what is needed is leased, and unused money goes back at
once.
"""

import asyncio
import secrets
from collections.abc import Collection, Sequence

from gateway.clock import Clock, UnhurriedClock
from gateway.errors import NotReady
from gateway.money.budgets import (
    BudgetKey,
    ReservationBook,
    exhausted,
    template_of,
)
from gateway.pacing.moments import rung
from gateway.store.money.hearings import only_new
from gateway.store.money.held_slices import HeldSlices
from gateway.store.money.leases import LeaseTable
from gateway.store.money.leaving import left_in_time
from gateway.store.money.slices import NO_WINDOW, Claim, HeldSlice, LeaseHolder
from gateway.telemetry import Event, logger
from gateway.types import Reservation, Settlement


_EXCHANGES_MAX = 50
"""How often a request asks for slices, not counting pauses, before it gives up."""
_FORGETTING_S = 600.0
"""How often obsolete rows of end users and hearings are dropped."""


class LeasedLedger:
    """Budgets of one worker among several.

    Args:
        leases: the database's side; `clock` is for windows and leases.
        worker: a name that no other running worker has and that survives restarts.
        slice_microusd: how much to lease ahead while there is plenty.
        reservation_lease_s: a reservation that was not ended is returned after this time.
        flush_every_s: how often spending is reported; `patience_s`: a request's wait for more.
        quiet_rounds: after so many reports without use the free part of a slice is returned, or
            what exceeds a slice.
    """

    def __init__(
        self,
        leases: LeaseTable,
        clock: Clock,
        worker: str,
        *,
        slice_microusd: int = 2_000_000,
        reservation_lease_s: float = 900.0,
        flush_every_s: float = 0.2,
        quiet_rounds: int = 10,
        patience_s: float = 0.5,
    ) -> None:
        self._leases = leases
        self._clock, self._unhurried = clock, UnhurriedClock(clock)
        self.holder = LeaseHolder(worker, secrets.token_hex(8))
        self._slice_microusd = slice_microusd
        self._flush_every_s = flush_every_s
        self._quiet_rounds = quiet_rounds
        self._pause_s = flush_every_s / 8
        self._patience_s, self._pauses = patience_s, round(patience_s / self._pause_s)
        self.book = ReservationBook(reservation_lease_s)
        self._held = HeldSlices()
        self._forgot_s = clock.monotonic_s()
        self._exchanging = asyncio.Lock()
        self._wanted: dict[BudgetKey, int] = {}
        self._round: asyncio.Task[None] | None = None
        self._flusher: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._is_closing, self.is_reporting = False, True
        """False while the database takes no reports; requests then use what is leased."""

    async def start(self) -> None:
        """Write off what an earlier run left, load limits, begin to report; raises NotReady."""
        charged = await self._leases.write_off(self.holder)
        await self.refresh()
        self._held.hearings = only_new(self._held.hearings, charged)
        self._flusher = asyncio.create_task(self._flush_forever(), name="ledger-flush")
        self._flusher.add_done_callback(self._stop_reporting)

    async def refresh(self) -> None:
        """Load limits again, to be called when the revision changed.

        Raises:
            NotReady: the database does not answer.
        """
        async with self._exchanging:
            await self._learn()

    async def _learn(self) -> None:
        rows = await self._leases.budgets(self._held.users())
        changed = self._held.learn(rows, self._clock.utc_us())
        await self._exchange([self._claim(part, keeps=0) for part in changed])

    async def reserve(
        self,
        accounts: tuple[str, ...],
        amount_microusd: int,
        lease_s: float = 0.0,
        admitted_us: int | None = None,
    ) -> Reservation:
        """See the port.

        Raises:
            BudgetExhausted: it does not fit.
            NotReady: it does not fit in what is leased, and the database does not answer.
        """
        assert amount_microusd >= 0
        if admitted_us is not None:
            await self._hear_of(accounts)  # Only then is it known which windows have begun.
        now_us, now_s = self._clock.utc_us(), self._clock.monotonic_s()
        slices = self._held.paths.get(accounts) if admitted_us is None else None
        if slices is None:
            slices = self._path(accounts, admitted_us)
        for part in slices:
            if (
                part.amount - part.spent - part.reserved < amount_microusd
                or now_us >= part.valid_until_us
                or now_s >= part.valid_until_s
            ):
                with self._held.awaiting(accounts, amount_microusd):
                    slices = await self._filled(accounts, amount_microusd, admitted_us)
                # Midnight may have passed meanwhile; if only just, the slices are of the previous
                # day.
                now_us = min([self._clock.utc_us(), *(each.valid_until_us - 1 for each in slices)])
                break
        return self.book.open(slices, accounts, amount_microusd, now_us, lease_s)

    def limits_end_users(self, organisation: str) -> bool:
        """See the port."""
        return self._held.limits_end_users(organisation)

    def settle(self, reservation: Reservation, cost_microusd: int) -> Settlement:
        if self.book.close(reservation, cost_microusd):
            self._hurry.set()  # The other workers must hear of an overrun soon.
        if self._held.debtors:
            self._held.pay_back()
        return Settlement(reservation.reservation_id, reservation.amount_microusd, cost_microusd)

    def release(self, reservation: Reservation) -> Settlement:
        return self.settle(reservation, 0)

    async def left_now_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """See the port; what the database leases ahead is for the request itself."""
        now_us, now_s = self._clock.utc_us(), self._clock.monotonic_s()
        slices = self._held.paths.get(accounts)
        least: int | None = None
        for part in self._held.path(accounts) if slices is None else slices:
            if now_us >= part.valid_until_us or now_s >= part.valid_until_s:
                await self._hear_of(accounts)
                return self.left_microusd(accounts)
            # The same as `left_at` of a slice that is valid now.
            left = part.left + part.amount - part.spent - part.reserved
            if least is None or left < least:
                least = left
        return least

    def left_microusd(self, accounts: tuple[str, ...]) -> int | None:
        """See the port; what other workers hold is as last heard."""
        now_us, slices = self._clock.utc_us(), self._held.paths.get(accounts)
        if slices is None:
            slices = self._held.path(accounts)
        return min([part.left_at(now_us) for part in slices], default=None)

    def used(self) -> list[tuple[str, float]]:
        """The level and the used share of each limit, as last heard."""
        return self._held.used(self._clock.utc_us())

    async def flush(self) -> None:
        """Report what was spent and give back unused money.

        Raises:
            NotReady: the database does not answer; nothing is lost.
        """
        async with self._exchanging:
            self.book.expire(self._unhurried.utc_us())
            self._leases.lagging.utc_us()
            claims = []
            for part in tuple(self._held.by_key.values()):
                keeps = self._keeps(part)
                gives_back = keeps is not None and self._held.idle(part) > keeps
                leaves = self._is_forgettable(part)
                if leaves and part.window_start_us == NO_WINDOW and not part.is_unsure:
                    self._held.drop(part.limit.key)  # Nothing was ever leased.
                    continue
                if gives_back or leaves or part.has_news or self._is_ageing(part):
                    claims.append(self._claim(part, keeps=keeps, is_last=leaves))
            await self._exchange(claims)
            for key in [claim.key for claim in claims if claim.is_last]:
                self._forget(key)
            await self._leases.hearings.write(self.holder.worker, self._held.hearings)

    async def close(self) -> None:
        """Report everything and give back what is not reserved; call it after the last request.

        If the database is busy, this is retried for a few seconds. If it stays away, or hangs, the
        leases run out and count as spent.
        """
        self._is_closing = True
        self._hurry.set()
        if not await left_in_time(self._leave, self._running):
            logger().warning(Event.LEDGER_LEFT_LEASED, worker=self.holder.worker)

    def _running(self) -> list[asyncio.Task[None]]:
        """The reporting task, and an exchange that a cancelled caller may have left."""
        tasks = (self._flusher, self._round)
        return [task for task in tasks if task is not None and not task.done()]

    async def _leave(self) -> None:
        async with self._exchanging:
            claims = [
                self._claim(part, keeps=0, is_last=part.reserved == 0)
                for part in self._held.by_key.values()
                if part.window_start_us != NO_WINDOW or part.is_unsure
            ]
            await self._exchange(claims)
            await self._leases.hearings.write(self.holder.worker, self._held.hearings)

    def _is_forgettable(self, part: HeldSlice) -> bool:
        """End users come and go: one that was quiet for a while is forgotten."""
        is_quiet = part.quiet_rounds >= self._quiet_rounds and not part.open
        return is_quiet and bool(template_of(part.account)) and not self._held.awaits(part)

    def _forget(self, key: BudgetKey) -> None:
        part = self._held.by_key.get(key)
        if part is not None and not part.open and not self._held.awaits(part):
            self._held.drop(key)

    async def _filled(
        self, accounts: tuple[str, ...], amount: int, admitted_us: int | None
    ) -> tuple[HeldSlice, ...]:
        """The slices of the accounts, each with `amount` free, leased from the database."""
        pauses, deadline_s = self._pauses, self._clock.monotonic_s() + self._patience_s
        for _ in range(self._pauses + _EXCHANGES_MAX):
            asked = {part.limit.key for part in self._short(accounts, amount, admitted_us)}
            if asked:
                await self._ask_for(asked, amount)
            short = self._short(accounts, amount, admitted_us)
            if not short:
                return self._path(accounts, admitted_us)
            # If there is more, another request took only what came for us. A slice that became
            # short while we asked for others is asked for before it is reported as used up.
            dry = [
                part for part in short if part.limit.key in asked and part.left + part.free < amount
            ]
            is_late = pauses == 0 or self._clock.monotonic_s() > deadline_s
            if gone := [each for each in dry if is_late or each.reachable < amount]:
                now_us = self._clock.utc_us()
                places = [(each.limit, max(now_us, each.left_of_us)) for each in gone]
                is_held = all(each.unspent >= amount for each in gone)
                raise exhausted(places, amount, is_held=is_held)
            if dry:
                pauses -= 1
                await asyncio.sleep(self._pause_s)
        # The slices had expired on arrival: a clock must be far off.
        raise NotReady("the budget cannot be asked now", retry_after_s=1.0)

    async def _hear_of(self, accounts: tuple[str, ...]) -> None:
        """Done twice if an end user is one too many: the second time for the budget those share."""
        for _ in range(2):
            if unheard := {part.limit.key for part in self._short(accounts, 0)}:
                await self._ask_for(unheard, 0)

    def _path(self, accounts: tuple[str, ...], admitted_us: int | None) -> tuple[HeldSlice, ...]:
        """The slices that are charged; None stands for requests that are admitted now."""
        if admitted_us is None:
            return self._held.path(accounts)
        return self._held.path_of(accounts, admitted_us)

    def _short(
        self, accounts: tuple[str, ...], amount: int, admitted_us: int | None = None
    ) -> list[HeldSlice]:
        now_us, now_s = self._clock.utc_us(), self._clock.monotonic_s()
        needed = amount or -(1 << 62)  # An amount of 0 fits even if a slice is overspent.
        return [
            part
            for part in self._path(accounts, admitted_us)
            if part.free < needed or now_us >= part.valid_until_us or now_s >= part.valid_until_s
        ]

    async def _ask_for(self, keys: Collection[BudgetKey], amount: int) -> None:
        """Have the next exchange lease `amount` on each budget; all who wait share one.

        With 0 it only leases ahead, while there is plenty, and brings news.
        """
        for key in keys:
            self._wanted[key] = self._wanted.get(key, 0) + amount
        if self._round is None:
            self._round = asyncio.create_task(self._lease_wanted(), name="ledger-lease")
            self._round.add_done_callback(_note_error)
        await asyncio.shield(self._round)

    async def _lease_wanted(self) -> None:
        async with self._exchanging:
            wanted, self._wanted, self._round = self._wanted, {}, None
            claims = [
                self._claim(self._held.by_key[key], wanted=amount)
                for key, amount in wanted.items()
                if key in self._held.by_key
            ]
            await self._exchange(claims)
            if self._held.lacks_news:
                await self._learn()

    def _claim(
        self,
        part: HeldSlice,
        *,
        wanted: int | None = None,
        keeps: int | None = None,
        is_last: bool = False,
    ) -> Claim:
        if keeps is not None:
            # Subtracted before it is reported: no request may reserve it while we wait.
            part.amount -= max(self._held.idle(part) - keeps, 0)
        if is_last:
            part.end()
        return Claim(
            key=part.limit.key,
            window_start_us=part.window_start_us,
            amount_microusd=part.amount,
            spent_microusd=part.spent,
            reserved_microusd=part.reserved,
            wanted_microusd=wanted or 0,
            spare_microusd=0 if wanted is None else self._slice_microusd,
            is_last=is_last,
            booked_microusd=part.booked,
        )

    async def _exchange(self, claims: Sequence[Claim]) -> None:
        """Call only with `_exchanging` held: a slice's amount changes nowhere else."""
        if not claims:
            return
        for claim in claims:
            self._held.by_key[claim.key].is_unsure = True
        until_s = self._clock.monotonic_s() + self._leases.lease_us / 1e6
        grants = await self._leases.exchange(self.holder, claims)
        self._held.hear_all(claims, grants, until_s, self._clock.utc_us())

    def _keeps(self, part: HeldSlice) -> int | None:
        """How much may stay unused; None if all of it may."""
        is_ample = self._held.idle(part) > self._slice_microusd
        quiet, ample = part.count_quiet(), part.count_ample(is_ample=is_ample)
        if part.is_tight or quiet >= self._quiet_rounds:
            return 0
        return self._slice_microusd if ample >= self._quiet_rounds else None

    def _is_ageing(self, part: HeldSlice) -> bool:
        """Whether a slice must be renewed soon: it holds money, or open requests may cost some.

        Once it is written off, nothing that was admitted on it is booked any more.
        """
        half_us = self._leases.lease_us // 2
        is_late = self._clock.monotonic_s() + half_us / 1e6 > part.valid_until_s
        is_late |= self._clock.utc_us() + half_us > part.valid_until_us
        return is_late and (part.amount > part.spent or part.open > 0)

    async def _forget_past(self) -> None:
        now_s = self._clock.monotonic_s()
        if now_s - self._forgot_s <= _FORGETTING_S:
            return
        if await self._leases.write_off_dead():
            return  # The rest after the next report: without reports this worker's leases run out.
        self._forgot_s = now_s
        if self._held.templates:
            self._held.look_again()
            await self._leases.forget_past_users()
        await self._leases.hearings.forget_over()

    def _stop_reporting(self, _: asyncio.Task[None]) -> None:
        self.is_reporting = self._is_closing  # ended by anything else, it must not look healthy

    async def _flush_forever(self) -> None:
        while not self._is_closing:
            await rung(self._hurry, self._flush_every_s)
            self._hurry.clear()
            try:
                await self.flush()
                await self._forget_past()
                self.is_reporting = True
            except NotReady:
                self.is_reporting = False
                await asyncio.sleep(self._flush_every_s)


def _note_error(task: asyncio.Task[None]) -> None:
    # Waiting callers get the error; without any, asyncio must not report it as never retrieved.
    if not task.cancelled():
        task.exception()
