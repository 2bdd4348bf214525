"""`gatewright init` makes what a first start needs, and never touches what is there."""

import base64
import io
import stat

import pytest

from tests.cli.operator import Operator
from tests.cli.test_deeds import deeds


KEYS = ("pepper.key", "master.key", "admin.token")


def test_init_leaves_a_folder_that_passes_the_configuration_check(newcomer: Operator) -> None:
    ended = newcomer.types("init", "--folder", newcomer.folder)

    assert ended.status == 0
    assert ended.last_line == f"ready: gatewright serve --config {newcomer.config_file}"
    assert newcomer.config("config", "check").status == 0


def test_key_files_are_fresh_and_closed_to_others(operator: Operator) -> None:
    texts = set()
    for name in KEYS:
        file = operator.folder / "var" / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert len(base64.b64decode(file.read_text(), validate=False)) == 32
        texts.add(file.read_text())

    assert len(texts) == len(KEYS)


def test_the_folder_of_keys_and_database_is_closed_to_others(operator: Operator) -> None:
    assert stat.S_IMODE((operator.folder / "var").stat().st_mode) == 0o700


def test_a_database_in_a_folder_that_others_may_enter_is_closed_to_them(
    newcomer: Operator,
) -> None:
    (newcomer.folder / "var").mkdir(mode=0o755)
    newcomer.types("init", "--folder", newcomer.folder)
    database = newcomer.folder / "var" / "gatewright.db"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600


def test_where_somebody_exists_no_link_is_made_and_none_is_on_record(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a password for tests"))
    operator.config("users", "add", "ann")
    refused = operator.config("admin", "setup")
    assert (refused.status, refused.output) == (2, "")
    assert "somebody exists already" in refused.errors
    assert [each["action"] for each in deeds(operator)] == ["person.added"]


def test_init_again_changes_nothing(operator: Operator) -> None:
    key = operator.config(
        *("keys", "issue", "--organisation", "acme", "--workspace", "w"),
        *("--project", "p", "--name", "kept"),
    )
    files = [operator.config_file, *(operator.folder / "var" / name for name in KEYS)]
    before = [file.read_bytes() for file in files]
    again = operator.types("init", "--folder", operator.folder)

    assert (key.status, again.status) == (0, 0)
    assert [file.read_bytes() for file in files] == before
    assert "kept" in operator.config("keys", "list").output


def test_init_keeps_a_configuration_that_was_edited(newcomer: Operator) -> None:
    newcomer.config_file.write_text('log_level = "debug"\n')
    ended = newcomer.types("init", "--folder", newcomer.folder)

    assert ended.status == 0
    assert newcomer.config_file.read_text() == 'log_level = "debug"\n'


def test_a_folder_that_cannot_be_made_is_named(newcomer: Operator) -> None:
    file = newcomer.folder / "file"
    file.touch()
    ended = newcomer.types("init", "--folder", file / "inside")

    assert ended.status == 2
    assert ended.errors == f"gatewright: {file}/inside: Not a directory\n"


def test_a_demo_whose_folder_cannot_be_made_names_it(newcomer: Operator) -> None:
    file = newcomer.folder / "file"
    file.touch()
    ended = newcomer.types("demo", "--folder", file / "inside")

    assert ended.status == 2
    assert ended.errors == f"gatewright: {file}/inside: Not a directory\n"


@pytest.mark.parametrize(
    ("host", "address"),
    [("::1", "[::1]"), ("::", "[::1]"), ("0.0.0.0", "127.0.0.1")],  # noqa: S104 - not bound to
)
def test_the_link_of_the_first_person_leads_to_a_listener_of_any_address(
    operator: Operator, host: str, address: str
) -> None:
    text = operator.config_file.read_text()
    told = 'host = "127.0.0.1"\nport = 8081'
    operator.config_file.write_text(text.replace(told, f'host = "{host}"\nport = 8081'))

    ended = operator.config("admin", "setup")

    assert ended.status == 0
    assert ended.output.startswith(f"http://{address}:8081/setup#")
