"""The master key may lie wrapped by Vault's transit engine or AWS KMS, and opens as before."""

import base64
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from moto.server import ThreadedMotoServer

from gateway.configuration.reading import load_settings
from gateway.errors import ConfigurationInvalid
from gateway.secrets import credentials
from gateway.secrets.credentials import key_service, master_key
from gateway.secrets.vault_transit import VaultTransit
from tests.cli.operator import Operator
from tests.gateway.secrets.vault_stub import VaultStub


PLACE = ("--organisation", "acme", "--workspace", "main", "--project", "web")
ISSUE = ("keys", "issue", *PLACE, "--name", "n")


pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    """As every process begins: nothing was unwrapped yet."""
    credentials._unwrapped.clear()
    yield
    credentials._unwrapped.clear()


@pytest.fixture
def vault(operator: Operator) -> Iterator[VaultStub]:
    with VaultStub() as stub:
        stub.transit["gatewright"] = [AESGCM(secrets.token_bytes(32))]
        secret_id = operator.folder / "var" / "vault.secret"
        secret_id.touch(mode=0o600)
        secret_id.write_text(stub.secret_id)
        _configure(
            operator,
            'key_service = "vault:gatewright"',
            f'[vault]\nurl = "{stub.url}"\nrole = "{stub.role_id}"',
        )
        yield stub


@pytest.fixture
def kms(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadedMotoServer]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    client = boto3.client("kms", region_name="ap-south-1", endpoint_url=url)
    key = client.create_key()["KeyMetadata"]["KeyId"]
    _configure(
        operator,
        f'key_service = "aws-kms:{key}"',
        f'[aws]\nregion = "ap-south-1"\nendpoint_url = "{url}"',
    )
    yield server
    server.stop()


def _configure(operator: Operator, service: str, section: str) -> None:
    text = operator.config_file.read_text()
    assert "\n[secrets]\n" in text
    text = text.replace("\n[secrets]\n", f"\n[secrets]\n{service}\n")
    operator.config_file.write_text(f"{text}\n{section}\n")


def _key_file(operator: Operator) -> Path:
    return operator.folder / "var" / "master.key"


def _wrap(operator: Operator) -> tuple[str, str]:
    """The key's file before, and after the command."""
    before = _key_file(operator).read_text()
    ended = operator.config("secrets", "wrap")
    assert ended.status == 0, ended.errors
    after = _key_file(operator).read_text()
    assert before.strip() not in after
    assert _key_file(operator).stat().st_mode & 0o077 == 0
    return before, after


def _key_id(operator: Operator) -> str:
    return master_key(load_settings(operator.config_file)).key_id


def test_vault_keeps_what_opens_the_master_key_and_its_rotation_wraps_it_anew(
    operator: Operator, vault: VaultStub
) -> None:
    with pytest.raises(ConfigurationInvalid, match="is not wrapped"):
        _key_id(operator)
    _, first = _wrap(operator)
    assert first.startswith("vault:v1:")
    key_id = _key_id(operator)
    vault.transit["gatewright"].append(AESGCM(secrets.token_bytes(32)))
    credentials._unwrapped.clear()
    _, second = _wrap(operator)
    assert second.startswith("vault:v2:")
    credentials._unwrapped.clear()
    assert _key_id(operator) == key_id
    assert operator.config("audit", "verify").status == 0


def test_a_transit_engine_is_asked_where_it_is_mounted(
    operator: Operator, vault: VaultStub
) -> None:
    text = operator.config_file.read_text()
    operator.config_file.write_text(f'{text}\ntransit_mount = "team/transit"\n')
    vault.transit_mount = "team/transit"

    _, wrapped = _wrap(operator)
    credentials._unwrapped.clear()
    assert _key_id(operator)
    assert wrapped.startswith("vault:v1:")
    assert vault.asked[-1].endswith("/v1/team/transit/decrypt/gatewright")


