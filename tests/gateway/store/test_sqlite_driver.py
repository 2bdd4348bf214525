"""SQLite's driver, asked once for a statement: what SQLAlchemy and others get of it is the same."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from gateway.store import engine
from gateway.store.engine import Database, open_database
from gateway.store.sqlite_driver import ROWS_AT_ONCE, RolledBack, open_sqlite


pytestmark = pytest.mark.anyio

MORE = 2 * ROWS_AT_ONCE + 7
NUMBERS = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
    SELECT n FROM numbers LIMIT :count
"""


class Noted(RolledBack):
    """Says which of them was closed, and not left to the collector."""

    closed: ClassVar[dict[int, bool]] = {}

    def __init__(self, *where: Any, **options: Any) -> None:
        super().__init__(*where, **options)
        self.number = len(self.closed)
        self.closed[self.number] = False

    def close(self) -> None:
        super().close()
        self.closed[self.number] = True


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> dict[int, bool]:
    """Whether each connection that SQLite opened is closed, by its number."""
    monkeypatch.setattr(engine, "RolledBack", Noted)
    monkeypatch.setattr(Noted, "closed", {})
    return Noted.closed


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    database = open_database(sqlite_url, pool_size=1)
    async with database.writing() as connection:
        await connection.execute(text("CREATE TABLE pairs (a INTEGER PRIMARY KEY, b TEXT)"))
    yield database
    await database.close()


async def test_a_transaction_takes_a_turn_for_each_statement_and_two_of_its_own(
    database: Database, turns: list[str]
) -> None:
    async with database.reading() as connection:
        for count in (0, 1, ROWS_AT_ONCE - 1):
            found = await connection.execute(text(NUMBERS), {"count": count})
            assert found.scalars().all() == list(range(1, count + 1))

    assert turns == ["_run"] * 4 + ["commit"]


