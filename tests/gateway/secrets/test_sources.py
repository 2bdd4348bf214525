"""Sources refuse what is missing, open to others or unreadable, and say which it is."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.errors import ConfigurationInvalid
from gateway.secrets.sources import SECRET_MAX_BYTES, EnvironmentSecret, FileSecret


def write(path: Path, data: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(data)
    path.chmod(mode)
    return path


def test_a_variable_is_read_when_it_is_asked_for() -> None:
    environment = {"TOKEN": "first"}
    source = EnvironmentSecret(environment, "TOKEN")
    environment["TOKEN"] = "second"
    assert source.load().reveal() == "second"


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_a_variable_is_read_without_its_closing_line_break(ending: str) -> None:
    source = EnvironmentSecret({"TOKEN": " va lue" + ending}, "TOKEN")
    assert source.load().reveal() == " va lue"


@pytest.mark.parametrize("environment", [{}, {"TOKEN": ""}, {"TOKEN": "\n"}])
def test_a_missing_or_empty_variable_is_named(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationInvalid, match="environment: TOKEN: is not set or empty"):
        EnvironmentSecret(environment, "TOKEN").load()


@pytest.mark.parametrize("value", ["sk-caf\udce9", "\ud800", "sk-\udfff-x"])
def test_a_variable_that_is_no_text_is_refused_and_not_quoted(value: str) -> None:
    with pytest.raises(ConfigurationInvalid, match="environment: TOKEN: is not UTF-8") as caught:
        EnvironmentSecret({"TOKEN": value}, "TOKEN").load()
    assert "sk-" not in repr(caught.value)
    assert EnvironmentSecret({"TOKEN": "é\ud7ff\ue000"}, "TOKEN").load().reveal() == "é\ud7ff\ue000"


@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_a_file_is_read_without_its_closing_line_break(tmp_path: Path, ending: bytes) -> None:
    path = write(tmp_path / "token", b" va lue" + ending)
    assert FileSecret(path).load().reveal() == " va lue"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o610, 0o601, 0o644])
def test_a_file_that_others_can_touch_is_refused_with_its_mode(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "token", b"canary", mode)
    with pytest.raises(ConfigurationInvalid, match=f"{mode:04o}") as caught:
        FileSecret(path, "provider.key").load()
    assert (caught.value.source, caught.value.key) == (str(path), "provider.key")
    assert "canary" not in str(caught.value)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "token", b"canary")
    if os.geteuid() == 0:
        os.chown(path, 65_534, -1)  # What is root's is everybody's to trust.
    ours = path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: ours)
    assert FileSecret(path).load().reveal() == "canary"
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(ConfigurationInvalid, match="belongs to another user"):
        FileSecret(path).load()


def test_root_reads_what_belongs_to_whom_the_folder_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So root can type a command beside a worker of another user; in /tmp it may be anybody's."""
    path = write(tmp_path / "token", b"canary")
    theirs = [*path.stat()[:4], 65_534, *path.stat()[5:]]
    folder = [*tmp_path.stat()[:4], 65_534, *tmp_path.stat()[5:]]
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(theirs))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigurationInvalid, match="belongs to another user"):
        FileSecret(path).load()
    monkeypatch.setattr(Path, "stat", lambda _: os.stat_result(folder))
    assert FileSecret(path).load().reveal() == "canary"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigurationInvalid, match="belongs to another user"):
        FileSecret(path).load()


def test_a_file_of_root_is_everybodys_to_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "token", b"canary")
    of_root = [*path.stat()[:4], 0, *path.stat()[5:]]
    monkeypatch.setattr(os, "fstat", lambda _: os.stat_result(of_root))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert FileSecret(path).load().reveal() == "canary"


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_a_file_that_is_swapped_once_it_is_open_is_judged_as_it_was_opened(
    tmp_path: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one would vouch for what is read."""
    opened = write(tmp_path / "opened", b"opened", mode)
    other = write(tmp_path / "other", b"other", {0o600: 0o644, 0o644: 0o600}[mode])
    opens = os.open

    def swapping(path: Path, flags: int) -> int:
        descriptor = opens(path, flags)
        other.replace(opened)
        return descriptor

    monkeypatch.setattr(os, "open", swapping)
    if mode == 0o600:
        assert FileSecret(opened).load().reveal() == "opened"
    else:
        with pytest.raises(ConfigurationInvalid, match="mode 0644"):
            FileSecret(opened).load()


def test_no_file_is_left_open_whatever_is_in_it(tmp_path: Path) -> None:
    """It is read again every few seconds, for as long as the worker lives."""
    before = list(Path("/dev/fd").iterdir())
    for number, (data, mode) in enumerate(((b"canary", 0o600), (b"", 0o600), (b"canary", 0o644))):
        with suppress(ConfigurationInvalid):
            FileSecret(write(tmp_path / str(number), data, mode)).load()
    assert len(list(Path("/dev/fd").iterdir())) == len(before)


def test_a_secret_of_the_largest_size_is_read_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "token", b"x" * SECRET_MAX_BYTES)
    assert len(FileSecret(path).load().reveal()) == SECRET_MAX_BYTES


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"\xff\xfe", "UTF-8"),
        (b"x" * (SECRET_MAX_BYTES + 1), "larger"),
    ],
)
def test_a_file_that_holds_no_secret_is_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=reason):
        FileSecret(write(tmp_path / "token", data)).load()


def test_missing_files_folders_and_pipes_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigurationInvalid):
            FileSecret(path).load()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660, 0o650, 0o641, 0o602])
def test_a_shared_file_may_be_read_by_its_group_and_by_nobody_else(
    tmp_path: Path, mode: int
) -> None:
    path = tmp_path / "shared.key"
    path.write_text("a secret of two")
    path.chmod(mode)
    shared = FileSecret(path, is_shared=True)
    if mode in {0o600, 0o640}:
        assert shared.load().reveal() == "a secret of two"
        return
    with pytest.raises(ConfigurationInvalid, match="can be read by others"):
        shared.load()
