"""Places of secrets: Vault by its official client, the database sealed, and outages."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.clock import StoppedClock
from gateway.configuration.sections import VaultSettings
from gateway.errors import ConfigurationInvalid, RequestInvalid
from gateway.secrets.envelope import MasterKey
from gateway.secrets.keeper import SecretUnavailableError
from gateway.secrets.key_services import KeyServiceFailed
from gateway.secrets.secret import Secret
from gateway.secrets.vault import VaultPlace, VaultSession
from gateway.secrets.vault_transit import VaultTransit
from gateway.store.engine import Database
from gateway.store.schema.tables import sealed_secrets
from gateway.store.sealing.sealed_secrets import DatabasePlace, SealedSecretTable
from gateway.store.sealing.spare_secrets import SpareSecretTable
from tests.gateway.secrets.vault_stub import VaultStub


pytestmark = pytest.mark.anyio


# --- the database -------------------------------------------------------------------------------


@pytest.fixture
def table(database: Database) -> SealedSecretTable:
    return SealedSecretTable(database, MasterKey(Secret(os.urandom(32))), StoppedClock())


async def rows(database: Database) -> dict[str, dict[str, Any]]:
    async with database.reading() as connection:
        found = (await connection.execute(sealed_secrets.select())).mappings().all()
    return {row["name"]: dict(row) for row in found}


async def test_what_is_sealed_opens_and_nothing_readable_is_stored(
    database: Database, table: SealedSecretTable
) -> None:
    assert await table.seal("openai", Secret("sk-first-value"), "ann") == 1
    assert await table.seal("openai", Secret("sk-second-value"), "ann") == 2

    assert (await DatabasePlace(table, "openai").read()).reveal() == "sk-second-value"
    stored = repr(await rows(database))
    assert "second" not in stored
    (listed,) = await table.listed()
    assert (listed.name, listed.version, listed.set_by) == ("openai", 2, "ann")


async def test_a_row_that_was_moved_changed_or_put_back_does_not_open(
    database: Database, table: SealedSecretTable
) -> None:
    await table.seal("cheap", Secret("for the cheap one"), "ann")
    old = (await rows(database))["cheap"]
    await table.seal("cheap", Secret("newer"), "ann")
    await table.seal("dear", Secret("for the dear one"), "ann")
    await table.seal("twin", Secret("of the same version as the dear one"), "ann")
    dear = (await rows(database))["dear"]
    flipped = bytes([dear["sealed"][0] ^ 1]) + dear["sealed"][1:]
    wrongs: list[tuple[str, dict[str, object]]] = [
        ("cheap", {"sealed": dear["sealed"], "wrapped_key": dear["wrapped_key"]}),
        ("twin", {"sealed": dear["sealed"], "wrapped_key": dear["wrapped_key"]}),
        ("cheap", {"sealed": old["sealed"], "wrapped_key": old["wrapped_key"]}),
        ("dear", {"sealed": flipped}),
        ("dear", {"sealed": b""}),
        ("dear", {"wrapped_key": b""}),
        ("dear", {"version": 7}),
    ]
    for name, change in wrongs:
        async with database.writing() as connection:
            kept = (await rows(database))[name]
            await connection.execute(
                sealed_secrets.update().where(sealed_secrets.c.name == name).values(**change)
            )
        with pytest.raises(SecretUnavailableError, match="changed, moved"):
            await table.open(name)
        async with database.writing() as connection:
            await connection.execute(
                sealed_secrets.update().where(sealed_secrets.c.name == name).values(**kept)
            )
        await table.open(name)


async def test_another_master_key_opens_nothing(
    database: Database, table: SealedSecretTable
) -> None:
    await table.seal("openai", Secret("sk-value"), "ann")
    other = SealedSecretTable(database, MasterKey(Secret(os.urandom(32))), StoppedClock())

    with pytest.raises(SecretUnavailableError):
        await other.open("openai")
    with pytest.raises(SecretUnavailableError, match="no such secret"):
        await table.open("nothing")


async def test_what_cannot_be_a_secret_is_refused(table: SealedSecretTable) -> None:
    for name, value in (("", "x"), ("UPPER", "x"), ("a/b", "x"), ("ok", ""), ("ok", "x" * 70_000)):
        with pytest.raises(RequestInvalid):
            await table.seal(name, Secret(value), "ann")
    with pytest.raises(RequestInvalid):
        await table.remove("nothing")


# --- Vault --------------------------------------------------------------------------------------


@pytest.fixture
def vault() -> Iterator[VaultStub]:
    with VaultStub() as stub:
        stub.kv["openai"] = {"value": "sk-from-vault", "other": "second field"}
        yield stub


class Clocked(StoppedClock):
    """Moves the stub's clock along with ours."""

    def __init__(self, vault: VaultStub) -> None:
        super().__init__()
        self._vault = vault

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        self._vault.now_s += seconds


