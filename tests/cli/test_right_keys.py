"""A master key or a pepper that is not the database's own starts nothing, and says which it is."""

import asyncio
import base64
import io
import json
import secrets
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from gateway.clock import SECOND_US, SystemClock
from gateway.configuration.reading import load_settings
from gateway.oversight.workers import WorkerReport
from gateway.store.engine import open_database
from gateway.store.workers import WorkerTable
from tests.cli.operator import Operator


PLACE = ("--organisation", "acme", "--workspace", "main", "--project", "web")
ISSUE = ("keys", "issue", *PLACE, "--name", "n")
"""It digests under the pepper, and records under the master key."""

KEYS = [
    ("master.key", "master_key", ISSUE),
    ("master.key", "master_key", ("audit", "fsck")),
    ("master.key", "master_key", ("audit", "prove", "--receipt", "w0.1.0.ab")),
    ("master.key", "master_key", ("audit", "pack", "--organisation", "acme", "pack.zip")),
    ("master.key", "master_key", ("audit", "gone", "end", "w9", "--reason", "burnt", "--yes")),
    ("master.key", "master_key", ("audit", "retain", "--yes")),
    ("master.key", "master_key", ("secrets", "adopt", "pepper", "--reason", "lost")),
    ("master.key", "master_key", ("users", "disable", "ann")),
    ("pepper.key", "pepper", ISSUE),
    ("pepper.key", "pepper", ("serve",)),
    ("master.key", "master_key", ("serve",)),
    ("master.key", "master_key", ("admin", "serve", "--no-setup-link")),
]


def _replaced(file: Path) -> bytes:
    """Another key lies in the place of a file's own from now on; the own one."""
    own = file.read_bytes()
    file.write_bytes(base64.b64encode(secrets.token_bytes(32)) + b"\n")
    return own


@pytest.mark.parametrize(("name", "setting", "command"), KEYS)
def test_with_another_key_nothing_starts_and_one_line_says_why(
    operator: Operator, name: str, setting: str, command: tuple[str, ...]
) -> None:
    assert operator.config(*ISSUE).status == 0
    file = operator.folder / "var" / name
    own = _replaced(file)
    refused = operator.is_refused(*command)
    assert refused.status != 0
    (line,) = [each for each in refused.errors.splitlines() if "secrets." in each]
    assert f"{operator.config_file}: secrets.{setting}: {file} is key " in line
    assert "but this database was begun with " in line
    file.write_bytes(own)
    assert operator.config(*ISSUE).status == 0


@pytest.mark.parametrize(("name", "key"), [("master.key", "master_key"), ("pepper.key", "pepper")])
def test_a_key_that_is_lost_for_good_has_an_heir_when_somebody_says_so(
    operator: Operator, name: str, key: str
) -> None:
    assert operator.config(*ISSUE).status == 0
    _replaced(operator.folder / "var" / name)
    assert operator.config(*ISSUE).status == 2
    adopted = operator.config("secrets", "adopt", key, "--reason", "the disk burned")
    assert (adopted.status, adopted.errors) == (0, "")
    assert operator.config(*ISSUE).status == 0
    records = operator.config("audit", "export").output
    assert f"{key}.adopted" in records
    assert "the disk burned" in records


@pytest.mark.parametrize(("name", "key"), [("master.key", "master_key"), ("pepper.key", "pepper")])
def test_no_key_is_adopted_under_workers_that_run(operator: Operator, name: str, key: str) -> None:
    """Each would go on sealing, or telling keys, with the one that is given up."""
    assert operator.config(*ISSUE).status == 0
    asyncio.run(_heard(operator, {"w7": 1, "w8": 2, "lost": 60}))
    _replaced(operator.folder / "var" / name)
    adopt = ("secrets", "adopt", key, "--reason", "the disk burned")

    refused = operator.config(*adopt)
    assert refused.status == 2
    assert "go on with the key that they began with: w7, w8. Stop them" in refused.errors
    refused = operator.config(*adopt, "--dead", "w7")
    assert "began with: w8. Stop" in refused.errors
    assert operator.config(*ISSUE).status == 2, "nothing was adopted"

    adopted = operator.config(*adopt, "--dead", "w8", "--dead", "w7")
    assert (adopted.status, adopted.errors) == (0, "")
    assert operator.config(*ISSUE).status == 0
    records = [json.loads(line) for line in operator.config("audit", "export").output.splitlines()]
    (done,) = [each for each in records if each["action"] == f"{key}.adopted"]
    assert done["detail"]["called_dead"] == "w8, w7"


async def _heard(operator: Operator, ago_s: dict[str, int]) -> None:
    database = open_database(load_settings(operator.config_file).database_url, pooled=False)
    now_us = SystemClock().utc_us()
    for worker, seconds in ago_s.items():
        await WorkerTable(database).put(WorkerReport(worker, now_us - seconds * SECOND_US))
    await database.close()


def test_a_pepper_of_another_version_is_a_key_of_its_own(operator: Operator) -> None:
    assert _used(operator) == 0
    file = operator.folder / "var" / "pepper.key"
    first = _replaced(file)
    _versioned(operator, 2)
    assert _used(operator) == 0
    file.write_bytes(first)
    assert _used(operator) == 2
    _versioned(operator, 1)
    assert _used(operator) == 0


def _used(operator: Operator) -> int:
    """How it ends to issue a key, of which nothing is left that hangs on its pepper."""
    issued = operator.config(*ISSUE)
    if issued.status == 0:
        key_id = issued.last_line.split("_")[2]
        assert operator.config("keys", "revoke", key_id).status == 0
    return issued.status


def _versioned(operator: Operator, version: int) -> None:
    text = operator.config_file.read_text()
    lines = [each for each in text.splitlines() if not each.startswith("pepper_version")]
    at = lines.index("[secrets]") + 1
    operator.config_file.write_text(
        "\n".join([*lines[:at], f"pepper_version = {version}", *lines[at:]]) + "\n"
    )


def _changed(operator: Operator, statement: str) -> None:
    with closing(sqlite3.connect(operator.folder / "var" / "gatewright.db")) as database, database:
        database.execute(statement)


def test_an_upgraded_database_refuses_a_key_that_opens_nothing_of_it(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a value"))
    assert operator.config("secrets", "set", "upstream").status == 0
    _changed(operator, "DELETE FROM key_checks")
    own = _replaced(operator.folder / "var" / "master.key")
    refused = operator.config(*ISSUE)
    assert (refused.status, refused.output) == (2, "")
    assert "master.key opens nothing of what lies sealed in this database" in refused.errors
    operator.folder.joinpath("var", "master.key").write_bytes(own)
    assert operator.config(*ISSUE).status == 0


def test_a_check_that_was_changed_is_not_said_to_be_another_key(operator: Operator) -> None:
    assert operator.config(*ISSUE).status == 0
    _changed(operator, "UPDATE key_checks SET sealed = x'00'")
    refused = operator.config(*ISSUE)
    assert (refused.status, refused.output) == (2, "")
    assert "is this database's own, but the check that lies there was changed" in refused.errors


def test_a_key_of_the_environment_is_named_by_its_variable(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert operator.config(*ISSUE).status == 0
    text = operator.config_file.read_text()
    told = 'master_key = { file = "var/master.key" }'
    assert told in text
    operator.config_file.write_text(text.replace(told, 'master_key = { env = "MASTER" }'))
    monkeypatch.setenv("MASTER", base64.b64encode(secrets.token_bytes(32)).decode())
    refused = operator.config(*ISSUE)
    assert (refused.status, "secrets.master_key: MASTER is key " in refused.errors) == (2, True)
