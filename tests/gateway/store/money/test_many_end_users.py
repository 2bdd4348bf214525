"""Limits of very many end users: changed for all of them, also for who comes in that moment."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import pytest
from sqlalchemy import event, literal, select

from gateway.clock import StoppedClock
from gateway.errors import BudgetExhausted, NotReady
from gateway.identity import Peppers
from gateway.money.budgets import BudgetKey, Limit, WindowKind
from gateway.store.engine import Database, open_database
from gateway.store.identity.keys import KeyStore, Place
from gateway.store.money.budget_rows import budget_row
from gateway.store.money.end_users import EndUserRows
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import Budget, Claim, Grant, LeaseHolder
from gateway.store.schema.tables import budgets
from tests.gateway.store.money.ledgers import LossyTable, started


pytestmark = pytest.mark.anyio
EACH = "user:acme/*"
ANN = ("user:acme/ann",)
UNNAMEABLE = 17_000
"""More than PostgreSQL takes in one statement, where each has an account and a window."""


@pytest.fixture
def table(database: Database, clock: StoppedClock) -> LossyTable:
    return LossyTable(database, clock)


async def add_end_users(database: Database, count: int, limit_microusd: int) -> None:
    """As if so many had come: one statement, since each on its own takes minutes."""
    row = budget_row(Budget(Limit("", limit_microusd), 0, 0, 0))
    numbers = select(literal(1).label("number")).cte("numbers", recursive=True)
    number = numbers.c.number
    numbers = numbers.union_all(select(number + 1).where(number < count))
    values = [literal(row[column.name]).label(column.name) for column in budgets.c][1:]
    each = select(literal("user:acme/") + numbers.c.number.cast(budgets.c.account.type), *values)
    async with database.writing() as connection:
        names = [column.name for column in budgets.c]
        await connection.execute(budgets.insert().from_select(names, each))


async def limits_of(table: LeaseTable) -> list[int]:
    return [row.limit.limit_microusd for row in await table.budgets(None)]


async def test_a_limit_of_more_end_users_than_a_statement_can_name_changes_for_each(
    table: LossyTable, database: Database
) -> None:
    await table.set_limit(Limit(EACH, 100))
    await table.set_limit(Limit("user:acme2/*", 100))
    await add_end_users(database, UNNAMEABLE, 100)
    await table.set_limit(Limit(EACH, 40))

    assert sorted(await limits_of(table)) == [*[40] * (UNNAMEABLE + 1), 100]
    await table.remove_limit(EACH)
    assert await limits_of(table) == [100]


async def test_a_worker_with_more_end_users_than_a_statement_can_name_hears_of_a_new_limit(
    table: LossyTable, clock: StoppedClock
) -> None:
    await table.set_limit(Limit(EACH, 100))
    ledger = await started(table, clock)
    for number in range(2 * UNNAMEABLE):
        ledger.left_microusd((f"user:acme/{number}",))
    await table.set_limit(Limit(EACH, 40))
    await ledger.refresh()

    assert ledger.left_microusd(ANN) == 40
    await ledger.close()


class AwayTable(LeaseTable):
    """A lease table that nobody can reach for a while."""

    is_away = False

    async def exchange(self, holder: LeaseHolder, claims: Sequence[Claim]) -> list[Grant]:
        if self.is_away:
            raise NotReady("the database does not answer")
        return await super().exchange(holder, claims)


@pytest.mark.either
async def test_end_users_who_came_in_vain_while_the_database_was_away_keep_no_worker_from_reporting(
    database: Database, clock: StoppedClock
) -> None:
    table = AwayTable(database, clock)
    await table.set_limit(Limit(EACH, 100))
    ledger = await started(table, clock)
    held = await ledger.reserve(ANN, 70)
    table.is_away = True
    paths = [(f"user:acme/{number}",) for number in range(UNNAMEABLE)]
    asked = await asyncio.gather(
        *(ledger.reserve(path, 1) for path in paths), return_exceptions=True
    )
    assert {type(each) for each in asked} == {NotReady}
    ledger.settle(held, 50)
    for _ in range(11):  # After so many who asked for nothing more are forgotten.
        with pytest.raises(NotReady):
            await ledger.flush()
    table.is_away = False
    await ledger.flush()

    assert [account for account, _ in ledger._held.by_key] == []
    rows = [(row.limit.account, row.spent_microusd) for row in await table.budgets(None)]
    assert rows == [(EACH, 0), (ANN[0], 50)], "who got nothing leaves no row"
    ledger.release(await ledger.reserve(paths[0], 100))
    await ledger.close()


@pytest.mark.parametrize("change", ["set", "remove", "zone"])
async def test_who_comes_for_the_first_time_while_a_limit_changes_has_the_new_one(
    table: LossyTable,
    database: Database,
    clock: StoppedClock,
    monkeypatch: pytest.MonkeyPatch,
    change: Literal["set", "remove", "zone"],
) -> None:
    """Else they would keep one that is set nowhere any more, and that nobody sees."""
    await KeyStore(database, Peppers({1: b"p" * 32}), clock).ensure_place(Place("acme", "a", "b"))
    await table.set_limit(Limit(EACH, 1000))
    ledger = await started(table, clock)
    changing: list[asyncio.Task[None]] = []

    async def changed() -> None:
        if change == "set":
            await table.set_limit(Limit(EACH, 100))
        elif change == "remove":
            await table.remove_limit(EACH)
        else:
            await table.set_time_zone("acme", "Asia/Kolkata")

    introduce = EndUserRows._introduce

    async def while_it_changes(*arguments: Any) -> None:
        """The template was read, and what it says is not written for the end user yet."""
        changing.append(asyncio.create_task(changed()))
        await asyncio.wait(changing, timeout=0.4)
        await introduce(*arguments)

    monkeypatch.setattr(EndUserRows, "_introduce", while_it_changes)
    with suppress(NotReady):  # There is no such limit any more, and that was not heard of.
        ledger.release(await ledger.reserve(ANN, 10))
    monkeypatch.undo()
    await changing[0]
    await ledger.refresh()

    if change == "remove":
        ledger.release(await ledger.reserve(ANN, 10**9))
    elif change == "set":
        with pytest.raises(BudgetExhausted):
            await ledger.reserve(ANN, 101)
    assert {row.limit.time_zone for row in await table.budgets(None)} <= (
        {"Asia/Kolkata"} if change == "zone" else {"UTC"}
    )
    await ledger.close()


async def test_who_comes_is_given_a_row_without_a_look_at_every_other(sqlite_url: str) -> None:
    """With 100,000 end users of two windows a look at each took 30 ms, with the file locked."""
    database, asked = open_database(sqlite_url), list[tuple[str, Any]]()
    clock = StoppedClock(utc_us=1_790_000_000_000_000)
    table = LeaseTable(database, clock)
    windows: tuple[WindowKind, ...] = ("day", "month")
    for window in windows:
        await table.set_limit(Limit(EACH, 100, window))

    def hear(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        asked.append((statement, parameters))

    event.listen(database.engine.sync_engine, "before_cursor_execute", hear)
    claims = [Claim(BudgetKey(ANN[0], window), -1, 0, 0, 0) for window in windows]
    await EndUserRows(database, clock, 100).introduce(claims)
    event.remove(database.engine.sync_engine, "before_cursor_execute", hear)
    looks = [each for each in asked if each[0].startswith("SELECT budgets")]
    assert len(looks) == 1
    async with database.reading() as connection:
        for statement, parameters in looks:
            plan = await connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
            steps = [row.detail for row in plan]
            assert not any(step.startswith("SCAN budgets") for step in steps), steps
    assert {row.limit.account for row in await table.budgets(None)} == {EACH, *ANN}
    await database.close()
