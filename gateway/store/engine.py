"""Opens a database from its URL and hands out transactions.

It knows what SQLite and PostgreSQL each need to keep their promises.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache, partial
from typing import Any

from sqlalchemy import Executable, Select, event
from sqlalchemy.engine import URL, Dialect, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, NullPool

from gateway.errors import ConfigurationInvalid, NotReady, RequestInvalid
from gateway.pacing.patience import may_wait
from gateway.store.postgres_driver import Opening, arguments
from gateway.store.preparing import (
    SQLITE_BUSY_MS,
    WAITS_MS,
    begin_sqlite,
    make_private,
    prepare_sqlite,
    prepare_sqlite_for_migration,
)
from gateway.store.speech import (
    DatabaseKind,
    Faults,
    away,
    cut_off,
    for_sqlite,
    is_unkeepable,
    naming_the_file,
    note_lost_connection,
    why_refused,
)
from gateway.store.sqlite_driver import Asked, RolledBack, open_sqlite


_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
_WAIT_S = 1.5
"""A caller that waits this long for a connection, or to write, is refused: none hangs for long."""
_PATIENT_S = 10.0
_RECYCLE_S = 600
_CLOSING_S = 2.0


class Database:
    """One database; made by `open_database`, closed by its owner."""

    __slots__ = (
        *("_away", "_is_patient", "_opening", "_turn", "_waiting"),
        *("engine", "kind", "refusal", "url"),
    )

    def __init__(
        self,
        url: URL,
        engine: AsyncEngine,
        *,
        is_patient: bool = False,
        opening: Opening | None = None,
    ) -> None:
        """With `is_patient` no writer is refused for waiting too long."""
        self.url = url
        self.engine = engine
        self._opening = opening
        self.kind: DatabaseKind = "sqlite" if url.drivername.startswith("sqlite") else "postgresql"
        self._away = away(self.kind)
        self.refusal = ""
        """Why SQLite refused the last write; PostgreSQL says so itself when it is asked."""
        self._is_patient = is_patient
        # SQLite has one writer at a time and no queue: waiting writers poll, and may starve.
        self._turn = asyncio.Lock()
        self._waiting: dict[int, AsyncEngine] = {}
        """Engines by how long their transactions wait to write: making one costs as much as a
        short transaction does."""

    def __repr__(self) -> str:
        return f"Database({self.kind})"

    @property
    def has_sessions(self) -> bool:
        """Whether connections keep their server session; known once one was opened."""
        return self._opening is not None and not self._opening.is_pooled

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that changes nothing.

        Raises:
            NotReady: the database cannot be reached or does not answer.
            RequestInvalid: the database cannot hold a value, such as a text with a NUL.
        """
        with _Translated(self._away):
            async with self.engine.connect() as connection, connection.begin():
                yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits at its end; on SQLite it holds the write lock from its start.

        Raises:
            NotReady: the database cannot be reached or does not answer, and it is unknown
                whether a commit took effect; or too many others write, and nothing was begun.
            RequestInvalid: as `reading`.
        """
        if self.kind == "postgresql":
            with _Translated(self._away):
                async with self.engine.begin() as connection:
                    yield connection
            return
        waits_ms = await self._take_turn()
        try:
            with _Translated(self._away):
                async with self._waiting_for(waits_ms).begin() as connection:
                    before = await _changes_in(connection) if self.refusal else None
                    yield connection
                    is_taken = before is not None and await _changes_in(connection) > before
            if is_taken:
                self.refusal = ""
        except NotReady as error:
            self.refusal = why_refused(error.__cause__) or self.refusal
            raise
        finally:
            self._turn.release()

    def _waiting_for(self, waits_ms: int) -> AsyncEngine:
        found = self._waiting.get(waits_ms)
        if found is None:
            found = self.engine.execution_options(**{WAITS_MS: waits_ms})
            self._waiting[waits_ms] = found  # At most one for each tenth of a second.
        return found

    async def _take_turn(self) -> int:
        """Wait for the turn to write; returns how long to wait for other processes then, in ms.

        Raises:
            NotReady: the turn did not come within the time that a caller may wait.
        """
        if self._is_patient or may_wait():
            await self._turn.acquire()
            return SQLITE_BUSY_MS
        begun_s = time.monotonic()
        try:
            async with asyncio.timeout(_WAIT_S):
                await self._turn.acquire()
        except TimeoutError:
            raise NotReady("too many write to the database now", retry_after_s=1.0) from None
        left_s = _WAIT_S - time.monotonic() + begun_s
        # In tenths of a second: a connection's setting is changed only where it differs.
        return max(round(left_s * 10) * 100, 100)

    async def peek(self, query: str | Select[Any], driver: Any = None) -> Sequence[Sequence[Any]]:
        """Rows of one query of ours, as last committed; on a driver's connection, if given.

        A query that is not text has only literal values, and its text is cached. It costs SQLite
        one turn of the driver's thread and PostgreSQL one round trip. A transaction with a cursor
        takes several turns or four round trips, which is too much for queries that are repeated.

        Raises:
            NotReady: the database cannot be reached or does not answer.
            RequestInvalid: the database cannot hold a value, such as a text with a NUL.
        """
        if not isinstance(query, str):
            query = _as_text(query, self.engine.dialect)
        with _Translated(self._away):
            if driver is not None:
                return await self._rows(query, driver)
            async with self.engine.connect() as connection:
                return await self._rows(query, await driver_of(connection))

    async def _rows(self, query: str, driver: Any) -> Sequence[Sequence[Any]]:
        ask = driver.execute_fetchall if self.kind == "sqlite" else driver.fetch
        rows: Sequence[Sequence[Any]] = await ask(query)
        return rows

    async def close(self) -> None:
        """Close all connections; those to a server that hangs are cut off."""
        left_s = _CLOSING_S if self.kind == "postgresql" else None
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self.engine.dispose()
                return
            left_s = 0.0  # The timeout closed one connection; each further round closes another.


@lru_cache(maxsize=64)
def _as_text(query: Select[*tuple[Any, ...]], dialect: Dialect) -> str:
    return str(query.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


class Held:
    """A connection kept by one frequent user; taken when first needed. PostgreSQL only.

    The pool checks that a connection is alive whenever it hands it out, and resets it when it comes
    back: four messages, which is as much as a short transaction.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: AsyncConnection | None = None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """The driver's connection, in a transaction; one that fails is not used again.

        Raises:
            NotReady: the database does not answer; it is unknown whether a commit took effect.
        """
        with _Translated(cut_off(self._database.kind)):
            if self._connection is None:
                self._connection = await self._database.engine.connect()
            driver = await driver_of(self._connection)
            transaction = driver.transaction()
            try:
                await transaction.start()
                yield driver
                await transaction.commit()
            except BaseException:
                # Without a rollback: a server that hangs would not answer that either.
                connection, self._connection = self._connection, None
                await connection.invalidate()
                await connection.close()
                raise

    async def let_go(self) -> None:
        """Give it back to the pool."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


async def driver_of(connection: AsyncConnection) -> Any:
    """The driver's own connection: asyncpg's or aiosqlite's."""
    return (await connection.get_raw_connection()).driver_connection


