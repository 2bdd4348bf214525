"""Secrets as the settings name them: where each is looked for, and which are none."""

import base64
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.configuration.sections import SecretReference, SecretsSettings
from gateway.configuration.settings import ProviderSettings, Settings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.credentials import (
    admin_token,
    all_peppers,
    credential_problem,
    key_bytes_at,
    pepper,
    pepper_setting,
    provider_credential,
)
from gateway.secrets.secret import Secret


DISTINCT_7, DISTINCT_8 = "abcdefg" * 5, "abcdefgh" * 4
VARIABLE = "GATEWRIGHT_TEST_CREDENTIAL"


class Folder:
    """Settings whose secrets lie in files of one folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def keeps(self, name: str, text: str) -> SecretReference:
        file = self.path / name
        file.touch(mode=0o600)
        file.write_text(text)
        return SecretReference(file=name)

    def settings(self, **parts: object) -> Settings:
        return Settings("gatewright.toml", str(self.path), **parts)  # type: ignore[arg-type]

    def provider(self, kind: str, credential: SecretReference | None, **more: str) -> Settings:
        made = ProviderSettings(kind, "us", credential=credential, **more)  # type: ignore[arg-type]
        return self.settings(providers={"p": made})


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def token_of(folder: Folder, text: str) -> str:
    named = SecretsSettings(admin_token=folder.keeps("admin.token", text))
    return admin_token(folder.settings(secrets=named)).reveal()


def pepper_of(folder: Folder, text: str) -> str:
    named = SecretsSettings(pepper=folder.keeps("pepper.key", text))
    return pepper(folder.settings(secrets=named)).decode()


Read = Callable[[Folder, str], str]
both = pytest.mark.parametrize(
    ("read", "setting", "length_min"),
    [(token_of, "secrets.admin_token", 20), (pepper_of, "secrets.pepper", 32)],
)


@both
def test_a_secret_of_ours_has_a_least_length(
    folder: Folder, read: Read, setting: str, length_min: int
) -> None:
    text = "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q"[:length_min]
    assert read(folder, text) == text
    with pytest.raises(ConfigurationInvalid, match=f"must have at least {length_min}") as caught:
        read(folder, text[:-1])
    assert caught.value.key == setting
    assert text[:-1] not in str(caught.value)


@both
@pytest.mark.parametrize(
    "text",
    [
        *("changeme", "change-me", "change_me", "secret", "password", "example", "default"),
        *("ChangeMe", "SECRET"),
    ],
)
def test_a_secret_that_stands_in_an_example_is_none(
    folder: Folder, read: Read, setting: str, length_min: int, text: str
) -> None:
    whole = f"0a1B2c3D4e5F{text}6g7H8i9J0k1L2m3N4o5P"
    with pytest.raises(ConfigurationInvalid, match="is an example or a default") as caught:
        read(folder, whole)
    assert caught.value.key == setting
    assert whole not in str(caught.value)


@both
def test_a_secret_of_few_letters_is_none(
    folder: Folder, read: Read, setting: str, length_min: int
) -> None:
    assert read(folder, DISTINCT_8) == DISTINCT_8
    with pytest.raises(ConfigurationInvalid, match="is an example or a default"):
        read(folder, DISTINCT_7)


def test_a_pepper_is_as_long_as_its_bytes(folder: Folder) -> None:
    text = "äöüßéèêëñç" + "0123456789ab"
    assert len(text) < 32 == len(text.encode())
    assert pepper_of(folder, text) == text


def test_each_pepper_has_the_version_that_the_settings_give_it(folder: Folder) -> None:
    texts = [secrets.token_urlsafe(32) for _ in range(3)]
    named = SecretsSettings(
        pepper=folder.keeps("now.key", texts[0]),
        pepper_version=2,
        other_peppers={
            "3": folder.keeps("next.key", texts[1]),
            "1": folder.keeps("former.key", texts[2]),
        },
    )
    settings = folder.settings(secrets=named)

    found = all_peppers(settings)

    assert found == {2: texts[0].encode(), 3: texts[1].encode(), 1: texts[2].encode()}
    assert [pepper_setting(settings, version) for version in range(5)] == [
        "",
        "secrets.other_peppers.1",
        "secrets.pepper",
        "secrets.other_peppers.3",
        "",
    ]
    folder.keeps("former.key", "too short")
    with pytest.raises(ConfigurationInvalid) as caught:
        all_peppers(settings)
    assert caught.value.key == "secrets.other_peppers.1"


@pytest.mark.parametrize("wrapped", ["vault:v1:AAAA", "aws-kms:AAAA"])
def test_a_wrapped_master_key_without_its_service_is_no_key_and_says_what_is_missing(
    folder: Folder, wrapped: str
) -> None:
    reference = folder.keeps("master.key", wrapped)
    for service in ("", ":gatewright"):
        settings = folder.settings(secrets=SecretsSettings(key_service=service))
        with pytest.raises(ConfigurationInvalid, match="what master names is wrapped") as caught:
            key_bytes_at(settings, "master", reference)
        assert caught.value.key == "secrets.key_service"


def test_a_plain_master_key_beside_a_service_is_none_but_to_be_wrapped(folder: Folder) -> None:
    key = secrets.token_bytes(32)
    reference = folder.keeps("master.key", f"{base64.b64encode(key).decode()}\n")
    settings = folder.settings(secrets=SecretsSettings(key_service="vault:gatewright"))
    with pytest.raises(ConfigurationInvalid, match="is not wrapped") as caught:
        key_bytes_at(settings, "master", reference)
    assert caught.value.key == "master"
    assert key_bytes_at(settings, "master", reference, plain_too=True) == key
    assert key_bytes_at(folder.settings(), "master", reference) == key


def test_a_credential_in_a_variable_is_that_of_the_variable_it_names(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = folder.provider("openai", SecretReference(env=VARIABLE))
    monkeypatch.setenv(f"{VARIABLE}_OF_ANOTHER", "not-this-one")
    monkeypatch.delenv(VARIABLE, raising=False)
    for absent in (None, ""):
        if absent is not None:
            monkeypatch.setenv(VARIABLE, absent)
        assert provider_credential(settings, "p") is None
        assert credential_problem(settings, "p") == "no credential"
    needed = folder.settings(secrets=SecretsSettings(pepper=SecretReference(env=VARIABLE)))
    with pytest.raises(ConfigurationInvalid, match="is not set or empty") as caught:
        pepper(needed)
    assert caught.value.key == VARIABLE
    value = secrets.token_urlsafe(32)
    monkeypatch.setenv(VARIABLE, f"{value}\n")
    assert provider_credential(settings, "p") == Secret(value)
    assert credential_problem(settings, "p") == ""


def test_a_credential_in_a_file_is_read_and_what_is_wrong_with_it_said(folder: Folder) -> None:
    value = secrets.token_urlsafe(32)
    settings = folder.provider("openai", folder.keeps("openai.key", value))
    assert provider_credential(settings, "p") == Secret(value)
    assert credential_problem(settings, "p") == ""
    (folder.path / "openai.key").chmod(0o644)
    with pytest.raises(ConfigurationInvalid) as caught:
        provider_credential(settings, "p")
    assert caught.value.key == "providers.p.credential"
    problem = credential_problem(settings, "p")
    assert problem == "its credential can be read by others (mode 0644); make it 0600"


@pytest.mark.parametrize(
    "elsewhere",
    [SecretReference(db="p"), SecretReference(vault="a#b"), SecretReference(aws_sm="a#b")],
)
def test_a_credential_that_only_workers_ask_for_is_not_looked_for_here(
    folder: Folder, elsewhere: SecretReference
) -> None:
    settings = folder.provider("openai", elsewhere)
    assert provider_credential(settings, "p") is None
    assert credential_problem(settings, "p") == ""


@pytest.mark.parametrize(
    ("kind", "identity", "problem"),
    [
        ("anthropic", "credential", "no credential"),
        ("openai", "credential", "no credential"),
        ("vertex", "credential", "no credential"),
        ("bedrock", "access_key", "no credential"),
        ("bedrock", "ambient", ""),
        ("vertex", "ambient", ""),
        ("engine", "credential", ""),
        ("openai_compatible", "credential", ""),
    ],
)
def test_who_names_no_credential_has_a_problem_where_one_is_needed(
    folder: Folder, kind: str, identity: str, problem: str
) -> None:
    settings = folder.provider(kind, None, identity=identity)
    assert provider_credential(settings, "p") is None
    assert credential_problem(settings, "p") == problem
