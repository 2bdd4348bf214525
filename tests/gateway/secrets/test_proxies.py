"""A store of secrets on this machine is spoken to in plain, and so by no proxy beyond it."""

import socket
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from gateway.configuration.sections import AwsSettings, VaultSettings
from gateway.secrets.aws import AwsPlace, secrets_manager
from gateway.secrets.secret import Secret
from gateway.secrets.vault import VaultPlace, VaultSession
from tests.gateway.secrets.test_places import Clocked
from tests.gateway.secrets.vault_stub import VaultStub


pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What the environment names for all plain requests; it answers nobody."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(16)
        listening.setblocking(False)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, url)
        yield listening


def was_called(proxy: socket.socket) -> bool:
    try:
        proxy.accept()[0].close()
    except BlockingIOError:
        return False
    return True


async def test_vault_on_this_machine_is_asked_without_a_proxy(proxy: socket.socket) -> None:
    """The login and every secret went through whatever `HTTP_PROXY` named, in plain."""
    with VaultStub() as vault:
        vault.kv["openai"] = {"value": "sk-from-vault"}
        settings = VaultSettings(url=vault.url, role=vault.role_id)
        opened = VaultSession(settings, Clocked(vault), lambda: Secret(vault.secret_id))

        assert (await VaultPlace(opened, "openai").read()).reveal() == "sk-from-vault"
    assert not was_called(proxy)


async def test_an_aws_endpoint_on_this_machine_is_asked_without_a_proxy(
    proxy: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        client = secrets_manager(AwsSettings("ap-south-1", f"http://{host}:{port}"))
        client.create_secret(Name="by itself", SecretString="sk-aws")

        assert (await AwsPlace(client, "by itself").read()).reveal() == "sk-aws"
    finally:
        server.stop()
    assert not was_called(proxy)
