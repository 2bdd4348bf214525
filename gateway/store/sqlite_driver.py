"""SQLite's driver: one thread switch per statement, and nothing left running at the end.

The driver runs SQLite in a thread of its own, and each call to it is a switch: the thread wakes,
the interpreter changes threads, the event loop wakes again. SQLAlchemy makes four calls for a
statement (a cursor, the statement, its rows, the cursor's end), and one more to roll back what was
committed.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Self, cast

import aiosqlite


ROWS_AT_ONCE: Final = 256
"""This many rows come with their statement; more are fetched in a second turn."""


class Asked(NamedTuple):
    """A statement and its values; for one that is executed many times, each execution's values."""

    statement: str
    values: Any = ()
    is_many: bool = False


class _Opened:
    """What the driver's thread opened, and closes, even if the one who waited for it is gone."""

    __slots__ = ("_connection", "_connector")

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        self._connector = connector
        self._connection: sqlite3.Connection | None = None

    def open(self) -> sqlite3.Connection:
        self._connection = self._connector()
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class OneTurnConnection(aiosqlite.Connection):
    """Like aiosqlite's, but a rollback after a commit asks nothing of SQLite."""

    def __init__(self, connector: Callable[[], sqlite3.Connection]) -> None:
        self._opened = _Opened(connector)
        super().__init__(self._opened.open, ROWS_AT_ONCE)
        self._is_whole = False
        """Whether the last request was a commit or a rollback, and has come back."""
        self._before: list[str] = []

    def cursor(self) -> Any:
        return Statement(self)

    async def commit(self) -> None:
        await super().commit()
        self._is_whole = True

    async def rollback(self) -> None:
        if not self._is_whole:
            await super().rollback()
            self._is_whole = True

    def stop(self) -> asyncio.Future[Any] | None:
        """End the thread after its requests; what it opened is closed first.

        The driver's own closes what its caller was given: nothing if opening was cancelled. A
        second end would be waited for forever: closing asks for one, too.
        """
        if not self._running:
            return None
        self._tx.put_nowait((None, self._opened.close))
        return super().stop()

    async def close(self) -> None:
        """Does nothing after a stop: the thread may be gone, and would never answer."""
        if self._running:
            await super().close()

    def before_next(self, statement: str) -> None:
        """Run a statement without rows in the turn of the next statement, before it."""
        self._before.append(statement)

    async def together(self, asked: Sequence[Asked]) -> list[list[Any]]:
        """The rows of each of these statements, in one turn; the first that fails ends it."""
        rows: list[list[Any]] = await self._execute(self._run_together, asked)
        return rows

    def run_before(self) -> None:
        """In the driver's thread: run what was to be run before the next statement."""
        while self._before:
            self._conn.execute(self._before[0])
            del self._before[0]

    def _run_together(self, asked: Sequence[Asked]) -> list[list[Any]]:
        rows = []
        for statement, values, is_many in asked:
            run = self._conn.executemany if is_many else self._conn.execute
            rows.append(run(statement, values).fetchall())
        return rows

    async def turn(self, what: Callable[..., Any], *given: Any) -> Any:
        """What `what` returns, or raises, in the driver's thread."""
        return await self._execute(what, *given)

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._is_whole = False
        return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]


class Statement:
    """What SQLAlchemy takes for a cursor of aiosqlite: one statement, and its results."""

    __slots__ = (
        *("_connection", "_cursor", "_is_away", "_rows"),
        *("arraysize", "description", "lastrowid", "rowcount"),
    )

    def __init__(self, connection: OneTurnConnection) -> None:
        self._connection = connection
        self._cursor: sqlite3.Cursor | None = None
        """Open while there may be rows that were not fetched."""
        self._is_away = False
        """Whether a turn was asked for that has not come back: its task may be cancelled."""
        self._rows: list[Any] = []
        self.arraysize = 1
        self.description: Any = None
        """The columns, as DB-API wants them; None if a statement has no rows."""
        self.lastrowid: int | None = None
        self.rowcount = -1

    async def __aenter__(self) -> Self:
        return self

    async def execute(self, operation: str, parameters: Iterable[Any] = ()) -> Self:
        await self._turn(self._run, "execute", operation, parameters)
        return self

    async def executemany(self, operation: str, parameters: Iterable[Iterable[Any]]) -> Self:
        await self._turn(self._run, "executemany", operation, parameters)
        return self

    async def fetchone(self) -> Any:
        rows = await self.fetchmany(1)
        return rows[0] if rows else None

    async def fetchmany(self, size: int | None = None) -> Sequence[Any]:
        count = size or self.arraysize
        if self._cursor is not None and len(self._rows) < count:
            await self._turn(self._fetch, max(count - len(self._rows), ROWS_AT_ONCE))
        rows, self._rows = self._rows[:count], self._rows[count:]
        return rows

    async def fetchall(self) -> Sequence[Any]:
        if self._cursor is not None:
            await self._turn(self._fetch, None)
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        self._rows = []
        if self._cursor is not None or self._is_away:
            await self._turn(self._end)

    async def _turn(self, what: Callable[..., None], *given: Any) -> None:
        self._is_away = True
        await self._connection.turn(what, *given)
        self._is_away = False

    # --- in the driver's thread -------------------------------------------------------------------

    def _run(self, how: str, operation: str, parameters: Iterable[Any]) -> None:
        self._end()
        self._connection.run_before()
        self._cursor = cursor = self._connection._conn.cursor()  # noqa: SLF001 - its own driver's
        getattr(cursor, how)(operation, parameters)
        self.description, self.lastrowid = cursor.description, cursor.lastrowid
        self._rows = []
        if self.description is None:
            self._end()
        else:
            self._fetch(ROWS_AT_ONCE)

    def _fetch(self, count: int | None) -> None:
        if self._cursor is None:
            return
        rows = self._cursor.fetchall() if count is None else self._cursor.fetchmany(count)
        self._rows += rows
        if count is None or len(rows) < count:
            self._end()

    def _end(self) -> None:
        if self._cursor is not None:
            self.rowcount = self._cursor.rowcount
            self._cursor.close()
            self._cursor = None


class RolledBack(sqlite3.Connection):
    """A connection that leaves no transaction behind, however it is closed.

    SQLite keeps a closed connection, with its lock, for as long as one of its statements lives.
    Those of a cancelled task live until the collector comes by: nobody could write meanwhile.
    """

    def close(self) -> None:
        with suppress(sqlite3.Error):  # Closed before, as the driver may do twice.
            if self.in_transaction:
                self.rollback()
        super().close()


async def open_sqlite(named_by: str, *where: Any, **options: Any) -> OneTurnConnection:
    """Open as SQLAlchemy does, but without leaving a thread behind on failure.

    The driver's thread tells the event loop of its end. A command that fails at once would have
    closed the loop by then, and the thread would report that on standard error, at length.
    """
    made = OneTurnConnection(partial(sqlite3.connect, *where, **options))
    thread = made._thread  # noqa: SLF001 - SQLAlchemy takes it, too; nothing else can wait for it
    thread.daemon = True
    try:
        return cast(OneTurnConnection, await made)
    except sqlite3.OperationalError as error:
        await asyncio.to_thread(thread.join)
        # The driver says that it cannot, but not what; a command run in the wrong folder needs it.
        raise sqlite3.OperationalError(f"{named_by}: {where[0]}: {error}") from error
    except BaseException:
        await asyncio.to_thread(thread.join)
        raise
