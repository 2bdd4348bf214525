"""After a lost master key: what a wrong one may not do, and what goes on with an adopted one."""

import asyncio
import base64
import secrets
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.app import DataPlane
from gateway.audit.content_keys.keys import KEYS_NAME, DataKeys
from gateway.audit.disk import Disk
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.errors import StartupRefused
from gateway.secrets.credentials import master_key
from gateway.store.engine import open_database
from gateway.store.evidence.awaited import AwaitedTable
from tests.cli.operator import Operator


ADOPT = ("secrets", "adopt", "master_key", "--reason", "the disk burned")
NEEDS_NO_KEY = [
    ("audit", "export"),
    ("audit", "gone", "list"),
    ("budgets", "list"),
    ("costs", "report"),
    ("limits", "list"),
    ("policy", "versions"),
    ("pool", "list"),
    ("users", "list"),
]


def _key_file(operator: Operator) -> Path:
    return operator.folder / "var" / "master.key"


def _replaced(file: Path) -> bytes:
    """Another key lies in the place of a file's own from now on; the own one."""
    own = file.read_bytes()
    file.write_bytes(base64.b64encode(secrets.token_bytes(32)) + b"\n")
    return own


def _serves(operator: Operator) -> None:
    """A worker starts, signs what there is, and ends."""

    async def live() -> None:
        plane = DataPlane(load_settings(operator.config_file))
        try:
            await plane.start()
        finally:
            await plane.close()

    asyncio.run(live())


def _seal(operator: Operator) -> Path:
    """A worker keeps a key of contents; its key file."""
    _serves(operator)
    settings = load_settings(operator.config_file)
    folder = settings.path(settings.audit.directory) / settings.audit.worker
    DataKeys(folder, master_key(settings), SystemClock(), Disk()).seal("acme", "", b"", b"words")
    return folder / KEYS_NAME


def _deeds(operator: Operator) -> dict[Path, bytes]:
    folder = operator.folder / "var" / "audit" / "w0-operators"
    return {path: path.read_bytes() for path in folder.glob("*.log")}


def _forget_checks(operator: Operator) -> None:
    """As a database is that was upgraded."""
    with closing(sqlite3.connect(operator.folder / "var" / "gatewright.db")) as database, database:
        database.execute("DELETE FROM key_checks")


def test_a_wrong_key_at_the_first_start_after_an_upgrade_does_not_lock_the_right_one_out(
    operator: Operator,
) -> None:
    _serves(operator)
    assert operator.config("budgets", "remove", "org:acme").status == 0
    _serves(operator)
    _forget_checks(operator)
    own = _replaced(_key_file(operator))
    said = "master.key opens nothing of what lies sealed in this database or its audit folder"
    with pytest.raises(StartupRefused, match=said):
        _serves(operator)
    refused = operator.config("audit", "fsck")
    assert (refused.status, refused.output) == (2, "")
    assert said in refused.errors
    _key_file(operator).write_bytes(own)
    _serves(operator)
    assert operator.config("audit", "fsck").last_line == "the log is whole"


def test_after_a_lost_key_another_one_serves_signs_and_proves(operator: Operator) -> None:
    assert operator.config("budgets", "remove", "org:acme").status == 0
    _serves(operator)
    (first,) = operator.config("audit", "key").output.splitlines()
    _replaced(_key_file(operator))
    with pytest.raises(StartupRefused):
        _serves(operator)
    assert operator.config(*ADOPT).status == 0
    _serves(operator)
    former, new = operator.config("audit", "key").output.splitlines()
    assert former == first
    assert new != first
    whole = operator.config("audit", "fsck")
    assert (whole.status, whole.last_line) == (0, "the log is whole")
    packed = operator.folder / "pack.zip"
    assert operator.config("audit", "pack", "--organisation", "-operators", packed).status == 0
    assert operator.config(*ADOPT).status == 0
    assert len(operator.config("audit", "key").output.splitlines()) == 2


def test_a_key_that_was_found_again_signs_with_what_it_signed_with(operator: Operator) -> None:
    _serves(operator)
    own = _replaced(_key_file(operator))
    assert operator.config(*ADOPT).status == 0
    _key_file(operator).write_bytes(own)
    assert operator.config(*ADOPT).status == 0
    _serves(operator)
    assert len(operator.config("audit", "key").output.splitlines()) == 2