Asking = tuple[Executable, dict[str, Any] | list[dict[str, Any]]]
"""A statement that is built once, and its values; a list has the values of each execution."""


async def together(
    connection: AsyncConnection, asking: Sequence[Asking]
) -> list[Sequence[Sequence[Any]]]:
    """The rows of each statement, in order, within a transaction; empty for those without rows.

    For frequent statements: SQLite runs all of them in one turn of the driver's thread, bypassing
    SQLAlchemy, whose overhead per statement is greater than the statement itself.
    """
    if connection.dialect.name == "postgresql":
        found = [await connection.execute(*each) for each in asking]
        return [each.all() if each.returns_rows else [] for each in found]
    if not asking:
        return []
    driver = await driver_of(connection)
    return await in_one_turn(driver, [asked(*each) for each in asking])


async def in_one_turn(driver: Any, asking: Sequence[Asked]) -> list[Sequence[Sequence[Any]]]:
    """`together` on SQLite's driver; raises IntegrityError as SQLAlchemy does."""
    try:
        rows: list[Sequence[Sequence[Any]]] = await driver.together(asking)
    except sqlite3.IntegrityError as error:
        raise IntegrityError(None, None, error) from error
    return rows


def asked(statement: Executable, values: dict[str, Any] | list[dict[str, Any]]) -> Asked:
    """A statement and its values, for SQLite's driver."""
    text, own = for_sqlite(statement)
    if isinstance(values, list):
        return Asked(text, values, is_many=True)
    return Asked(text, own | values)


