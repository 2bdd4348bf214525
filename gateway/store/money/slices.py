"""Arithmetic of budget slices: what is claimed, what is granted, and what is left unassigned.

Pure functions on one budget and one lease; `gateway.store.money.leases` runs them in transactions.
"""

from functools import lru_cache
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from gateway.money.budgets import (
    BudgetKey,
    Limit,
    Pot,
    WindowKind,
    template_of,
    window_end_us,
    window_start_us,
)


_SPARE_PARTS = 8
_TIGHT_PARTS = 50
"""The last fiftieth of a limit (2 %) is handed out to the micro-dollar, never ahead."""
NO_WINDOW = -1
"""The window of a slice for which nothing was ever leased."""
_window_end_us = lru_cache(1024)(window_end_us)
"""Thousands of unused limits share few windows."""


class LeaseHolder(Struct, frozen=True):
    """One run of one worker."""

    worker: str
    incarnation: str


class Claim(Struct, frozen=True):
    """What a worker reports and wants for a slice; sums count from the slice's beginning."""

    key: BudgetKey
    window_start_us: int
    amount_microusd: int
    """What it holds, spent parts included; less than it was granted when it gives back."""
    spent_microusd: int
    reserved_microusd: int
    wanted_microusd: int = 0
    spare_microusd: int = 0
    """How much more than `wanted` is welcome while there is plenty."""
    is_last: bool = False
    booked_microusd: int = 0
    """What it knows is booked: a lease with less booked is one that it never heard of."""


class Grant(Struct, frozen=True):
    """The answer to a claim."""

    key: BudgetKey
    is_fresh: bool
    """Whether the old slice is over (a new window, or written off) and this is another one."""
    window_start_us: int
    amount_microusd: int
    valid_until_us: int
    left_microusd: int
    """What nobody has leased; negative after an overrun."""
    elsewhere_microusd: int
    """What other workers hold."""
    is_tight: bool
    """Whether so little is left that nothing should stay unused."""
    is_gone: bool = False
    """Whether the old slice was written off, and there is none until it is asked for."""
    begun_us: int = 0
    """When its limit was first set."""


class Budget(Struct, frozen=True):
    """The limit of an account, as stored in the database."""

    limit: Limit
    window_start_us: int
    spent_microusd: int
    leased_microusd: int
    zone_since_us: int = 0
    """When its time zone was set: no window ends early because the zone was changed."""
    begun_us: int = 0
    """When the limit was first set: what was spent before does not count."""

    @property
    def left_microusd(self) -> int:
        return self.limit.limit_microusd - self.spent_microusd - self.leased_microusd


class Lease(Struct, frozen=True):
    """What one worker holds of a budget."""

    account: str
    window_kind: WindowKind
    worker: str
    incarnation: str
    window_start_us: int
    amount_microusd: int
    spent_microusd: int
    expires_us: int

    @property
    def key(self) -> BudgetKey:
        return BudgetKey(self.account, self.window_kind)

    @property
    def outstanding_microusd(self) -> int:
        return max(self.amount_microusd - self.spent_microusd, 0)


def roll(budget: Budget, now_us: int) -> Budget:
    """The budget in the window that holds `now_us`; never goes back to an earlier one.

    After a change of zone the running window goes on until the new zone's next midnight, so that
    moving an organisation east and west gives it no second day.
    """
    start_us = window_start_us(budget.limit.window, now_us, budget.limit.time_zone)
    if start_us <= max(budget.window_start_us, budget.zone_since_us):
        return budget
    return Budget(budget.limit, start_us, 0, 0, budget.zone_since_us, budget.begun_us)


def without(budget: Budget, lease: Lease, parked_microusd: int = 0) -> Budget:
    """The budget after a lease was written off: its outstanding part counts as spent.

    Except what was reserved for parked lines: the worker that ends those books their cost.
    """
    outstanding = lease.outstanding_microusd
    lost = max(outstanding - parked_microusd, 0)
    return replace(
        budget,
        spent_microusd=budget.spent_microusd + lost,
        leased_microusd=budget.leased_microusd - outstanding,
    )