def test_the_record_of_another_key_says_in_whose_place_it_is(operator: Operator) -> None:
    assert operator.config("audit", "fsck").status == 0
    settings = load_settings(operator.config_file)
    own = master_key(settings).key_id
    _replaced(_key_file(operator))
    for _ in range(2):
        assert operator.config(*ADOPT).status == 0
    exported = operator.config("audit", "export").output.splitlines()
    found = [each for each in map(msgspec.json.decode, exported) if "adopted" in each["action"]]
    deed, again = found
    new = master_key(settings).key_id
    told = [msgspec.json.decode(each["detail"]["after"]) for each in (deed, again)]
    assert told == [{"key_id": new, "instead_of": [own]}, {"key_id": new, "instead_of": []}]
    assert deed["detail"]["reason"] == "the disk burned"


def test_lines_of_a_lost_key_are_named_and_of_one_that_nobody_called_lost_bad(
    operator: Operator,
) -> None:
    _seal(operator)
    own = master_key(load_settings(operator.config_file)).key_id
    whole = operator.config("audit", "fsck")
    assert (whole.status, whole.last_line) == (0, "the log is whole")
    assert "keys of contents" not in whole.output
    kept = _replaced(_key_file(operator))
    _forget_checks(operator)  # Only the folder says then which key was lost.
    assert operator.config(*ADOPT).status == 0
    waits = operator.config("audit", "fsck")
    assert operator.config("audit", "export").status == 0
    told = operator.config("audit", "fsck")
    said = f"1 keys of contents are of master key {own}, which"
    assert f"note: {said} no deed calls lost: whether they open is not known\n" in waits.output
    assert f"note: {said} was called lost: what they sealed is gone with it\n" in told.output
    assert [waits.status, told.status] == [0, 0]
    _key_file(operator).write_bytes(kept)
    _forget_checks(operator)
    other = operator.config("audit", "fsck")
    assert (other.status, other.last_line) == (0, "the log is whole")


def _says_another_master(line: dict[str, Any]) -> None:
    line["master"] = "0" * 16


def _is_of_another_master(line: dict[str, Any]) -> None:
    line["master"], line["wrapped"] = "0" * 16, base64.b64encode(bytes(61)).decode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_says_another_master, "it was changed: it names another master key than its own"),
        (_is_of_another_master, f"1 keys of contents are of master key {'0' * 16}, which no deed"),
    ],
)
def test_a_line_that_hides_behind_another_master_key_is_bad(
    operator: Operator, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    file = _seal(operator)
    assert operator.config("audit", "fsck").status == 0
    line = msgspec.json.decode(file.read_bytes().strip())
    change(line)
    file.write_bytes(b"\n" + msgspec.json.encode(line) + b"\n")
    bad = operator.config("audit", "fsck")
    assert (bad.status, bad.last_line) == (1, "THE LOG IS NOT WHOLE")
    assert said in bad.output


def _awaited(operator: Operator) -> None:
    """The database was put back: another worker has not come, and a deed waits for somebody."""

    async def wait() -> None:
        database = open_database(load_settings(operator.config_file).database_url)
        await AwaitedTable(database).expect(["other"])
        await AwaitedTable(database).await_decision([1])
        await database.close()

    assert operator.config("limits", "remove", "org:acme").status == 0
    assert operator.config("audit", "export").status == 0
    asyncio.run(wait())


@pytest.mark.parametrize("command", ["lost", "accept"])
def test_only_who_writes_is_asked_for_a_key_and_with_a_wrong_one_writes_nothing(
    operator: Operator, command: str
) -> None:
    _awaited(operator)
    deeds = _deeds(operator)
    assert deeds
    own = _replaced(_key_file(operator))
    typed = ("audit", command, "--reason", "burnt")
    told = operator.config(*typed)
    assert (told.status, told.last_line) == (0, "nothing was done without --yes")
    refused = operator.config(*typed, "--yes")
    assert refused.status == 2
    assert "secrets.master_key" in refused.errors
    assert "but this database was begun with" in refused.errors
    assert _deeds(operator) == deeds
    assert operator.config(*typed).output == told.output
    _key_file(operator).write_bytes(own)
    assert operator.config(*typed, "--yes").status == 0


@pytest.mark.parametrize("command", NEEDS_NO_KEY)
def test_a_command_that_needs_no_key_does_not_ask_for_one(
    operator: Operator, command: tuple[str, ...]
) -> None:
    for name in ("master.key", "pepper.key", "admin.token"):
        operator.folder.joinpath("var", name).unlink()
    done = operator.config(*command)
    assert (done.status, done.errors) == (0, "")
