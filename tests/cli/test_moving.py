"""`gatewright database copy`: an installation outgrows SQLite and loses nothing."""

import json
from collections.abc import Iterator

import pytest

from gateway.audit.disk import Disk
from gateway.audit.segments import LOCK_NAME
from tests.cli.operator import Operator
from tests.databases import PostgresServer


pytestmark = pytest.mark.postgres
PLACE = ("--organisation", "acme", "--workspace", "research", "--project", "assistant")
FORMER = "var/gatewright.db"


@pytest.fixture
def empty(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_migrated()
    yield url
    postgres_server.drop(url)


@pytest.fixture
def grown(operator: Operator) -> Operator:
    assert operator.config("keys", "issue", *PLACE, "--name", "first").status == 0
    assert operator.config("budgets", "set", "org:acme", "5000").status == 0
    assert operator.config("audit", "fsck").status == 0
    return operator


def names(operator: Operator, url: str) -> None:
    """In the configuration, as the database from now on."""
    text = operator.config_file.read_text()
    operator.config_file.write_text(text.replace("sqlite+aiosqlite:///var/gatewright.db", url))


def copies(operator: Operator, *arguments: str) -> tuple[int, str]:
    former = str(operator.folder / (arguments[0] if arguments else FORMER))
    ended = operator.config("database", "copy", "--from", former)
    return ended.status, ended.output + ended.errors


def test_keys_limits_and_the_log_go_along(grown: Operator, empty: str) -> None:
    before = [grown.config(*asked).output for asked in (("keys", "list"), ("budgets", "list"))]
    names(grown, empty)
    status, said = copies(grown)
    assert (status, said.startswith("copied: ")) == (0, True), said
    after = [grown.config(*asked).output for asked in (("keys", "list"), ("budgets", "list"))]
    assert after == before
    checked = grown.config("audit", "fsck")
    assert (checked.status, "the log is whole" in checked.output) == (0, True)
    exported = grown.config("audit", "export", "--organisation", "-operators").output
    deeds = [json.loads(line)["action"] for line in exported.splitlines()]
    assert deeds == ["key.issued", "budget.set"]


@pytest.mark.parametrize(
    ("former", "reason"),
    [("gatewright.toml", "file is not a database"), ("elsewhere.db", "does not exist")],
)
def test_what_is_no_database_is_refused(
    operator: Operator, empty: str, former: str, reason: str
) -> None:
    names(operator, empty)
    status, said = copies(operator, former)
    assert (status, reason in said) == (2, True), said


def test_who_stays_with_sqlite_has_nothing_to_copy_to(operator: Operator) -> None:
    status, said = copies(operator)
    assert (status, "name the PostgreSQL database" in said) == (2, True), said


def test_nothing_is_copied_beside_a_process_that_still_writes(grown: Operator, empty: str) -> None:
    names(grown, empty)
    lock = Disk().lock(grown.folder / "var" / "audit" / "w0-operators" / LOCK_NAME)
    try:
        status, said = copies(grown)
        assert (status, "stop every process first" in said) == (2, True), said
    finally:
        Disk().close(lock)
    assert copies(grown)[0] == 0
    status, said = copies(grown)
    assert (status, "is in use already" in said) == (2, True), said
