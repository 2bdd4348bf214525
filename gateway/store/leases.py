"""Slices of budgets in the database: what is claimed, what is granted, and the arithmetic between.

The arithmetic is a pure function on one budget and one lease; around it, a transaction locks the
budgets in the order of their names, so that two workers never wait for each other.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import RowMapping, and_, bindparam, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.budgets import Limit, WindowKind, window_end_us, window_start_us
from gateway.clock import Clock
from gateway.errors import RequestInvalid
from gateway.store.engine import Database
from gateway.store.revisions import bump
from gateway.store.tables import budget_leases, budgets


_EXPIRY_GRACE_US = 30_000_000
"""How far the clocks of two workers may differ before one writes off what the other still uses."""
_SPARE_PARTS = 8
_TIGHT_PARTS = 50
_LEASE_CHANGES = ("window_start_us", "amount_microusd", "spent_microusd", "expires_us")


class LeaseHolder(Struct, frozen=True):
    """One run of one worker."""

    worker: str
    incarnation: str


class Claim(Struct, frozen=True):
    """What a worker reports of a slice and wants for it; sums run from the slice's beginning."""

    account: str
    window_start_us: int
    amount_microusd: int
    """What it holds, spent parts included; less than it was given when it gives back."""
    spent_microusd: int
    reserved_microusd: int
    wanted_microusd: int = 0
    spare_microusd: int = 0
    """How much more than `wanted` is welcome while there is plenty."""
    is_last: bool = False


class Grant(Struct, frozen=True):
    """The answer to a claim."""

    account: str
    is_fresh: bool
    """The old slice is over (a new window, or it was written off): this is another one."""
    window_start_us: int
    amount_microusd: int
    valid_until_us: int
    left_microusd: int
    """What nobody has leased; negative after an overrun."""
    elsewhere_microusd: int
    """What other workers hold."""
    is_tight: bool
    """So little is left that nothing should lie idle."""


class Budget(Struct, frozen=True):
    """A limited account as the database has it."""

    limit: Limit
    window_start_us: int
    spent_microusd: int
    leased_microusd: int

    @property
    def left_microusd(self) -> int:
        return self.limit.limit_microusd - self.spent_microusd - self.leased_microusd


class Lease(Struct, frozen=True):
    """What one worker holds of a budget."""

    account: str
    worker: str
    incarnation: str
    window_start_us: int
    amount_microusd: int
    spent_microusd: int
    expires_us: int

    @property
    def outstanding_microusd(self) -> int:
        return max(self.amount_microusd - self.spent_microusd, 0)


def roll(budget: Budget, now_us: int) -> Budget:
    """The budget in the window that holds `now_us`; never goes back to an earlier one."""
    start_us = window_start_us(budget.limit.window, now_us)
    if start_us <= budget.window_start_us:
        return budget
    return Budget(budget.limit, start_us, 0, 0)