def exchanged(
    budget: Budget, held: Lease | None, claim: Claim, lease: Lease
) -> tuple[Budget, Lease]:
    """Budget and lease after a claim.

    Args:
        budget: in its present window.
        held: the claimant's lease in this window, if it has one.
        claim: what it reports and wants.
        lease: an empty lease to start with if it has none.
    """
    amount = spent = outstanding = booked = 0
    target = claim.wanted_microusd
    if held is not None:
        outstanding, booked = held.outstanding_microusd, held.spent_microusd
        spent = claim.spent_microusd
        amount = max(claim.amount_microusd, spent)
        target += spent + claim.reserved_microusd
    spent_now = budget.spent_microusd + spent - booked
    leased_now = budget.leased_microusd - outstanding + amount - spent
    left = budget.limit.limit_microusd - spent_now - leased_now
    need = max(target - amount, 0) if claim.wanted_microusd else 0
    spare = (left - need - _tight(budget.limit)) // _SPARE_PARTS
    # What other requests of this worker were granted a moment ago is there already.
    idle = max(amount - target, 0)
    need += max(min(claim.spare_microusd, spare) - idle, 0)
    granted = max(min(need, left), 0)
    after = replace(budget, spent_microusd=spent_now, leased_microusd=leased_now + granted)
    return after, replace(lease, amount_microusd=amount + granted, spent_microusd=spent)


def _tight(limit: Limit) -> int:
    return limit.limit_microusd // _TIGHT_PARTS


def answer(
    budget: Budget, own: Lease | None, claim: Claim, empty: Lease, now_us: int = 0
) -> tuple[Budget, Grant, Lease | None]:
    """Budget, grant and lease after a claim; `own` is the lease of this run and window, if any.

    A slice that was written off is followed by another one only once its holder knows: it would
    take a lease that it never heard of for the old one, whose spending would be counted again.
    """
    if own is None and claim.window_start_us == budget.window_start_us:
        return budget, _gone(budget, claim.key), None
    is_same = (
        own is not None
        and claim.window_start_us == own.window_start_us
        and claim.booked_microusd <= own.spent_microusd
    )
    if own is not None and not is_same:
        # The grant never reached its holder, so none of it was used: it goes back.
        unused = own.outstanding_microusd
        budget = replace(budget, leased_microusd=budget.leased_microusd - unused)
    after, lease = exchanged(budget, own if is_same else None, claim, empty)
    window_end = window_end_us(
        after.limit.window, max(now_us, after.window_start_us), after.limit.time_zone
    )
    grant = Grant(
        key=claim.key,
        is_fresh=not is_same,
        window_start_us=after.window_start_us,
        amount_microusd=lease.amount_microusd,
        valid_until_us=min(lease.expires_us, window_end),
        left_microusd=after.left_microusd,
        elsewhere_microusd=after.leased_microusd - lease.outstanding_microusd,
        is_tight=after.left_microusd <= _tight(after.limit),
        begun_us=after.begun_us,
    )
    return after, grant, lease


def others_hold(before: Budget, grant: Grant) -> bool:
    """Whether a budget was just overdrawn while other workers could still spend some of it."""
    is_new = grant.left_microusd < 0 <= before.left_microusd
    return is_new and grant.elsewhere_microusd > 0


def _gone(budget: Budget, key: BudgetKey) -> Grant:
    return Grant(
        key=key,
        is_fresh=True,
        window_start_us=budget.window_start_us,
        amount_microusd=0,
        valid_until_us=0,
        left_microusd=budget.left_microusd,
        elsewhere_microusd=budget.leased_microusd,
        is_tight=budget.left_microusd <= _tight(budget.limit),
        is_gone=True,
        begun_us=budget.begun_us,
    )


