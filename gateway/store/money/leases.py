"""Slices of budgets in the database: claimed, granted and written off in transactions.

The arithmetic is in `slices`; around it, a transaction locks the budgets in the order of their
accounts and windows, so that two workers never wait for each other.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace
from sqlalchemy import and_, delete, not_, or_, select, update

from gateway.clock import Clock, LaggingClock, SteadyClock
from gateway.errors import RequestInvalid
from gateway.money.budgets import BudgetKey, Limit, WindowKind, checked_zone
from gateway.pacing.patience import patience
from gateway.store.engine import Database, together
from gateway.store.money.budget_rows import (
    below,
    budget_changes,
    budget_of,
    children,
    claimed,
    is_end_user,
    lease_changes,
    limit_mark,
    require_seen,
    write_budgets,
)
from gateway.store.money.dead_leases import NOBODY, forgotten, settled
from gateway.store.money.end_users import END_USERS_MAX, EndUserRows
from gateway.store.money.hearings import Hearings, forget_hearings
from gateway.store.money.limiting import limited, locked, overtake
from gateway.store.money.parked_money import hold_nothing_of
from gateway.store.money.slices import (
    Budget,
    Claim,
    Grant,
    Lease,
    LeaseHolder,
    answer,
    others_hold,
    roll,
)
from gateway.store.revisions import bump, ring
from gateway.store.schema.tables import (
    budget_leases,
    budgets,
    organisations,
    virtual_keys,
)


_CLAIMS_MAX = 5_000
_NAMES_MAX = 10_000
"""Claims and names in one statement: PostgreSQL takes 32,767 values, and a claim needs two."""
_EXPIRY_GRACE_US = 30_000_000
"""How far two workers' clocks may differ before one writes off what the other still uses."""


