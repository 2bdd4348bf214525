"""A database that was put back to an older state than its log: found at the start, and made safe.

Its log brings back what was recorded, not what people ordered meanwhile. What a caller could gain
by that is taken away again: money that was spent, and keys that were revoked. The rest is named.
"""

import asyncio
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import func, select, tuple_

from gateway.audit.proving.integrator import CheckpointFiles, SignedCheckpoint
from gateway.clock import Clock
from gateway.money.budgets import USER_PREFIX, BudgetKey, others_of, template_of
from gateway.oversight.deeds import OPERATORS
from gateway.oversight.homes import BY_LABEL
from gateway.store.engine import Database
from gateway.store.money.budget_rows import budget_of, write_budgets
from gateway.store.money.end_users import END_USERS_MAX, EndUserRows
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget, Claim, LeaseHolder
from gateway.store.money.spending import SpendingReader
from gateway.store.schema.audit import audit_checkpoints, audit_records
from gateway.store.schema.tables import budgets


_AT_ONCE = 500


class Older(Struct, frozen=True):
    """What shows that a database was put back."""

    lacks: SignedCheckpoint
    """Exported after it was kept in the database, and not there now."""
    newest_us: int
    """When the last checkpoint before it was signed that is there; 0 where there is none."""

    def __str__(self) -> str:
        since = f"is of {_moment(self.newest_us)}" if self.newest_us else "never had one"
        return (
            f"it lacks a checkpoint of {self.lacks.organisation} that was signed on"
            f" {_moment(self.lacks.signed_us)}, and {since}"
        )


class Deed(Struct, frozen=True):
    """By its number in the log of operators."""

    sequence: int
    action: str


class OlderDatabase:
    """Beside one audit folder, before anybody is served."""

    def __init__(self, database: Database, files: CheckpointFiles, clock: Clock) -> None:
        self._database = database
        self._files = files
        self._clock = clock

    async def found(self) -> Older | None:
        """The first exported checkpoint that the database has lost.

        Raises:
            NotReady: the database does not answer.
            OSError: exported checkpoints cannot be read.
        """
        lost = await self._lost()
        if not lost:
            return None
        first = min(lost, key=lambda each: each.signed_us)
        signed_us = audit_checkpoints.c.signed_us
        before = select(func.max(signed_us)).where(signed_us < first.signed_us)
        async with self._database.reading() as connection:
            return Older(first, (await connection.execute(before)).scalar_one() or 0)

    async def _lost(self) -> list[SignedCheckpoint]:
        columns = audit_checkpoints.c
        # Read before the database, always: it keeps what another worker signs, which then exports.
        exported = await asyncio.to_thread(self._files.recent)
        places = tuple_(columns.organisation, columns.signed_us)
        kept: set[tuple[str, int]] = set()
        async with self._database.reading() as connection:
            for start in range(0, len(exported), _AT_ONCE):
                some = exported[start : start + _AT_ONCE]
                asked: Any = [(each.organisation, each.signed_us) for each in some]
                query = select(columns.organisation, columns.signed_us).where(places.in_(asked))
                kept |= {(name, at) for name, at in (await connection.execute(query)).all()}
        return [each for each in exported if (each.organisation, each.signed_us) not in kept]

    async def known_deeds(self) -> int:
        """How many deeds were signed when the database was backed up; 0 where none were.

        By number, and within one log by the times of its checkpoints, which never go back: a clock
        that was set back since would hide what was ordered until it is there again.
        """
        columns = audit_checkpoints.c
        query = select(func.max(columns.size)).where(columns.organisation == OPERATORS)
        lost = [each.signed_us for each in await self._lost() if each.organisation == OPERATORS]
        if lost:
            query = query.where(columns.signed_us < min(lost))
        async with self._database.reading() as connection:
            return (await connection.execute(query)).scalar_one() or 0

    async def deeds_since(self, known: int) -> list[Deed]:
        """What was ordered after the deed of number `known`, also where it cannot be read here."""
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
        """Let each limit count at least what its outcomes cost; what was added, in micro-dollars.

        What former runs of `workers` held is written off before, and not added to that. End users
        who were first seen since the backup have a row again.
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
        """By the budget that pays: those beyond the number that there may be share one."""
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
