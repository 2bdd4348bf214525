"""What a database URL names that is no database of ours: said with the file and who named it."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.operator import Operator
from tests.free_ports import free_port


COMMANDS = [
    ("serve",),
    ("admin", "serve", "--no-setup-link"),
    ("database", "migrate"),
    ("audit", "fsck"),
    ("audit", "export"),
    ("audit", "gone", "list"),
    ("keys", "list"),
    ("secrets", "list"),
    ("secrets", "adopt", "pepper", "--reason", "lost"),
]


def _file(operator: Operator) -> Path:
    return operator.folder / "var" / "gatewright.db"


def _text(file: Path) -> str:
    file.write_text("a text that somebody wrote, and no database\n" * 20)
    return "file is not a database"


def _folder(file: Path) -> str:
    file.mkdir()
    return "unable to open database file"


def _cut_off(file: Path) -> str:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE some (text TEXT)")
        database.execute("INSERT INTO some VALUES (?)", ("x" * 20_000,))
    file.write_bytes(file.read_bytes()[:4096])
    return "database disk image is malformed"


def _another_programs(file: Path) -> str:
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE songs (title TEXT)")
    return "this file is another program's: it has tables (songs), and none of ours"


@pytest.fixture(autouse=True)
def _ports(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATA_PLANE", "ADMIN"):
        monkeypatch.setenv(f"GATEWRIGHT_{name}__PORT", str(free_port()))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_that_is_no_database_is_named_with_its_setting_and_left_alone(
    operator: Operator, command: tuple[str, ...]
) -> None:
    _file(operator).unlink()
    said = _text(_file(operator))
    before = hashlib.sha256(_file(operator).read_bytes()).digest()
    refused = operator.is_refused(*command)
    assert refused.status == 2
    assert f"database.url: {_file(operator)}: {said}" in refused.errors
    assert hashlib.sha256(_file(operator).read_bytes()).digest() == before


@pytest.mark.parametrize("command", [("database", "migrate"), ("keys", "list")], ids=" ".join)
@pytest.mark.parametrize("put", [_folder, _cut_off, _another_programs])
def test_a_folder_a_damaged_file_and_another_programs_are_told_apart(
    operator: Operator, command: tuple[str, ...], put: object
) -> None:
    _file(operator).unlink()
    assert callable(put)
    said = put(_file(operator))
    refused = operator.config(*command)
    assert (refused.status, refused.output) == (2, "")
    assert f"database.url: {_file(operator)}: {said}" in refused.errors
    assert len(refused.errors.splitlines()) == 1


def test_the_schema_of_another_program_is_not_called_a_newer_one(operator: Operator) -> None:
    with closing(sqlite3.connect(_file(operator))) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '1f2e3d'")
    for command in (("database", "migrate"), ("keys", "list")):
        refused = operator.config(*command)
        assert refused.status == 2
        assert "database.url: schema 1f2e3d in this database is another" in refused.errors


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_another_programs_file_is_left_as_it_is(
    operator: Operator, command: tuple[str, ...]
) -> None:
    """Its journal's mode is written into a file: that program may know, or bear, no other."""
    file = _file(operator)
    file.unlink()
    _another_programs(file)
    before = hashlib.sha256(file.read_bytes()).digest()
    assert operator.is_refused(*command).status == 2
    assert hashlib.sha256(file.read_bytes()).digest() == before


@pytest.mark.parametrize(("version", "mode"), [("1f2e3d", "delete"), ("0001", "wal")])
def test_only_a_schema_of_ours_is_switched_to_our_journal(
    operator: Operator, version: str, mode: str
) -> None:
    file = _file(operator)
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (version,))
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    assert operator.config("keys", "list").status == 2
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == (mode,)


def test_a_file_to_copy_from_is_named_by_its_option(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWRIGHT_DATABASE__URL", "postgresql+asyncpg://127.0.0.1:1/none")
    _file(operator).unlink()
    said = _text(_file(operator))
    refused = operator.config("database", "copy", "--from", _file(operator))
    assert refused.status == 2
    assert f"--from: {_file(operator)}: {said}" in refused.errors
