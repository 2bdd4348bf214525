"""Parked lines' share of a worker's leases, recorded so that a crash does not take it.

A lease that is written off counts as spent, since nobody knows what became of it. For parked lines
it is known: their tickets outlive the worker, and the worker that ends them books what they cost.
So what was reserved for them is returned, unless they were just about to end.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence

from msgspec import Struct
from sqlalchemy import ColumnElement, and_, delete, exists, func, not_, or_, select, union, update
from sqlalchemy.ext.asyncio import AsyncConnection

from gateway.clock import Clock
from gateway.money.budgets import BudgetKey, WindowKind
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of, children, is_one_of
from gateway.store.money.slices import Lease, LeaseHolder, roll
from gateway.store.schema.tables import budget_leases, budgets, late_bookings, parked_money
from gateway.store.speech import DatabaseKind, insert_into


_MONEY, _LEASES = parked_money.c, budget_leases.c
_PART = ("account", "window_kind", "worker", "incarnation")
"""The columns that tie a stake to a lease."""


class Stake(Struct, frozen=True):
    """What a parked line's reservation holds, and from which slices of a worker's run."""

    request_id: str
    holder: LeaseHolder
    amount_microusd: int
    until_us: int
    slices: tuple[tuple[BudgetKey, int], ...]
    """Each with the start of its window."""


class ParkedMoney:
    """The money of parked lines in one database, for one run of a worker."""

    def __init__(self, database: Database, clock: Clock, holder: LeaseHolder) -> None:
        self._database = database
        self._clock = clock
        self.holder = holder

    async def note(self, stakes: Sequence[Stake]) -> None:
        """Note money that was reserved for lines parked earlier; raises NotReady."""
        if any(stake.slices for stake in stakes):
            async with self._database.writing() as connection:
                for stake in stakes:
                    await _note(connection, self._database.kind, stake)

    def noting(self, stake: Stake) -> Callable[[AsyncConnection], Awaitable[None]]:
        """The same in the caller's transaction."""
        return lambda connection: _note(connection, self._database.kind, stake)

    async def known(self, stakes: Collection[Stake]) -> set[str]:
        """Lines for which this run still holds all that it reserved; raises NotReady.

        Leases are written off one account at a time, so a line may have lost only part of it. Parts
        from a day or month that is over need not be held any more.
        """
        mine = self._mine([stake.request_id for stake in stakes])
        columns = (_MONEY.request_id, _MONEY.account, _MONEY.window_kind, _MONEY.window_start_us)
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(*columns).where(mine))).all()
            noted = {(name, BudgetKey(*key), start_us) for name, *key, start_us in rows}
            missing = [
                (stake.request_id, *each)
                for stake in stakes
                for each in stake.slices
                if (stake.request_id, *each) not in noted
            ]
            running = await self._running(connection, {key for _, key, _ in missing})
        lost = {name for name, key, start_us in missing if (key, start_us) in running}
        return {name for name, _, _ in noted} - lost

    async def _running(
        self, connection: AsyncConnection, keys: Collection[BudgetKey]
    ) -> set[tuple[BudgetKey, int]]:
        """Those of them that are limited, with the start of their present windows."""
        if not keys:
            return set()
        found = await connection.execute(
            select(budgets).where(is_one_of(self._database.kind, keys))
        )
        now_us = self._clock.utc_us()
        present = [roll(budget_of(row), now_us) for row in found.mappings()]
        return {(budget.limit.key, budget.window_start_us) for budget in present}

    async def begin_ending(self, request_ids: Collection[str]) -> set[str]:
        """Note that their costs are about to be booked: from now on a crash counts them as spent.

        Returns those already paid for: an earlier run crashed while ending them, or booked their
        cost separately, since there was nothing to reserve.

        Raises:
            NotReady: the database does not answer.
        """
        async with self._database.writing() as connection:
            return await self.beginning_to_end(connection, request_ids)

    async def beginning_to_end(
        self, connection: AsyncConnection, request_ids: Collection[str]
    ) -> set[str]:
        """The same in the caller's transaction."""
        theirs = select(_MONEY.request_id).where(
            _MONEY.request_id.in_(request_ids),
            _MONEY.incarnation != self.holder.incarnation,
            _MONEY.is_ending == 1,
        )
        booked = select(late_bookings.c.request_id).where(
            late_bookings.c.request_id.in_(request_ids)
        )
        change = update(parked_money).where(self._mine(request_ids))
        await connection.execute(change.values(is_ending=1))
        return set((await connection.execute(union(theirs, booked))).scalars())

    async def forget(self, request_ids: Collection[str]) -> None:
        """Forget lines that have ended and are booked; raises NotReady.

        What an earlier run held for them stays until its lease is written off.
        """
        async with self._database.writing() as connection:
            await self.forgetting(request_ids)(connection)

    def forgetting(
        self, request_ids: Collection[str]
    ) -> Callable[[AsyncConnection], Awaitable[None]]:
        """The same in the caller's transaction."""
        ended = and_(_MONEY.request_id.in_(request_ids), _MONEY.is_ending == 1)
        gone = delete(parked_money).where(or_(self._mine(request_ids), ended))

        async def forget(connection: AsyncConnection) -> None:
            await connection.execute(gone)

        return forget

    async def leave(self, request_ids: Collection[str]) -> None:
        """Another worker ends these lines: release what this run holds for them; raises NotReady.

        Except what somebody had begun to end: that is booked, or counted as spent, and whoever ends
        the line has to find it so.
        """
        held = and_(self._mine(request_ids), _MONEY.is_ending == 0)
        async with self._database.writing() as connection:
            await connection.execute(delete(parked_money).where(held))

    async def let_go(self) -> None:
        """Release all that this run holds, in good order; raises NotReady.

        Expired entries of others go as well, unless their lease still exists: its write-off needs
        them.
        """
        of_lease = and_(*(_MONEY[name] == _LEASES[name] for name in _PART))
        standing = exists(select(_LEASES.worker).where(of_lease))
        past = and_(_MONEY.until_us <= self._clock.utc_us(), not_(standing))
        own = _MONEY.incarnation == self.holder.incarnation
        async with self._database.writing() as connection:
            await connection.execute(delete(parked_money).where(or_(own, past)))

    def _mine(self, request_ids: Collection[str]) -> ColumnElement[bool]:
        return and_(
            _MONEY.request_id.in_(request_ids), _MONEY.incarnation == self.holder.incarnation
        )