def session(vault: VaultStub, clock: StoppedClock, **changes: Any) -> VaultSession:
    settings = VaultSettings(url=vault.url, role=vault.role_id, **changes)
    return VaultSession(settings, clock, lambda: Secret(vault.secret_id))


async def test_an_approle_reads_fields_of_a_secret(vault: VaultStub) -> None:
    opened = session(vault, Clocked(vault))

    assert (await VaultPlace(opened, "openai").read()).reveal() == "sk-from-vault"
    assert (await VaultPlace(opened, "openai#other").read()).reveal() == "second field"
    assert vault.asked.count("POST /v1/auth/approle/login") == 1


async def test_a_service_account_of_kubernetes_signs_in(vault: VaultStub, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{vault.service_account}\n")
    opened = session(vault, Clocked(vault), auth="kubernetes", kubernetes_token_file=str(token))

    assert (await VaultPlace(opened, "openai").read()).reveal() == "sk-from-vault"


async def test_a_login_is_renewed_before_it_ends_and_made_anew_when_it_cannot_be(
    vault: VaultStub,
) -> None:
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock), "openai")
    await place.read()
    clock.advance(45.0)
    await place.read()
    vault.renewals_left = 0
    clock.advance(45.0)
    await place.read()
    clock.advance(1000.0)
    await place.read()

    assert vault.asked.count("POST /v1/auth/token/renew-self") == 2
    assert vault.asked.count("POST /v1/auth/approle/login") == 3


@pytest.mark.parametrize(("lease_s", "logins"), [(0, 1), (60, 2)])
async def test_a_login_that_cannot_be_renewed_is_used_to_its_end(
    vault: VaultStub, lease_s: int, logins: int
) -> None:
    """One without a lease has no end."""
    vault.lease_s, vault.is_renewable = lease_s, False
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock), "openai")
    for _ in range(3):
        await place.read()
        clock.advance(29.0)
    await place.read()

    assert vault.asked.count("POST /v1/auth/approle/login") == logins
    assert "POST /v1/auth/token/renew-self" not in vault.asked


async def test_a_login_that_can_be_made_once_is_used_to_its_end(vault: VaultStub) -> None:
    clock, once = Clocked(vault), vault.secret_id
    settings = VaultSettings(url=vault.url, role=vault.role_id)
    place = VaultPlace(VaultSession(settings, clock, lambda: Secret(once)), "openai")
    await place.read()
    vault.renewals_left, vault.secret_id = 0, "another"
    clock.advance(45.0)
    vault.kv["openai"] = {"value": "sk-newer"}
    assert (await place.read()).reveal() == "sk-newer"
    clock.advance(20.0)
    with pytest.raises(SecretUnavailableError):
        await place.read()


async def test_a_token_reads_in_its_namespace_and_no_text_in_a_field_is_no_secret(
    vault: VaultStub,
) -> None:
    vault.tokens[vault.secret_id] = 1000.0
    vault.kv |= {"empty": {"value": ""}, "number": {"value": 5}}
    opened = session(vault, Clocked(vault), auth="token", namespace="team-a")

    assert (await VaultPlace(opened, "openai").read()).reveal() == "sk-from-vault"
    assert vault.namespaces == {"team-a"}
    for name in ("empty", "number"):
        with pytest.raises(SecretUnavailableError, match="no such field"):
            await VaultPlace(opened, name).read()


