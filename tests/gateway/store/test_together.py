"""Statements of one turn: what they find, what a failing one leaves, and who takes few turns."""

import sqlite3
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import bindparam, insert, select, text
from sqlalchemy.exc import IntegrityError

from gateway.audit.projecting.projection import START
from gateway.clock import StoppedClock
from gateway.errors import NotReady
from gateway.money.budgets import BudgetKey, Limit
from gateway.oversight.workers import WorkerReport
from gateway.pacing.patience import patience
from gateway.store.engine import Asking, Database, open_database, together
from gateway.store.evidence.sink import DatabaseAuditSink
from gateway.store.money.leases import LeaseTable
from gateway.store.money.slices import NO_WINDOW, Claim, LeaseHolder
from gateway.store.schema.audit import audit_positions
from gateway.store.sqlite_driver import OneTurnConnection
from gateway.store.workers import TIDIED_EVERY_US, WorkerTable
from tests.gateway.store.evidence.test_sink import batch_of, outcome


pytestmark = pytest.mark.anyio

HOLDER = LeaseHolder("w1", "run")
KEY = BudgetKey("org:acme", "total")
NEW = insert(audit_positions)
FIRST_OF = (
    select(audit_positions.c.segment)
    .where(audit_positions.c.worker == bindparam("of"), audit_positions.c.offset_bytes > 5)
    .limit(1)
)


def placed(worker: str, segment: int) -> dict[str, object]:
    return {"worker": worker, "segment": segment, "offset_bytes": 10 * segment}


@pytest.fixture
async def sqlite(sqlite_url: str) -> AsyncIterator[Database]:
    database = open_database(sqlite_url, pool_size=1)
    yield database
    await database.close()


async def test_each_statement_gives_its_rows_and_sees_what_those_before_it_did(
    database: Database,
) -> None:
    async with database.writing() as connection:
        asking: list[Asking] = [(FIRST_OF, {"of": "b"}), (NEW, [placed("a", 1), placed("b", 2)])]
        found = await together(connection, [*asking, (FIRST_OF, {"of": "b"})])
        nothing = await together(connection, [])

    assert [[tuple(row) for row in rows] for rows in found] == [[], [], [(2,)]]
    assert nothing == []


async def test_one_that_is_refused_takes_the_whole_transaction_with_it(database: Database) -> None:
    async def write() -> None:
        async with database.writing() as connection:
            await together(connection, [(NEW, placed("a", 1)), (NEW, placed("a", 2))])

    with pytest.raises(IntegrityError):
        await write()

    assert await DatabaseAuditSink(database).positions() == {}


async def test_what_shows_damage_does_not_answer(
    sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reports spending tries again; any other error would end it."""

    def damaged(*_: object) -> None:
        raise sqlite3.DatabaseError("database disk image is malformed")

    monkeypatch.setattr(OneTurnConnection, "_run_together", damaged)
    with pytest.raises(NotReady):
        await DatabaseAuditSink(sqlite).store([], "w1", START, (1, 100))


async def test_a_projection_takes_as_few_turns_as_can_be(
    sqlite: Database, turns: list[str]
) -> None:
    sink = DatabaseAuditSink(sqlite)
    assert await sink.store(batch_of("w1", [outcome(1)]), "w1", START, (1, 100))
    turns.clear()
    batch = batch_of("w1", [outcome(number) for number in range(2, 25)], 100)

    assert await sink.store(batch, "w1", (1, 100), (1, 2400))

    assert turns == ["_run", *["_run_together"] * 3, "commit"]


async def test_a_report_of_spending_takes_as_few_turns_however_long_it_may_wait(
    sqlite: Database, clock: StoppedClock, turns: list[str]
) -> None:
    table = LeaseTable(sqlite, clock)
    await table.set_limit(Limit(KEY.account, 1000, KEY.window))
    (grant,) = await table.exchange(HOLDER, [Claim(KEY, NO_WINDOW, 0, 0, 0, wanted_microusd=100)])
    with patience():
        async with sqlite.writing() as connection:
            await connection.execute(text("SELECT 1"))
    turns.clear()

    claim = Claim(KEY, grant.window_start_us, grant.amount_microusd, 40, 0)
    (told,) = await table.exchange(HOLDER, [claim])

    assert (told.left_microusd, (await table.budgets_of([KEY.account]))[0].spent_microusd) == (
        900,
        40,
    )
    assert turns[:5] == ["_run", *["_run_together"] * 2, "commit", "_run"]


async def test_what_a_worker_says_of_itself_goes_past_sqlalchemy(
    sqlite: Database, turns: list[str]
) -> None:
    table = WorkerTable(sqlite)
    await table.put(WorkerReport(worker="w1", seen_us=TIDIED_EVERY_US))
    turns.clear()

    await table.put(WorkerReport(worker="w1", seen_us=TIDIED_EVERY_US + 1))

    assert turns == ["_run", "_run_together", "commit"]
    assert [each.seen_us for each in await table.all()] == [TIDIED_EVERY_US + 1]