async def _note(connection: AsyncConnection, kind: DatabaseKind, stake: Stake) -> None:
    if stake.slices:
        rows = [
            {
                "request_id": stake.request_id,
                "account": key.account,
                "window_kind": key.window,
                "incarnation": stake.holder.incarnation,
                "worker": stake.holder.worker,
                "window_start_us": start_us,
                "amount_microusd": stake.amount_microusd,
                "until_us": stake.until_us,
                "is_ending": 0,
            }
            for key, start_us in stake.slices
        ]
        await connection.execute(insert_into(kind, parked_money).on_conflict_do_nothing(), rows)


async def holding_something(
    connection: AsyncConnection, leases: Sequence[Lease]
) -> frozenset[Lease]:
    """Those of these leases of which parked lines hold some: one query for all."""
    if not leases:
        return frozenset()
    query = select(*(_MONEY[name] for name in _PART)).where(
        _MONEY.worker.in_({lease.worker for lease in leases}),
        _MONEY.account.in_({lease.account for lease in leases}),
        _MONEY.is_ending == 0,
    )
    found = {tuple(row) for row in (await connection.execute(query.distinct())).all()}
    parts = ((lease, tuple(getattr(lease, name) for name in _PART)) for lease in leases)
    return frozenset(lease for lease, part in parts if part in found)


async def given_back(connection: AsyncConnection, lease: Lease, now_us: int) -> int:
    """What parked lines held of a lease that is written off; from now on they hold nothing."""
    held = and_(
        _MONEY.account == lease.account,
        _MONEY.window_kind == lease.window_kind,
        _MONEY.worker == lease.worker,
        _MONEY.incarnation == lease.incarnation,
        _MONEY.is_ending == 0,
    )
    # Until the lease was over, nobody else could have what it held, whenever that is noticed.
    over_us = min(now_us, lease.expires_us)
    query = select(func.coalesce(func.sum(_MONEY.amount_microusd), 0)).where(
        held, _MONEY.window_start_us == lease.window_start_us, _MONEY.until_us > over_us
    )
    amount = int((await connection.execute(query)).scalar_one())
    await connection.execute(delete(parked_money).where(held))
    return amount


async def hold_nothing_of(
    connection: AsyncConnection, account: str, window: WindowKind | None
) -> None:
    """Detach parked lines from an account's removed limit; None for all windows.

    If the limit is set again, its leases hold nothing for these lines: a crash must not give back
    what they never held.
    """
    of_template = _MONEY.account.like(children(account), escape="\\")
    held = and_(or_(_MONEY.account == account, of_template), _MONEY.is_ending == 0)
    if window is not None:
        held = and_(held, _MONEY.window_kind == window)
    await connection.execute(delete(parked_money).where(held))
