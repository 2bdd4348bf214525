"""Prepares new connections to SQLite, and says how their transactions begin."""

import os
from contextlib import suppress
from typing import Any

from sqlalchemy.engine import Connection

from gateway.store.sqlite_driver import OneTurnConnection


SQLITE_BUSY_MS = 10_000
WAITS_MS = "gatewright_waits_ms"
"""The execution option that says how long a connection's transaction waits to write."""


def make_private(_dialect: Any, _record: object, given: list[Any], _options: object) -> None:
    """Make a new database, and the files SQLite puts beside it, readable only by its owner."""
    # Never an existing file: closing it would release SQLite's locks for this entire process, and
    # another process would remove the log under its feet.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with suppress(OSError):  # Whatever is wrong the driver says better.
        os.close(os.open(given[0], flags, 0o600))


def prepare_sqlite_for_migration(connection: Any, record: object) -> None:
    prepare_sqlite(connection, record)
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = OFF")
    cursor.close()


def prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver must not begin transactions by itself: it would do so too late.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout = {SQLITE_BUSY_MS}",
        *("synchronous = FULL", "foreign_keys = ON", "wal_autocheckpoint = 4000"),
        "cache_size = -512",  # KiB of each connection; the system keeps the file's pages too.
    ):
        cursor.execute(f"PRAGMA {pragma}")
    if not _is_anothers(cursor):  # This mode is written into the file, and stays there.
        cursor.execute("PRAGMA journal_mode = WAL")
    cursor.close()


def _is_anothers(cursor: Any) -> bool:
    """Whether a file holds another program's tables; it is only read, and refused later."""
    cursor.execute("PRAGMA journal_mode")
    if cursor.fetchone()[0] == "wal":
        return False  # There is nothing to change, so nothing to spare.
    cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    names = {name for (name,) in cursor.fetchall()}
    if "alembic_version" not in names:
        return bool(names)
    cursor.execute("SELECT version_num FROM alembic_version")
    return not all(str(version).isdecimal() for (version,) in cursor.fetchall())


def begin_sqlite(connection: Connection) -> None:
    waits_ms = connection.get_execution_options().get(WAITS_MS)
    if waits_ms is None:
        connection.exec_driver_sql("BEGIN")
        return
    if connection.info.get(WAITS_MS, SQLITE_BUSY_MS) != waits_ms:
        # In the turn of the statement below; a turn costs more than the setting itself.
        driver = connection.connection.driver_connection
        assert isinstance(driver, OneTurnConnection)
        driver.before_next(f"PRAGMA busy_timeout = {waits_ms}")
        connection.info[WAITS_MS] = waits_ms
    # A deferred transaction that reads and then writes fails, instead of waiting, when another
    # one writes in between.
    connection.exec_driver_sql("BEGIN IMMEDIATE")
