"""Slices that a worker holds, and the ones that a request's accounts draw on. No I/O.

End users have no budget of their own until they are seen: their first request gets them a slice
with the limits of their organisation's template. Those beyond the permitted number share one.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from gateway.money.budgets import WINDOWS, BudgetKey, Limit, level_of, others_of, template_of
from gateway.store.money.hearings import Hearing
from gateway.store.money.slices import NO_WINDOW, Budget, Claim, Grant, HeldSlice


_PATHS_MAX = 10_000
"""How many callers' slices are remembered; others are looked up again."""


class HeldSlices:
    """The slices of one worker, by budget and by path of accounts."""

    def __init__(self) -> None:
        self.by_key: dict[BudgetKey, HeldSlice] = {}
        self.paths: dict[tuple[str, ...], tuple[HeldSlice, ...]] = {}
        """`by_key`'s slices for complete paths of accounts; emptied when it changes."""
        self.templates: dict[BudgetKey, Limit] = {}
        """Limits for each end user, by `user:ORG/*`."""
        self.debtors: set[BudgetKey] = set()
        """Budgets with more leased or spent than they have, since their limit was lowered."""
        self.others: set[BudgetKey] = set()
        """End users beyond the permitted number: they share one budget."""
        self.hearings: dict[BudgetKey, Hearing] = {}
        """Since when new limits and windows are charged here; to be written down."""
        self.lacks_news = False
        """Whether a limit of all end users seems to be gone, so that limits must be read again."""
        self._templates_begun_us: dict[BudgetKey, int] = {}
        self._awaited: dict[str, int] = {}

    @contextmanager
    def awaiting(self, accounts: tuple[str, ...], amount: int) -> Iterator[None]:
        """Announce that a request is about to take this much, which must not be given back."""
        shared = tuple(others_of(account) for account in accounts if template_of(account))
        for account in accounts + shared:
            self._awaited[account] = self._awaited.get(account, 0) + amount
        try:
            yield
        finally:
            for account in accounts + shared:
                # Others may be waiting for 0, and leave no entry when they go first.
                if left := self._awaited.pop(account, 0) - amount:
                    self._awaited[account] = left

    def awaits(self, part: HeldSlice) -> bool:
        """Whether a request is about to take some of it."""
        return self._awaited.get(part.account, 0) > 0

    def idle(self, part: HeldSlice) -> int:
        """How much nobody uses, or is about to take."""
        return part.free - self._awaited.get(part.account, 0)

    def users(self) -> list[str]:
        return [account for account, _ in self.by_key if template_of(account)]

    def limits_end_users(self, organisation: str) -> bool:
        """Whether each end user of this organisation has a limit."""
        template = f"user:{organisation}/*"
        return any(account == template for account, _ in self.templates)

    def used(self, now_us: int) -> list[tuple[str, float]]:
        """The level and used share of each limit, as last heard."""
        parts = self.by_key.values()
        return [(level_of(part.account), part.used_share(now_us)) for part in parts]

    def learn(self, rows: Sequence[Budget], now_us: int) -> list[HeldSlice]:
        """Hold what there is by now; returns the slices whose limit has changed.

        And those of budgets that others have overdrawn: nothing of them should stay unused.
        """
        budgets, self.lacks_news = {row.limit.key: row for row in rows}, False
        self.templates = {
            key: row.limit for key, row in budgets.items() if key.account.endswith("/*")
        }
        known_us = self._templates_begun_us
        self._templates_begun_us = {key: budgets[key].begun_us for key in self.templates}
        for key in self.templates:
            if known_us.get(key) != (begun_us := budgets.pop(key).begun_us):
                self._note_hearing(key, begun_us, now_us)
        for key in self.by_key.keys() - budgets.keys():
            # An end user that has no row yet has nothing leased either.
            del self.by_key[key]
        changed = []
        for key, budget in budgets.items():
            known = self.by_key.get(key)
            if known is None or known.begun_us not in {None, budget.begun_us}:
                # Nothing is held of a limit that was removed and set again, whatever its amount.
                self.by_key[key] = HeldSlice.of(budget)
                self._note_hearing(key, budget.begun_us, now_us)
            elif known.limit != budget.limit or budget.left_microusd < min(known.left, 0):
                known.limit = budget.limit
                known.left = budget.left_microusd
                changed.append(known)
        self.look_again()
        return changed

    def hear_all(
        self, claims: Sequence[Claim], grants: Sequence[Grant], until_s: float, now_us: int
    ) -> None:
        """Take over the database's answers to claims; the slices are valid until `until_s`."""
        answers = {grant.key: grant for grant in grants}
        for claim in claims:
            if (grant := answers.get(claim.key)) is None:
                self._leave_out(claim)
            else:
                self._hear(claim, grant, until_s, now_us)
        if self.debtors:
            self.pay_back()

    def _hear(self, claim: Claim, grant: Grant, until_s: float, now_us: int) -> None:
        part = self.by_key[claim.key]
        known_us = part.begun_us
        if known_us is None:
            template = BudgetKey(template_of(claim.key.account), claim.key.window)
            known_us = self._templates_begun_us.get(template)
        if grant.begun_us != known_us:
            self._note_hearing(claim.key, grant.begun_us, now_us)
        if grant.window_start_us > max(now_us, grant.begun_us):
            # It began by another machine's clock: here it is still the evening before.
            self._note_hearing(claim.key, grant.window_start_us, now_us)
        if grant.is_fresh:
            part = self.renew(part, grant.left_microusd)
        else:
            part.booked = claim.spent_microusd
        part.hear(grant, until_s)
        self._note_debt(part)
        if claim.is_last:
            part.end()

    def _note_hearing(self, key: BudgetKey, since_us: int, now_us: int) -> None:
        known = self.hearings.get(key)
        if known is None or known.since_us != since_us:
            self.hearings[key] = Hearing(key, since_us, now_us)

    def _note_debt(self, part: HeldSlice) -> None:
        """Remember whether too much of a budget is leased, as last heard."""
        if part.left < 0:
            self.debtors.add(part.limit.key)
        else:
            self.debtors.discard(part.limit.key)

    def pay_back(self) -> None:
        """Give back what is free of a budget in debt, before anybody reserves it again."""
        for key in tuple(self.debtors):
            part = self.by_key.get(key)
            if part is None or part.left >= 0:
                self.debtors.discard(key)
            elif (paid := min(part.free, -part.left)) > 0:
                part.amount -= paid
                part.left += paid
                part.is_stale = True  # The database hears of it with the next report.

    def look_again(self) -> None:
        """Forget all paths, and who shares a budget."""
        self.others.clear()
        self.paths.clear()

    def path_of(self, accounts: tuple[str, ...], admitted_us: int) -> tuple[HeldSlice, ...]:
        """Those of the slices that are charged with what was admitted then."""
        return tuple(part for part in self.path(accounts) if part.is_charged_with(admitted_us))

    def path(self, accounts: tuple[str, ...]) -> tuple[HeldSlice, ...]:
        """The slices of these accounts; new end users get one."""
        slices = []
        for key in (BudgetKey(account, window) for account in accounts for window in WINDOWS):
            mine = BudgetKey(others_of(key.account), key.window) if key in self.others else key
            part = self.by_key.get(mine)
            if part is None:
                template = self.templates.get(BudgetKey(template_of(mine.account), mine.window))
                if template is None:
                    continue
                limit = replace(template, account=mine.account)
                part = self.by_key[mine] = HeldSlice(limit, limit.limit_microusd)
            slices.append(part)
        if len(self.paths) >= _PATHS_MAX:
            self.paths.clear()
        path = self.paths[accounts] = tuple(slices)
        return path

    def renew(self, part: HeldSlice, left_microusd: int) -> HeldSlice:
        """A slice of the same budget in its next window.

        Reservations on the old one end there; the database has settled it.
        """
        fresh = self.by_key[part.limit.key] = HeldSlice(part.limit, left_microusd)
        self.paths.clear()
        return fresh

    def drop(self, key: BudgetKey) -> None:
        del self.by_key[key]
        self.paths.clear()

    def _leave_out(self, claim: Claim) -> None:
        """Drop a budget without limit, beyond the number of end users, or of a past day."""
        key, is_new = claim.key, claim.window_start_us == NO_WINDOW
        self.drop(key)
        if claim.is_last:
            return  # It was never asked whether there is room.
        if is_new and template_of(key.account):
            if len(self.others) >= _PATHS_MAX:
                self.others.clear()
            self.others.add(key)
            # The end users beyond the number get a row while a limit applies to them all.
            self.lacks_news |= key.account == others_of(key.account)
