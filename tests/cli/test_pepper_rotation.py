"""An operator replaces the pepper: keys of before work until they are rotated."""

import asyncio
import json

import pytest

from gateway.clock import SystemClock
from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid, Unauthenticated
from gateway.identity import Peppers, authenticate
from gateway.secrets.credentials import all_peppers
from gateway.store.engine import open_database
from gateway.store.identity.keys import KeyStore
from tests.cli.operator import Operator


ISSUE = ("keys", "issue", "--organisation", "acme", "--workspace", "main", "--project", "web")


def _names(operator: Operator, version: int, **others: str) -> None:
    """The pepper of a version is in use; others are beside it, by version (`v1`)."""
    text = operator.config_file.read_text()
    lines = [each for each in text.splitlines() if not each.startswith(("pepper", "other_pep"))]
    named = ", ".join(f'{key[1:]} = {{ file = "var/{file}" }}' for key, file in others.items())
    at = lines.index("[secrets]") + 1
    lines[at:at] = [
        f'pepper = {{ file = "var/{"pepper" if version == 1 else "next"}.key" }}',
        f"pepper_version = {version}",
        f"other_peppers = {{ {named} }}",
    ]
    operator.config_file.write_text("\n".join(lines) + "\n")


def _issued(operator: Operator, name: str) -> str:
    issued = operator.config(*ISSUE, "--name", name)
    assert issued.status == 0, issued.errors
    return issued.last_line


def _works(operator: Operator, key: str) -> bool:
    """Whether a worker with these settings takes it."""
    settings = load_settings(operator.config_file)
    peppers = Peppers(all_peppers(settings), settings.secrets.pepper_version)

    async def taken() -> bool:
        database = open_database(settings.database_url, pooled=False)
        table = await KeyStore(database, peppers, SystemClock()).table()
        await database.close()
        headers = [(b"authorization", f"Bearer {key}".encode())]
        try:
            authenticate(table, peppers, headers, SystemClock().utc_us())
        except Unauthenticated:
            return False
        return True

    return asyncio.run(taken())


def _told(operator: Operator) -> dict[int, dict[str, object]]:
    """What `secrets keys` says of each pepper."""
    lines = map(json.loads, operator.config("secrets", "keys").output.splitlines())
    return {line["version"]: line for line in lines if line["key"] == "pepper"}


def _exchanged(operator: Operator) -> str:
    """A key was issued under the first pepper, and the second is in use beside it; the key."""
    first = _issued(operator, "first")
    assert operator.types("secrets", "make", operator.folder / "var" / "next.key").status == 0
    _names(operator, 1, v2="next.key")
    assert _works(operator, first)
    _names(operator, 2, v1="pepper.key")
    return first


def test_keys_of_the_pepper_before_work_until_each_was_rotated(operator: Operator) -> None:
    first = _exchanged(operator)
    second = _issued(operator, "second")
    assert _works(operator, first)
    assert _works(operator, second)
    assert [_told(operator)[version]["hanging"] for version in (1, 2)] == [
        {"live virtual keys": 1},
        {"live virtual keys": 1},
    ]
    lines = [json.loads(line) for line in operator.config("keys", "list").output.splitlines()]
    assert {line["name"]: line["pepper_version"] for line in lines} == {"first": 1, "second": 2}

    _names(operator, 2)
    refused = operator.config("config", "check")
    assert refused.status == 2
    (line,) = refused.errors.splitlines()
    assert (
        f"{operator.config_file}: secrets.other_peppers: does not name pepper version 1, and"
        " 1 thing hangs on it (live virtual keys: 1): name it again until they were rotated or"
    ) in line

    _names(operator, 2, v1="pepper.key")
    key_id = first.split("_")[2]
    rotated = operator.config("keys", "rotate", key_id, "--overlap-s", "3600").last_line
    assert _works(operator, first)
    assert _works(operator, rotated)
    assert _told(operator)[1]["hanging"] == {"former secrets of live virtual keys": 1}
    _names(operator, 2)
    assert "former secrets of live virtual keys: 1" in operator.config("config", "check").errors

    _names(operator, 2, v1="pepper.key")
    again = operator.config("keys", "rotate", key_id, "--overlap-s", "0", "--ends-former").last_line
    _names(operator, 2)
    operator.folder.joinpath("var", "pepper.key").unlink()
    assert operator.config("config", "check").status == 0
    assert _works(operator, again)
    assert not _works(operator, first)
    assert not _works(operator, rotated)


@pytest.mark.parametrize(
    "command", [(*ISSUE, "--name", "n"), ("serve",), ("admin", "serve", "--no-setup-link")]
)
def test_nothing_starts_without_a_pepper_on_which_living_keys_hang(
    operator: Operator, command: tuple[str, ...]
) -> None:
    _exchanged(operator)
    _names(operator, 2)
    refused = operator.starts(*command, "--config", operator.config_file)
    assert refused.status == 2
    (line,) = [each for each in refused.errors.splitlines() if "secrets." in each]
    assert "secrets.other_peppers: does not name pepper version 1, and 1 thing hangs" in line


def test_a_pepper_of_which_only_ended_keys_are_left_may_go(operator: Operator) -> None:
    first = _exchanged(operator)
    assert operator.config("keys", "revoke", first.split("_")[2]).status == 0
    _names(operator, 2)
    assert operator.config("config", "check").status == 0


def test_a_lost_pepper_is_given_up_by_adopting_the_one_that_is_there(operator: Operator) -> None:
    first = _exchanged(operator)
    _names(operator, 2)
    assert operator.config("config", "check").status == 2
    adopted = operator.config("secrets", "adopt", "pepper", "--reason", "the disk burned")
    assert (adopted.status, adopted.errors) == (0, "")
    assert operator.config("config", "check").status == 0
    assert not _works(operator, first)


def test_another_pepper_that_is_not_the_one_of_its_version_is_named(operator: Operator) -> None:
    _exchanged(operator)
    assert operator.config("keys", "list").status == 0
    _names(operator, 2, v1="other.key")
    missing = operator.config("config", "check")
    assert "secrets.other_peppers.1: cannot be read (No such file" in missing.errors
    assert operator.types("secrets", "make", operator.folder / "var" / "other.key").status == 0
    refused = operator.config("config", "check")
    assert refused.status == 2
    assert f"secrets.other_peppers.1: {operator.folder}/var/other.key is key " in refused.errors
    operator.folder.joinpath("var", "other.key").write_text("short")
    refused = operator.config("config", "check")
    assert "secrets.other_peppers.1: must have at least 32 bytes" in refused.errors


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("v0", "a version is a number from 1 on"),
        ("vold", "a version is"),
        ("v2", "is the version of"),
    ],
)
def test_a_version_that_cannot_be_one_is_refused(
    operator: Operator, version: str, reason: str
) -> None:
    _names(operator, 2, **{version: "pepper.key"})
    with pytest.raises(ConfigurationInvalid, match=reason):
        load_settings(operator.config_file)


def test_end_users_stay_the_same_until_the_oldest_pepper_is_gone() -> None:
    first, second = b"1" * 40, b"2" * 40
    before = Peppers({1: first}).keyed("acme ann")
    assert Peppers({1: first, 2: second}, 1).keyed("acme ann") == before
    assert Peppers({1: first, 2: second}, 2).keyed("acme ann") == before
    assert Peppers({2: second}, 2).keyed("acme ann") != before
    with pytest.raises(ValueError, match="the newest pepper is one of them"):
        Peppers({1: first}, 2)
