"""A login of Vault is used to its end, whatever became of that which proves us to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gateway.configuration.sections import VaultSettings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.secrets.vault import ANSWER_BYTES_MAX, REFUSED_S, VaultPlace, VaultSession
from tests.gateway.secrets.test_places import Clocked
from tests.gateway.secrets.vault_stub import VaultStub


pytestmark = pytest.mark.anyio


@pytest.fixture
def vault() -> Iterator[VaultStub]:
    with VaultStub() as stub:
        stub.kv["openai"] = {"value": "sk-from-vault"}
        yield stub


@pytest.mark.parametrize("auth", ["approle", "kubernetes"])
async def test_a_login_is_used_to_its_end_though_what_it_was_made_with_is_gone(
    vault: VaultStub, tmp_path: Path, auth: Literal["approle", "kubernetes"]
) -> None:
    """A secret id is often of one use and deleted then; and no renewal outlasts a token's time."""
    secret = tmp_path / "secret"
    secret.write_text(vault.secret_id if auth == "approle" else vault.service_account)

    def credential() -> Secret[str]:
        if not secret.exists():
            raise ConfigurationInvalid(str(secret), "vault.secret_id", "cannot be read")
        return Secret(secret.read_text())

    settings = VaultSettings(
        url=vault.url, role=vault.role_id, auth=auth, kubernetes_token_file=str(secret)
    )
    clock = Clocked(vault)
    place = VaultPlace(VaultSession(settings, clock, credential), "openai")
    await place.read()
    vault.renewals_left = 0
    secret.unlink()
    clock.advance(59.0)
    assert (await place.read()).reveal() == "sk-from-vault"
    clock.advance(1.0)
    with pytest.raises(SecretUnavailableError):
        await place.read()
    assert f"POST /v1/auth/{auth}/login" in vault.asked


async def test_a_secret_that_nobody_may_read_is_not_asked_for_with_a_new_login_each_time(
    vault: VaultStub,
) -> None:
    """Every login stays in Vault to its end: one at each reading was a thousand in a night."""
    vault.lease_s = 10**6
    vault.kv["secret"] = {"value": "sk-secret"}
    clock = Clocked(vault)
    settings = VaultSettings(url=vault.url, role=vault.role_id)
    session = VaultSession(settings, clock, lambda: Secret(vault.secret_id))
    place, other = VaultPlace(session, "secret"), VaultPlace(session, "openai")
    await place.read()
    vault.forbidden.add("secret")
    for readings in range(1, 4):
        for _ in range(10):
            with pytest.raises(SecretUnavailableError, match="refuses access"):
                await place.read()
            assert (await other.read()).reveal() == "sk-from-vault"
            clock.advance(REFUSED_S / 10)
        assert vault.asked.count("POST /v1/auth/approle/login") == 1 + readings
    vault.tokens.clear()
    assert (await other.read()).reveal() == "sk-from-vault"
    vault.forbidden.clear()
    assert (await place.read()).reveal() == "sk-secret"
    vault.tokens.clear()
    assert (await place.read()).reveal() == "sk-secret"
    assert vault.asked.count("POST /v1/auth/approle/login") == 6


async def test_an_answer_longer_than_any_secret_is_none(vault: VaultStub) -> None:
    vault.kv["long"] = {"value": "a" * ANSWER_BYTES_MAX}
    vault.kv["many"] = {"value": "a", "other": "b" * (ANSWER_BYTES_MAX - 1_000)}
    settings = VaultSettings(url=vault.url, role=vault.role_id)
    session = VaultSession(settings, Clocked(vault), lambda: Secret(vault.secret_id))
    with pytest.raises(SecretUnavailableError):
        await VaultPlace(session, "long").read()
    assert (await VaultPlace(session, "many").read()).reveal() == "a"
