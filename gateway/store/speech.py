"""Differences between SQLite and PostgreSQL: inserts, and the errors of a lost database.

PostgreSQL's driver and dialect are imported only where they are used: they take seven mebibytes
that a worker on SQLite need not carry.
"""

import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from sqlalchemy import Executable, Table
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError


DatabaseKind = Literal["sqlite", "postgresql"]
Faults = tuple[type[BaseException], ...]


_TOO_LARGE = "too large to convert to SQLite INTEGER"
_REFUSALS = {
    sqlite3.SQLITE_FULL: "its disk is full",
    sqlite3.SQLITE_READONLY: "its file is read-only",
    sqlite3.SQLITE_IOERR: "its disk fails",
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
}
# SQLSTATEs after which a connection is of no more use: the server went away, or a failover made it
# read-only.
_LOST_CONNECTION = ("08", "57P01", "57P02", "57P03", "25006", "25P03")


def insert_into(kind: DatabaseKind, table: Table) -> Any:
    """An INSERT that can say what to do if the row exists already."""
    if kind == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - see the module's docstring

    return postgresql.insert(table)


@cache
def for_sqlite(statement: Executable) -> tuple[str, dict[str, Any]]:
    """A statement's text, for values by name, and its own values; for statements built once."""
    compiled = statement.compile(dialect=sqlite.dialect(paramstyle="named"))  # type: ignore[attr-defined]
    own = {name: value for name, value in compiled.params.items() if value is not None}
    return str(compiled), own


@cache
def away(kind: DatabaseKind) -> Faults:
    """The errors raised when a database is lost, or does not answer."""
    if kind == "sqlite":
        return (DBAPIError, PoolTimeoutError, OSError, sqlite3.DatabaseError)
    import asyncpg  # noqa: PLC0415 - see the module's docstring

    closed = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError)
    return (DBAPIError, PoolTimeoutError, OSError, *closed)


@cache
def cut_off(kind: DatabaseKind) -> Faults:
    """The errors raised when a connection that is kept outside the pool is lost."""
    if kind == "sqlite":
        return (DBAPIError, OSError, TimeoutError)
    import asyncpg  # noqa: PLC0415

    # The last is raised by a connection that was told to end, while it ends.
    own = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
    return (DBAPIError, OSError, TimeoutError, *own)


def naming_the_file(named_by: str) -> Callable[[ExceptionContext], None]:
    """SQLite says that a file is damaged or no database, but not which file, nor who named it."""

    def name_the_file(context: ExceptionContext) -> None:
        error = context.original_exception
        file = (context.engine.url.database if context.engine else None) or ""
        code = getattr(error, "sqlite_errorcode", None)
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT) and file not in str(error):
            error.args = (f"{named_by}: {file}: {error}",)

    return name_the_file


def why_refused(error: BaseException | None) -> str:
    """Why SQLite refuses writes although it answers; empty if it gave no such reason."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return "" if code is None else _REFUSALS.get(code & 0xFF, "")


def note_lost_connection(context: ExceptionContext) -> None:
    """PostgreSQL: drop a connection that is of no more use."""
    state = str(getattr(context.original_exception, "sqlstate", None) or "")
    if state.startswith(_LOST_CONNECTION):
        context.is_disconnect = True


def is_unkeepable(error: BaseException | None) -> bool:
    """PostgreSQL's data exceptions (SQLSTATE 22), and values that a driver cannot even send.

    SQLite's are Python's own exceptions, which SQLAlchemy passes on unchanged.
    """
    if isinstance(error, UnicodeEncodeError):
        return True
    if isinstance(error, OverflowError):
        return _TOO_LARGE in str(error)
    cause = getattr(error, "orig", None)
    state = str(getattr(cause, "sqlstate", None) or "")
    unsent = isinstance(getattr(cause, "__cause__", None), ValueError)
    return isinstance(error, DBAPIError) and (unsent or state.startswith("22"))
