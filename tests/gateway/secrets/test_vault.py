"""A login of Vault is used to its end, whatever became of that which proves us to it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gateway.configuration.sections import VaultSettings
from gateway.errors import ConfigurationInvalid
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.secret import Secret
from gateway.secrets.vault import VaultPlace, VaultSession
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