@pytest.mark.usefixtures("vault")
def test_a_service_that_gives_back_something_else_gets_no_key_to_keep(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is the only place where the key is: what cannot be unwrapped is lost for good."""
    before = _key_file(operator).read_bytes()
    monkeypatch.setattr(VaultTransit, "unwrap", lambda *_: secrets.token_bytes(32))
    refused = operator.config("secrets", "wrap")
    said = "gatewright: the service does not give back what it was given\n"
    assert (refused.status, refused.errors) == (2, said)
    assert _key_file(operator).read_bytes() == before
    assert [path.name for path in _key_file(operator).parent.glob(".master*")] == []


@pytest.mark.usefixtures("vault")
@pytest.mark.parametrize(
    "form", ["other:v1:{}", "{}", "vault:v1:é{}", "vault:v1:\n{}", "vault: {}"]
)
def test_what_could_not_be_told_from_a_plain_key_takes_no_keys_place(
    operator: Operator, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It would unwrap, if only somebody asked: a start would call it a key that is not wrapped."""
    before = _key_file(operator).read_bytes()

    def wrap(_: VaultTransit, key: bytes) -> str:
        return form.format(base64.b64encode(key[::-1]).decode())

    def unwrap(_: VaultTransit, wrapped: str) -> bytes:
        return base64.b64decode(wrapped[len(form) - 2 :])[::-1]

    monkeypatch.setattr(VaultTransit, "wrap", wrap)
    monkeypatch.setattr(VaultTransit, "unwrap", unwrap)
    refused = operator.config("secrets", "wrap")
    said = "gatewright: what the service calls wrapped does not look it\n"
    assert (refused.status, refused.errors) == (2, said)
    assert _key_file(operator).read_bytes() == before
    assert [path.name for path in _key_file(operator).parent.glob(".master*")] == []


@pytest.mark.usefixtures("vault")
def test_a_full_disk_leaves_the_key_as_it_was_and_nothing_beside_it(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = _key_file(operator).read_bytes()
    monkeypatch.setattr("gateway.cli.secrets.master_key.os.fsync", full)
    refused = operator.config("secrets", "wrap")
    assert refused.status == 2
    assert _key_file(operator).read_bytes() == before
    assert [path.name for path in _key_file(operator).parent.glob(".master*")] == []


@pytest.mark.usefixtures("vault")
def test_a_key_that_is_in_no_file_cannot_be_replaced(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = operator.config_file.read_text()
    told = 'master_key = { file = "var/master.key" }'
    assert told in text
    operator.config_file.write_text(text.replace(told, 'master_key = { env = "MASTER" }'))
    monkeypatch.setenv("MASTER", _key_file(operator).read_text())
    refused = operator.config("secrets", "wrap")
    said = "gatewright: secrets.master_key must be a file\n"
    assert (refused.status, refused.errors) == (2, said)


def test_the_key_is_overwritten_only_when_the_file_in_its_place_cannot_be_lost(
    operator: Operator, vault: VaultStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss could leave the old name, and zeros behind it."""
    path = _key_file(operator)
    before, kept = path.read_text(), path.with_name("old")
    kept.hardlink_to(path)
    sync, seen = os.fsync, []

    def noting(descriptor: int) -> None:
        sync(descriptor)
        if os.path.samestat(path.parent.stat(), os.fstat(descriptor)):
            seen.append((path.read_text()[:6], kept.read_text() == before))

    monkeypatch.setattr(os, "fsync", noting)
    _wrap(operator)
    assert ("vault:", True) in seen
    assert set(kept.read_bytes()) == {0}


def test_kms_keeps_what_opens_the_master_key(operator: Operator, kms: ThreadedMotoServer) -> None:
    _, wrapped = _wrap(operator)
    assert wrapped.startswith("aws-kms:")
    credentials._unwrapped.clear()
    place = ("--organisation", "acme", "--workspace", "w", "--project", "p")
    assert operator.config("keys", "issue", *place, "--name", "n").status == 0


def test_what_kms_refuses_or_did_not_wrap_is_no_key_and_said_in_words(
    operator: Operator, kms: ThreadedMotoServer
) -> None:
    _, wrapped = _wrap(operator)
    blob = base64.b64decode(wrapped.removeprefix("aws-kms:"))
    changed = blob[:-1] + bytes([blob[-1] ^ 1])
    for text, said in (
        ("aws-kms:" + base64.b64encode(changed).decode(), "KMS refused"),
        ("aws-kms:no base64!", "what is no key"),
        ("aws-kms:", "KMS"),
    ):
        credentials._unwrapped.clear()
        _key_file(operator).write_text(text)
        with pytest.raises(ConfigurationInvalid, match=said):
            _key_id(operator)


def test_while_the_service_is_away_a_running_process_goes_on_and_a_new_one_refuses(
    operator: Operator, vault: VaultStub
) -> None:
    _wrap(operator)
    key_id = _key_id(operator)
    vault.is_sealed = True
    assert _key_id(operator) == key_id
    credentials._unwrapped.clear()
    with pytest.raises(ConfigurationInvalid, match="Vault failed"):
        _key_id(operator)


def test_a_key_that_was_wrapped_by_hand_as_text_is_refused_in_words(
    operator: Operator, vault: VaultStub
) -> None:
    service = key_service(load_settings(operator.config_file))
    assert service is not None
    text = _key_file(operator).read_text()
    _key_file(operator).write_text(service.wrap(text.encode()))
    for _ in range(2):
        with pytest.raises(ConfigurationInvalid, match="master_key: unwraps to something else"):
            _key_id(operator)
    assert operator.config("secrets", "wrap").status == 2


def test_a_changed_file_another_key_and_an_unknown_service_are_refused(
    operator: Operator, vault: VaultStub
) -> None:
    _, wrapped = _wrap(operator)
    credentials._unwrapped.clear()
    _key_file(operator).write_text(
        wrapped[:20] + ("A" if wrapped[20] != "A" else "B") + wrapped[21:]
    )
    with pytest.raises(ConfigurationInvalid, match="Vault failed"):
        _key_id(operator)
    text = operator.config_file.read_text()
    operator.config_file.write_text(text.replace("vault:gatewright", "vault:another"))
    _key_file(operator).write_text(wrapped)
    with pytest.raises(ConfigurationInvalid, match="Vault failed"):
        _key_id(operator)
    operator.config_file.write_text(text.replace("vault:gatewright", "hsm:1"))
    with pytest.raises(ConfigurationInvalid, match="must be vault:NAME or aws-kms:KEY"):
        _key_id(operator)


def test_wrapping_it_anew_leaves_the_database_its_key_and_a_service_away_is_no_wrong_key(
    operator: Operator, vault: VaultStub
) -> None:
    _wrap(operator)
    assert operator.config(*ISSUE).status == 0
    vault.transit["gatewright"].append(AESGCM(secrets.token_bytes(32)))
    credentials._unwrapped.clear()
    _wrap(operator)
    credentials._unwrapped.clear()
    assert operator.config(*ISSUE).status == 0
    credentials._unwrapped.clear()
    vault.is_sealed = True
    away = operator.config(*ISSUE)
    assert (away.status, "secrets.key_service: Vault failed" in away.errors) == (2, True)
    assert "master_key" not in away.errors


def test_a_check_asks_the_service_as_a_start_does_and_offline_reaches_nobody(
    operator: Operator, vault: VaultStub
) -> None:
    _wrap(operator)
    credentials._unwrapped.clear()
    vault.asked.clear()
    assert operator.config("config", "check", "--offline").status == 0
    assert vault.asked == []
    assert operator.config("config", "check").status == 0
    assert any(each.endswith("/decrypt/gatewright") for each in vault.asked)
    credentials._unwrapped.clear()
    vault.is_sealed = True
    away = operator.config("config", "check")
    assert (away.status, "secrets.key_service: Vault failed" in away.errors) == (2, True)


def test_another_key_is_not_wrapped_over_the_file_of_the_databases_own(
    operator: Operator, vault: VaultStub
) -> None:
    service = key_service(load_settings(operator.config_file))
    assert service is not None
    _wrap(operator)
    for text in (service.wrap(secrets.token_bytes(32)), _base64(secrets.token_bytes(32))):
        credentials._unwrapped.clear()
        _key_file(operator).write_text(text)
        refused = operator.config("secrets", "wrap")
        assert (refused.status, refused.output) == (2, "")
        said = f"{operator.config_file}: secrets.master_key: {_key_file(operator)} is key "
        assert said in refused.errors
        assert _key_file(operator).read_text() == text


def _base64(key: bytes) -> str:
    return base64.b64encode(key).decode() + "\n"


def test_the_next_master_key_is_wrapped_beside_the_present_one_and_takes_its_place(
    operator: Operator, vault: VaultStub
) -> None:
    file = operator.folder / "var" / "next.key"
    assert operator.types("secrets", "make", file).status == 0
    plain = file.read_text().strip()
    own, beside = '{ file = "var/master.key" }', '{ file = "var/next.key" }'
    text = operator.config_file.read_text()
    assert f"master_key = {own}" in text

    def named(present: str, other: str) -> None:
        both = f"master_key = {present}\nother_master_keys = [{other}]"
        operator.config_file.write_text(text.replace(f"master_key = {own}", both))

    named(own, beside)
    _wrap(operator)
    assert file.read_text().startswith("vault:v1:")
    assert plain not in file.read_text()
    before = _key_id(operator)
    named(beside, own)
    credentials._unwrapped.clear()
    assert _key_id(operator) != before
    assert operator.config("secrets", "reseal").status == 0
    vault.transit["gatewright"].append(AESGCM(secrets.token_bytes(32)))
    assert operator.config("secrets", "wrap").output.count("wrapped by vault:gatewright") == 2
    assert file.read_text().startswith("vault:v2:")