@pytest.mark.parametrize("auth", ["approle", "kubernetes"])
async def test_what_is_mounted_under_another_name_is_asked_for_there(
    vault: VaultStub, tmp_path: Path, auth: str
) -> None:
    (token := tmp_path / "token").write_text(vault.service_account)
    changes = {"auth": auth, "kubernetes_token_file": str(token)}
    at_login = session(vault, Clocked(vault), auth_mount="team", **changes)
    with pytest.raises(SecretUnavailableError):
        await VaultPlace(at_login, "openai").read()
    assert vault.asked == ["POST /v1/auth/team/login"]
    opened = session(vault, Clocked(vault), mount="team-kv", **changes)
    with pytest.raises(SecretUnavailableError):
        await VaultPlace(opened, "openai").read()
    assert vault.asked[-1] == "GET /v1/team-kv/data/openai"


LOOKUP, RENEWAL = "GET /v1/auth/token/lookup-self", "POST /v1/auth/token/renew-self"


async def test_a_token_is_renewed_before_it_ends(
    vault: VaultStub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    vault.tokens[vault.secret_id] = 60.0
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock, auth="token"), "openai")
    for _ in range(10):
        assert (await place.read()).reveal() == "sk-from-vault"
        clock.advance(25.0)

    assert (vault.asked.count(LOOKUP), vault.asked.count(RENEWAL)) == (1, 4)
    assert vault.secret_id not in caplog.text


async def test_a_token_of_which_nobody_can_say_how_long_it_is_good_is_used_as_it_is(
    vault: VaultStub,
) -> None:
    vault.may_look_itself_up = False
    vault.tokens[vault.secret_id] = 60.0
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock, auth="token"), "openai")
    for _ in range(2):
        assert (await place.read()).reveal() == "sk-from-vault"
        clock.advance(45.0)

    assert RENEWAL not in vault.asked
    with pytest.raises(SecretUnavailableError, match="refuses access"):
        await place.read()


@pytest.mark.parametrize(("is_renewable", "ends_s"), [(False, 60.0), (True, float("inf"))])
async def test_a_token_that_does_not_end_or_cannot_be_renewed_is_not_renewed(
    vault: VaultStub, is_renewable: bool, ends_s: float
) -> None:
    vault.tokens[vault.secret_id], vault.is_renewable = ends_s, is_renewable
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock, auth="token"), "openai")
    for _ in range(2):
        await place.read()
        clock.advance(50.0)

    assert RENEWAL not in vault.asked


async def test_a_token_that_was_replaced_where_it_is_kept_is_taken_once_the_old_one_is_over(
    vault: VaultStub,
) -> None:
    """An agent may write a new one beside us; its end is looked up like that of the first."""
    vault.tokens |= {vault.secret_id: 60.0, "a-newer-one": 150.0}
    vault.renewals_left = 0
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock, auth="token"), "openai")
    await place.read()
    clock.advance(70.0)
    with pytest.raises(SecretUnavailableError, match="refuses access"):
        await place.read()
    vault.secret_id, vault.renewals_left = "a-newer-one", 10
    for _ in range(4):
        assert (await place.read()).reveal() == "sk-from-vault"
        clock.advance(30.0)

    assert vault.asked.count(RENEWAL) == 1


async def test_while_vault_is_sealed_a_token_is_not_taken_for_one_without_an_end(
    vault: VaultStub,
) -> None:
    vault.tokens[vault.secret_id] = 60.0
    clock = Clocked(vault)
    place = VaultPlace(session(vault, clock, auth="token"), "openai")
    vault.is_sealed = True
    with pytest.raises(SecretUnavailableError):
        await place.read()
    vault.is_sealed = False
    for _ in range(4):
        await place.read()
        clock.advance(45.0)

    assert RENEWAL in vault.asked