class LeaseTable:
    """Budgets and leases of one database."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        *,
        lease_s: float = 60.0,
        end_users_max: int = END_USERS_MAX,
    ) -> None:
        self._database = database
        self._clock, self._steady = clock, SteadyClock(clock)
        self._end_users = EndUserRows(database, clock, end_users_max)
        self.hearings = Hearings(database)
        self.lease_us = round(lease_s * 1_000_000)
        self.lagging = LaggingClock(clock, lease_s + _EXPIRY_GRACE_US / 1e6)
        """The clock by which others' leases end; read often, to notice a clock set back."""

    async def budgets(self, end_users: Sequence[str] | None = ()) -> list[Budget]:
        """Limits in their present windows; only the named end users', or all for None."""
        now_us = self._clock.utc_us()
        query = select(budgets).order_by(budgets.c.account, budgets.c.window_kind)
        queries = [query]
        if end_users is not None:
            queries = [query.where(not_(is_end_user()))]
            for start in range(0, len(end_users), _NAMES_MAX):
                some = end_users[start : start + _NAMES_MAX]
                queries.append(query.where(budgets.c.account.in_(some)))
        async with self._database.reading() as connection:
            return [
                roll(budget_of(row), now_us)
                for each in queries
                for row in (await connection.execute(each)).mappings()
            ]

    async def last_windows(self) -> list[Budget]:
        """Limits in the last windows in which anything was spent, which may be over.

        For all accounts except those of end users.
        """
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(budgets).where(not_(is_end_user())))).mappings()
            found = [budget_of(row) for row in rows]
        return sorted(found, key=lambda budget: budget.limit.key)

    async def budgets_of(self, accounts: Collection[str]) -> list[Budget]:
        """Limits of these accounts, some hundreds at most, in their present windows."""
        now_us = self._clock.utc_us()
        query = (
            select(budgets)
            .where(budgets.c.account.in_(sorted(accounts)))
            .order_by(budgets.c.account, budgets.c.window_kind)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings()
            return [roll(budget_of(row), now_us) for row in rows]

    async def set_limit(self, limit: Limit, seen: str | None = None) -> None:
        """Limit an account in one kind of window; all workers learn of it within a second.

        Its limits in other kinds of windows stay. The time zone is that of the account's
        organisation. A new kind of window starts with nothing spent. A limit below what is spent
        refuses from now on; workers return what they leased under the old limit when they learn of
        it. A limit on `user:ORG/*` applies to each end user of the organisation. Alerts for shares
        of the new limit that are not used up yet are sent again when they are. `seen` is
        `limit_mark` of the limit that the caller was shown; without it, none was shown.

        Raises:
            ChangedMeanwhile: the present limit is not the one that was seen.
            RequestInvalid: the limit is negative.
        """
        if limit.limit_microusd < 0:
            raise RequestInvalid("a limit cannot be negative", parameter="limit_microusd")
        now_us = self._clock.utc_us()
        async with self._database.writing() as connection:
            await limited(connection, self._database.kind, limit, seen, now_us)
            await overtake(connection, limit.account, limit.window, now_us)

    async def set_time_zone(self, organisation: str, time_zone: str) -> None:
        """Say where midnight is for an organisation's windows; running windows are not cut short.

        Raises:
            RequestInvalid: there is no such zone or organisation.
        """
        checked_zone(time_zone)
        async with self._database.writing() as connection:
            change = (
                update(organisations)
                .where(organisations.c.name == organisation)
                .values(time_zone=time_zone)
                .returning(organisations.c.name)
            )
            if (await connection.execute(change)).first() is None:
                raise RequestInvalid("there is no such organisation", parameter="organisation")
            now_us = self._clock.utc_us()
            own_keys = select("key:" + virtual_keys.c.id).where(
                virtual_keys.c.organisation == organisation
            )
            accounts = budgets.c.account
            of_organisation = or_(
                accounts == f"org:{organisation}",
                accounts.in_(own_keys),
                *(
                    accounts.like(below(f"{level}:{organisation}/"), escape="\\")
                    for level in ("ws", "proj", "user")
                ),
            )
            # The templates first: locking them keeps new end users from copying old values.
            await locked(connection, accounts == f"user:{organisation}/*")
            found = await locked(connection, of_organisation)
            moved = [
                replace(
                    roll(budget, now_us),
                    limit=replace(budget.limit, time_zone=time_zone),
                    zone_since_us=now_us,
                )
                for budget in found.values()
                if budget.limit.time_zone != time_zone
            ]
            await write_budgets(connection, moved)
            await bump(connection)

    async def remove_limit(
        self, account: str, window: WindowKind | None = None, seen: str | None = None
    ) -> None:
        """Let an account spend without limit; with `user:ORG/*` all its end users.

        With a `window` only that limit is removed, and those in other windows stay; then `seen` is
        as in `set_limit`.

        Raises:
            ChangedMeanwhile: the present limit is not the one that was seen.
        """
        of_template = budgets.c.account.like(children(account), escape="\\")
        gone = or_(budgets.c.account == account, of_template)
        if window is not None:
            gone = and_(gone, budgets.c.window_kind == window)
        async with self._database.writing() as connection:
            # The template first: locking it keeps new end users from copying old values.
            found = await locked(connection, budgets.c.account == account)
            if window is not None:
                require_seen(limit_mark(found.get(BudgetKey(account, window))), seen)
            await connection.execute(delete(budgets).where(gone))
            await hold_nothing_of(connection, account, window)
            await forget_hearings(connection, account, window)
            await overtake(connection, account, window, self._clock.utc_us())
            await bump(connection)

    async def forget_past_users(self) -> int:
        """Drop the rows of end users whose day or month is over; returns how many.

        Raises:
            NotReady: the database does not answer.
        """
        return await self._end_users.forget_past()

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        """Book what was spent, take back what is returned, lease what is wanted and available.

        Repeating a claim after a lost answer is harmless. There is no grant for an account without
        a limit.
        An end user whose account has no row here is beyond the permitted number.

        Raises:
            NotReady: the database does not answer.
        """
        grants: list[Grant] = []
        for start in range(0, len(claims), _CLAIMS_MAX):
            grants += await self._exchange(holder, claims[start : start + _CLAIMS_MAX])
        return grants

    async def _exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        now_us = self._clock.utc_us()
        grants: list[Grant] = []
        leases: list[Lease] = []
        is_overdrawn = False
        await self._end_users.introduce(claims)
        async with self._database.writing() as connection:
            keys = {claim.key for claim in claims}
            before, found = await claimed(connection, keys, holder.worker, self._expired_us())
            state = {key: roll(budget, now_us) for key, budget in before.items()}
            held = await settled(connection, state, found, holder, now_us)
            for claim in claims:
                if claim.key in state:
                    empty = self._empty_lease(state[claim.key], holder, now_us)
                    own = held.get(claim.key)
                    known = state[claim.key]
                    budget, grant, lease = answer(known, own, claim, empty, now_us)
                    is_overdrawn |= others_hold(known, grant)
                    state[claim.key] = budget
                    grants.append(grant)
                    if lease is not None:
                        leases.append(lease)
            changed = [budget for key, budget in state.items() if budget != before[key]]
            ended = {claim.key for claim in claims if claim.is_last}
            await together(connection, budget_changes(changed) + lease_changes(leases, held, ended))
        if is_overdrawn:
            await ring(self._database)
        return grants

    async def write_off(self, holder: LeaseHolder) -> list[BudgetKey]:
        """Count as spent what its earlier runs left, except for parked lines; returns the budgets.

        Raises:
            NotReady: the database does not answer.
        """
        theirs = and_(
            budget_leases.c.worker == holder.worker,
            budget_leases.c.incarnation != holder.incarnation,
        )
        async with self._database.reading() as connection:
            columns = budget_leases.c
            query = select(columns.account, columns.window_kind).where(theirs)
            keys = [BudgetKey(*row) for row in (await connection.execute(query)).all()]
        if keys:
            claims = [Claim(key, -1, 0, 0, 0, is_last=True) for key in keys]
            with patience():
                await self.exchange(holder, claims)
        return keys

    async def write_off_dead(self) -> int:
        """Write off what workers that are gone hold, even of budgets that nobody asks for.

        Returns how many leases were written off: only a part at a time, since their budgets are
        locked meanwhile; 0 once none is left. A used-up lease says nothing of its holder.

        Raises:
            NotReady: the database does not answer.
        """
        expired_us = self._expired_us()
        if not (keys := await forgotten(self._database, expired_us)):
            return 0
        async with self._database.writing() as connection:
            before, found = await claimed(connection, keys, NOBODY.worker, expired_us)
            now_us = self._clock.utc_us()
            state = {key: roll(budget, now_us) for key, budget in before.items()}
            await settled(connection, state, found, NOBODY, now_us)
            changed = [budget for key, budget in state.items() if budget != before[key]]
            await write_budgets(connection, changed)
        return len(found)

    def _expired_us(self) -> int:
        """The time before which leases must have ended to be over.

        A clock set forward does not end leases that are still used, and a clock that is corrected
        does not end those of a worker that started while it was set back.
        """
        return min(self.lagging.utc_us(), self._steady.utc_us()) - _EXPIRY_GRACE_US

    def _empty_lease(self, budget: Budget, holder: LeaseHolder, now_us: int) -> Lease:
        return Lease(
            account=budget.limit.account,
            window_kind=budget.limit.window,
            worker=holder.worker,
            incarnation=holder.incarnation,
            window_start_us=budget.window_start_us,
            amount_microusd=0,
            spent_microusd=0,
            # The same where the clock was set back and is corrected again.
            expires_us=max(now_us, self._steady.utc_us()) + self.lease_us,
        )
