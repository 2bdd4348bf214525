"""An operator replaces the master key: it all opens, and nothing is taken away too early."""

import asyncio
import io
import json
from pathlib import Path

import pytest

from gateway.app import DataPlane
from gateway.audit.content_keys.keys import DataKeys
from gateway.audit.disk import Disk
from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid
from gateway.oversight.workers import WorkerReport
from gateway.secrets.credentials import master_key
from gateway.secrets.envelope import MasterKey
from gateway.store.engine import open_database
from gateway.store.workers import WorkerTable
from tests.cli.operator import Operator


RESEAL = ("secrets", "reseal")


def _serves(operator: Operator) -> None:
    """A worker starts, signs what there is, and ends."""

    async def live() -> None:
        plane = DataPlane(load_settings(operator.config_file))
        try:
            await plane.start()
        finally:
            await plane.close()

    asyncio.run(live())


def _key(operator: Operator) -> MasterKey:
    return master_key(load_settings(operator.config_file))


def _filled(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> MasterKey:
    """A worker has served, there is a secret, and recorded content; the master key."""
    _serves(operator)
    monkeypatch.setattr("sys.stdin", io.StringIO("a value"))
    assert operator.config("secrets", "set", "upstream").status == 0
    settings = load_settings(operator.config_file)
    folder = settings.path(settings.audit.directory) / settings.audit.worker
    DataKeys(folder, _key(operator), SystemClock(), Disk()).seal("acme", "", b"", b"words")
    return _key(operator)


def _names(operator: Operator, present: str, *others: str) -> None:
    """The settings name these files of master keys."""
    text = operator.config_file.read_text()
    lines = [each for each in text.splitlines() if not each.startswith(("master_key", "other_"))]
    named = ", ".join(f'{{ file = "var/{name}" }}' for name in others)
    at = lines.index("[secrets]") + 1
    lines[at:at] = [f'master_key = {{ file = "var/{present}" }}', f"other_master_keys = [{named}]"]
    operator.config_file.write_text("\n".join(lines) + "\n")


def _new(operator: Operator) -> None:
    assert operator.types("secrets", "make", operator.folder / "var" / "next.key").status == 0


def _told(operator: Operator) -> dict[str, dict[str, object]]:
    """What `secrets keys` says of each master key."""
    lines = map(json.loads, operator.config("secrets", "keys").output.splitlines())
    return {line["key_id"]: line for line in lines if line["key"] == "master_key"}


def test_a_master_key_takes_the_place_of_another_and_the_one_before_may_go(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _filled(operator, monkeypatch)
    (signer,) = operator.config("audit", "key").output.splitlines()
    _new(operator)
    _names(operator, "master.key", "next.key")
    _serves(operator)
    _names(operator, "next.key", "master.key")
    assert operator.config("config", "check").status == 0
    _serves(operator)
    hanging = {"secrets": 1, "keys of contents in the audit folder": 1, "keys that sign the log": 1}
    told = _told(operator)
    assert told[old.key_id]["hanging"] == hanging
    assert told[old.key_id]["setting"] == "secrets.other_master_keys[0]"
    assert operator.config("audit", "fsck").last_line == "the log is whole"

    done = operator.config(*RESEAL)
    assert (done.status, done.errors) == (0, "")
    assert "secrets: 1 sealed anew" in done.output
    assert f"{old.key_id} (secrets.other_master_keys[0]): nothing hangs on it" in done.output
    assert "the other keys may be taken out of the settings" in done.last_line
    assert _told(operator)[_key(operator).key_id]["hanging"] == hanging
    again = operator.config(*RESEAL)
    assert again.status == 0
    assert "anew" not in again.output
    _serves(operator)

    _names(operator, "next.key")
    operator.folder.joinpath("var", "master.key").unlink()
    assert operator.config("config", "check").status == 0
    _serves(operator)
    assert operator.config("audit", "fsck").last_line == "the log is whole"
    assert operator.config("audit", "key").output.splitlines() == [signer], "auditors need no other"
    records = [json.loads(line) for line in operator.config("audit", "export").output.splitlines()]
    deeds = [each for each in records if each["action"] == "master_key.resealed"]
    assert len(deeds) == 2
    assert json.loads(deeds[0]["detail"]["after"])["instead_of"] == [old.key_id]


@pytest.mark.parametrize(
    "command",
    [
        ("config", "check"),
        ("serve",),
        ("admin", "serve", "--no-setup-link"),
        ("audit", "fsck"),
        RESEAL,
    ],
)
def test_a_key_on_which_something_hangs_is_missed_by_its_setting_and_the_count(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    old = _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key", "master.key")
    assert operator.config("audit", "fsck").status == 0
    _names(operator, "next.key")
    refused = operator.starts(*command, "--config", operator.config_file)
    assert refused.status == 2
    (line,) = [each for each in refused.errors.splitlines() if "secrets." in each]
    assert (
        f"{operator.config_file}: secrets.other_master_keys: does not name master key {old.key_id},"
        " and 3 things hang on it (secrets: 1, keys of contents in the audit folder: 1, keys that"
        " sign the log: 1): name it again"
    ) in line


def test_a_new_key_without_the_one_before_starts_nothing(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key")
    refused = operator.config("config", "check")
    assert refused.status == 2
    assert f"but this database was begun with {old.key_id}" in refused.errors


def test_whoever_goes_back_before_anything_hangs_on_the_new_key_may(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key", "master.key")
    assert operator.config("audit", "fsck").status == 0
    _names(operator, "master.key")
    assert operator.config("audit", "fsck").status == 0
    _serves(operator)
    _names(operator, "next.key", "master.key")
    assert operator.config(*RESEAL).status == 0
    _names(operator, "master.key")
    assert "3 things hang on it" in operator.config("audit", "fsck").errors


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("short", "must be 32 bytes in base64"),
        ("A" * 43 + "=", "is an example, not a random key"),
    ],
)
def test_another_key_that_cannot_be_used_is_named_by_setting_and_reason(
    operator: Operator, text: str | None, reason: str
) -> None:
    _names(operator, "master.key", "next.key")
    if text is not None:
        file = operator.folder / "var" / "next.key"
        file.write_text(text)
        file.chmod(0o600)
    refused = operator.config("config", "check")
    assert refused.status == 2
    (line,) = refused.errors.splitlines()
    named = operator.folder.resolve() / "var" / "next.key"
    assert line.startswith(f"gatewright: {named}: secrets.other_master_keys[0]: {reason}")


@pytest.mark.parametrize("reference", ['{ db = "a" }', '{ env = "A", file = "b" }', "{}"])
def test_another_key_is_in_a_file_or_a_variable(operator: Operator, reference: str) -> None:
    _names(operator, "master.key", "next.key")
    text = operator.config_file.read_text().replace('{ file = "var/next.key" }', reference)
    operator.config_file.write_text(text)
    with pytest.raises(ConfigurationInvalid, match=r"other_master_keys\[0\]: needs exactly one"):
        load_settings(operator.config_file)


def test_it_is_not_done_while_workers_seal_by_the_key_before(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key", "master.key")

    async def heard(*masters: str) -> None:
        database = open_database(load_settings(operator.config_file).database_url, pooled=False)
        for number, master in enumerate(masters):
            report = WorkerReport(f"v{number}", SystemClock().utc_us(), master_key_id=master)
            await WorkerTable(database).put(report)
        await database.close()

    asyncio.run(heard(old.key_id, _key(operator).key_id, ""))
    begun = operator.config(*RESEAL)
    assert begun.status == 1
    assert "began with another master key, and seal by it: v0, v2" in begun.output
    asyncio.run(heard(*[_key(operator).key_id] * 3))
    assert operator.config(*RESEAL).status == 0


def test_after_a_leak_the_log_is_signed_by_another_key_too(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key", "master.key")
    done = operator.config(*RESEAL, "--new-signing-keys")
    assert done.status == 0
    assert "1 made" in done.output
    _names(operator, "next.key")
    _serves(operator)
    assert len(operator.config("audit", "key").output.splitlines()) == 2
    assert operator.config("audit", "fsck").last_line == "the log is whole"


def test_a_key_before_that_is_lost_is_given_up_by_adopting_the_present_one(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key", "master.key")
    assert operator.config("audit", "fsck").status == 0
    _names(operator, "next.key")
    assert operator.config("audit", "fsck").status == 2
    adopted = operator.config("secrets", "adopt", "master_key", "--reason", "the disk burned")
    assert (adopted.status, adopted.errors) == (0, "")
    assert operator.config("audit", "fsck").status == 0
    _serves(operator)
    whole = operator.config("audit", "fsck")
    assert (whole.status, whole.last_line) == (0, "the log is whole")
    assert f"master key {old.key_id}, which was called lost" in whole.output


def test_a_new_key_is_for_its_owner_alone_and_replaces_nothing(newcomer: Operator) -> None:
    file = newcomer.folder / "next.key"
    assert newcomer.types("secrets", "make", file).status == 0
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    refused = newcomer.types("secrets", "make", file)
    assert refused.status == 2
    assert f"{file}: exists already" in refused.errors
    assert file.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_named(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    _filled(operator, monkeypatch)
    _new(operator)
    _names(operator, "next.key", "master.key")

    def full(_: Disk, path: Path, __: bytes) -> None:
        if path.suffix == ".draft":
            raise OSError(28, "No space left on device", str(path))
        append(_, path, __)

    append = Disk.append_durably
    monkeypatch.setattr(Disk, "append_durably", full)
    refused = operator.config(*RESEAL)
    assert refused.status == 2
    assert "keys.draft: No space left on device" in refused.errors
    monkeypatch.setattr(Disk, "append_durably", append)
    assert operator.config(*RESEAL).status == 0
