"""Detects at start that a database was restored to a state older than its log, and makes it safe.

The log brings back what was recorded, but not what people ordered meanwhile. What a caller could
gain by the restore is taken away again: money that was spent, and keys that were revoked. The rest
is named.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import closing
from datetime import UTC, datetime
from itertools import takewhile
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import func, select

from gateway.audit.proving.exported import CheckpointFiles, SignedCheckpoint
from gateway.clock import Clock
from gateway.money.budgets import USER_PREFIX, BudgetKey, others_of, template_of
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database
from gateway.store.evidence.tree import DatabaseAuditTrees
from gateway.store.money.budget_rows import budget_of, write_budgets
from gateway.store.money.end_users import END_USERS_MAX, EndUserRows
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget, Claim, LeaseHolder
from gateway.store.money.spending import SpendingReader
from gateway.store.schema.audit import audit_checkpoints, audit_records
from gateway.store.schema.tables import budgets


_signed_us = attrgetter("signed_us")


class Older(Struct, frozen=True):
    """The signs that a database was put back."""

    lacks: SignedCheckpoint
    """The first checkpoint that was exported after it was kept in the database, but is missing
    now."""
    last_us: int
    """When the last missing checkpoint was signed."""
    newest_us: int
    """When the last checkpoint before it that still exists was signed; 0 without one."""

    def __str__(self) -> str:
        since = f"is of {_moment(self.newest_us)}" if self.newest_us else "never had one"
        return (
            f"it lacks a checkpoint of {self.lacks.organisation} that was signed on"
            f" {_moment(self.lacks.signed_us)}, and {since}"
        )


class Deed(Struct, frozen=True):
    """A deed, by its number in the log of operators."""

    sequence: int
    action: str


class OlderDatabase:
    """Compares a database with one audit folder, before any request is served."""

    def __init__(self, database: Database, files: CheckpointFiles, clock: Clock) -> None:
        self._database = database
        self._files = files
        self._trees = DatabaseAuditTrees(database)
        self._clock = clock

    async def found(self) -> Older | None:
        """The signs that the database has lost exported checkpoints; None if it has not.

        Raises:
            NotReady: the database does not answer.
            OSError: exported checkpoints cannot be read.
        """
        first: SignedCheckpoint | None = None
        last_us = 0
        async for lost in self.lost():
            first = min((*lost, *((first,) if first else ())), key=_signed_us)
            last_us = max(last_us, *map(_signed_us, lost))
        if first is None:
            return None
        signed_us = audit_checkpoints.c.signed_us
        before = select(func.max(signed_us)).where(signed_us < first.signed_us)
        async with self._database.reading() as connection:
            return Older(first, last_us, (await connection.execute(before)).scalar_one() or 0)

    async def lost(self) -> AsyncIterator[Sequence[SignedCheckpoint]]:
        """Checkpoints exported here that the database lacks, some at a time.

        The last ten or so of each log are checked; if the first of these is lost, so are earlier
        ones, back to one that is there.
        """
        # Always read before the database: it keeps what another worker signs, which then exports
        # it.
        exported = await asyncio.to_thread(self._files.recent)
        lost = await self._lacking(exported)
        if lost:
            yield lost
        firsts = {each.organisation: each for each in reversed(exported)}
        for organisation in sorted({each.organisation for each in lost}):
            if firsts[organisation] in lost:
                async for more in self._lost_before(organisation):
                    yield more

    async def _lost_before(self, organisation: str) -> AsyncIterator[Sequence[SignedCheckpoint]]:
        with closing(self._files.from_end(organisation)) as pieces:
            await asyncio.to_thread(next, pieces, ())  # Has been looked at.
            while piece := await asyncio.to_thread(next, pieces, ()):
                lost = {*await self._lacking(piece)}
                last = [*takewhile(lost.__contains__, reversed(piece))]
                if last:
                    yield last
                if len(last) < len(piece):
                    return

    async def _lacking(self, exported: Sequence[SignedCheckpoint]) -> list[SignedCheckpoint]:
        lacking = await self._trees.lacking({each.moment for each in exported})
        return [each for each in exported if each.moment in lacking]

    async def known_deeds(self) -> int:
        """How many deeds were signed when the database was backed up; 0 if none were.

        By number, and within one log by the times of its checkpoints, which never go back: a clock
        set back since then would hide orders until it has caught up.
        """
        columns = audit_checkpoints.c
        query = select(func.max(columns.size)).where(columns.organisation == OPERATORS)
        async for lost in self.lost():
            if mine := [each.signed_us for each in lost if each.organisation == OPERATORS]:
                query = query.where(columns.signed_us < min(mine))
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one() or 0

    async def deeds_since(self, known: int) -> list[Deed]:
        """Orders given after the deed of number `known`, even those that cannot be read here."""
        columns = audit_records.c
        query = select(columns.sequence, columns.action).where(
            columns.organisation == OPERATORS,
            columns.sequence > known,
            columns.action != "",
            columns.status != "failed",
        )
        async with self._database.reading() as connection:
            return [Deed(*row) for row in await connection.execute(query)]

    async def charge_again(self, workers: Collection[str]) -> int:
        """Make each limit count at least what its outcomes cost; returns the micro-dollars added.

        What former runs of `workers` held is written off first, and not added to it. End users
        first seen since the backup get a row again.
        """
        leases = LeaseTable(self._database, self._clock)
        reader = SpendingReader(self._database, BY_LABEL)
        keys = [each.limit.key for each in await leases.budgets(None)]
        claims = [Claim(key, -1, 0, 0, 0, is_last=True) for key in keys]
        for worker in sorted(workers):
            await leases.exchange(LeaseHolder(worker, ""), claims)
        spent = {
            BudgetKey(each.account, each.window): each.audit_microusd
            for each in await reader.differences()
        }
        for template in await leases.budgets():
            if template_of(template.limit.account) == template.limit.account:
                spent |= await self._spent_by_end_users(template)
        added = 0
        query = select(budgets).order_by(budgets.c.account, budgets.c.window_kind).with_for_update()
        async with self._database.writing() as connection:
            changed = []
            for row in (await connection.execute(query)).mappings():
                budget = budget_of(row)
                lost = spent.get(budget.limit.key, 0) - budget.spent_microusd
                if lost > 0:
                    changed.append(replace(budget, spent_microusd=budget.spent_microusd + lost))
                    added += lost
            await write_budgets(connection, changed)
        return added

    async def _spent_by_end_users(self, template: Budget) -> dict[BudgetKey, int]:
        """Spending by the budget that pays; end users beyond the permitted number share one."""
        account, window = template.limit.key
        since_us = max(template.window_start_us, template.begun_us)
        found = await SpendingReader(self._database, BY_LABEL).by_end_user(
            account.removeprefix(USER_PREFIX).removesuffix("/*"), since_us
        )
        rows = EndUserRows(self._database, self._clock, END_USERS_MAX)
        await rows.introduce([Claim(BudgetKey(each, window), -1, 0, 0, 0) for each in found])
        leases = LeaseTable(self._database, self._clock)
        known = {each.limit.key for each in await leases.budgets(sorted(found))}
        spent: dict[BudgetKey, int] = {}
        others = BudgetKey(others_of(account), window)
        for each, cost_microusd in found.items():
            key = BudgetKey(each, window)
            key = key if key in known else others
            spent[key] = spent.get(key, 0) + cost_microusd
        if others in spent:
            await rows.introduce([Claim(others, -1, 0, 0, 0)])
        return spent


def _moment(utc_us: int) -> str:
    return f"{datetime.fromtimestamp(utc_us / 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"
