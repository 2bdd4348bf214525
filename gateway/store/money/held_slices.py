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
"""How many callers' slices are remembered; more are looked up again."""


class HeldSlices:
    """The slices of one worker, by budget and by path of accounts."""

    def __init__(self) -> None:
        self.by_key: dict[BudgetKey, HeldSlice] = {}
        self.paths: dict[tuple[str, ...], tuple[HeldSlice, ...]] = {}
        """What `by_key` says for whole paths of accounts; emptied when it changes."""
        self.templates: dict[BudgetKey, Limit] = {}
        """Limits of each end user, by `user:ORG/*`."""
        self.debtors: set[BudgetKey] = set()
        """Budgets of which more was leased or spent than there is: their limit was lowered."""
        self.others: set[BudgetKey] = set()
        """End users beyond the number that there may be: they share one budget."""
        self.hearings: dict[BudgetKey, Hearing] = {}
        """Since when new limits and windows are charged here; to be written down."""
        self.lacks_news = False
        """Whether a limit of end users is gone of which nothing was heard yet."""
        self._templates_begun_us: dict[BudgetKey, int] = {}
        self._awaited: dict[str, int] = {}

    @contextmanager
    def awaiting(self, accounts: tuple[str, ...], amount: int) -> Iterator[None]:
        """A request is about to take so much: it must not be given back under its hands."""
        shared = tuple(others_of(account) for account in accounts if template_of(account))
        for account in accounts + shared:
            self._awaited[account] = self._awaited.get(account, 0) + amount
        try:
            yield
        finally:
            for account in accounts + shared:
                # Others may wait for nothing at all, and leave no entry when they go first.
                if left := self._awaited.pop(account, 0) - amount:
                    self._awaited[account] = left

    def awaits(self, part: HeldSlice) -> bool:
        """Whether somebody is about to take something of it."""
        return self._awaited.get(part.account, 0) > 0

    def idle(self, part: HeldSlice) -> int:
        """What nobody uses, or is about to take."""
        return part.free - self._awaited.get(part.account, 0)

    def users(self) -> list[str]:
        return [account for account, _ in self.by_key if template_of(account)]

    def limits_end_users(self, organisation: str) -> bool:
        """Whether each end user of this organisation has a limit."""
        template = f"user:{organisation}/*"
        return any(account == template for account, _ in self.templates)

    def used(self, now_us: int) -> list[tuple[str, float]]:
        """Of each limit its level and the share that is used, as last heard."""
        parts = self.by_key.values()
        return [(level_of(part.account), part.used_share(now_us)) for part in parts]

    def learn(self, rows: Sequence[Budget], now_us: int) -> list[HeldSlice]:
        """Hold what there is by now; gives the slices whose limit is another one.

        And those of budgets that others have overdrawn: nothing of them should lie idle.
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
            # An end user that is not written down yet has nothing leased either.
            del self.by_key[key]
        changed = []
        for key, budget in budgets.items():
            known = self.by_key.get(key)
            if known is None or known.begun_us not in {None, budget.begun_us}:
                # Of a limit that was removed and set anew nothing is held, whatever it is.
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
        """What the database answered to claims; the slices are good until then."""
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
            # It began by another's clock: here it is the evening before.
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
        """Remember whether too much of a budget is leased, as was just heard."""
        if part.left < 0:
            self.debtors.add(part.limit.key)
        else:
            self.debtors.discard(part.limit.key)

    def pay_back(self) -> None:
        """What is free of a budget in debt goes back before anybody reserves it once more."""
        for key in tuple(self.debtors):
            part = self.by_key.get(key)
            if part is None or part.left >= 0:
                self.debtors.discard(key)
            elif (paid := min(part.free, -part.left)) > 0:
                part.amount -= paid
                part.left += paid
                part.is_stale = True  # The database hears of it with the next report.

    def look_again(self) -> None:
        """Remember nothing of paths, nor of who shares a budget."""
        self.others.clear()
        self.paths.clear()

    def path_of(self, accounts: tuple[str, ...], admitted_us: int) -> tuple[HeldSlice, ...]:
        """Those of them that are charged with what was let through then."""
        return tuple(part for part in self.path(accounts) if part.is_charged_with(admitted_us))

    def path(self, accounts: tuple[str, ...]) -> tuple[HeldSlice, ...]:
        """The slices of these accounts; end users who are here for the first time get one."""
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

        Reservations of the old one end there; the database has done with it.
        """
        fresh = self.by_key[part.limit.key] = HeldSlice(part.limit, left_microusd)
        self.paths.clear()
        return fresh

    def drop(self, key: BudgetKey) -> None:
        del self.by_key[key]
        self.paths.clear()

    def _leave_out(self, claim: Claim) -> None:
        """There is no such budget: no limit any more, too many end users, or its day is over."""
        key, is_new = claim.key, claim.window_start_us == NO_WINDOW
        self.drop(key)
        if claim.is_last:
            return  # It was never asked whether there is room.
        if is_new and template_of(key.account):
            if len(self.others) >= _PATHS_MAX:
                self.others.clear()
            self.others.add(key)
            # Those who are too many get a row as long as there is a limit of them all.
            self.lacks_news |= key.account == others_of(key.account)