class HeldSlice(Pot):
    """A worker's part of one budget, and what it last heard about the rest."""

    __slots__ = (
        "ample_rounds",
        "begun_us",
        "booked",
        "elsewhere",
        "is_stale",
        "is_tight",
        "is_unsure",
        "left",
        "left_of_us",
        "quiet_rounds",
        "seen",
        "valid_until_s",
        "window_start_us",
    )

    def __init__(self, limit: Limit, left: int, left_of_us: int = 0) -> None:
        super().__init__(limit)
        self.window_start_us = NO_WINDOW
        self.valid_until_s = 0.0
        """On the monotonic clock: a clock set back must not let a slice outlive its lease."""
        self.booked = 0
        """How much of `spent` the database knows of."""
        self.left = left
        self.left_of_us = left_of_us
        """The beginning of the window that `left` belongs to."""
        self.begun_us: int | None = None
        """When its limit was first set; None for an end user that is not known yet."""
        self.is_stale = False
        """Whether what is left was asked for, and was heard long ago."""
        self.elsewhere = 0
        self.is_tight = False
        self.is_unsure = False
        """Whether a claim was sent and its answer never came."""
        self.seen = (0, 0)
        self.quiet_rounds = self.ample_rounds = 0

    @classmethod
    def of(cls, budget: Budget) -> Self:
        """An empty slice of a budget, with what is left of the budget now."""
        part = cls(budget.limit, budget.left_microusd, budget.window_start_us)
        part.begun_us = budget.begun_us
        return part

    def hear(self, grant: Grant, valid_until_s: float) -> None:
        self.left_of_us, self.begun_us = grant.window_start_us, grant.begun_us
        self.window_start_us = NO_WINDOW if grant.is_gone else grant.window_start_us
        self.amount = grant.amount_microusd
        self.valid_until_us = grant.valid_until_us
        self.valid_until_s = valid_until_s
        self.left = grant.left_microusd
        self.elsewhere = grant.elsewhere_microusd
        self.is_tight = grant.is_tight
        self.is_unsure = self.is_stale = False

    def end(self) -> None:
        """Mark it as given back: every later request asks for a lease, even one that needs nothing.

        Otherwise its cost would be booked nowhere, since there is no lease to book it on.
        """
        self.valid_until_us = 0

    @property
    def reachable(self) -> int:
        """What there is of the budget, including what others hold."""
        return self.left + self.free + self.elsewhere

    @property
    def unspent(self) -> int:
        """What there would be of the budget with nothing reserved, as last heard from others."""
        return self.reachable + self.reserved

    @property
    def has_news(self) -> bool:
        return self.is_unsure or self.is_stale or self.spent != self.booked

    def is_charged_with(self, admitted_us: int) -> bool:
        """Whether what was admitted then is charged here, as far as is known.

        It is not if the limit, or the window, has begun since.
        """
        return max(self.window_start_us, self.begun_us or 0) <= admitted_us

    def left_at(self, now_us: int) -> int:
        """What is left of the limit now, as last heard; old news is marked to be asked for again.

        If a policy decides by it and refuses every request, nothing else would ever ask.
        """
        if now_us < self.valid_until_us:
            return self.left + self.amount - self.spent - self.reserved
        self.is_stale = self.window_start_us != NO_WINDOW or not template_of(self.account)
        return self._left_as_heard(now_us)

    def used_share(self, now_us: int) -> float:
        """How much of the limit is used, including what others hold; the database is not asked."""
        limit_microusd = self.limit.limit_microusd
        is_heard = now_us < self.valid_until_us
        left = self.left + self.free if is_heard else self._left_as_heard(now_us)
        return 1 - left / limit_microusd if limit_microusd else 0.0

    def _left_as_heard(self, now_us: int) -> int:
        limit = self.limit
        if now_us >= _window_end_us(limit.window, self.left_of_us, limit.time_zone):
            return limit.limit_microusd
        return self.left + self.free

    def count_quiet(self) -> int:
        """Count the rounds in which nothing was reserved or spent."""
        now = (self.spent, self.reserved)
        self.quiet_rounds = self.quiet_rounds + 1 if now == self.seen else 0
        self.seen = now
        return self.quiet_rounds

    def count_ample(self, *, is_ample: bool) -> int:
        """Count the rounds in which more than a slice was unused, as after a burst of requests."""
        self.ample_rounds = self.ample_rounds + 1 if is_ample else 0
        return self.ample_rounds