async def test_a_login_that_was_revoked_is_made_anew_at_once(vault: VaultStub) -> None:
    """Also one that was revoked a moment after that: what helped once is not called refused."""
    place = VaultPlace(session(vault, Clocked(vault)), "openai")
    await place.read()
    for _ in range(2):
        vault.tokens.clear()
        assert (await place.read()).reveal() == "sk-from-vault"


async def test_what_vault_refuses_is_said_without_names_or_addresses(vault: VaultStub) -> None:
    clock = Clocked(vault)
    opened = session(vault, clock)
    reasons = []
    for reference, sealed in (("missing", False), ("openai#missing", False), ("openai", True)):
        vault.is_sealed = sealed
        with pytest.raises(SecretUnavailableError) as caught:
            await VaultPlace(opened, reference).read()
        reasons.append(caught.value.reason)
    vault.is_sealed = False
    vault.secret_id = "another"
    wrong = VaultSession(
        VaultSettings(url=vault.url, role="role"), clock, lambda: Secret("a wrong one")
    )
    with pytest.raises(SecretUnavailableError) as caught:
        await VaultPlace(wrong, "openai").read()
    reasons.append(caught.value.reason)

    assert reasons[:2] == ["Vault has no such secret", "the secret in Vault has no such field"]
    assert not [each for each in reasons if "127.0.0.1" in each or "openai" in each]


async def test_what_is_not_vault_or_has_nothing_to_prove_itself_with_is_an_outage(
    vault: VaultStub,
) -> None:
    """A proxy's page with status 200, a list, another shape, a credential that is gone."""
    opened = session(vault, Clocked(vault))
    await VaultPlace(opened, "openai").read()
    reasons = set()
    for page in (b"<html>back soon</html>", b"[]", b"{}", b'{"data": {"data": []}}', b"7"):
        vault.instead = (200, page)
        with pytest.raises(SecretUnavailableError) as caught:
            await VaultPlace(opened, "openai").read()
        reasons.add(caught.value.reason)
    vault.instead = None

    def gone() -> Secret[str]:
        raise ConfigurationInvalid("a file", "vault.credential", "cannot be read")

    nobody = VaultSession(VaultSettings(url=vault.url, role="role"), StoppedClock(), gone)
    with pytest.raises(SecretUnavailableError) as caught:
        await VaultPlace(nobody, "openai").read()

    assert reasons == {"what answers for Vault is not Vault"}
    assert caught.value.reason == "what proves us to Vault cannot be read"


async def test_a_key_service_that_is_not_vault_has_failed(vault: VaultStub) -> None:
    transit = VaultTransit(session(vault, Clocked(vault)), "key", "transit")
    with pytest.raises(KeyServiceFailed, match="Vault failed"):
        transit.wrap(b"k")
    for page in (b"<html>back soon</html>", b"[]", b"{}", b'{"data": []}', b"7", b'{"data": 7}'):
        vault.instead = (200, page)
        with pytest.raises(KeyServiceFailed, match="what answers for Vault is not"):
            transit.unwrap("vault:v1:AAAA")


async def test_the_token_of_vault_follows_no_redirect(vault: VaultStub) -> None:
    opened = session(vault, Clocked(vault))
    await VaultPlace(opened, "openai").read()
    with VaultStub() as thief:
        vault.instead = (307, b"{}")
        vault.location = f"{thief.url}/v1/secret/data/openai"
        with pytest.raises(SecretUnavailableError):
            await VaultPlace(opened, "openai").read()

        assert thief.asked == []


async def test_no_number_of_a_version_is_given_twice(
    database: Database, table: SealedSecretTable
) -> None:
    """Name and number are all that a sealed value is bound to: two of one could be swapped."""
    master = MasterKey(Secret(os.urandom(32)))
    spares = SpareSecretTable(database, master, StoppedClock())
    with pytest.raises(RequestInvalid, match="set it first"):
        await spares.prepare("openai", Secret("next to nothing"), "ann", expected=0)
    await table.seal("openai", Secret("in use"), "ann")
    assert await spares.prepare("openai", Secret("next"), "ann", expected=0) == 2
    assert await table.seal("openai", Secret("set beside it"), "bob") == 3