async def test_what_was_not_committed_is_rolled_back(database: Database, turns: list[str]) -> None:
    async def fails() -> None:
        async with database.writing() as connection:
            await connection.execute(text("INSERT INTO pairs VALUES (1, 'x')"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()

    async with database.reading() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM pairs"))).scalar_one() == 0
    assert turns.count("rollback") == 1


@pytest.mark.parametrize("count", [ROWS_AT_ONCE, ROWS_AT_ONCE + 1, MORE])
async def test_rows_beyond_the_first_ones_come_in_a_second_turn(
    database: Database, turns: list[str], count: int
) -> None:
    async with database.reading() as connection:
        turns.clear()
        found = (await connection.execute(text(NUMBERS), {"count": count})).scalars().all()

    assert found == list(range(1, count + 1))
    assert turns == ["_run", "_fetch", "commit"]


async def test_rows_that_are_asked_for_in_parts_are_not_read_ahead_of_all(
    database: Database,
) -> None:
    some = []
    async with database.reading() as connection:
        found = await connection.stream(text(NUMBERS), {"count": 10**12})
        async for row in found:
            some.append(row.n)
            if row.n == MORE:
                break
        await found.close()

    assert some == list(range(1, MORE + 1))


async def test_counts_and_rows_of_a_change_are_told(database: Database) -> None:
    async with database.writing() as connection:
        made = "INSERT INTO pairs (b) VALUES (:b) RETURNING a"
        keys = [
            (await connection.execute(text(made), {"b": b})).scalar_one() for b in ("x", "y", "z")
        ]
        changed = await connection.execute(text("UPDATE pairs SET b = 'w' WHERE a > 1"))
        gone = await connection.execute(text("DELETE FROM pairs WHERE b = 'nobody'"))
        many = [{"a": a, "b": "m"} for a in range(10, 13)]
        added = await connection.execute(text("INSERT INTO pairs VALUES (:a, :b)"), many)

    assert keys == [1, 2, 3]
    assert (changed.rowcount, gone.rowcount, added.rowcount) == (2, 0, 3)


async def test_a_refused_statement_is_said_and_the_next_one_works(database: Database) -> None:
    async with database.writing() as connection:
        await connection.execute(text("INSERT INTO pairs VALUES (1, 'x')"))
        with pytest.raises(IntegrityError):
            await connection.execute(text("INSERT INTO pairs VALUES (1, 'y')"))
        found = await connection.execute(text("SELECT b FROM pairs"))
        assert found.scalars().all() == ["x"]


async def test_a_cancelled_statement_leaves_no_lock(
    closed: dict[int, bool], database: Database, sqlite_url: str
) -> None:
    """Its rows are not all read when its task is gone, and the thread may not have begun.

    Each opens a connection anew, and those that are cancelled early are cancelled meanwhile.
    """

    async def asks() -> None:
        async with database.reading() as connection:
            await connection.execute(text(NUMBERS), {"count": MORE})
            await connection.execute(text("SELECT * FROM pairs, pairs AS others"))

    path = Path(sqlite_url.partition("///")[2])
    for steps in range(40):
        task = asyncio.ensure_future(asks())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with closing(sqlite3.connect(path, timeout=0.0, isolation_level=None)) as another:
            another.execute("BEGIN EXCLUSIVE")
            another.execute("INSERT INTO pairs VALUES (?, 'x')", (steps,))
            another.execute("COMMIT")

    await database.close()
    assert len(closed) > 1
    assert all(closed.values())
    held = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [each for each in held if str(each).startswith(str(path))]


@pytest.mark.parametrize("times", [1, 2])
async def test_an_opening_that_is_cancelled_closes_what_is_opened_all_the_same(
    closed: dict[int, bool], tmp_path: Path, times: int
) -> None:
    """With its thread, even where whoever waits for that is cancelled as well."""
    begun, may_open = threading.Event(), threading.Event()

    def opens(*where: Any, **options: Any) -> sqlite3.Connection:
        begun.set()
        assert may_open.wait(10)
        return Noted(*where, **options)

    before = set(threading.enumerate())
    opening: Any = open_sqlite("a test", str(tmp_path / "plain.db"), factory=opens)
    task = asyncio.ensure_future(opening)
    assert await asyncio.to_thread(begun.wait, 10)
    (thread,) = (each for each in set(threading.enumerate()) - before if _is_a_drivers(each))
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    may_open.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert closed == {0: True}


async def test_what_was_stopped_is_closed_and_whoever_closes_it_waits_for_nobody(
    closed: dict[int, bool],
) -> None:
    """SQLAlchemy stops one whose end was cancelled, while that goes on."""
    connection: Any = await open_sqlite("a test", ":memory:", isolation_level=None, factory=Noted)
    may_end = threading.Event()
    busy = asyncio.ensure_future(connection.turn(may_end.wait, 10))
    await asyncio.sleep(0)
    ended = connection.stop()
    await asyncio.wait_for(connection.close(), 10)
    may_end.set()
    await ended
    assert await busy
    assert closed == {0: True}


async def test_who_is_closing_what_is_stopped_meanwhile_comes_to_an_end(tmp_path: Path) -> None:
    """It waited for a thread that was gone, until the collector said so on standard error."""
    connection = await open_sqlite("database.url", tmp_path / "some.db", factory=RolledBack)
    closing_it = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    ended = connection.stop()
    assert ended is not None
    await asyncio.wait_for(asyncio.gather(closing_it, ended), 10)


def _is_a_drivers(thread: threading.Thread) -> bool:
    return "_connection_worker_thread" in thread.name


async def test_a_statement_that_was_not_awaited_to_its_end_is_ended_all_the_same(
    tmp_path: Path,
) -> None:
    connection: Any = await open_sqlite("a test", str(tmp_path / "plain.db"), isolation_level=None)
    try:
        await connection.execute("CREATE TABLE pairs (a INTEGER PRIMARY KEY)")
        await connection.execute(f"INSERT INTO pairs {NUMBERS}", {"count": MORE})
        statement = connection.cursor()
        task = asyncio.ensure_future(statement.execute("SELECT a FROM pairs"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await statement.close()
        await connection.turn(int)  # Behind all that was asked of the thread before.
        with closing(sqlite3.connect(tmp_path / "plain.db", timeout=0.0)) as another:
            another.execute("BEGIN EXCLUSIVE")
    finally:
        await connection.close()


@given(asked=st.lists(st.sampled_from([None, 1, 3, ROWS_AT_ONCE, 2 * ROWS_AT_ONCE]), max_size=8))
async def test_parts_of_any_size_are_the_whole_in_order(asked: list[int | None]) -> None:
    connection: Any = await open_sqlite("a test", ":memory:", isolation_level=None)
    try:
        statement = await connection.cursor().execute(NUMBERS, {"count": MORE})
        found: list[int] = []
        for size in asked:
            part = await statement.fetchmany(size)
            assert len(part) == min(size or 1, MORE - len(found))
            found += [n for (n,) in part]
        found += [n for (n,) in await statement.fetchall()]
        await statement.close()
        assert found == list(range(1, MORE + 1))
        assert await statement.fetchone() is None
    finally:
        await connection.close()
