"""Slices of budgets in the database: claimed, granted and written off in transactions.

The arithmetic is `gateway.store.slices`; around it, a transaction locks the budgets in the order of
their names, so that two workers never wait for each other.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from sqlalchemy import and_, bindparam, delete, not_, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.budgets import USER_PREFIX, Limit, checked_zone, template_of, window_start_us
from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.store.budget_rows import (
    below,
    budget_of,
    budget_row,
    children,
    is_end_user,
    write_budgets,
    write_leases,
)
from gateway.store.engine import Database
from gateway.store.revisions import bump
from gateway.store.slices import Budget, Claim, Grant, Lease, LeaseHolder, answer, roll, without
from gateway.store.tables import budget_leases, budgets, organisations, virtual_keys


_EXPIRY_GRACE_US = 30_000_000
"""How far the clocks of two workers may differ before one writes off what the other still uses."""


class LeaseTable:
    """Budgets and leases of one database."""

    def __init__(self, database: Database, clock: Clock, *, lease_s: float = 60.0) -> None:
        self._database = database
        self._clock = clock
        self.lease_us = round(lease_s * 1_000_000)

    async def budgets(self, end_users: Sequence[str] | None = ()) -> list[Budget]:
        """Limited accounts in their present windows; of end users the named ones, None for all."""
        now_us = self._clock.utc_us()
        query = select(budgets).order_by(budgets.c.account)
        if end_users is not None:
            query = query.where(or_(not_(is_end_user()), budgets.c.account.in_(end_users)))
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).mappings()
            return [roll(budget_of(row), now_us) for row in rows]

    async def set_limit(self, limit: Limit) -> None:
        """Limit an account, or change its limit; heard by all workers within a second.

        The time zone is that of the account's organisation. A new kind of window starts with
        nothing spent. A limit below what is spent refuses from now on; what workers leased under
        the old limit they give back when they hear of it. A limit on `user:ORG/*` is that of each
        end user of the organisation.

        Raises:
            RequestInvalid: the limit is negative.
        """
        if limit.limit_microusd < 0:
            raise RequestInvalid("a limit cannot be negative", parameter="limit_microusd")
        async with self._database.writing() as connection:
            zone = await self._zone_of(connection, limit.account)
            limit = replace(limit, time_zone=zone)
            of_template = budgets.c.account.like(children(limit.account), escape="\\")
            query = select(budgets.c.account).where(of_template)
            users = (await connection.execute(query)).scalars().all()
            found = await self._locked(connection, [limit.account, *users])
            if limit.account not in found:
                start_us = window_start_us(limit.window, self._clock.utc_us(), zone)
                values = budget_row(Budget(limit, start_us, 0, 0))
                await connection.execute(budgets.insert(), values)
            for account, budget in found.items():
                await self._relimit(connection, budget, replace(limit, account=account))
            await bump(connection)

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
            names = (await connection.execute(select(accounts).where(of_organisation))).scalars()
            found = await self._locked(connection, sorted(names))
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

    async def remove_limit(self, account: str) -> None:
        """Let an account spend without limit; with `user:ORG/*` all its end users."""
        gone = budgets.c.account == account
        if account.startswith(USER_PREFIX):
            gone = or_(gone, budgets.c.account.like(children(account), escape="\\"))
        async with self._database.writing() as connection:
            await connection.execute(delete(budgets).where(gone))
            await bump(connection)

    async def forget_past_users(self) -> int:
        """Drop the rows of end users whose day or month is over; the number of them.

        Raises:
            NotReady: the database does not answer.
        """
        now_us = self._clock.utc_us()
        async with self._database.reading() as connection:
            query = select(budgets).where(is_end_user(), budgets.c.leased_microusd == 0)
            rows = [budget_of(row) for row in (await connection.execute(query)).mappings()]
        past = [
            budget
            for budget in rows
            if roll(budget, now_us).window_start_us > budget.window_start_us
        ]
        if past:
            # A row that somebody began to use meanwhile has money leased or another window.
            unused = delete(budgets).where(
                budgets.c.account == bindparam("of_account"),
                budgets.c.window_start_us == bindparam("of_window"),
                budgets.c.leased_microusd == 0,
            )
            async with self._database.writing() as connection:
                await connection.execute(
                    unused,
                    [
                        {"of_account": each.limit.account, "of_window": each.window_start_us}
                        for each in past
                    ],
                )
        return len(past)

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        """Book what was spent, take back what is given back, lease what is wanted and there.

        Repeating a claim after a lost answer is harmless. There is no grant for an account without
        a limit.

        Raises:
            NotReady: the database does not answer.
        """
        now_us = self._clock.utc_us()
        accounts = sorted(claim.account for claim in claims)
        grants, leases = [], []
        await self._introduce(claims)
        async with self._database.writing() as connection:
            before = await self._locked(connection, accounts)
            state = {account: roll(budget, now_us) for account, budget in before.items()}
            held = await self._settle_leases(connection, state, holder, now_us)
            for claim in claims:
                if claim.account in state:
                    empty = self._empty_lease(state[claim.account], holder, now_us)
                    own = held.get(claim.account)
                    budget, grant, lease = answer(state[claim.account], own, claim, empty, now_us)
                    state[claim.account] = budget
                    grants.append(grant)
                    leases.append(lease)
            changed = [budget for account, budget in state.items() if budget != before[account]]
            await write_budgets(connection, changed)
            ended = {claim.account for claim in claims if claim.is_last}
            await write_leases(connection, leases, held, ended)
        return grants

    async def write_off(self, holder: LeaseHolder) -> None:
        """Count as spent what earlier runs of this worker left unreported.

        Raises:
            NotReady: the database does not answer.
        """
        theirs = and_(
            budget_leases.c.worker == holder.worker,
            budget_leases.c.incarnation != holder.incarnation,
        )
        async with self._database.reading() as connection:
            query = select(budget_leases.c.account).where(theirs)
            accounts = sorted((await connection.execute(query)).scalars())
        if accounts:
            claims = [Claim(account, -1, 0, 0, 0, is_last=True) for account in accounts]
            await self.exchange(holder, claims)

    async def _introduce(self, claims: Sequence[Claim]) -> None:
        """Give end users who are here for the first time a row, in a transaction of its own.

        Whoever comes second finds the row: nobody spends before there is something to count with.
        """
        new = {
            claim.account: template
            for claim in claims
            if (template := template_of(claim.account)) and claim.window_start_us < 0
        }
        if not new:
            return
        now_us = self._clock.utc_us()
        async with self._database.writing() as connection:
            query = select(budgets).where(budgets.c.account.in_(sorted(set(new.values()))))
            templates = {
                row["account"]: budget_of(row)
                for row in (await connection.execute(query)).mappings().all()
            }
            for account in sorted(new):
                found = templates.get(new[account])
                if found is None:
                    continue
                limit = replace(found.limit, account=account)
                start_us = window_start_us(limit.window, now_us, limit.time_zone)
                make = sqlite.insert if self._database.kind == "sqlite" else postgresql.insert
                row = budget_row(Budget(limit, start_us, 0, 0))
                await connection.execute(make(budgets).values(row).on_conflict_do_nothing())

    async def _relimit(self, connection: AsyncConnection, found: Budget, limit: Limit) -> None:
        if found.limit.window == limit.window:
            await write_budgets(connection, [replace(found, limit=limit)])
            return
        start_us = window_start_us(limit.window, self._clock.utc_us(), limit.time_zone)
        await write_budgets(connection, [Budget(limit, start_us, 0, 0)])
        await connection.execute(
            delete(budget_leases).where(budget_leases.c.account == limit.account)
        )

    async def _zone_of(self, connection: AsyncConnection, account: str) -> str:
        level, _, path = account.partition(":")
        organisation: Any = path.partition("/")[0]
        if level == "key":
            organisation = (
                select(virtual_keys.c.organisation)
                .where(virtual_keys.c.id == path)
                .scalar_subquery()
            )
        query = select(organisations.c.time_zone).where(organisations.c.name == organisation)
        return (await connection.execute(query)).scalar_one_or_none() or "UTC"

    def _empty_lease(self, budget: Budget, holder: LeaseHolder, now_us: int) -> Lease:
        return Lease(
            account=budget.limit.account,
            worker=holder.worker,
            incarnation=holder.incarnation,
            window_start_us=budget.window_start_us,
            amount_microusd=0,
            spent_microusd=0,
            expires_us=now_us + self.lease_us,
        )

    async def _locked(
        self, connection: AsyncConnection, accounts: Sequence[str]
    ) -> dict[str, Budget]:
        query = (
            select(budgets)
            .where(budgets.c.account.in_(accounts))
            .order_by(budgets.c.account)
            .with_for_update()
        )
        rows = (await connection.execute(query)).mappings()
        return {row["account"]: budget_of(row) for row in rows}

    async def _settle_leases(
        self,
        connection: AsyncConnection,
        state: dict[str, Budget],
        holder: LeaseHolder,
        now_us: int,
    ) -> dict[str, Lease]:
        """The holder's own leases; those of past windows, runs and the dead are written off."""
        query = select(budget_leases).where(
            budget_leases.c.account.in_(list(state)),
            or_(
                budget_leases.c.worker == holder.worker,
                budget_leases.c.expires_us < now_us - _EXPIRY_GRACE_US,
            ),
        )
        own: dict[str, Lease] = {}
        for row in (await connection.execute(query)).mappings().all():
            lease = Lease(**row)
            budget = state[lease.account]
            is_current = lease.window_start_us == budget.window_start_us
            is_own = (lease.worker, lease.incarnation) == (holder.worker, holder.incarnation)
            if is_own and is_current:
                own[lease.account] = lease
                continue
            if is_current:
                state[lease.account] = without(budget, lease)
            await connection.execute(
                delete(budget_leases).where(
                    budget_leases.c.account == lease.account,
                    budget_leases.c.worker == lease.worker,
                )
            )
        return own