def without(budget: Budget, lease: Lease) -> Budget:
    """The budget after a lease was written off: its outstanding part counts as spent."""
    outstanding = lease.outstanding_microusd
    return replace(
        budget,
        spent_microusd=budget.spent_microusd + outstanding,
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
        lease: an empty lease to start with when it has none.
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
    if claim.wanted_microusd:
        need += max(min(claim.spare_microusd, spare), 0)
    granted = max(min(need, left), 0)
    after = replace(budget, spent_microusd=spent_now, leased_microusd=leased_now + granted)
    return after, replace(lease, amount_microusd=amount + granted, spent_microusd=spent)


def _tight(limit: Limit) -> int:
    return limit.limit_microusd // _TIGHT_PARTS


def answer(
    budget: Budget, own: Lease | None, claim: Claim, empty: Lease
) -> tuple[Budget, Grant, Lease]:
    """Budget, grant and lease after a claim; `own` is the lease of this run and window, if any."""
    is_same = own is not None and claim.window_start_us == own.window_start_us
    if own is not None and not is_same:
        # The grant never reached its holder, so nothing of it was used: it goes back.
        unused = own.outstanding_microusd
        budget = replace(budget, leased_microusd=budget.leased_microusd - unused)
    after, lease = exchanged(budget, own if is_same else None, claim, empty)
    window_end = window_end_us(after.limit.window, after.window_start_us)
    grant = Grant(
        account=claim.account,
        is_fresh=not is_same,
        window_start_us=after.window_start_us,
        amount_microusd=lease.amount_microusd,
        valid_until_us=min(lease.expires_us, window_end),
        left_microusd=after.left_microusd,
        elsewhere_microusd=after.leased_microusd - lease.outstanding_microusd,
        is_tight=after.left_microusd <= _tight(after.limit),
    )
    return after, grant, lease


class LeaseTable:
    """Budgets and leases of one database."""

    def __init__(self, database: Database, clock: Clock, *, lease_s: float = 60.0) -> None:
        self._database = database
        self._clock = clock
        self.lease_us = round(lease_s * 1_000_000)

    async def budgets(self) -> list[Budget]:
        """Every limited account, in its present window."""
        now_us = self._clock.utc_us()
        async with self._database.reading() as connection:
            rows = (
                await connection.execute(select(budgets).order_by(budgets.c.account))
            ).mappings()
            return [roll(_budget(row), now_us) for row in rows]

    async def set_limit(self, limit: Limit) -> None:
        """Limit an account, or change its limit; heard by all workers within a second.

        A new kind of window starts with nothing spent. A limit below what is spent refuses from
        now on; what workers leased under the old limit they give back when they hear of it.

        Raises:
            RequestInvalid: the limit is negative.
        """
        if limit.limit_microusd < 0:
            raise RequestInvalid("a limit cannot be negative", parameter="limit_microusd")
        async with self._database.writing() as connection:
            found = (await self._locked(connection, [limit.account])).get(limit.account)
            if found is None:
                start_us = window_start_us(limit.window, self._clock.utc_us())
                values = _budget_row(Budget(limit, start_us, 0, 0))
                await connection.execute(budgets.insert(), values)
            elif found.limit.window == limit.window:
                await _write_budgets(connection, [replace(found, limit=limit)])
            else:
                start_us = window_start_us(limit.window, self._clock.utc_us())
                await _write_budgets(connection, [Budget(limit, start_us, 0, 0)])
                await connection.execute(
                    delete(budget_leases).where(budget_leases.c.account == limit.account)
                )
            await bump(connection)

    async def remove_limit(self, account: str) -> None:
        """Let an account spend without limit."""
        async with self._database.writing() as connection:
            await connection.execute(delete(budgets).where(budgets.c.account == account))
            await bump(connection)

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
        async with self._database.writing() as connection:
            before = await self._locked(connection, accounts)
            state = {account: roll(budget, now_us) for account, budget in before.items()}
            held = await self._settle_leases(connection, state, holder, now_us)
            for claim in claims:
                if claim.account in state:
                    empty = self._empty_lease(state[claim.account], holder, now_us)
                    own = held.get(claim.account)
                    budget, grant, lease = answer(state[claim.account], own, claim, empty)
                    state[claim.account] = budget
                    grants.append(grant)
                    leases.append(lease)
            changed = [budget for account, budget in state.items() if budget != before[account]]
            await _write_budgets(connection, changed)
            ended = {claim.account for claim in claims if claim.is_last}
            await _write_leases(connection, leases, held, ended)
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
        return {row["account"]: _budget(row) for row in rows}

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


def _budget(row: RowMapping) -> Budget:
    kind: WindowKind = row["window_kind"]
    return Budget(
        Limit(row["account"], row["limit_microusd"], kind),
        row["window_start_us"],
        row["spent_microusd"],
        row["leased_microusd"],
    )


def _budget_row(budget: Budget) -> dict[str, object]:
    return {
        "account": budget.limit.account,
        "limit_microusd": budget.limit.limit_microusd,
        "window_kind": budget.limit.window,
        "window_start_us": budget.window_start_us,
        "spent_microusd": budget.spent_microusd,
        "leased_microusd": budget.leased_microusd,
    }


async def _write_budgets(connection: AsyncConnection, changed: Sequence[Budget]) -> None:
    if changed:
        statement = update(budgets).where(budgets.c.account == bindparam("of_account"))
        rows = [_budget_row(budget) for budget in changed]
        await connection.execute(
            statement.values({name: bindparam(name) for name in rows[0] if name != "account"}),
            [{"of_account": row.pop("account"), **row} for row in rows],
        )


async def _write_leases(
    connection: AsyncConnection,
    leases: Sequence[Lease],
    held: Mapping[str, Lease],
    ended: set[str],
) -> None:
    own = and_(
        budget_leases.c.account == bindparam("of_account"),
        budget_leases.c.worker == bindparam("of_worker"),
    )
    gone, kept, new = [], [], []
    for lease in leases:
        key = {"of_account": lease.account, "of_worker": lease.worker}
        if lease.account in ended:
            gone.append(key)
        elif lease.account in held:
            kept.append(key | {name: getattr(lease, name) for name in _LEASE_CHANGES})
        else:
            new.append(asdict(lease))
    if gone:
        await connection.execute(delete(budget_leases).where(own), gone)
    if kept:
        changes: dict[str, Any] = {name: bindparam(name) for name in _LEASE_CHANGES}
        await connection.execute(update(budget_leases).where(own).values(changes), kept)
    if new:
        await connection.execute(insert(budget_leases), new)