async def _changes_in(connection: AsyncConnection) -> int:
    """Rows a connection changed so far: even a full disk takes a transaction without changes."""
    return int((await driver_of(connection)).total_changes)


class _Translated:
    """Turns errors of a lost database into `NotReady`; violated constraints stay as they are.

    A value that the database cannot hold is no outage: a retry would be refused again.
    """

    __slots__ = ("_away",)

    def __init__(self, away: Faults) -> None:
        self._away = away

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, IntegrityError):
            return
        if is_unkeepable(error):
            raise RequestInvalid("this holds what no database keeps") from error
        if isinstance(error, self._away):
            said = "takes no writes" if why_refused(error) else "does not answer"
            raise NotReady(f"the database {said}", retry_after_s=1.0) from error


class _Pool(AsyncAdaptedQueuePool):
    """Callers wait for a connection as long as to write; background work waits longer.

    All background work begins at once at a start: on slow machines most of it failed.
    """

    @property
    def _timeout(self) -> float:
        return _PATIENT_S if may_wait() else _WAIT_S

    @_timeout.setter
    def _timeout(self, told: float) -> None:
        """SQLAlchemy's own timeout, one for all, is not used."""


def parse_url(url: str) -> URL:
    """The URL with its asynchronous driver.

    Raises:
        ConfigurationInvalid: it names no database that we know.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigurationInvalid("database", "url", "not a database URL") from None
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        reason = "use sqlite+aiosqlite:///path or postgresql+asyncpg://host/name"
        raise ConfigurationInvalid("database", "url", reason)
    if driver.startswith("sqlite") and parsed.database in (None, "", ":memory:"):
        raise ConfigurationInvalid("database", "url", "a SQLite database needs a file")
    return parsed.set(drivername=driver)


def open_database(
    url: str,
    *,
    pool_size: int = 5,
    pooled: bool = True,
    foreign_keys: bool = True,
    named_by: str = "database.url",
) -> Database:
    """A database that connects on first use; `pooled=False` for short commands.

    `foreign_keys=False` is for migrations: SQLite rebuilds a table by dropping it. `named_by` is
    the setting or option that errors name when its file is not a database.

    Raises:
        ConfigurationInvalid: the URL names no database that we know.
    """
    parsed = parse_url(url)
    is_remote = parsed.drivername.startswith("postgresql")
    options: dict[str, Any] = {"pool_pre_ping": is_remote, "hide_parameters": True}
    if pooled:
        options |= {"poolclass": _Pool, "pool_size": pool_size, "max_overflow": 1}
        # Last used first: its thread, its statements and its pages are still warm.
        options |= {"pool_recycle": _RECYCLE_S, "pool_use_lifo": True}
    else:
        options |= {"poolclass": NullPool}
    address, opening = parsed, None
    if is_remote:
        address, told = arguments(parsed, pooled=pooled)
        opening = told["async_creator_fn"]
    else:
        creator = partial(open_sqlite, named_by)
        told = {"async_creator_fn": creator, "factory": RolledBack}
    options["connect_args"] = told
    engine = create_async_engine(address, **options)
    if not is_remote:
        prepare = prepare_sqlite if foreign_keys else prepare_sqlite_for_migration
        event.listen(engine.sync_engine, "do_connect", make_private)
        event.listen(engine.sync_engine, "connect", prepare)
        event.listen(engine.sync_engine, "begin", begin_sqlite)
        event.listen(engine.sync_engine, "handle_error", naming_the_file(named_by))
    else:
        event.listen(engine.sync_engine, "handle_error", note_lost_connection)
    return Database(parsed, engine, is_patient=not pooled, opening=opening)
