"""Many databases of one kind, one after the other, for tests that begin anew again and again."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.databases import BOTH, PostgresServer


Opened = tuple[str, Callable[[], None]]
"""The address of an empty database at the newest schema, and what takes it away."""


@pytest.fixture(params=BOTH)
def opening(request: pytest.FixtureRequest) -> Callable[[], Opened]:
    """Opens one database after the other, all of one kind."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")

        def on_server() -> Opened:
            url = server.create_migrated()
            return url, lambda: server.drop(url)

        return on_server
    template: Path = request.getfixturevalue("sqlite_template")

    def in_file() -> Opened:
        folder = Path(tempfile.mkdtemp())
        shutil.copyfile(template, folder / "money.db")
        return f"sqlite+aiosqlite:///{folder / 'money.db'}", lambda: shutil.rmtree(folder)

    return in_file
